"""Offset index, the `.index` file of a segment: positions of batches in the log file, one entry every few kilobytes.

An entry is 8 bytes, big-endian: the last offset of a batch relative to the segment's base offset (int32), and the
position of that batch's first byte (int32). Entries are loaded on first use and written when the segment is rolled,
swept or closed: recovery never needs an index, it is rebuilt from the log.
Source: Kafka's OffsetIndex.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from fencepost.broker.log.segment.rising_columns import rises

ENTRY_BYTES = 8


class CorruptIndexError(Exception):
    """An index file has entries that the log cannot have led to; it is rebuilt from the log."""


class OffsetIndex:
    """The entries of one segment, in order of their offsets.

    Both columns are int32 arrays: `last_offsets` relative to the base offset, `positions` in the log file.
    """

    __slots__ = ("last_offsets", "positions", "written_count")

    def __init__(self) -> None:
        self.last_offsets = array("i")
        self.positions = array("i")
        self.written_count = 0  # entries that the file holds

    @classmethod
    def from_bytes(cls, content: bytes | memoryview, log_size_bytes: int, offsets_count: int) -> OffsetIndex:
        """Read a file's content. Raises CorruptIndexError unless offsets and positions rise and stay inside the log.

        offsets_count: number of offsets that the segment may hold.
        """
        if len(content) % ENTRY_BYTES:
            raise CorruptIndexError(f"{len(content)} bytes are not whole entries of {ENTRY_BYTES}")
        index = cls()
        columns = array("i")
        columns.frombytes(content)
        if sys.byteorder == "little":
            columns.byteswap()
        index.last_offsets = columns[0::2]
        index.positions = columns[1::2]
        index.written_count = len(index.positions)
        if index.positions:
            if not rises(index.last_offsets) or not rises(index.positions):
                raise CorruptIndexError("its entries do not rise")
            if index.last_offsets[0] < 0 or index.positions[0] < 0 or index.positions[-1] >= log_size_bytes:
                raise CorruptIndexError("an entry points outside the log file")
            if index.last_offsets[-1] >= offsets_count:
                raise CorruptIndexError("an entry is about an offset behind the segment")
        return index

    def __len__(self) -> int:
        return len(self.positions)

    def append(self, last_offset: int, position: int) -> None:
        """Add a batch: its last offset relative to the base offset, and its position; both above all before."""
        self.last_offsets.append(last_offset)
        self.positions.append(position)

    def extend(self, last_offsets: Iterable[int], positions: Iterable[int]) -> None:
        """Add several batches, in order."""
        self.last_offsets.extend(last_offsets)
        self.positions.extend(positions)

    def position_before(self, offset: int) -> int:
        """Return the position of a batch at or before the one that holds `offset` (relative): the start of a search."""
        # The batch of an entry whose last offset is below may be skipped, but its end is not in the index.
        slot = bisect_left(self.last_offsets, offset)
        if slot < len(self.last_offsets) and self.last_offsets[slot] == offset:
            return self.positions[slot]
        return self.positions[slot - 1] if slot else 0

    def last_offset_at(self, position: int) -> int:
        """Return the last offset (relative) of the batch whose entry has this position."""
        return self.last_offsets[bisect_left(self.positions, position)]

    def batch_at_or_before(self, position: int) -> int:
        """Return the greatest indexed position of a batch up to `position`; 0 when there is none."""
        slot = bisect_right(self.positions, position)
        return self.positions[slot - 1] if slot else 0

    def last_position_below(self, offset: int) -> int:
        """Return the position of the last indexed batch whose last offset is below `offset` (relative); 0 when there is
        none."""
        slot = bisect_left(self.last_offsets, offset)
        return self.positions[slot - 1] if slot else 0

    def first_offset_from(self, position: int) -> int | None:
        """Return the last offset (relative) of the first indexed batch at or after `position`."""
        slot = bisect_left(self.positions, position)
        return self.last_offsets[slot] if slot < len(self.positions) else None

    def to_bytes(self) -> bytes:
        """Return the content of the whole file."""
        return _to_bytes(self.last_offsets, self.positions)

    def unwritten_bytes(self) -> bytes:
        """Return the entries that the file does not hold yet, encoded."""
        return self.bytes_from(self.written_count)

    def bytes_from(self, slot: int) -> bytes:
        """Return the entries from this one on, encoded."""
        return _to_bytes(self.last_offsets[slot:], self.positions[slot:])


def _to_bytes(last_offsets: array[int], positions: array[int]) -> bytes:
    columns = array("i", bytes(len(positions) * ENTRY_BYTES))
    columns[0::2] = last_offsets
    columns[1::2] = positions
    if sys.byteorder == "little":
        columns.byteswap()
    return columns.tobytes()
