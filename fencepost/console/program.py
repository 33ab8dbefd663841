"""Runs the console as a program, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import os
import socket
import sys

import uvicorn

from fencepost.console.options import ConsoleOptions, OptionError
from fencepost.console.web.app import make_app
from fencepost.console.web.audit import open_audit_log


def serve(options: ConsoleOptions) -> None:
    """Serve pages. Prints the address when they can be asked for. Raises OptionError; OSError: no audit log."""
    open_audit_log(options.audit_path)
    with _listening(options.listen_host, options.listen_port) as listener:
        config = uvicorn.Config(
            make_app(options),
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
            limit_concurrency=200,
        )
        _Server(config).run(sockets=[listener])


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
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            print(f"console ready: http://{shown}:{port}/", file=sys.stderr, flush=True)  # noqa: T201
