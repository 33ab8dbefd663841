"""`Broker`: a broker inside the calling process, on its own thread and event loop.

For tests, and for programs that contain their broker. It serves the same clients as `fencepost serve`, prints
nothing and logs to `logging.getLogger("fencepost")`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Literal, Self

from fencepost.broker.config import Endpoint, Entry, Settings, load_settings
from fencepost.broker.kernel.events import get_logger, silence_this_thread
from fencepost.broker.kernel.supervision import log_loop_error
from fencepost.broker.node import Node

log = get_logger(__name__)

HOW_TO_START = "use `with Broker() as broker:`, or call start()"


class Broker:
    """A broker that runs while its context lasts, or from `start` to `close`.

        with Broker() as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

    `async with` does the same without blocking the event loop; from a coroutine, call the other methods through
    `asyncio.to_thread`. One thread at a time may start, stop or crash a broker.

    data_directory: the directory of topics and records, which another broker can use later; without it, a temporary
                    directory that `close` removes.
    port:           0 takes a free one, which the broker keeps when it is restarted.
    settings:       by Kafka's names, such as `{"auto.create.topics.enable": False}`; docs/configuration.md lists them
                    all. If `listeners` is among them, host and port are not used.
    """

    def __init__(
        self,
        data_directory: str | os.PathLike[str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._given_directory = None if data_directory is None else os.path.abspath(data_directory)
        listener = f"PLAINTEXT://[{host}]:{port}" if ":" in host else f"PLAINTEXT://{host}:{port}"
        self._settings = {"listeners": listener, **{name: _text(value) for name, value in (settings or {}).items()}}
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
            self._temporary = tempfile.TemporaryDirectory(prefix="fencepost-")
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
        self.stop()
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

    # On the broker's thread

    def _run(self, settings: Settings, started: Future[list[Endpoint]]) -> None:
        import uvloop

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(settings, started))
        except BaseException as error:  # it is raised in `start`, or logged
            if not started.done():
                started.set_exception(error)
            else:
                self._failure = self._failure or f"{type(error).__name__}: {error}"
                log.critical("broker_stopped_unexpectedly", reason=self._failure, exc_info=error)
        finally:
            self._loop = None

    async def _serve(self, settings: Settings, started: Future[list[Endpoint]]) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._end = loop.create_future()
        loop.set_exception_handler(log_loop_error)
        node = Node(settings)
        node.on_failed = lambda: self._node_failed(node)
        await node.start()
        started.set_result(node.addresses)
        if await self._end == "stop":
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


def _text(value: object) -> str:
    """Format a setting's value as in a properties file."""
    return str(value).lower() if isinstance(value, bool) else str(value)
