"""Partial send of a reply with file slices: its unsent chunks, for the transport or for sendfile."""

from __future__ import annotations

import socket
import sys
from collections import deque
from collections.abc import Iterator, Sequence

from fencepost.broker.storage.file_slice import FileSlice, portions_to_send
from fencepost.protocol.primitives import Buffer

_MORE_FOLLOWS = socket.MSG_MORE if sys.platform == "linux" else 0
"""Bytes in memory wait for the file bytes that follow, so that the client is not woken for a few bytes."""


class PartialSend:
    """The unsent chunks of a reply; some are file slices."""

    __slots__ = ("_chunks",)

    def __init__(self, chunks: Sequence[Buffer | FileSlice]) -> None:
        self._chunks = deque(chunks)

    def __len__(self) -> int:
        """Unsent bytes."""
        return sum(map(len, self._chunks))

    @property
    def file_bytes(self) -> int:
        """Unsent bytes that lie in files."""
        return sum(len(chunk) for chunk in self._chunks if isinstance(chunk, FileSlice))

    def send(self, client: socket.socket) -> bool:
        """Send until the socket is full (False) or nothing is left (True); files are sent without reading them.

        Raises OSError if the socket or a file fails: sending the `remaining_portions` then shows which.
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

    def remaining_portions(self) -> Iterator[list[Buffer]]:
        """Read the unsent chunks portion by portion; which chunks is decided at the first one. Raises StorageError."""
        return portions_to_send(self._chunks)
