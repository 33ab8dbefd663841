"""`AsyncBroker`: a broker on the event loop that runs already, beside the code under test.

The helpers that speak to it over the wire do so from a thread: the loop goes on meanwhile, and answers them.
"""

from __future__ import annotations

import asyncio
import inspect
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self, Unpack

from fencepost.broker.config import Entry, load_settings
from fencepost.broker.node import Node
from fencepost.in_process import FOR_TESTS, HOW_TO_START, prepare, temporary_root
from fencepost.testing.arguments import Content, text_of
from fencepost.testing.clock import TurnableLoop
from fencepost.testing.control import Inside
from fencepost.testing.errors import MisuseError
from fencepost.testing.faults import Timed
from fencepost.testing.methods import WAIT_S, BrokerMethods, Fault
from fencepost.testing.requests import SeenRequest
from fencepost.testing.results import Group, Record, Transaction

SHARED_LOOP: Final = (
    "a broker on the test's own event loop cannot crash alone, because its tasks are among the test's: use the fixture "
    "fencepost or fencepost_process, or Broker(), and await asyncio.to_thread(broker.crash)"
)


class _LoopMethods(BrokerMethods):
    """The methods, for threads other than the loop's; commands that need no wait also for the loop's."""

    def __init__(self, broker: AsyncBroker) -> None:
        super().__init__()
        self._broker = broker
        self.inside = Inside()

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    def run_command(self, command: str, *arguments: Any) -> Any:
        loop = self._broker.loop
        if loop is None or threading.get_ident() == self._broker.thread_id:
            if loop is None and command not in Inside.WITHOUT_BROKER:
                raise MisuseError(f"the broker does not run: {HOW_TO_START.replace('with', 'async with', 1)}")
            result = getattr(self.inside, command)(*arguments)
            assert not inspect.isawaitable(result), "a command that waits is called from a thread"
            return result
        return asyncio.run_coroutine_threadsafe(self.inside.run(command, arguments), loop).result()

    def describe(self, *, requests: int = 15) -> str:
        if threading.get_ident() == self._broker.thread_id and self._broker.loop is not None:
            if self._broker.loop.is_running():
                raise MisuseError("describe() would wait for the loop that it is called on: await the broker's instead")
            # Between the test and the end of its fixtures nothing runs on the loop.
            return self._broker.loop.run_until_complete(self._broker.describe(requests=requests))
        return super().describe(requests=requests)

    def data_to_keep(self) -> str | None:
        return self._broker.data_directory


class AsyncBroker:
    """A broker on the running event loop, from `async with`, or `start`, to its end; data are temporary.

    The methods are those of `Broker`. Those that speak to the broker or wait are coroutines; faults are set and asked
    about at once. `advance` turns the clock of the loop, and with it that of all code on it.

    settings: those of `Broker`.
    """

    def __init__(self, *, settings: Mapping[str, object] | None = None) -> None:
        self.methods = _LoopMethods(self)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread_id = 0
        self._settings = {name: text_of(value) for name, value in (settings or {}).items()}
        self._node: Node | None = None
        self._address = ""
        self._listeners = "PLAINTEXT://127.0.0.1:0"
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._turnable = ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`. Raises RuntimeError before the start."""
        if not self._address:
            raise RuntimeError(f"the broker has not been started: {HOW_TO_START.replace('with', 'async with', 1)}")
        return self._address

    @property
    def data_directory(self) -> str | None:
        return None if self._temporary is None else self._temporary.name

    async def start(self) -> Self:
        """Start the broker on the running loop. Raises as `Broker.start`."""
        if self._node is not None:
            raise RuntimeError("the broker runs already")
        loop = asyncio.get_running_loop()
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="fencepost-", dir=temporary_root())
        options = {"listeners": self._listeners, **FOR_TESTS, **self._settings, "log.dirs": self._temporary.name}
        loaded = load_settings(options=[Entry(name, text, "AsyncBroker(settings)") for name, text in options.items()])
        self._turnable.enter_context(TurnableLoop.made_of(loop))
        inside = self.methods.inside
        inside.watch.crash = _refuse_crash
        node = Node(loaded.settings, clock=inside.start_clock(loop), local_disk=inside.open_disk, watch=inside.wrap)
        try:
            await node.start()
            await prepare(node)
        except BaseException:
            self._turnable.close()
            raise
        self._node, self.loop, self.thread_id = node, loop, threading.get_ident()
        self._listeners = str(node.address)
        self._address = self._listeners.partition("://")[2]
        return self

    async def stop(self) -> None:
        """Stop the broker; its data stay for the next start. Does nothing if it does not run."""
        node, self._node = self._node, None
        if node is not None:
            self.methods.close_helpers()
            try:
                await node.stop()
            finally:
                self.loop = None
                self._turnable.close()

    async def restart(self) -> Self:
        """Stop and start again, with the same data and address."""
        await self.stop()
        return await self.start()

    async def close(self) -> None:
        """Stop the broker, and remove its data."""
        await self.stop()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # As in `BrokerMethods`

    async def topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, object] | None = None) -> str:
        return await asyncio.to_thread(self.methods.topic, name, partitions=partitions, configs=configs)

    async def topics(self) -> dict[str, int]:
        return await asyncio.to_thread(self.methods.topics)

    async def delete_topic(self, topic: str) -> None:
        await asyncio.to_thread(self.methods.delete_topic, topic)

    async def produce(self, topic: str, *values: Content, **options: Any) -> list[int]:
        return await asyncio.to_thread(self.methods.produce, topic, *values, **options)

    async def records(self, topic: str, **options: Any) -> list[Record]:
        return await asyncio.to_thread(self.methods.records, topic, **options)

    async def transaction(self, transactional_id: str) -> Transaction:
        return await asyncio.to_thread(self.methods.transaction, transactional_id)

    async def transactions(self) -> dict[str, str]:
        return await asyncio.to_thread(self.methods.transactions)

    async def group(self, group_id: str) -> Group:
        return await asyncio.to_thread(self.methods.group, group_id)

    async def groups(self) -> dict[str, str]:
        return await asyncio.to_thread(self.methods.groups)

    async def set_offset(self, group: str, topic: str, offset: int, *, partition: int = 0) -> None:
        await asyncio.to_thread(self.methods.set_offset, group, topic, offset, partition=partition)

    async def wait_for_lag(
        self,
        group: str,
        lag: int = 0,
        *,
        topic: str | None = None,
        timeout: float = WAIT_S,  # noqa: ASYNC109
    ) -> None:
        await asyncio.to_thread(self.methods.wait_for_lag, group, lag, topic=topic, timeout=timeout)

    async def advance(self, **duration: float) -> None:
        await asyncio.to_thread(self.methods.advance, **duration)

    async def fence(self, transactional_id: str) -> tuple[int, int]:
        return await asyncio.to_thread(self.methods.fence, transactional_id)

    async def describe(self, *, requests: int = 15) -> str:
        return await asyncio.to_thread(self.methods.describe, requests=requests)

    async def crash(self) -> None:
        raise MisuseError(SHARED_LOOP)

    def requests(self, api: str | int | None = None, **filters: str | None) -> list[SeenRequest]:
        return self.methods.requests(api, **filters)

    def fail(self, api: str | int, error: str | int, **which: Unpack[Timed]) -> Fault:
        return self.methods.fail(api, error, **which)

    def delay(self, api: str | int | None = None, seconds: float = 1.0, **which: Unpack[Timed]) -> Fault:
        return self.methods.delay(api, seconds, **which)

    def hold(self, api: str | int | None = None, **which: Unpack[Timed]) -> Fault:
        return self.methods.hold(api, **which)

    def disconnect(self, api: str | int | None = None, **which: Unpack[Timed]) -> Fault:
        return self.methods.disconnect(api, **which)

    def crash_after(self, api: str | int, **which: Any) -> Fault:
        raise MisuseError(SHARED_LOOP)


def _refuse_crash() -> None:
    raise AssertionError(SHARED_LOOP)
