"""Sender of a connection: hands replies to the event loop's transport, encrypted or not, as fast as the client reads.

`socket_sender.py` has the faster ways that an unencrypted socket allows.
"""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence

from fencepost.broker.requests.long_polls import ReplyChunks
from fencepost.broker.storage.file_slice import FileSlice, is_mapped, portions_to_send
from fencepost.protocol.primitives import Buffer


class PartialSend(ABC):
    """The rest of a reply whose sending has begun.

    mapped_bytes: in the transport's buffer that are memory of the page cache, not of this process.
    """

    mapped_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the client has not taken, those in the transport's buffer excepted."""
        return 0

    @abstractmethod
    def resume(self) -> PartialSend | None:
        """Send what the client takes now; returns what is left, None if nothing is. Raises StorageError for a file that
        cannot be read: the client then has a part of the reply."""

    def close(self) -> None:  # noqa: B027  # most hold nothing that has to be closed
        """Send nothing more."""


class TransportSender:
    """Sends through a transport.

    is_blocked:     whether the transport's buffer is full: nothing is sent until it is not.
    is_closing:     returns whether nothing can be sent any more.
    buffered_bytes: returns the size of what the transport's buffer holds.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self._pauses = _pauses_when_full(transport)
        self.is_blocked = False
        self.is_closing = transport.is_closing
        self.buffered_bytes = transport.get_write_buffer_size

    def send(self, chunks: ReplyChunks) -> PartialSend | None:
        """Send the chunks of replies; returns what the client does not take yet, None if all is sent or in the
        transport's buffer. Raises StorageError."""
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
        return _PortionedSend(self, chunks).resume()


def _pauses_when_full(transport: asyncio.Transport) -> bool:
    """Whether `writelines` pauses the connection when the transport's buffer is full.

    asyncio's own never does from Python 3.12 on; uvloop's does. Source: CPython 3.13.0.
    """
    return sys.version_info[:2] < (3, 12) or type(transport).__module__ != "asyncio.selector_events"


class _PortionedSend(PartialSend):
    """Reads file slices portion by portion, when the transport's buffer has room for it."""

    def __init__(self, sender: TransportSender, chunks: ReplyChunks) -> None:
        self._sender = sender
        self._portions = portions_to_send(chunks)

    def resume(self) -> PartialSend | None:
        while not self._sender.is_blocked:
            portion = next(self._portions, None)
            if portion is None:
                return None
            self.mapped_bytes = sum(len(chunk) for chunk in portion if is_mapped(chunk))
            self._sender.write(portion)
        return self
