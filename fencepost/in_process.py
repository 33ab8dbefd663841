"""`Broker`: a broker inside the calling process, on its own thread and event loop.

For tests, notebooks and demos, and for programs that contain their broker. It serves the same clients as
`fencepost serve`, prints nothing and logs to `logging.getLogger("fencepost")`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Any, Final, Literal, Self

from fencepost.broker.config import Endpoint, Entry, Settings, load_settings
from fencepost.broker.kernel.events import get_logger, silence_this_thread
from fencepost.broker.kernel.supervision import log_loop_error
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from fencepost.broker.node import Node
from fencepost.testing.arguments import text_of
from fencepost.testing.clock import TurnableLoop
from fencepost.testing.control import Inside
from fencepost.testing.errors import MisuseError
from fencepost.testing.methods import BrokerMethods

log = get_logger(__name__)

HOW_TO_START = "use `with Broker() as broker:`, or call start()"
FOR_REAL: Final = (
    "a broker that keeps its data has no faults, no clock to turn and no log of requests: make it with durable=False, "
    "or without a data directory"
)
COMMAND_CHECK_S = 0.1
IN_MEMORY: Final = "/dev/shm"
LEAST_FREE_BYTES: Final = 1024**3

FOR_TESTS: Final = {
    "connections.max.idle.ms": str(2**63 - 1),
    "fencepost.connection.write.stall.ms": str(2**31 - 1),
    "max.incremental.fetch.session.cache.slots": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""Settings of a broker whose data need not survive the machine: nothing is synced, no connection is closed because a
test turns the clock, and every fetch names its partitions, so that a fault can concern one of them."""


class Broker(BrokerMethods):
    """A broker that runs while its context lasts, or from `start` to `close`.

        with Broker() as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

    `async with` does the same without blocking the event loop; from a coroutine, call the other methods through
    `asyncio.to_thread`. One thread at a time may start, stop or crash a broker.

    `BrokerMethods` has the methods for tests: topics, records, transactions, groups, the clock, faults.

    data_directory: the directory of topics and records, which another broker can use later; without it, a temporary
                    directory that `close` removes.
    port:           0 takes a free one, which the broker keeps when it is restarted.
    settings:       values by Kafka's names, such as `{"auto.create.topics.enable": False}`; docs/configuration.md has
                    them all. If `listeners` is among them, host and port are not used.
    durable:        whether a reply waits until its data would survive a loss of power; True only with a data
                    directory, unless given. Otherwise it is a broker for tests: its clock can be turned, it has
                    faults, it remembers requests, and FOR_TESTS are its defaults.
    """

    def __init__(
        self,
        data_directory: str | os.PathLike[str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Mapping[str, object] | None = None,
        durable: bool | None = None,
    ) -> None:
        super().__init__()
        self._is_durable = data_directory is not None if durable is None else durable
        self._inside: Inside | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._given_directory = None if data_directory is None else os.path.abspath(data_directory)
        listener = f"PLAINTEXT://[{host}]:{port}" if ":" in host else f"PLAINTEXT://{host}:{port}"
        defaults = {} if self._is_durable else FOR_TESTS
        given = {name: text_of(value) for name, value in (settings or {}).items()}
        self._settings = {"listeners": listener, **defaults, **given}
        self._addresses: list[Endpoint] = []
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Future[Literal["stop", "crash"]] | None = None
        self._failure: str | None = None

    # While it runs

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and self._failure is None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the first listener, for the clients' setting of this name.

        Raises RuntimeError: the broker has not been started. After a crash, the address that it will have again.
        """
        return str(self._first_address()).partition("://")[2]

    @property
    def host(self) -> str:
        return self._first_address().host

    @property
    def port(self) -> int:
        return self._first_address().port

    @property
    def data_directory(self) -> str:
        """The path. Raises RuntimeError if it is temporary and not created yet, or removed."""
        if self._given_directory is not None:
            return self._given_directory
        if self._temporary is None:
            raise RuntimeError(f"the broker has no data yet: {HOW_TO_START}")
        return self._temporary.name

    @property
    def failure(self) -> str | None:
        """The reason why the broker stopped after an unexpected failure; else None."""
        return self._failure

    def _first_address(self) -> Endpoint:
        if not self._addresses:
            raise RuntimeError(f"the broker has not been started: {HOW_TO_START}")
        return self._addresses[0]

    # Start and stop

    def start(self) -> Self:
        """Start the broker; when this returns, clients are served.

        Raises ConfigurationError (of `fencepost.broker.config`: a setting that does not exist or has a wrong value),
        StartError (of `fencepost.broker.network.server`: a port in use), StorageError (of
        `fencepost.broker.storage.disk`: a data directory that cannot be used, or is another broker's), RuntimeError
        (the broker is running).
        """
        if self._thread is not None:
            if self._thread.is_alive():
                raise RuntimeError("the broker runs already; `restart` stops it first")
            self._thread.join()
            self._thread = None
        is_temporary_new = self._given_directory is None and self._temporary is None
        if is_temporary_new:
            self._temporary = tempfile.TemporaryDirectory(prefix="fencepost-", dir=temporary_root())
        self.is_closed = False
        try:
            self._start()
        except BaseException:
            if is_temporary_new:
                self.close()
            raise
        return self

    def _start(self) -> None:
        loaded = load_settings(
            options=[Entry(name, text, "Broker(settings)") for name, text in self._settings.items()]
            + [Entry("log.dirs", self.data_directory, "Broker(data_directory)")]
        )
        for warning in loaded.warnings:
            log.warning("setting_ignored", reason=warning)
        self._failure = None
        started: Future[list[Endpoint]] = Future()
        # A process that ends without stopping its broker crashes it.
        self._thread = threading.Thread(
            target=self._run, args=(loaded.settings, started), name="fencepost-broker", daemon=True
        )
        self._thread.start()
        self._addresses = started.result()
        # The next start takes the same ports.
        self._settings["listeners"] = ",".join(str(address) for address in self._addresses)

    def stop(self) -> None:
        """Stop the broker: it answers requests in flight and syncs its files. Does nothing if it does not run."""
        self._end_as("stop")

    def crash(self) -> None:
        """End the broker as `kill -9` ends a process.

        Connections break, requests in flight get no answer, and no file is written any more. Acknowledged records are
        there after `restart`. Does nothing if the broker does not run.
        """
        self._end_as("crash")

    def restart(self) -> Self:
        """Stop the broker if it runs, and start it again with its data and ports. Raises as `start` does."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop the broker, and remove its data if they are temporary."""
        self.is_closed = True
        self._end_as("stop" if self._temporary is None else "crash")  # nothing is synced that is removed
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _end_as(self, way: Literal["stop", "crash"]) -> None:
        self.close_helpers()
        thread, loop = self._thread, self._loop
        if thread is None:
            return
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._resolve_end, way)
            except RuntimeError:
                pass  # the loop is closed: the broker has ended by itself
        thread.join()
        self._thread = None

    def data_to_keep(self) -> str | None:
        """Stop the broker, and return the directory of its data; None if there are none."""
        self.stop()
        return None if self._given_directory is None and self._temporary is None else self.data_directory

    def run_command(self, command: str, *arguments: Any) -> Any:
        if self._is_durable:
            raise MisuseError(FOR_REAL)
        inside, loop, thread = self._inside, self._loop, self._thread
        if inside is not None and thread is not None and loop is not None:
            done: Future[Any] = Future()
            try:
                loop.call_soon_threadsafe(inside.start, command, arguments, done)
            except RuntimeError:
                thread.join()  # the loop is closed: the broker has ended meanwhile
            while thread.is_alive() and not done.done():
                wait([done], COMMAND_CHECK_S)
            if done.done() and not done.cancelled():
                return done.result()
        if inside is not None and command in Inside.WITHOUT_BROKER:
            return getattr(inside, command)(*arguments)
        raise self._not_running()

    def silence(self) -> MisuseError | None:
        return self._not_running() if self._addresses and not self.is_running else None

    def _not_running(self) -> MisuseError:
        reason = "" if self._failure is None else f", as it has failed ({self._failure})"
        return MisuseError(f"the broker does not run{reason}: {'call restart()' if self._addresses else HOW_TO_START}")

    # On the broker's thread

    def _run(self, settings: Settings, started: Future[list[Endpoint]]) -> None:
        try:
            with asyncio.Runner(loop_factory=self._new_loop) as runner:
                runner.run(self._serve(settings, started))
        except BaseException as error:  # it is raised in `start`, or logged
            if not started.done():
                started.set_exception(error)
            else:
                self._failure = self._failure or f"{type(error).__name__}: {error}"
                log.critical("broker_stopped_unexpectedly", reason=self._failure, exc_info=error)
        finally:
            self._loop = None

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        if not self._is_durable:
            return TurnableLoop()
        import uvloop

        return uvloop.new_event_loop()

    async def _serve(self, settings: Settings, started: Future[list[Endpoint]]) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._end = loop.create_future()
        loop.set_exception_handler(log_loop_error)
        if self._is_durable:
            node = Node(settings)
        else:
            inside = self._inside = self._inside or Inside()
            inside.watch.crash = lambda: self._resolve_end("crash")
            node = Node(settings, clock=inside.start_clock(loop), local_disk=inside.open_disk, watch=inside.wrap)
        node.on_failed = lambda: self._node_failed(node)
        await node.start()
        if not self._is_durable:
            await prepare(node)
        started.set_result(node.addresses)
        if await self._end == "stop":
            if self._inside is not None:
                self._inside.watch.is_stopping = True
            await node.stop()
        else:
            silence_this_thread()
            await node.crash()

    def _resolve_end(self, way: Literal["stop", "crash"]) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(way)

    def _node_failed(self, node: Node) -> None:
        self._failure = node.failure
        self._resolve_end("crash")


async def prepare(node: Node) -> None:
    """Create the coordinators' topics before clients come.

    librdkafka waits for half a second if its first look for a coordinator is not answered at once.
    """
    for topic in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
        await node.services.topics.ensure_internal(topic)
    await node.ensure_loaded()


def temporary_root() -> str | None:
    """Where temporary data go: into memory where the system has room for files there, else the usual place."""
    try:
        if shutil.disk_usage(IN_MEMORY).free >= LEAST_FREE_BYTES and os.access(IN_MEMORY, os.W_OK | os.X_OK):
            return IN_MEMORY
    except OSError:
        pass
    return None
