"""Range of a file that is part of a reply: read piece by piece as the client takes it. Megabytes for a slow client, or
for hundreds of them, are never in memory as a whole.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.primitives import Buffer

PIECE_BYTES = 4 * 1024 * 1024
"""Most replies are smaller, and are read at once."""


def is_mapped(chunk: Buffer) -> bool:
    """Whether a piece is the page cache's own memory, which the system reclaims as it needs it."""
    return isinstance(chunk, memoryview) and isinstance(chunk.obj, mmap.mmap)


class SentFile(Protocol):
    """The methods of a `LogFile` that a slice needs."""

    @property
    def path(self) -> str: ...

    def read_to_send(self, position: int, length_bytes: int) -> memoryview: ...

    def send(self, descriptor: int, position: int, length_bytes: int) -> int: ...


class FileSlice:
    """A range of `length_bytes` from `position` in a file, which no longer changes. `len` returns its bytes.

    failed: called when the range cannot be read, before the reader gets the StorageError.
    """

    __slots__ = ("_file", "_length_bytes", "_position", "failed")

    def __init__(self, file: SentFile, position: int, length_bytes: int) -> None:
        self._file = file
        self._position = position
        self._length_bytes = length_bytes
        self.failed: Callable[[StorageError], None] | None = None

    def __len__(self) -> int:
        return self._length_bytes

    def from_position(self, skipped_bytes: int) -> FileSlice:
        """Return the rest of the slice, without its first bytes."""
        rest = FileSlice(self._file, self._position + skipped_bytes, self._length_bytes - skipped_bytes)
        rest.failed = self.failed
        return rest

    def send(self, descriptor: int) -> int:
        """Have the system send the first bytes to a socket; return how many it took, at least one.

        Raises BlockingIOError if the socket is full, another OSError for any other failure: `pieces` then raises if it
        is the file's.
        """
        sent_bytes = self._file.send(descriptor, self._position, self._length_bytes)
        if not sent_bytes:
            raise self._ended(self._position)
        return sent_bytes

    def pieces(self, most_bytes: int | None = None) -> Iterator[memoryview]:
        """Yield the bytes in pieces of at most `most_bytes`, or PIECE_BYTES, each read when it is asked for, and
        only to be sent.

        Pieces that have to be copied are smaller.
        Raises StorageError: for a file that cannot be read, or was closed meanwhile because its segment was deleted.
        """
        most_bytes = PIECE_BYTES if most_bytes is None else most_bytes
        position, end = self._position, self._position + self._length_bytes
        while position < end:
            try:
                piece = self._file.read_to_send(position, min(most_bytes, end - position))
                if not piece:
                    raise self._ended(position)
            except StorageError as error:
                if self.failed is not None:
                    self.failed(error)
                raise
            position += len(piece)
            yield piece

    def _ended(self, position: int) -> StorageError:
        end = self._position + self._length_bytes
        return StorageError(f"{self._file.path} ends at byte {position}, before byte {end}")


def portions_to_send(reply: Sequence[Buffer | FileSlice]) -> Iterator[list[Buffer]]:
    """Yield the chunks of a reply in portions to send one after another; slices are read when their portion is asked
    for. Raises StorageError."""
    portion: list[Buffer] = []
    for chunk in reply:
        if not isinstance(chunk, FileSlice):
            portion.append(chunk)
            continue
        for piece in chunk.pieces():
            portion.append(piece)
            yield portion
            portion = []
    if portion:
        yield portion
