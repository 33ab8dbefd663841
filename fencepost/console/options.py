"""How the console was started."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

UNDERSTOOD: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
    }
)
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class OptionError(ValueError):
    """An option that cannot be used: one line for the user, without a full stop."""


@dataclass(frozen=True)
class ConsoleOptions:
    """What `fencepost console` was given.

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


def read_properties(path: Path) -> dict[str, str]:
    """Read `name=value` lines of a client.properties. Raises OptionError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        name, equals, value = stripped.partition("=")
        if not equals:
            raise OptionError(f"{path}:{number}: expected name=value")
        found[name.strip()] = value.strip()
    return found


def security_of(properties: Mapping[str, str]) -> tuple[ssl.SSLContext | None, bool | None]:
    """TLS for connections to brokers, and whether a log-in is needed. Users and passwords of the file are not used:
    each person logs in. Raises OptionError.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise OptionError(f"security.protocol is {protocol!r}; it may be {', '.join(PROTOCOLS)}")
    needs_log_in = True if protocol.startswith("SASL") else None
    if not protocol.endswith("SSL"):
        return None, needs_log_in
    for kind in ("truststore", "keystore"):
        if properties.get(f"ssl.{kind}.type", "PEM").upper() != "PEM":
            raise OptionError(f"ssl.{kind}.type must be PEM here: convert the {kind} with keytool and openssl")
    try:
        context = ssl.create_default_context(cafile=properties.get("ssl.truststore.location"))
        if "ssl.keystore.location" in properties:
            context.load_cert_chain(properties["ssl.keystore.location"], password=properties.get("ssl.key.password"))
    except (OSError, ssl.SSLError) as error:
        raise OptionError(f"the certificates cannot be used: {error}") from None
    if not properties.get("ssl.endpoint.identification.algorithm", "https"):
        context.check_hostname = False
    return context, needs_log_in
