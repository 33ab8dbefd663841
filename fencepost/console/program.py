"""Runs the console as a program, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from types import FrameType
from typing import Final

import uvicorn

from fencepost.console.options import ConsoleOptions, OptionError
from fencepost.console.server_tls import ServerTls
from fencepost.console.web.app import make_app
from fencepost.console.web.audit import open_audit_log

logger = logging.getLogger("fencepost.console")

COLLECTION_THRESHOLDS: Final = (700, 10, 500)
RELOAD_S: Final = 5.0
"""Between looks at the files of the certificate."""


def serve(options: ConsoleOptions) -> None:
    """Serve pages, and return after SIGTERM or SIGINT. Prints the address when they can be asked for.

    Raises OptionError; OSError: no audit log.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))  # until the server has handlers of its own
    open_audit_log(options.audit_path)
    # A full collection takes 70 ms beside 50,000 partitions: with these it runs every few million objects.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    tls = None if options.server_tls is None else ServerTls(options.server_tls)
    with _listening(options.listen_host, options.listen_port) as listener:
        config = uvicorn.Config(
            make_app(options),
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
            limit_concurrency=200,
        )
        config.load()
        config.ssl = None if tls is None else tls.context
        try:
            _Server(config, tls).run(sockets=[listener])
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)  # while Python ends, one more would kill it


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        # Of a name that cannot be resolved the number is negative, and no number of the system.
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number).lower() if number > 0 else "there is no such address here"
        raise OptionError(
            f"the console cannot listen on {host}:{port}: {reason}; choose another with --listen"
        ) from None


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, tls: ServerTls | None) -> None:
        super().__init__(config)
        self._tls = tls
        self._renewal: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._tls is not None:
            self._renewal = asyncio.create_task(_renew(self._tls))
        scheme = "http" if self._tls is None else "https"
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            print(f"console ready: {scheme}://{shown}:{port}/", file=sys.stderr, flush=True)  # noqa: T201

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End in order, however often the program is asked to.

        uvicorn's own method takes a second SIGINT for a request to leave at once, with a traceback for each request
        that is open. It also raises each signal again at the end.
        """
        self.should_exit = True


async def _renew(tls: ServerTls) -> None:
    """Read the certificate again whenever its files change."""
    while True:
        await asyncio.sleep(RELOAD_S)
        try:
            said = await asyncio.to_thread(tls.reload)
        except Exception:
            logger.exception("the certificate cannot be read again")
        else:
            if said is not None:
                logger.warning(said)
