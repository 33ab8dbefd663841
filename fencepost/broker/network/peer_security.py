"""Connections to the listeners of other nodes: TLS and SASL, as the settings of the listener between brokers say.

The other node sees the principal of the certificate or of the log-in; it has to be one of its `super.users`.
Source: Kafka's `inter.broker.listener.name` and `sasl.mechanism.inter.broker.protocol`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.config import Listener, Settings
from fencepost.broker.config.password import Password
from fencepost.broker.hosting.peers import Connect, LogIn, PeerConnection, PeerUnreachable
from fencepost.broker.network.server import StartError
from fencepost.broker.security.sasl.jaas import read_login_module
from fencepost.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from fencepost.protocol.sasl_login import Login, LoginError, login

if TYPE_CHECKING:
    import ssl

HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
NONCE_BYTES = 24


class PeerSecurity(NamedTuple):
    """The security of a channel to other nodes; a field is None if it does not need that step."""

    connect: Connect | None
    log_in: LogIn | None


def peer_security(settings: Settings, listener: Listener) -> PeerSecurity:
    """The security of connections to `listener` of other nodes. Raises StartError."""
    protocol = listener.protocol
    return PeerSecurity(
        _tls_connect(settings, listener.name) if protocol.uses_tls else None,
        _log_in(settings, listener.name) if protocol.uses_sasl else None,
    )


def _tls_connect(settings: Settings, listener: str) -> Connect:
    # Imported here, as OpenSSL takes memory.
    from fencepost.broker.security.tls_contexts import TlsError, client_tls

    try:
        client_tls(settings, listener)
    except TlsError as error:
        raise StartError(str(error)) from None

    async def connect(
        new_protocol: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        try:
            # Read again for each connection: certificates may have been renewed.
            context: ssl.SSLContext = await asyncio.to_thread(client_tls, settings, listener)
        except TlsError as error:
            raise ConnectionError(str(error)) from None
        return await asyncio.get_running_loop().create_connection(new_protocol, host, port, ssl=context)

    return connect


def _log_in(settings: Settings, listener: str) -> LogIn:
    mechanism = settings.sasl_mechanism_inter_broker_protocol
    if not mechanism:
        raise StartError(
            f"other nodes connect to the listener {listener}, which has SASL: set sasl.mechanism.inter.broker.protocol"
        )
    _credentials(settings, listener, mechanism)

    async def log_in(connection: PeerConnection) -> float | None:
        try:
            username, password = _credentials(settings, listener, mechanism)
        except StartError as error:
            raise PeerUnreachable(str(error)) from None
        offered = await connection.send(SaslHandshakeRequest(mechanism), HANDSHAKE_VERSION)
        if offered.error_code:
            raise PeerUnreachable(f"it does not offer {mechanism}, but {', '.join(offered.mechanisms)}")
        exchange = login(mechanism, username, password, None, secrets.token_urlsafe(NONCE_BYTES))
        message: bytes | None = next(exchange)
        answer: Any = None
        while message is not None:
            answer = await connection.send(SaslAuthenticateRequest(message), AUTHENTICATE_VERSION)
            if answer.error_code:
                raise PeerUnreachable(f"it refuses the log-in as {username}: {answer.error_message}")
            try:
                message = await asyncio.to_thread(_next_message, exchange, answer.auth_bytes)
            except LoginError as error:
                raise PeerUnreachable(f"the log-in as {username} failed: {error}") from None
        return answer.session_lifetime_ms / 1000 or None

    return log_in


def _next_message(exchange: Login, answer: bytes) -> bytes | None:
    """The next message of a log-in; None at its end. Takes milliseconds for SCRAM. Raises LoginError."""
    try:
        return exchange.send(answer)
    except StopIteration:
        return None


def _credentials(settings: Settings, listener: str, mechanism: str) -> tuple[str, str]:
    """The name and password of this broker. Raises StartError."""
    setting = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    secret: Password | None = settings.for_listener("sasl.jaas.config", listener, mechanism)
    if secret is None:
        raise StartError(f"{setting}: it has to hold username and password of this broker, for other nodes")
    try:
        options = read_login_module(secret.reveal()).options
    except ValueError as error:
        raise StartError(f"{setting}: {error}") from None
    if "username" not in options or "password" not in options:
        raise StartError(f"{setting}: username and password are missing, by which other nodes know this broker")
    return options["username"], options["password"]
