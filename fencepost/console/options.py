"""How the console was started."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field


class OptionError(ValueError):
    """An option that cannot be used: one line for the user, without a full stop."""


@dataclass(frozen=True)
class ConsoleOptions:
    """Options of `fencepost console`.

    bootstrap: addresses of brokers. tls: None for connections in plain text.
    needs_log_in: None lets the cluster say so. mechanism: the one to offer first.
    names: hosts that a browser may ask for, in lower case, beside those of the address that it listens on.
    is_secure: the browser's side is HTTPS, by a proxy in front; cookies are then sent over nothing else.
    """

    bootstrap: tuple[tuple[str, int], ...]
    listen_host: str = "127.0.0.1"
    listen_port: int = 8080
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    needs_log_in: bool | None = None
    mechanism: str | None = None
    broker_http: str | None = None
    broker_http_token: str | None = field(default=None, repr=False)
    read_only: bool = False
    names: frozenset[str] = frozenset()
    is_secure: bool = False
    audit_path: str | None = None


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT` or `[IPV6]:PORT`. Raises OptionError."""
    host, colon, port_text = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not colon or not host or "/" in host or not port_text.isascii() or not port_text.isdigit():
        raise OptionError(f"expected HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092; got {text!r}")
    if int(port_text) > 65_535:
        raise OptionError(f"{port_text} is no port; the highest is 65535")
    return host, int(port_text)
