"""Probe of a broker at an address, without a client library and without using the addresses that it advertises."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.framing import find_frame
from fencepost.protocol.headers import encode_request_header
from fencepost.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.schema import decode, encode

TIMEOUT_S = 3.0
ADVERTISED_TIMEOUT_S = 4.0
VERSION = 0  # All brokers answer it, in the same format.
METADATA_VERSION = 4  # The first that does not create topics; later ones add nothing that matters here.
HEADER_VERSION = 1
CORRELATION_ID_BYTES = 4
LARGEST_REPLY_BYTES = 1 << 16

Response = TypeVar("Response")

_NOT_KAFKA = "what answers there does not speak Kafka's protocol"


class NoBrokerError(Exception):
    """No broker serves there; the message is the reason."""


class ProbeResult(NamedTuple):
    """Reply of a broker: the number of its APIs, and the time to the reply in milliseconds."""

    apis_count: int
    duration_ms: float


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT` or `[IPV6]:PORT`. Raises ValueError, which names the expected form."""
    host, colon, port_text = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    is_port = port_text.isascii() and port_text.isdigit() and 0 < int(port_text) <= 65_535
    if not colon or not host or "/" in host or not is_port:
        raise ValueError(f"expected HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092; got {text!r}")
    return host, int(port_text)


def probe(host: str, port: int, *, timeout_s: float = TIMEOUT_S) -> ProbeResult:
    """Connect and send ApiVersions. Raises NoBrokerError."""
    started_s = time.perf_counter()
    with _connected(host, port, timeout_s) as connection:
        reply = _call(connection, ApiVersionsRequest(), ApiVersionsResponse, VERSION, started_s + timeout_s)
    return ProbeResult(len(reply.api_keys), (time.perf_counter() - started_s) * 1000)


def advertised_addresses(host: str, port: int, *, timeout_s: float = TIMEOUT_S) -> list[tuple[str, int]]:
    """The addresses that a broker sends clients to: its own and those of its cluster. Raises NoBrokerError."""
    from fencepost.protocol.messages.metadata import MetadataRequest, MetadataResponse

    deadline_s = time.perf_counter() + timeout_s
    with _connected(host, port, timeout_s) as connection:
        served = _call(connection, ApiVersionsRequest(), ApiVersionsResponse, VERSION, deadline_s).api_keys
        latest = max((api.max_version for api in served if api.api_key == ApiKey.METADATA), default=0)
        if latest == 0:
            return []  # this version cannot leave out the topics
        version = min(latest, METADATA_VERSION)
        asked = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        reply = _call(connection, asked, MetadataResponse, version, deadline_s)
    return [(broker.host, broker.port) for broker in reply.brokers]


@contextmanager
def _connected(host: str, port: int, timeout_s: float) -> Iterator[socket.socket]:
    """A connection. Raises NoBrokerError, with the reason, for what goes wrong with it until its end."""
    silence = f"no connection within {timeout_s:g} s"
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            silence = f"it accepts connections but gave no answer within {timeout_s:g} s"
            yield connection
    except (socket.gaierror, UnicodeError):
        raise NoBrokerError(f"the host {host!r} cannot be resolved") from None
    except TimeoutError:
        raise NoBrokerError(silence) from None
    except OSError as error:
        raise NoBrokerError((error.strerror or str(error)).lower()) from None


def _call(
    connection: socket.socket, request: Any, response_type: type[Response], version: int, deadline_s: float
) -> Response:
    """Send a request of a version without tagged fields, and return the reply. Raises NoBrokerError, TimeoutError,
    OSError."""
    body = encode(request, version)
    header = encode_request_header(request.api_key, version, 1, "fencepost-ping", HEADER_VERSION)
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    contents = _receive_frame(connection, deadline_s)
    try:
        return decode(response_type, contents, version, CORRELATION_ID_BYTES)
    except DecodeError:
        raise NoBrokerError(_NOT_KAFKA) from None


def _receive_frame(connection: socket.socket, deadline_s: float) -> memoryview:
    """Receive one frame and return its contents. Raises NoBrokerError, TimeoutError, OSError."""
    received = bytearray()
    while True:
        try:
            found = find_frame(received, 0, len(received), LARGEST_REPLY_BYTES)
        except DecodeError:
            raise NoBrokerError(_NOT_KAFKA) from None
        if found is not None:
            return memoryview(received)[slice(*found)]
        if time.perf_counter() > deadline_s:
            raise TimeoutError
        chunk = connection.recv(4096)
        if not chunk:
            raise NoBrokerError(_NOT_KAFKA if received else "the connection was closed without an answer")
        received += chunk


def probe_any(bootstrap: str, *, timeout_s: float = TIMEOUT_S) -> ProbeResult:
    """Probe the addresses of a comma-separated list in turn, until one answers. Raises NoBrokerError."""
    reasons = []
    for address in bootstrap.split(","):
        try:
            return probe(*parse_address(address), timeout_s=timeout_s)
        except NoBrokerError as error:
            reasons.append(str(error))
    raise NoBrokerError("; ".join(dict.fromkeys(reasons)))


def check_advertised(bootstrap: str, *, timeout_s: float = ADVERTISED_TIMEOUT_S) -> None:
    """Check that a client can reach one of the addresses that a broker sends it to.

    Clients try for a minute in silence. timeout_s: for all addresses together.
    Raises NoBrokerError with each address and the reason.
    """
    deadline_s = time.perf_counter() + timeout_s
    known = [parse_address(address) for address in bootstrap.split(",")]
    reasons = []
    for host, port in _first_advertised(known):
        if (host, port) in known:
            return
        try:
            probe(host, port, timeout_s=max(0.1, min(TIMEOUT_S, deadline_s - time.perf_counter())))
        except NoBrokerError as error:
            reasons.append(f"{host}:{port} ({error})")
        else:
            return
    if reasons:
        raise NoBrokerError(", ".join(reasons))


def _first_advertised(addresses: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """What the first of these brokers that answers advertises; nothing if none does."""
    for address in addresses:
        with suppress(NoBrokerError):
            return advertised_addresses(*address)
    return []
