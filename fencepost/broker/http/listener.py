"""The HTTP listener: its socket, its connections, and the work before and after a request's route."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Final

from fencepost.broker.config import Settings
from fencepost.broker.config.listeners import ALL_INTERFACES, parse_http_listener
from fencepost.broker.http.access import Access, AccessDeniedError, Token, TokenFileError, read_tokens
from fencepost.broker.http.connection import HttpConnection
from fencepost.broker.http.exchange import BadRequestError, HttpRequest, HttpResponse, error_response
from fencepost.broker.http.routes import find_route
from fencepost.broker.kernel.address_shares import AddressShares
from fencepost.broker.kernel.addresses import network_of
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.log_limit import LogLimit
from fencepost.broker.kernel.per_turn_limiter import PerTurnLimiter
from fencepost.broker.metrics.node_view import NodeView
from fencepost.broker.network.server import Acceptor, SocketListener, StartError

if TYPE_CHECKING:
    from fencepost.broker.security.tls import ListenerTls

log = get_logger(__name__)

MAXIMUM_CONNECTIONS: Final = 32
"""Beyond it, a new connection takes the place of one that has no request in work; else of one whose request has not
arrived, the oldest of the address that has most of them."""
PROBE_CONNECTIONS: Final = 8
"""Further connections, for probes alone, while requests are answered on all others."""


def _access(settings: Settings, host: str) -> Access:
    tokens: tuple[Token, ...] = ()
    if settings.fencepost_http_token_file:
        try:
            tokens = read_tokens(settings.fencepost_http_token_file)
        except TokenFileError as error:
            raise StartError(f"fencepost.http.token.file: {error}") from None
    access = Access(host, tokens, settings.fencepost_http_host_names)
    if not access.is_local and not tokens:
        raise StartError(
            f"fencepost.http.listener: {host or 'every interface'} is reached from other machines, so clients need "
            "tokens: name a file of them in fencepost.http.token.file, or listen on 127.0.0.1"
        )
    return access


class HttpListener:
    """Bound to its port when it is made, before the broker does anything else; `accept` begins to serve.

    Until `serve` names a node, it says that the broker is starting. Raises StartError.
    """

    def __init__(self, settings: Settings) -> None:
        try:
            listener = parse_http_listener(settings)
        except ValueError as error:
            raise StartError(str(error)) from None
        assert listener is not None, "it is configured"
        self._access = _access(settings, listener.host)
        self._bound = SocketListener(listener, settings)
        self._backlog = settings.socket_listen_backlog_size
        self._acceptor: Acceptor | None = None
        self._connections: dict[HttpConnection, None] = {}
        self._turns = PerTurnLimiter(1)
        self._log_limit = LogLimit(
            asyncio.get_running_loop().time,
            lambda count, host: log.info("http_refusals_not_logged", refusals=count, host=host or "others"),
        )
        self._view: Callable[[], NodeView | None] = lambda: None
        self.host, self.port = self._bound.address.host, self._bound.address.port

    async def accept(self, tls: ListenerTls | None) -> None:
        """Start to accept connections. tls: the certificates of an `https://` listener."""
        loop = asyncio.get_running_loop()

        def new_connection() -> HttpConnection:
            return HttpConnection(self, self._respond, self._turns, loop)

        if tls is None:
            self._acceptor = await loop.create_server(new_connection, sock=self._bound.socket, backlog=self._backlog)
        else:
            # Imported here: without TLS nothing of it is needed.
            from fencepost.broker.http.encryption import EncryptingAcceptor

            self._acceptor = EncryptingAcceptor(
                self._bound.socket, tls, new_connection, self._backlog, self._log_limit, loop
            )
        log.info("http_listening", host=self.host, port=self.port, protocol="http" if tls is None else "https")
        if tls is None and not self._access.is_local:
            log.warning(
                "http_is_not_encrypted",
                host=self.host or next(iter(ALL_INTERFACES - {""})),
                hint="tokens cross the network in clear text; listen on https://, or on 127.0.0.1",
            )

    def serve(self, view: Callable[[], NodeView | None]) -> None:
        """Answer from a node, which `view` returns; None while it does not exist."""
        self._view = view

    def close(self) -> None:
        """Close the port and all connections."""
        if self._acceptor is not None:
            self._acceptor.close()
        self._bound.close()
        for connection in list(self._connections):
            connection.abort()

    # HttpConnectionOwner

    def http_connection_opened(self, connection: HttpConnection) -> bool:
        if len(self._connections) >= MAXIMUM_CONNECTIONS:
            evicted = self._least_needed()
            if evicted is not None:
                del self._connections[evicted]
                evicted.abort()
            elif len(self._connections) >= MAXIMUM_CONNECTIONS + PROBE_CONNECTIONS:
                return False
            connection.is_beyond_bound = len(self._connections) >= MAXIMUM_CONNECTIONS
        self._connections[connection] = None
        return True

    def _least_needed(self) -> HttpConnection | None:
        """A connection of which no request is answered; None if there is none."""
        arriving: AddressShares[HttpConnection] = AddressShares()
        for one in self._connections:
            if one.is_arriving:
                arriving.hold(one, one.client_host)
            elif one.is_idle:
                return one
        return arriving.oldest_of_greediest()

    def http_connection_closed(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)

    # Requests

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        """Answer a request; only cancellation and exceptions that end the process pass."""
        try:
            self._access.check(request)
            response = await find_route(request)(self._view(), request)
            # An exception of the first step can still be answered.
            response.pieces = chain((next(response.pieces, ""),), response.pieces)
        except BadRequestError as error:
            return error_response(error.status, str(error))
        except AccessDeniedError as error:
            if self._log_limit.allows(network_of(request.client_host)):
                log.info("http_request_refused", client=request.client_host, status=error.status, reason=str(error))
            response = error_response(error.status, str(error))
            if error.status == 401:
                response.headers = {"WWW-Authenticate": "Bearer"}
            return response
        except Exception:
            if self._log_limit.allows(network_of(request.client_host)):
                log.exception("http_request_failed", method=request.method, path="/" + "/".join(request.path))
            return error_response(500, "the broker failed to answer; its log has the reason")
        return response
