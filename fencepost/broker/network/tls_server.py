"""Server of a listener with TLS: counts a connection and decides about it before its handshake begins.

An event loop that accepts for TLS itself reports a connection only after the handshake: a client that is silent would
be counted nowhere. So sockets are accepted here, and the handshake is bounded in time and, for each address, in number.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from fencepost.broker.kernel.address_shares import AddressShares
from fencepost.broker.kernel.addresses import canonical_host
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.foreign_protocols import LONGEST_START_BYTES, TLS_HANDSHAKE, why_no_tls
from fencepost.broker.network.server import Server, SocketListener
from fencepost.broker.security.principal import ANONYMOUS, user_principal
from fencepost.broker.security.tls import ListenerTls
from fencepost.broker.security.tls_contexts import ON_FAILED_HANDSHAKE

if TYPE_CHECKING:
    from fencepost.broker.network.server import Acceptor

log = get_logger(__name__)

ACCEPT = Place("accepting of connections", Policy.RETRY)
HANDSHAKE = Place("TLS handshake", Policy.REPORT)

ACCEPTED_PER_TURN = 32
ACCEPT_PAUSE_S = 1.0
"""After the system had no descriptor or memory for a connection."""
HANDSHAKES_OF_ADDRESS = 64
"""Handshakes of one address at the same time. Others of it wait, so that a client with thousands of silent connections
delays its own only."""
MAXIMUM_HANDSHAKES = 256
"""Handshakes of all addresses at the same time, each of which takes 55 KiB. Beyond them, the address that has most
loses its oldest, if that is more than the new one's address has, or if it has taken long. Else the new one waits: after
a restart thousands of clients come at once, and if each ended the one before, no handshake would be done."""
UNDISTURBED_S = 1.0
"""Longest time of a handshake while others wait for its place."""
SHUTDOWN_TIMEOUT_S = 2.0
ALERT_TIMEOUT_S = 1.0
LARGEST_READ_BYTES = 64 * 1024
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_ALERTS = {
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority of this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept this broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "for the client, this broker's certificate has expired",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has shown no certificate, and ssl.client.auth=required",
    "UNSUPPORTED_PROTOCOL": "the client speaks no version of TLS that ssl.enabled.protocols has",
    "NO_SHARED_CIPHER": "the client has none of the cipher suites that are accepted",
    "UNEXPECTED_EOF_WHILE_READING": "the client closed the connection during the handshake",
}


class _Turns:
    """The handshakes of one address: at most HANDSHAKES_OF_ADDRESS run, the others wait."""

    def __init__(self) -> None:
        self.running = asyncio.Semaphore(HANDSHAKES_OF_ADDRESS)
        self.count = 0


class _Handshake:
    """A connection from its acceptance until its handshake is done. log_refusal: with its host and port."""

    def __init__(
        self,
        client: socket.socket,
        host: str,
        port: int,
        accepted_s: float,
        log_refusal: Callable[[str, int, str], None],
    ) -> None:
        self.client = client
        self.client_host = self.host = host
        self._log_refusal = log_refusal
        self.port = port
        self.accepted_s = accepted_s
        self.begun_s = accepted_s
        self.is_handed_over = False  # its transport closes the socket
        self.refused: socket.socket | None = None  # open until the client has read why
        self.task: asyncio.Task[None] | None = None
        self.connection_id = 0  # of the connection that it becomes; 0 for none yet

    def close_for(self, reason: str) -> None:
        """Log the reason and end it."""
        self._log_refusal(self.host, self.port, reason)
        if self.task is not None:
            self.task.cancel()

    def send_alert(self, alert: bytes) -> None:
        """Tell the client why the handshake has failed, before the transport closes its socket."""
        with suppress(OSError):
            self.refused = self.client.dup()
            self.refused.send(alert)
            self.refused.shutdown(socket.SHUT_WR)


class TlsServer(Server):
    """Accepts connections on a listener with TLS. tls: the certificates in force.

    failed_handshakes_count: number since the start of the server.
    """

    bound: SocketListener

    def __init__(self, bound: SocketListener, *arguments: Any, tls: ListenerTls, **named: Any) -> None:
        super().__init__(bound, *arguments, **named)
        self._tls = tls
        self._shows_principals = not bound.listener.protocol.uses_sasl
        self._handshakes: set[_Handshake] = set()
        self._turns: dict[str, _Turns] = {}
        self._running: AddressShares[_Handshake] = AddressShares()
        self._waiting: deque[asyncio.Future[None]] = deque()  # for the end of a handshake that is running
        self._arriving: dict[int, _Handshake] = {}
        self.failed_handshakes_count = 0

    @property
    def connection_count(self) -> int:
        """Open connections, those in their handshake among them."""
        return len(self._connections) + len(self._handshakes)

    @property
    def handshake_count(self) -> int:
        return len(self._handshakes)

    async def _accept_connections(self) -> Acceptor:
        return SocketAcceptor(
            self.bound.socket, self._accepted, backlog=self._settings.socket_listen_backlog_size, loop=self._loop
        )

    def refuse(self) -> None:
        super().refuse()
        self._give_up_handshakes()

    async def stop(self, drain_s: float) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        self._give_up_handshakes()
        await super().stop(drain_s)

    def _give_up_handshakes(self) -> None:
        for handshake in list(self._handshakes):
            if handshake.task is not None:
                handshake.task.cancel()

    def _accepted(self, client: socket.socket, address: Any) -> None:
        handshake = _Handshake(client, canonical_host(address[0]), address[1], self._loop.time(), self._log_refusal)
        delay_ms, refusal = self._admission(handshake.host)
        self._handshakes.add(handshake)
        if refusal is not None:
            self._log_refusal(handshake.host, handshake.port, refusal)
            if not delay_ms:
                self._ended(handshake)
                return
            work = asyncio.sleep(delay_ms / 1000)  # if it were closed at once, its client would reconnect at once
        else:
            work = self._bounded_handshake(handshake, delay_ms / 1000)
            self._pool.memory.strangers.connected(handshake)
        client.setblocking(False)
        handshake.task = HANDSHAKE.start(work, concerns=handshake.host)
        handshake.task.add_done_callback(HANDSHAKE.callback(lambda _: self._ended(handshake)))

    def _ended(self, handshake: _Handshake) -> None:
        """Forget a handshake, and close the connection unless it is served by now."""
        if handshake not in self._handshakes:
            return
        self._handshakes.discard(handshake)
        self._pool.memory.strangers.left(handshake)
        self._arriving.pop(handshake.connection_id, None)
        self._quotas.closed(self.bound.listener.name, handshake.host)
        if not handshake.is_handed_over:
            handshake.client.close()
        if handshake.refused is not None:
            handshake.refused.close()

    async def _bounded_handshake(self, handshake: _Handshake, delay_s: float) -> None:
        limit_s = self._settings.for_listener("fencepost.authentication.timeout.ms", self.bound.listener.name) / 1000
        reason = None
        try:
            await asyncio.sleep(delay_s)
            handshake.accepted_s = self._loop.time()
            async with asyncio.timeout(limit_s):
                reason = await self._take_turn(handshake, limit_s)
        except (TimeoutError, ConnectionAbortedError):
            reason = f"the TLS handshake was not done within {limit_s:g} s"
        except ssl.SSLError as error:
            reason = _described(error)
        except OSError as error:
            reason = f"the connection broke during the handshake: {error.strerror or 'the client closed it'}"
        if reason is not None and not self._is_aborted:
            self.failed_handshakes_count += 1
            self._log_refusal(handshake.host, handshake.port, reason)
        if handshake.refused is not None:
            await self._wait_until_read(handshake.refused)

    async def _wait_until_read(self, client: socket.socket) -> None:
        """Wait until the client has closed the connection, but not long.

        If it were closed with bytes of the client left unread, the system would drop the alert.
        """
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(ALERT_TIMEOUT_S):
                while await self._received(client, LARGEST_READ_BYTES):
                    pass

    async def _take_turn(self, handshake: _Handshake, limit_s: float) -> str | None:
        """Do the handshake when it is this connection's turn; returns the reason why it cannot be done."""
        turns = self._turns.setdefault(handshake.host, _Turns())
        turns.count += 1
        try:
            async with turns.running:
                return await self._shake_hands(handshake, limit_s)
        finally:
            turns.count -= 1
            if not turns.count:
                del self._turns[handshake.host]

    async def _shake_hands(self, handshake: _Handshake, limit_s: float) -> str | None:
        start = await self._start_of(handshake.client)
        if not start:
            return None  # the client left, as a check of an open port does
        if start[0] != TLS_HANDSHAKE:
            return why_no_tls(start)
        while len(self._running) >= MAXIMUM_HANDSHAKES:
            await self._make_room(handshake)
        handshake.begun_s = self._loop.time()
        self._running.hold(handshake, handshake.host)
        try:
            handshake.is_handed_over = True
            ON_FAILED_HANDSHAKE.set(handshake.send_alert)
            await self._loop.connect_accepted_socket(
                partial(self._new_tls_connection, handshake),
                handshake.client,
                ssl=self._tls.context,
                ssl_handshake_timeout=limit_s,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        finally:
            self._released(handshake)
        return None

    def _released(self, handshake: _Handshake) -> None:
        """Forget a handshake that was running, and wake the next one that waits for its place."""
        self._running.release(handshake)
        while self._waiting:
            ended = self._waiting.popleft()
            if not ended.done():
                ended.set_result(None)
                break

    async def _make_room(self, handshake: _Handshake) -> None:
        """End a handshake for another one, or wait until one has ended or may be."""
        oldest = self._running.oldest_of_greediest()
        assert oldest is not None, "there are many"
        undisturbed_s = oldest.begun_s + UNDISTURBED_S - self._loop.time()
        is_fair = self._running.share_of(oldest.host) <= self._running.share_of(handshake.host) + 1
        if is_fair and undisturbed_s > 0:
            ended: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(ended)
            try:
                await asyncio.wait([ended], timeout=undisturbed_s)
            finally:
                ended.cancel()
            return
        self._running.release(oldest)
        self.failed_handshakes_count += 1
        oldest.close_for(f"more than {MAXIMUM_HANDSHAKES} TLS handshakes are under way")

    async def _start_of(self, client: socket.socket) -> bytes:
        """The first bytes that a client sends, which stay in the socket; none if it closes the connection."""
        return await self._received(client, LONGEST_START_BYTES, socket.MSG_PEEK)

    async def _received(self, client: socket.socket, most_bytes: int, flags: int = 0) -> bytes:
        while True:
            with suppress(BlockingIOError, InterruptedError):
                return client.recv(most_bytes, flags)
            readable: asyncio.Future[None] = self._loop.create_future()
            self._loop.add_reader(client.fileno(), _resolve, readable)
            try:
                await readable
            finally:
                self._loop.remove_reader(client.fileno())

    def _new_tls_connection(self, handshake: _Handshake) -> Connection:
        connection = self._new_connection()
        connection.accepted_s = handshake.accepted_s
        handshake.connection_id = connection.connection_id
        self._arriving[connection.connection_id] = handshake
        return connection

    # ConnectionOwner

    def connection_opened(self, connection: Connection) -> bool:
        handshake = self._arriving.pop(connection.connection_id, None)
        if handshake is None or self._is_aborted:  # it was cancelled
            return False
        self._pool.memory.strangers.left(handshake)
        self._handshakes.discard(handshake)  # it is counted, and stays so until `connection_closed`
        self._connections[connection.connection_id] = connection
        if self._shows_principals:
            try:
                connection.principal = self._principal_of(connection)
            except ValueError as error:
                self.connection_refused(connection, str(error))
                return False
        return True

    def _principal_of(self, connection: Connection) -> str:
        """Raises ValueError, one line for the log."""
        name = self._tls.in_force.principal_name(connection.transport_extra("ssl_object"))
        return ANONYMOUS if name is None else user_principal(name)


class SocketAcceptor:
    """Accepts the connections of a listening socket, some in each turn of the loop."""

    def __init__(
        self,
        listening: socket.socket,
        accepted: Callable[[socket.socket, Any], None],
        *,
        backlog: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.sockets = (listening,)
        self._listening = listening
        self._accepted = accepted
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        listening.listen(backlog)
        self._begin()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening.fileno())

    def _begin(self) -> None:
        self._loop.add_reader(self._listening.fileno(), ACCEPT.callback(self._accept))

    def _accept(self) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            try:
                client, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                log.warning("connections_not_accepted", reason=error.strerror)
                self._loop.remove_reader(self._listening.fileno())
                self._timer = self._loop.call_later(ACCEPT_PAUSE_S, ACCEPT.callback(self._begin))
                return
            try:
                self._accepted(client, address)
            except BaseException:
                client.close()
                raise


def _resolve(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


def _described(error: ssl.SSLError) -> str:
    """The reason why a handshake failed, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    reason = error.reason or str(error)
    return _ALERTS.get(reason, f"the TLS handshake failed: {reason.lower().replace('_', ' ')}")
