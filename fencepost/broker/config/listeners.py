"""Listeners: the addresses at which the broker accepts connections, and those that it advertises to clients."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from fencepost.broker.config.settings import Settings

ALL_INTERFACES = frozenset({"", "0.0.0.0", "::"})
HTTP_LISTENER = "HTTP"
"""The name of the HTTP listener: `listener.name.http.ssl.keystore.location`."""


class SecurityProtocol(StrEnum):
    """Encryption and authentication of the connections of a listener; the names are Kafka's."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


SERVED_PROTOCOLS = tuple(SecurityProtocol)


class Endpoint(NamedTuple):
    """A listener's name with a host and a port."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class Listener(NamedTuple):
    """One listener. `advertised` is None if it advertises the address that it listens on."""

    name: str
    host: str
    port: int
    advertised: Endpoint | None
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @property
    def is_for_this_machine(self) -> bool:
        """Whether only programs on this machine can connect."""
        return self.host == "localhost" or self.host == "::1" or self.host.startswith("127.")


def parse_endpoint(text: str) -> Endpoint:
    """Read `NAME://host:port`; IPv6 addresses stand in brackets. Raises ValueError."""
    name, separator, address = text.partition("://")
    host, colon, port_text = address.rpartition(":")
    if not separator or not name or not colon or not port_text.isascii() or not port_text.isdigit():
        raise ValueError(f"expected NAME://host:port, such as PLAINTEXT://127.0.0.1:9092; got {text!r}")
    port = int(port_text)
    if port > 65_535:
        raise ValueError(f"the port must be 0 to 65535; got {text!r}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"an IPv6 address must stand in brackets: NAME://[::1]:9092; got {text!r}")
    return Endpoint(name.upper(), host, port)


def parse_http_listener(settings: Settings) -> Listener | None:
    """The HTTP listener, with the protocol SSL for `https://`; None if there is none.

    Raises ValueError, which names the setting.
    """
    text = settings.fencepost_http_listener
    if not text:
        return None
    scheme, separator, address = text.rpartition("://")
    try:
        if separator and scheme.lower() not in ("http", "https"):
            raise ValueError(text)
        _, host, port = parse_endpoint(f"{HTTP_LISTENER}://{address}")
    except ValueError:
        raise ValueError(
            "fencepost.http.listener: expected HOST:PORT, such as 127.0.0.1:9644 or [::1]:9644, or https://HOST:PORT; "
            f"got {text!r}"
        ) from None
    protocol = SecurityProtocol.SSL if scheme.lower() == "https" else SecurityProtocol.PLAINTEXT
    return Listener(HTTP_LISTENER, host, port, None, protocol)


def parse_listeners(settings: Settings) -> list[Listener]:
    """The listeners of the settings. Raises ValueError, which names the wrong setting and the remedy."""
    protocols = _protocols(settings.listener_security_protocol_map)
    endpoints = _parse_all("listeners", settings.listeners)
    advertised = {
        endpoint.name: endpoint for endpoint in _parse_all("advertised.listeners", settings.advertised_listeners)
    }
    if not endpoints:
        raise ValueError("listeners: at least one listener is needed, such as PLAINTEXT://127.0.0.1:9092")
    names = [endpoint.name for endpoint in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"listeners: the name {name} is used more than once; give each listener its own name")
        protocol = protocols.get(name)
        if protocol is None:
            raise ValueError(
                f"listeners: {name} has no protocol; add {name}:PLAINTEXT to listener.security.protocol.map"
            )
        if protocol not in SERVED_PROTOCOLS:
            raise ValueError(f"listeners: {name} asks for {protocol}; served are {', '.join(SERVED_PROTOCOLS)}")
    for name, endpoint in advertised.items():
        if name not in names:
            raise ValueError(f"advertised.listeners: there is no listener {name}; listeners has {', '.join(names)}")
        if endpoint.host in ALL_INTERFACES or endpoint.port == 0:
            raise ValueError(
                f"advertised.listeners: clients cannot connect to {endpoint}; name a host and a port they can reach"
            )
    return [
        Listener(name, host, port, advertised.get(name), SecurityProtocol(protocols[name]))
        for name, host, port in endpoints
    ]


def names_inter_broker_listener(settings: Settings) -> bool:
    """Whether the settings say which listener other nodes connect to."""
    return bool(settings.inter_broker_listener_name) or "security.inter.broker.protocol" in settings.origins


def inter_broker_listener(settings: Settings, listeners: Sequence[Listener]) -> Listener:
    """The listener that other nodes connect to: the first, unless settings name one. Raises ValueError."""
    name, protocol = settings.inter_broker_listener_name.upper(), settings.security_inter_broker_protocol
    is_protocol_set = "security.inter.broker.protocol" in settings.origins
    if not name and not is_protocol_set:
        return listeners[0]
    if name and is_protocol_set:
        raise ValueError("inter.broker.listener.name: remove it, or security.inter.broker.protocol; one is enough")
    for listener in listeners:
        if listener.name == (name or protocol):
            return listener
    setting = "inter.broker.listener.name" if name else "security.inter.broker.protocol"
    raise ValueError(
        f"{setting}: there is no listener {name or protocol}; listeners has "
        + ", ".join(listener.name for listener in listeners)
    )


def _parse_all(setting_name: str, texts: Sequence[str]) -> list[Endpoint]:
    try:
        return [parse_endpoint(text) for text in texts]
    except ValueError as error:
        raise ValueError(f"{setting_name}: {error}") from None


def _protocols(entries: Sequence[str]) -> dict[str, str]:
    """The protocol of each listener name, as written."""
    # Each listener of a broker needs its own name; these names need no entry in the map.
    protocols = {f"PLAINTEXT{number}": "PLAINTEXT" for number in range(2, 100)}
    protocols |= {protocol.value: protocol.value for protocol in SecurityProtocol}
    for entry in entries:
        name, separator, protocol = entry.partition(":")
        if not separator:
            raise ValueError(f"listener.security.protocol.map: expected NAME:PLAINTEXT; got {entry!r}")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols
