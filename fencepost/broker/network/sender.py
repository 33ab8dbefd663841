"""Sender of a connection: hands replies to the event loop's transport, encrypted or not, as fast as the client reads.

`socket_sender.py` has the faster ways that an unencrypted socket allows.
"""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from fencepost.broker.requests.long_polls import ReplyChunks
from fencepost.broker.storage.file_slice import FileSlice, is_mapped, portions_to_send
from fencepost.protocol.primitives import Buffer

ENCRYPTED_BYTES = 256 * 1024
"""The most that a connection with TLS has encrypted and not sent, beside the portion that goes beyond it."""
ENCRYPTED_PORTION_BYTES = 128 * 1024
JOINED_BYTES = 16 * 1024
"""The most that fits into one record of TLS."""


class PartialSend(ABC):
    """The rest of a reply whose sending has begun.

    mapped_bytes: bytes in the transport's buffer that are memory of the page cache, not of this process.
    """

    mapped_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the client has not taken, those in the transport's buffer excepted."""
        return 0

    @abstractmethod
    def resume(self) -> PartialSend | None:
        """Send as much as the client takes now; returns the rest, None if there is none. Raises StorageError for a
        file that cannot be read: the client then has a part of the reply."""

    def close(self) -> None:  # noqa: B027  # most hold nothing that has to be closed
        """Stop sending, and drop the rest."""


class TransportSender:
    """Sends through a transport.

    is_blocked:     whether the transport's buffer is full: nothing is sent until it is not.
    is_closing:     returns whether nothing can be sent any more.
    buffered_bytes: returns the size of the transport's buffer.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self._pauses = _pauses_when_full(transport)
        self.is_blocked = False
        self.is_closing = transport.is_closing
        self.buffered_bytes = transport.get_write_buffer_size

    def send(self, chunks: ReplyChunks) -> PartialSend | None:
        """Send the chunks of replies; returns the part that the client does not take yet, None if all is sent or in
        the transport's buffer. Raises StorageError."""
        if FileSlice in map(type, chunks):
            return self.send_files(chunks)
        self.write(chunks)  # type: ignore[arg-type]  # none is a file slice
        return None

    def write(self, chunks: Sequence[Buffer]) -> None:
        """Write chunks to the transport."""
        if self._pauses:
            self.transport.writelines(chunks)
        else:
            for chunk in chunks:
                self.transport.write(chunk)

    def send_files(self, chunks: ReplyChunks) -> PartialSend | None:
        """Do `send` for chunks with file slices."""
        return _PortionedSend(self, portions_to_send(chunks)).resume()


class TlsSender(TransportSender):
    """Sends through a transport that encrypts. Bytes that the client has not taken are in memory, so the transport gets
    little at a time. It makes a record of TLS of each chunk, so small ones are joined."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        transport.set_write_buffer_limits(high=ENCRYPTED_BYTES)

    def send(self, chunks: ReplyChunks) -> PartialSend | None:
        size_bytes = sum(map(len, chunks))
        if size_bytes <= JOINED_BYTES and FileSlice not in map(type, chunks):
            self.write(chunks if len(chunks) == 1 else [b"".join(chunks)])  # type: ignore[arg-type]  # as above
            return None
        return self.send_files(chunks)

    def send_files(self, chunks: ReplyChunks) -> PartialSend | None:
        return _PortionedSend(self, _small_portions(chunks)).resume()


def _small_portions(chunks: ReplyChunks) -> Iterator[list[Buffer]]:
    """Yield the chunks in portions of at most ENCRYPTED_PORTION_BYTES. Raises StorageError."""
    for chunk in chunks:
        if isinstance(chunk, FileSlice):
            for piece in chunk.pieces(ENCRYPTED_PORTION_BYTES):
                yield [piece]
        else:
            view = memoryview(chunk)
            for position in range(0, len(view), ENCRYPTED_PORTION_BYTES):
                yield [view[position : position + ENCRYPTED_PORTION_BYTES]]


def _pauses_when_full(transport: asyncio.Transport) -> bool:
    """Whether `writelines` pauses the connection when the transport's buffer is full.

    asyncio's own never does from Python 3.12 on; uvloop's does. Source: CPython 3.13.0.
    """
    return sys.version_info[:2] < (3, 12) or type(transport).__module__ != "asyncio.selector_events"


class _PortionedSend(PartialSend):
    """Reads file slices portion by portion, when the transport's buffer has room for it."""

    def __init__(self, sender: TransportSender, portions: Iterator[list[Buffer]]) -> None:
        self._sender = sender
        self._portions = portions

    def resume(self) -> PartialSend | None:
        while not self._sender.is_blocked:
            portion = next(self._portions, None)
            if portion is None:
                return None
            self.mapped_bytes = sum(len(chunk) for chunk in portion if is_mapped(chunk))
            self._sender.write(portion)
        return self
