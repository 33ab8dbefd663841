"""The process of the control API, until a signal or the end of its standard input."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from types import FrameType
from typing import Final

import uvicorn

from fencepost.in_process import Broker
from fencepost.testing.http.app import OPERATION_THREAD, make_app
from fencepost.testing.http.brokers import Brokers
from fencepost.testing.http.ports import ADVERTISED, Ports

KEEP_ALIVE_S: Final = 3600
"""Longer than clients keep idle connections, so that none is closed under a request."""
STOP_TIMEOUT_S: Final = 2
LAST_WAIT_S: Final = 5.0
"""At the end, for operations that do not end with their broker."""
MOST_CONNECTIONS: Final = 1_000


class AddressError(Exception):
    """The program cannot listen on an address, or cannot say it."""


def serve(host: str, port: int, *, as_json: bool, until_stdin_closes: bool, published: Ports | None = None) -> None:
    """Serve, and return after SIGTERM, SIGINT, SIGHUP or the end of standard input; all brokers are closed then.

    published: the ports of a container's brokers; the program listens on all addresses then, and not on `host`.

    Prints the address on standard output when the program is ready. Raises AddressError.
    """
    _handle_signals(lambda *_: sys.exit(0))  # until the server has handlers of its own
    with _listening("0.0.0.0" if published else host, port) as listener:
        _warm_up()
        server = _Server(make_config(listener.getsockname()[0], published), as_json=as_json)
        if until_stdin_closes:
            threading.Thread(target=server.end_with_stdin, name="test-broker-stdin", daemon=True).start()
        _handle_signals(server.handle_exit)  # the server itself handles no SIGHUP
        server.run(sockets=[listener])
    if server.failure is not None:
        raise AddressError(server.failure)
    _end_stuck_operations()


def _handle_signals(handler: Callable[[int, FrameType | None], object]) -> None:
    """Have a handler called for each signal that ends the program; `nohup` ignores SIGHUP, and that stays so."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _end_stuck_operations() -> None:
    """End the process if an operation is still carried out: Python would wait for its thread, however long."""
    give_up_at_s = time.monotonic() + LAST_WAIT_S
    for thread in threading.enumerate():
        if thread.name.startswith(OPERATION_THREAD):
            thread.join(max(0.0, give_up_at_s - time.monotonic()))
            if thread.is_alive():
                os._exit(0)


def make_config(host: str, published: Ports | None = None) -> uvicorn.Config:
    """The HTTP server of a control API. host, published: the address and the ports of its brokers."""
    return uvicorn.Config(
        make_app(Brokers(host, published)),
        log_level="error",  # it would warn of the upgrade to HTTP/2 that Java's client offers with each request
        http="h11",
        ws="none",
        use_colors=False,  # else it asks standard output, which may be closed
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_TIMEOUT_S,
        limit_concurrency=MOST_CONNECTIONS,
    )


def _listening(host: str, port: int) -> socket.socket:
    address = "127.0.0.1" if host.lower() == "localhost" else host
    try:
        return socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise AddressError(
            f"cannot listen on {host}:{port}: {reason}; choose another --port, or 0 for a free one"
        ) from None


def _warm_up() -> None:
    """Import all modules of brokers and operations, so that the first test does not wait for them."""
    with Broker(durable=False) as broker:
        broker.produce("warm-up", "")
        broker.records("warm-up")
        broker.describe()
    gc.collect()
    gc.freeze()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, *, as_json: bool) -> None:
        super().__init__(config)
        self._as_json = as_json
        self.failure: str | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            if host == "0.0.0.0":
                host = ADVERTISED
            url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            ready = {"url": url, "pid": os.getpid(), "version": version("fencepost")}
            try:
                print(json.dumps(ready) if self._as_json else f"test-broker ready: {url}", flush=True)  # noqa: T201
            except OSError as error:
                self.failure = f"cannot say on standard output that {url} is ready: {error.strerror}"
                self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the brokers before the connections, so that operations that wait on them are answered."""
        await self.config.app.state.control.close_brokers()  # type: ignore[union-attr]
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End in order, however often and by whichever means the program is asked to.

        uvicorn's own method takes SIGINT for a second request if the end has begun, which is so after standard input
        closed: it would leave without closing the brokers. It also raises each signal again at the end.
        """
        self.should_exit = True

    def end_with_stdin(self) -> None:
        """Wait until standard input closes, and end the program."""
        try:
            while os.read(0, 65_536):
                pass
        except OSError:
            pass  # there is none
        self.should_exit = True
