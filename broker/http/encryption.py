"""TLS of the HTTP listener: sockets are accepted and counted first, then each has some seconds for its handshake."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

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
"""At the same time. A connection beyond them is closed: silent clients hold no more than these."""


class EncryptingAcceptor:
    """Accepts connections of a bound socket, and hands them over once they are encrypted.

    tls: what is in force; a renewed certificate counts from the next connection on.
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
        self._handshakes: set[asyncio.Task[None]] = set()
        self._acceptor = SocketAcceptor(bound, self._accepted, backlog=backlog, loop=loop)

    def close(self) -> None:
        """Accept nothing more; give up what is in its handshake."""
        self._acceptor.close()
        for handshake in list(self._handshakes):
            handshake.cancel()

    def _accepted(self, client: socket.socket, address: Any) -> None:
        if len(self._handshakes) >= MAXIMUM_HANDSHAKES:
            client.close()
            return
        client.setblocking(False)
        handshake = HTTP_HANDSHAKE.start(self._shake_hands(client, address[0]), concerns=address[0])
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, client: socket.socket, host: str) -> None:
        is_handed_over = False  # its transport closes the socket, also if the handshake fails
        try:
            context = self._tls.context
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                is_handed_over = True
                await self._loop.connect_accepted_socket(
                    self._new_connection,
                    client,
                    ssl=context,
                    ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                    ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
                )
        except (TimeoutError, OSError) as error:  # ssl.SSLError is an OSError
            reason = error.reason if isinstance(error, ssl.SSLError) else str(error) or "it took too long"
            if self._log_limit.allows(network_of(host)):
                log.info("http_handshake_failed", client=host, reason=reason)
        finally:
            if not is_handed_over:
                client.close()
