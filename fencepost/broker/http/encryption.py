"""TLS of the HTTP listener: sockets are accepted and counted first, then each has some seconds for its handshake."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from fencepost.broker.kernel.address_shares import AddressShares
from fencepost.broker.kernel.addresses import network_of
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.log_limit import LogLimit
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.network.tls_server import SHUTDOWN_TIMEOUT_S, SocketAcceptor
from fencepost.broker.security.tls import ListenerTls

log = get_logger(__name__)

HTTP_HANDSHAKE = Place("TLS handshake of an HTTP connection", Policy.REPORT)

HANDSHAKE_TIMEOUT_S: Final = 5.0
MAXIMUM_HANDSHAKES: Final = 32
"""Handshakes at the same time. Beyond them, the oldest of the address that has most of them is closed for a new one:
silent clients hold no more than these, and exclude no other client."""


class _Accepted:
    """A connection until its handshake is done. is_handed_over: its transport closes the socket, also after errors."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.is_handed_over = False


class EncryptingAcceptor:
    """Accepts connections of a bound socket, and hands them over once they are encrypted.

    tls: the certificates in force; a renewed one counts from the next connection on.
    """

    def __init__(
        self,
        bound: socket.socket,
        tls: ListenerTls,
        new_connection: Callable[[], asyncio.Protocol],
        backlog: int,
        log_limit: LogLimit,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._tls = tls
        self._new_connection = new_connection
        self._log_limit = log_limit
        self._loop = loop
        self._handshakes: AddressShares[asyncio.Task[None]] = AddressShares()
        self._acceptor = SocketAcceptor(bound, self._accepted, backlog=backlog, loop=loop)

    def close(self) -> None:
        """Accept no further connections; cancel the handshakes."""
        self._acceptor.close()
        for handshake in self._handshakes.holders():
            handshake.cancel()

    def _accepted(self, client: socket.socket, address: Any) -> None:
        if len(self._handshakes) >= MAXIMUM_HANDSHAKES:
            oldest = self._handshakes.oldest_of_greediest()
            assert oldest is not None, "there are many"
            self._handshakes.release(oldest)
            oldest.cancel()
        client.setblocking(False)
        accepted = _Accepted(client)
        handshake = HTTP_HANDSHAKE.start(self._shake_hands(accepted, address[0]), concerns=address[0])
        self._handshakes.hold(handshake, address[0])

        def ended(handshake: asyncio.Task[None]) -> None:
            self._handshakes.release(handshake)
            if not accepted.is_handed_over:  # it may have been cancelled before its first step
                client.close()

        handshake.add_done_callback(HTTP_HANDSHAKE.callback(ended))

    async def _shake_hands(self, accepted: _Accepted, host: str) -> None:
        try:
            context = self._tls.context
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                accepted.is_handed_over = True
                await self._loop.connect_accepted_socket(
                    self._new_connection,
                    accepted.client,
                    ssl=context,
                    ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                    ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
                )
        except (TimeoutError, OSError) as error:  # ssl.SSLError is an OSError
            reason = error.reason if isinstance(error, ssl.SSLError) else str(error) or "it took too long"
            if self._log_limit.allows(network_of(host)):
                log.info("http_handshake_failed", client=host, reason=reason)
