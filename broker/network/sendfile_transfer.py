"""Sendfile transfers of large replies to clients on this machine: the system sends log bytes from the page cache,
without a copy in the broker.

The event loop's transports cannot do this, and nothing else may wait for their sockets. So each transfer has its own
descriptor of the socket until it ends.

Only over loopback: to clients elsewhere, containers on the same machine among them, mapped files sent by the transport
were as fast or faster. And only with a bounded send buffer: with the megabytes that the system allows a connection
otherwise, it took twice the processor time.

A client that stops reading for seconds, and then goes on, may have to wait as long again: the system sends again what
the client's full receive buffer dropped, after a delay that doubles each time. The transport's sends have the same
delay.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable

from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.network.partial_send import PartialSend
from fencepost.broker.storage.descriptors import Descriptors

WRITABLE = Place("direct send of a reply", Policy.REPORT)

MIN_FILE_BYTES = 256 * 1024
"""A copy of fewer file bytes is faster than a transfer."""

SEND_BUFFER_BYTES = 192 * 1024
"""The system reserves twice that. It allows every process this much (`net.core.wmem_max`)."""


class SendfileTransfers:
    """Starts transfers; one for all listeners of a node.

    descriptors:       bounds the descriptors of transfers.
    send_buffer_bytes: each socket's, if that is configured; else negative.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptors: Descriptors, send_buffer_bytes: int) -> None:
        self._loop = loop
        self._descriptors = descriptors
        self._send_buffer_bytes = send_buffer_bytes
        self._is_possible = sys.platform == "linux"

    def begin(self, reply: PartialSend, descriptor: int, on_writable: Callable[[], None]) -> SendfileTransfer | None:
        """Prepare the transfer of a reply to the socket of a client on this machine, for which no other bytes wait;
        None if the transport has to send it.

        on_writable: called when a socket that was full takes more.
        """
        if not self._is_possible or reply.file_bytes < MIN_FILE_BYTES:
            return None
        if not self._descriptors.has_room_for_each_connection:
            return None
        try:
            # A named family saves a system call; sending works with any.
            client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=os.dup(descriptor))
        except OSError:
            return None
        if self._send_buffer_bytes < 0:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        return SendfileTransfer(reply, client, self._loop, on_writable)


class SendfileTransfer:
    """The transfer of one reply; to be closed when the reply is sent or the transport takes it over."""

    def __init__(
        self,
        reply: PartialSend,
        client: socket.socket,
        loop: asyncio.AbstractEventLoop,
        on_writable: Callable[[], None],
    ) -> None:
        self.reply = reply
        self._client = client
        self._loop = loop
        self._on_writable = on_writable
        self._is_waiting = False

    def resume(self) -> bool:
        """Send what the socket takes; True if that is all. Raises OSError: then the transport takes the reply over."""
        if self.reply.send(self._client):
            return True
        if not self._is_waiting:
            self._is_waiting = True
            self._loop.add_writer(self._client.fileno(), WRITABLE.callback(self._on_writable))
        return False

    def close(self) -> None:
        if self._is_waiting:
            self._loop.remove_writer(self._client.fileno())
        self._client.close()
