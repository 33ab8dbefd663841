"""The headers of every answer, and the names that the console answers to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from fencepost.console.options import ConsoleOptions

POLICY: Final = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

HSTS: Final = "max-age=31536000"


class Guard:
    """Puts the same headers on every answer, and refuses a Host that this console is not: a page of another site may
    make its own name point here (DNS rebinding).
    """

    def __init__(self, app: Any, options: ConsoleOptions) -> None:
        self._app = app
        self._names = allowed_hosts(options)
        self._is_https = options.is_https
        self._has_hsts = options.server_tls is not None and options.has_hsts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if self._names and host_name(host) not in self._names:
            text = f"this console does not answer to the name {host_name(host)!r}; start it with --name to let it\n"
            await Response(text, 421, HEADERS, media_type="text/plain")(scope, receive, send)
            return

        if self._is_https:
            # A proxy that has TLS asks in plain text: a redirection must not lead people to that.
            scope = {**scope, "scheme": "https"}
        has_begun = False

        async def send_with_headers(message: Any) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                present = {name.lower() for name, _ in message["headers"]}
                added = (
                    dict(HEADERS) if scope["path"].startswith("/static/") else {**HEADERS, "Cache-Control": "no-store"}
                )
                if self._has_hsts and is_name(host_name(host)):
                    added["Strict-Transport-Security"] = HSTS
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.lower().encode(), value.encode())
                        for name, value in added.items()
                        if name.lower().encode() not in present
                    ),
                ]
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except asyncio.CancelledError:
            # The program ends, and this page has waited too long for a broker.
            if not has_begun:
                await Response("the console ends\n", 503, media_type="text/plain")(scope, receive, send_with_headers)


def is_name(host: str) -> bool:
    """Whether a host is a name of its own, and not an address or this machine, whose other ports may be plain HTTP."""
    return "." in host and ":" not in host and not host.endswith(".localhost") and not host[-1:].isdigit()


def host_name(host: str) -> str:
    """The name in a Host header, without its port, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def allowed_hosts(options: ConsoleOptions) -> frozenset[str]:
    """Names that this console answers to."""
    return options.names | {options.listen_host.lower(), "localhost", "127.0.0.1", "::1"}
