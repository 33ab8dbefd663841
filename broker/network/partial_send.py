"""A reply of which parts lie in files, on its way to a client: what is left of it, whichever way it goes."""

from __future__ import annotations

import socket
import sys
from collections import deque
from collections.abc import Iterator, Sequence

from fencepost.broker.storage.file_slice import FileSlice, portions_to_send
from fencepost.protocol.primitives import Buffer

_MORE_FOLLOWS = socket.MSG_MORE if sys.platform == "linux" else 0
"""What is in memory does not leave by itself, so that its client is not woken for a few bytes."""


class PartialSend:
    """The chunks that are left."""

    __slots__ = ("_chunks",)

    def __init__(self, chunks: Sequence[Buffer | FileSlice]) -> None:
        self._chunks = deque(chunks)

    def __len__(self) -> int:
        """Bytes that are left."""
        return sum(map(len, self._chunks))

    @property
    def file_bytes(self) -> int:
        """As many of its bytes lie in files."""
        return sum(len(chunk) for chunk in self._chunks if isinstance(chunk, FileSlice))

    def send(self, client: socket.socket) -> bool:
        """Send until the socket is full (False) or nothing is left (True), files without reading them.

        Raises OSError where that is not possible, whether for the socket or a file: `portions` has what is left, and
        whoever sends those is told which.
        """
        chunks = self._chunks
        while chunks:
            chunk = chunks[0]
            try:
                if isinstance(chunk, FileSlice):
                    sent_bytes = chunk.send(client.fileno())
                else:
                    sent_bytes = client.send(chunk, _MORE_FOLLOWS if len(chunks) > 1 else 0)
            except BlockingIOError:
                return False
            if sent_bytes == len(chunk):
                chunks.popleft()
            else:
                chunks[0] = (
                    chunk.from_position(sent_bytes) if isinstance(chunk, FileSlice) else memoryview(chunk)[sent_bytes:]
                )
        return True

    def portions(self) -> Iterator[list[Buffer]]:
        """What is left when the first is asked for, read portion by portion. Raises StorageError."""
        return portions_to_send(self._chunks)
