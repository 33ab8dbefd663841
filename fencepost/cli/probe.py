"""Probe of a broker at an address, without a client library and without using the addresses that it advertises.

With security options it also speaks TLS and logs in, and says in words why that fails.
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fencepost.cli.client_properties import WrongPropertiesError
from fencepost.cli.client_security import NO_SECURITY, ClientSecurity
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.framing import find_frame
from fencepost.protocol.headers import encode_request_header
from fencepost.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.schema import decode, encode, schema_of

if TYPE_CHECKING:
    import ssl

    from fencepost.protocol.messages.metadata import MetadataResponseBroker

TIMEOUT_S = 10.0
"""A broker that is not there refuses at once; one on a busy machine may take seconds to answer."""
ADVERTISED_TIMEOUT_S = 4.0
ADVERTISED_ADDRESS_TIMEOUT_S = 3.0
VERSION = 0  # All brokers answer it, in the same format.
METADATA_VERSION = 4  # The first that does not create topics; later ones add nothing that matters here.
CORRELATION_ID_BYTES = 4
LARGEST_REPLY_BYTES = 1 << 20

Response = TypeVar("Response")

_NOT_KAFKA = "what answers there does not speak Kafka's protocol"
_CLOSED = "the connection was closed without an answer"
_MAY_NEED_TLS = "; a listener with TLS does that: give --command-config, with security.protocol=SSL or SASL_SSL"
_TLS_ALERT = b"\x15\x03"
_NEEDS_TLS = "that listener speaks TLS: give --command-config, with security.protocol=SSL or SASL_SSL"
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 0


class NoBrokerError(Exception):
    """No broker serves there; the message is the reason."""


class NoLoginError(NoBrokerError):
    """A broker serves there, but not this client: it cannot log in, or has to."""


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


def probe(host: str, port: int, *, timeout_s: float = TIMEOUT_S, security: ClientSecurity = NO_SECURITY) -> ProbeResult:
    """Connect, send ApiVersions, and log in if there is something to log in with. Raises NoBrokerError."""
    started_s = time.perf_counter()
    deadline_s = started_s + timeout_s
    with _connected(host, port, timeout_s, security) as connection:
        reply = _call(connection, ApiVersionsRequest(), ApiVersionsResponse, VERSION, deadline_s)
        _log_in(connection, security, deadline_s)
    return ProbeResult(len(reply.api_keys), (time.perf_counter() - started_s) * 1000)


def advertised_addresses(
    host: str, port: int, *, timeout_s: float = TIMEOUT_S, security: ClientSecurity = NO_SECURITY
) -> list[tuple[str, int]]:
    """The addresses that a broker sends clients to: its own and those of its cluster. Raises NoBrokerError."""
    return [
        (broker.host, broker.port) for broker in advertised_brokers(host, port, timeout_s=timeout_s, security=security)
    ]


def advertised_brokers(
    host: str, port: int, *, timeout_s: float = TIMEOUT_S, security: ClientSecurity = NO_SECURITY
) -> Sequence[MetadataResponseBroker]:
    """The brokers that a broker names to clients; none if it is too old to. Raises NoBrokerError."""
    from fencepost.protocol.messages.metadata import MetadataRequest, MetadataResponse

    deadline_s = time.perf_counter() + timeout_s
    with _connected(host, port, timeout_s, security) as connection:
        served = _call(connection, ApiVersionsRequest(), ApiVersionsResponse, VERSION, deadline_s).api_keys
        latest = max((api.max_version for api in served if api.api_key == ApiKey.METADATA), default=0)
        if latest == 0:
            return []  # this version cannot leave out the topics
        _log_in(connection, security, deadline_s)
        version = min(latest, METADATA_VERSION)
        asked = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        try:
            reply = _call(connection, asked, MetadataResponse, version, deadline_s)
        except (NoBrokerError, ConnectionError):
            if security.mechanism is not None:
                raise
            raise NoLoginError(
                "it closes the connection of a client that has not logged in: give --command-config, with "
                "security.protocol=SASL_SSL or SASL_PLAINTEXT, sasl.mechanism and sasl.jaas.config"
            ) from None
    return reply.brokers


def served_apis(
    host: str, port: int, *, timeout_s: float = TIMEOUT_S, security: ClientSecurity = NO_SECURITY
) -> ApiVersionsResponse:
    """Ask a broker for its APIs and features, in the latest version that both sides know. Raises NoBrokerError.

    A broker answers that before a log-in. Features begin with version 3, of Kafka 2.4.
    """
    deadline_s = time.perf_counter() + timeout_s
    latest_known = schema_of(ApiVersionsRequest).versions.last
    with _connected(host, port, timeout_s, security) as connection:
        reply = _call(connection, ApiVersionsRequest(), ApiVersionsResponse, VERSION, deadline_s)
        served = {api.api_key: api.max_version for api in reply.api_keys}
    latest = min(served.get(ApiKey.API_VERSIONS, VERSION), latest_known)
    if latest > VERSION:
        # A listener with SASL answers one such request for each connection.
        with _connected(host, port, timeout_s, security) as connection:
            asked = ApiVersionsRequest(client_software_name="fencepost", client_software_version="0")
            reply = _call(connection, asked, ApiVersionsResponse, latest, deadline_s)
    if reply.error_code:
        raise NoBrokerError(f"it does not tell its APIs: error {reply.error_code}")
    return reply


@contextmanager
def _connected(host: str, port: int, timeout_s: float, security: ClientSecurity) -> Iterator[socket.socket]:
    """Connect. Raises NoBrokerError, with the reason, for any error of the connection until its end."""
    silence = f"no connection within {timeout_s:g} s"
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            silence = f"it accepts connections but gave no answer within {timeout_s:g} s"
            if security.tls is None:
                yield connection
            else:
                with _secured(connection, security.tls, host) as secured:
                    yield secured
    except (socket.gaierror, UnicodeError):
        raise NoBrokerError(f"the host {host!r} cannot be resolved") from None
    except TimeoutError:
        raise NoBrokerError(silence) from None
    except ConnectionResetError:
        raise NoBrokerError(_CLOSED + ("" if security.tls else _MAY_NEED_TLS)) from None
    except OSError as error:
        raise NoBrokerError((error.strerror or str(error)).lower()) from None


@contextmanager
def _secured(connection: socket.socket, context: ssl.SSLContext, host: str) -> Iterator[socket.socket]:
    """Add TLS to a connection. Raises NoBrokerError, with the reason, also if TLS fails later."""
    import ssl

    try:
        with context.wrap_socket(connection, server_hostname=host) as secured:
            yield secured
    except ssl.SSLCertVerificationError as error:
        raise NoLoginError(
            f"its certificate is not accepted: {error.verify_message}; ssl.truststore.location names the authorities "
            "that are trusted"
        ) from None
    except ssl.SSLEOFError:
        raise NoBrokerError("it closed the connection in the TLS handshake: that listener may have no TLS") from None
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        if error.reason == "WRONG_VERSION_NUMBER":
            raise NoBrokerError("that listener does not speak TLS (security.protocol asks for it)") from None
        hint = (
            "; it wants a certificate of the client: ssl.keystore.location" if "certificate required" in reason else ""
        )
        raise NoLoginError(f"TLS failed: {reason}{hint}") from None


def _log_in(connection: socket.socket, security: ClientSecurity, deadline_s: float) -> None:
    """Log in by SASL, if the client has to. Raises NoBrokerError, TimeoutError, OSError."""
    mechanism = security.mechanism
    if mechanism is None:
        return
    from fencepost.protocol.messages.sasl import (
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        SaslHandshakeRequest,
        SaslHandshakeResponse,
    )
    from fencepost.protocol.sasl_login import LoginError, login

    try:
        name, password, nonce = security.username, security.password, secrets.token_hex(16)
        steps = login(mechanism, name, password, security.token, nonce, is_delegated=security.is_delegated)
        token = next(steps)
    except WrongPropertiesError as error:
        raise NoLoginError(str(error)) from None
    agreed = _call(connection, SaslHandshakeRequest(mechanism), SaslHandshakeResponse, HANDSHAKE_VERSION, deadline_s)
    if agreed.error_code:
        enabled = ", ".join(agreed.mechanisms)
        reason = f"enabled there: {enabled}" if enabled else "that listener has no SASL (security.protocol asks for it)"
        raise NoLoginError(f"sasl.mechanism={mechanism} is not enabled; {reason}")
    while True:
        request = SaslAuthenticateRequest(token)
        answer = _call(connection, request, SaslAuthenticateResponse, AUTHENTICATE_VERSION, deadline_s)
        if answer.error_code:
            raise NoLoginError(f"it refused the log-in: {answer.error_message or f'error {answer.error_code}'}")
        try:
            token = steps.send(bytes(answer.auth_bytes))
        except StopIteration:
            return
        except LoginError as error:
            raise NoLoginError(f"the log-in failed: {error}") from None


def _call(
    connection: socket.socket, request: Any, response_type: type[Response], version: int, deadline_s: float
) -> Response:
    """Send a request whose reply has a header without tagged fields, and return it. Raises NoBrokerError, TimeoutError,
    OSError."""
    header_version = 2 if version in schema_of(type(request)).flexible else 1
    body = encode(request, version)
    header = encode_request_header(request.api_key, version, 1, "fencepost-ping", header_version)
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
            if received.startswith(_TLS_ALERT):
                raise NoLoginError(_NEEDS_TLS) from None
            raise NoBrokerError(_NOT_KAFKA) from None
        if found is not None:
            return memoryview(received)[slice(*found)]
        if time.perf_counter() > deadline_s:
            raise TimeoutError
        chunk = connection.recv(4096)
        if not chunk:
            raise ConnectionResetError if not received else NoBrokerError(_NOT_KAFKA)
        received += chunk


def probe_any(bootstrap: str, *, timeout_s: float = TIMEOUT_S, security: ClientSecurity = NO_SECURITY) -> ProbeResult:
    """Probe the addresses of a comma-separated list in turn, until one answers. Raises NoBrokerError."""
    reasons = []
    for address in bootstrap.split(","):
        try:
            return probe(*parse_address(address), timeout_s=timeout_s, security=security)
        except NoLoginError:
            raise
        except NoBrokerError as error:
            reasons.append(str(error))
    raise NoBrokerError("; ".join(dict.fromkeys(reasons)))


def check_advertised(
    bootstrap: str, *, timeout_s: float = ADVERTISED_TIMEOUT_S, security: ClientSecurity = NO_SECURITY
) -> None:
    """Check that a client can reach one of the addresses that a broker sends it to.

    Clients try for a minute in silence. timeout_s: for all addresses together.
    Raises NoBrokerError with each address and the reason; NoLoginError if the broker serves, but not this client.
    """
    deadline_s = time.perf_counter() + timeout_s
    known = [parse_address(address) for address in bootstrap.split(",")]
    reasons = []
    for host, port in _first_advertised(known, security):
        if (host, port) in known:
            return
        try:
            left_s = max(0.1, min(ADVERTISED_ADDRESS_TIMEOUT_S, deadline_s - time.perf_counter()))
            probe(host, port, timeout_s=left_s, security=security)
        except NoBrokerError as error:
            reasons.append(f"{host}:{port} ({error})")
        else:
            return
    if reasons:
        raise NoBrokerError(", ".join(reasons))


def _first_advertised(addresses: Sequence[tuple[str, int]], security: ClientSecurity) -> list[tuple[str, int]]:
    """Return the advertised addresses of the first of these brokers that answers; none if no broker does."""
    for address in addresses:
        try:
            return advertised_addresses(*address, security=security)
        except NoLoginError:
            raise
        except NoBrokerError:
            continue
    return []
