"""Probe of a broker at an address, without a client library and without using the addresses that it advertises."""

from __future__ import annotations

import socket
import struct
import time
from typing import NamedTuple

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.framing import find_frame
from fencepost.protocol.headers import encode_request_header
from fencepost.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.schema import decode, encode

TIMEOUT_S = 3.0
VERSION = 0  # All brokers answer it, in the same format.
HEADER_VERSION = 1
CORRELATION_ID_BYTES = 4
LARGEST_REPLY_BYTES = 1 << 16

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
    silence = f"no connection within {timeout_s:g} s"
    body = encode(ApiVersionsRequest(), VERSION)
    header = encode_request_header(ApiKey.API_VERSIONS, VERSION, 1, "fencepost-ping", HEADER_VERSION)
    frame = struct.pack(">i", len(header) + len(body)) + header + body
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            silence = f"it accepts connections but gave no answer within {timeout_s:g} s"
            connection.sendall(frame)
            contents = _receive_frame(connection, started_s + timeout_s)
    except (socket.gaierror, UnicodeError):
        raise NoBrokerError(f"the host {host!r} cannot be resolved") from None
    except TimeoutError:
        raise NoBrokerError(silence) from None
    except OSError as error:
        raise NoBrokerError((error.strerror or str(error)).lower()) from None
    try:
        reply = decode(ApiVersionsResponse, contents, VERSION, CORRELATION_ID_BYTES)
    except DecodeError:
        raise NoBrokerError(_NOT_KAFKA) from None
    return ProbeResult(len(reply.api_keys), (time.perf_counter() - started_s) * 1000)


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
