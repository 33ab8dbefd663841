"""Megabytes of a log to clients on this machine: the system sends them from the page cache, and nothing is copied but
by the client.

The event loop's transports cannot do it, nor let anybody else wait for their sockets. So a reply that goes this way has
a descriptor of its own for the socket, for as long as it is on its way.

Only over loopback: to clients elsewhere, containers on the same machine among them, what is mapped and sent by the
transport was as fast or faster. And only with a bounded send buffer: with the megabytes that the system allows a
connection otherwise, it took twice the processor time.

A client that stops reading for seconds, and then goes on, may have to wait as long again: what its full receive buffer
dropped is sent again when the system's timer says so, which doubles each time. That is between the two systems' ends of
the connection, and so for what the transport sends, too.
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

LEAST_FILE_BYTES = 256 * 1024
"""Less of a file is copied in less time."""

SEND_BUFFER_BYTES = 192 * 1024
"""What the system reserves is twice that. Any process may ask for as much (`net.core.wmem_max`)."""


class SendfileTransfers:
    """What the connections of a node share, whichever listener they came to.

    descriptors:       where those of replies on their way come from.
    send_buffer_bytes: each socket's, where that is configured; negative where it is not.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptors: Descriptors, send_buffer_bytes: int) -> None:
        self._loop = loop
        self._descriptors = descriptors
        self._send_buffer_bytes = send_buffer_bytes
        self._is_possible = sys.platform == "linux"

    def begin(self, reply: PartialSend, descriptor: int, on_writable: Callable[[], None]) -> SendfileTransfer | None:
        """Begin to send a reply to the socket of a client on this machine, of which nothing else is to be sent now;
        None where it is to go another way.

        on_writable: called when a socket that was full takes more.
        """
        if not self._is_possible or reply.file_bytes < LEAST_FILE_BYTES:
            return None
        if not self._descriptors.has_room_for_each_connection:
            return None
        try:
            # Named, it is not asked for its family; what is sent is sent by any.
            client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=os.dup(descriptor))
        except OSError:
            return None
        if self._send_buffer_bytes < 0:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        return SendfileTransfer(reply, client, self._loop, on_writable)


class SendfileTransfer:
    """One reply on its way; to be closed when it is sent, or is to go on another way."""

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

    def go_on(self) -> bool:
        """Send what the socket takes; whether that is all. Raises OSError: then it is to go on another way."""
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
