"""Sender of an unencrypted connection: writes to the socket itself if that is faster than its transport.

A single chunk is written in the step that made it. uvloop's transports send at the end of the loop's turn: a waiting
consumer would get a record only when its producer is answered.

Large file slices are sent by sendfile: from the page cache, without a copy in the broker. Nothing but the transport may
wait for its socket, so each such transfer has its own descriptor of the socket until it ends. Only over loopback: to
clients elsewhere, containers on the same machine among them, mapped files sent by the transport were as fast or faster.
And only with a bounded send buffer: with the megabytes that the system allows otherwise, it took twice the processor
time. A client that stops reading for seconds may then have to wait as long again, with the transport, too: the system
repeats the bytes that the client's full receive buffer dropped, after a delay that doubles each time.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.network.sender import PartialSend, TlsSender, TransportSender
from fencepost.broker.requests.long_polls import ReplyChunks
from fencepost.broker.storage.descriptors import Descriptors
from fencepost.broker.storage.file_slice import FileSlice

WRITABLE = Place("direct send of a reply", Policy.REPORT)

MIN_FILE_BYTES = 256 * 1024
"""A copy of fewer file bytes is faster than a transfer."""

SEND_BUFFER_BYTES = 192 * 1024
"""The system reserves twice that. It allows every process this much (`net.core.wmem_max`)."""

_MORE_FOLLOWS = socket.MSG_MORE if sys.platform == "linux" else 0
"""Bytes in memory wait for the file bytes that follow, so that the client is not woken for a few bytes."""


class SendfileSockets:
    """Descriptors for transfers by sendfile; one for all listeners of a node.

    descriptors:       bounds the descriptors of transfers.
    send_buffer_bytes: each socket's, if that is configured; else negative.
    """

    def __init__(self, descriptors: Descriptors, send_buffer_bytes: int) -> None:
        self._descriptors = descriptors
        self._send_buffer_bytes = send_buffer_bytes

    def duplicate(self, descriptor: int) -> socket.socket | None:
        """Duplicate the descriptor of a client on this machine; None if the transport has to send the reply."""
        if sys.platform != "linux" or not self._descriptors.has_room_for_each_connection:
            return None
        try:
            # A named family saves a system call; sending works with any.
            client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=os.dup(descriptor))
        except OSError:
            return None
        if self._send_buffer_bytes < 0:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        return client


def new_sender(
    transport: asyncio.Transport, sendfile_sockets: SendfileSockets, on_writable: Callable[[], None]
) -> TransportSender:
    """Make the sender for a transport. on_writable: called when the socket can take more of a transfer beside it."""
    if transport.get_extra_info("sslcontext") is not None:
        return TlsSender(transport)
    if transport.get_extra_info("socket") is None:
        return TransportSender(transport)
    return SocketSender(transport, sendfile_sockets, on_writable)


class SocketSender(TransportSender):
    """Sends to a descriptor, behind the transport's buffer; the bytes that it does not take go to the transport."""

    def __init__(
        self, transport: asyncio.Transport, sendfile_sockets: SendfileSockets, on_writable: Callable[[], None]
    ) -> None:
        super().__init__(transport)
        self._descriptor: int = transport.get_extra_info("socket").fileno()
        # Replies to a client that connected from the address that it connected to do not leave the machine.
        here, there = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        self._sendfile_sockets = sendfile_sockets if here and there and here[0] == there[0] else None
        self.on_writable = on_writable

    def send(self, chunks: ReplyChunks) -> PartialSend | None:
        if len(chunks) == 1 and not self.buffered_bytes():
            chunk: Any = chunks[0]  # a file slice has others before it
            try:
                sent_bytes = os.write(self._descriptor, chunk)
            except OSError:  # the socket is full, or the transport meets the cause
                sent_bytes = 0
            if sent_bytes == len(chunk):
                return None
            chunks = (memoryview(chunk)[sent_bytes:],)
        return super().send(chunks)

    def send_files(self, chunks: ReplyChunks) -> PartialSend | None:
        client = None
        if self._sendfile_sockets is not None and not self.buffered_bytes():
            file_bytes = sum(len(chunk) for chunk in chunks if isinstance(chunk, FileSlice))
            client = self._sendfile_sockets.duplicate(self._descriptor) if file_bytes >= MIN_FILE_BYTES else None
        return super().send_files(chunks) if client is None else _SendfileTransfer(self, chunks, client).resume()

    def send_without_sendfile(self, chunks: ReplyChunks) -> PartialSend | None:
        """Send the rest of a reply after sendfile has failed, by the socket or by a file: the transport meets the
        cause."""
        self._sendfile_sockets = None
        return super().send_files(chunks)


class _SendfileTransfer(PartialSend):
    """The transfer of one reply."""

    def __init__(self, sender: SocketSender, chunks: ReplyChunks, client: socket.socket) -> None:
        self._sender = sender
        self._chunks = deque(chunks)
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None  # while it watches the socket

    @property
    def unsent_bytes(self) -> int:
        return sum(map(len, self._chunks))

    def resume(self) -> PartialSend | None:
        try:
            self._send()
        except BlockingIOError:
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
                self._loop.add_writer(self._client.fileno(), WRITABLE.callback(self._sender.on_writable))
            return self
        except OSError:
            self.close()
            return self._sender.send_without_sendfile(self._chunks)
        self.close()
        return None

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_writer(self._client.fileno())
            self._loop = None
        self._client.close()

    def _send(self) -> None:
        """Send all chunks, those of files without reading them. Raises BlockingIOError when the socket is full, another
        OSError when it or a file fails."""
        chunks = self._chunks
        while chunks:
            chunk = chunks[0]
            if isinstance(chunk, FileSlice):
                sent_bytes = chunk.send(self._client.fileno())
            else:
                sent_bytes = self._client.send(chunk, _MORE_FOLLOWS if len(chunks) > 1 else 0)
            if sent_bytes == len(chunk):
                chunks.popleft()
            elif isinstance(chunk, FileSlice):
                chunks[0] = chunk.from_position(sent_bytes)
            else:
                chunks[0] = memoryview(chunk)[sent_bytes:]
