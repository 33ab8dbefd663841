"""Runs the console as a program, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import sys

import uvicorn

from fencepost.console.options import ConsoleOptions
from fencepost.console.web.app import make_app
from fencepost.console.web.audit import open_audit_log


def serve(options: ConsoleOptions) -> None:
    """Serve pages. Prints the address when they can be asked for. Raises OSError: the audit log cannot be written."""
    open_audit_log(options.audit_path)
    config = uvicorn.Config(
        make_app(options),
        host=options.listen_host,
        port=options.listen_port,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
        limit_concurrency=200,
    )
    _Server(config).run()


class _Server(uvicorn.Server):
    async def startup(self, sockets: object = None) -> None:
        await super().startup()
        for server in self.servers:
            for socket in server.sockets:
                host, port = socket.getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                print(f"console ready: http://{shown}:{port}/", file=sys.stderr, flush=True)  # noqa: T201
