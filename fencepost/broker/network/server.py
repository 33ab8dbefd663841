"""Server of one listener: its socket, its connections, and the bounds over all of them."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from fencepost.broker.config import Endpoint, Listener, Settings
from fencepost.broker.config.listeners import ALL_INTERFACES
from fencepost.broker.kernel.addresses import network_of
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.log_limit import LogLimit
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.network.authentication_counts import AuthenticationCounts
from fencepost.broker.network.connection import Connection, RequestDispatcher
from fencepost.broker.network.network_memory import NetworkMemory
from fencepost.broker.network.receive_buffer import BufferPool
from fencepost.broker.network.socket_sender import SendfileSockets
from fencepost.broker.quotas.connections import ConnectionQuotas

if TYPE_CHECKING:
    from fencepost.broker.network.authentication import ListenerAuthentication

log = get_logger(__name__)

IDLE_CHECK = Place("check for idle connections", Policy.RETRY)
DELAYED_CLOSE = Place("close of a connection that came too often", Policy.REPORT)

MAX_IDLE_CHECK_INTERVAL_S = 10.0


class StartError(Exception):
    """The broker cannot start; the message is one line with the reason and the remedy."""


class Acceptor(Protocol):
    """Accepts connections until it is closed; an `asyncio.Server` is one."""

    def close(self) -> None: ...


class BoundListener(Protocol):
    """The seam to the network: a listener that has its address but accepts no connections yet."""

    @property
    def listener(self) -> Listener: ...

    @property
    def address(self) -> Endpoint:
        """The address at which it will accept connections."""
        ...

    @property
    def advertised(self) -> Endpoint:
        """The address that Metadata gives to clients."""
        ...

    async def accept(self, new_connection: Callable[[], asyncio.BufferedProtocol], *, backlog: int) -> Acceptor:
        """Start to accept connections; `new_connection` makes the protocol object of each."""
        ...

    def close(self) -> None: ...


class SocketListener:
    """A socket that is bound but does not listen yet: the broker notices a port in use before it does anything else.

    bound: a socket that another process has bound for this one. Raises StartError.
    """

    def __init__(self, listener: Listener, settings: Settings, *, bound: socket.socket | None = None) -> None:
        self.listener = listener
        self.socket = _bind(listener, settings) if bound is None else bound
        address = self.socket.getsockname()
        self.address = Endpoint(listener.name, address[0], address[1])

    @property
    def advertised(self) -> Endpoint:
        """The address that Metadata gives to clients."""
        if self.listener.advertised is not None:
            return self.listener.advertised
        host = socket.gethostname() if self.listener.host in ALL_INTERFACES else self.listener.host
        return Endpoint(self.listener.name, host, self.address.port)

    async def accept(self, new_connection: Callable[[], asyncio.BufferedProtocol], *, backlog: int) -> Acceptor:
        loop = asyncio.get_running_loop()
        return await loop.create_server(new_connection, sock=self.socket, backlog=backlog)

    def close(self) -> None:
        self.socket.close()


def _bind(listener: Listener, settings: Settings) -> socket.socket:
    """A bound socket with the options of the settings. Raises StartError."""
    where = Endpoint(listener.name, listener.host, listener.port)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            _encoded(listener.host or "0.0.0.0"),  # an empty host means all interfaces
            listener.port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StartError(f"cannot listen on {where}: the host cannot be resolved ({reason})") from None
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and listener.host == "::":
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Connections inherit both from the socket that accepts them.
        if settings.socket_send_buffer_bytes >= 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.socket_send_buffer_bytes)
        if settings.socket_receive_buffer_bytes >= 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.socket_receive_buffer_bytes)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise StartError(f"cannot listen on {where}: {_bind_advice(error)}") from None
    return bound


def _encoded(host: str) -> str | bytes:
    """The IDNA form of a host that needs no Unicode tables, which would take memory; any other host as it is."""
    needs_no_tables = host.isascii() and all(0 < len(label) < 64 for label in host.split("."))
    return host.encode() if needs_no_tables else host


def _bind_advice(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; stop what uses it, or choose another one with --listener"
    if error.errno == errno.EADDRNOTAVAIL:
        return "the host is not an address of this machine"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "the system does not allow this port; choose one above 1023"
    return error.strerror or str(error)


class Server:
    """Accepts connections on one listener and keeps them within bounds; the ConnectionOwner of its connections."""

    def __init__(
        self,
        bound: BoundListener,
        dispatcher: RequestDispatcher,
        settings: Settings,
        quotas: ConnectionQuotas,
        *,
        sendfile_sockets: SendfileSockets,
        memory: NetworkMemory,
        loop: asyncio.AbstractEventLoop,
        authentication: ListenerAuthentication | None = None,
    ) -> None:
        self.bound = bound
        self._dispatcher = dispatcher
        self._settings = settings
        self._quotas = quotas
        self._loop = loop
        self._authentication = authentication
        self._pool = BufferPool(memory=memory)
        self._sendfile_sockets = sendfile_sockets
        self._acceptor: Acceptor | None = None
        self._connections: dict[int, Connection] = {}
        self._next_connection_id = 1
        self._idle_timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Future[None] | None = None
        self._refusals = LogLimit(
            loop.time,
            lambda count, host: log.warning("connection_refusals_not_logged", connections=count, host=host or "others"),
        )
        self._is_aborted = False

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def accepted_count(self) -> int:
        """Connections since the start, also those that were refused."""
        return self._next_connection_id - 1

    @property
    def authentication_counts(self) -> AuthenticationCounts:
        """All 0 without SASL."""
        return AuthenticationCounts() if self._authentication is None else self._authentication.counts

    @property
    def connections(self) -> Iterable[Connection]:
        return self._connections.values()

    async def start(self) -> None:
        """Start to listen."""
        self._acceptor = await self._accept_connections()
        self._schedule_idle_check()

    async def _accept_connections(self) -> Acceptor:
        return await self.bound.accept(self._new_connection, backlog=self._settings.socket_listen_backlog_size)

    async def stop(self, drain_s: float) -> None:
        """Stop accepting, answer the requests in flight for up to `drain_s` seconds, and close all connections."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._acceptor is not None:
            self._acceptor.close()
        self.bound.close()
        for connection in list(self._connections.values()):
            connection.drain()
        if not await self._wait_until_closed(drain_s):
            log.warning("connections_aborted", connections=len(self._connections), reason="requests in flight")
            self.abort()
            await self._wait_until_closed(1.0)

    def refuse(self) -> None:
        """Close all connections without answering the requests in flight, and accept none. `abort` follows.

        If its server is closed, asyncio fails for a connection that it is accepting, and leaves it open: after a few
        turns of the loop there is no such connection. Source: CPython's `base_events.Server._attach`.
        """
        self._is_aborted = True
        for listening in getattr(self._acceptor, "sockets", ()):
            self._loop.remove_reader(listening.fileno())
        for connection in list(self._connections.values()):
            connection.abort()

    def abort(self) -> None:
        """Stop accepting and close all connections without answering the requests in flight."""
        self.refuse()
        if self._acceptor is not None:
            self._acceptor.close()
        self.bound.close()

    async def _wait_until_closed(self, timeout_s: float) -> bool:
        if self._connections:
            self._all_closed = self._loop.create_future()
            await asyncio.wait([self._all_closed], timeout=timeout_s)
        return not self._connections

    def _new_connection(self) -> Connection:
        connection_id = self._next_connection_id
        self._next_connection_id += 1
        authentication = self._authentication
        return Connection(
            connection_id,
            dispatcher=self._dispatcher,
            owner=self,
            limits=self._settings,
            pool=self._pool,
            sendfile_sockets=self._sendfile_sockets,
            loop=self._loop,
            authentication=None if authentication is None else authentication.of_connection(self._dispatcher),
        )

    # ConnectionOwner

    def connection_opened(self, connection: Connection) -> bool:
        if self._is_aborted:  # it was being accepted
            return False
        self._connections[connection.connection_id] = connection
        return self._admit(connection)

    def _admission(self, host: str) -> tuple[int, str | None]:
        """Decide about a new connection, for which a client that has not authenticated may have to make room.

        Returns for how many ms nothing is read from it, and why it is closed after that; None if it is served.
        """
        decision = self._quotas.admit(self.bound.listener.name, host)
        if decision.is_full and self._pool.memory.strangers.make_room():
            return 0, None
        return decision.delay_ms, decision.refusal

    def _admit(self, connection: Connection) -> bool:
        delay_ms, refusal = self._admission(connection.client_host)
        delay_s = delay_ms / 1000
        if refusal is None:
            if delay_s:
                connection.mute(delay_s)
            return True
        self.connection_refused(connection, refusal)
        if delay_s:
            # If it were closed at once, its client would reconnect at once. Nothing is read from it until then.
            connection.mute(2 * delay_s)
            connection.add_close_callback(
                self._loop.call_later(delay_s, DELAYED_CLOSE.callback(connection.abort)).cancel
            )
        return bool(delay_s)

    def connection_closed(self, connection: Connection) -> None:
        if self._connections.pop(connection.connection_id, None) is None:
            return
        self._left(connection)
        if not self._connections and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)

    def _left(self, connection: Connection) -> None:
        self._quotas.closed(self.bound.listener.name, connection.client_host)

    def connection_refused(self, connection: Connection, reason: str) -> None:
        self._log_refusal(connection.client_host, connection.client_port, reason)

    def _log_refusal(self, host: str, port: int, reason: str) -> None:
        """Log why a connection is closed, unless clients cause too much of that."""
        if self._refusals.allows(network_of(host)):
            listener = self.bound.listener
            log.warning(
                "connection_refused",
                client=f"{host}:{port}",
                listener=listener.name,
                protocol=str(listener.protocol),
                reason=reason,
            )

    # Idle connections

    def _schedule_idle_check(self) -> None:
        interval_s = min(MAX_IDLE_CHECK_INTERVAL_S, self._settings.connections_max_idle_ms / 4000)
        self._idle_timer = self._loop.call_later(interval_s, IDLE_CHECK.callback(self._check_idle))

    def _check_idle(self) -> None:
        self._schedule_idle_check()  # first, so that the next check comes even if this one fails
        latest_s = self._loop.time() - self._settings.connections_max_idle_ms / 1000
        for connection in list(self._connections.values()):
            if not connection.in_flight_count and connection.last_activity_s < latest_s:
                log.debug("idle_connection_closed", client=f"{connection.client_host}:{connection.client_port}")
                connection.abort()
