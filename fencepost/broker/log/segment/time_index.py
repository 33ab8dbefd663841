"""Time index, the `.timeindex` file of a segment: the greatest timestamp of all records up to an offset.

An entry is 12 bytes, big-endian: the greatest timestamp of all records so far (int64, ms), and the last offset of the
batch that holds it, relative to the segment's base offset (int32). Timestamps rise from entry to entry.
Source: Kafka's TimeIndex.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left

from fencepost.broker.log.segment.offset_index import CorruptIndexError
from fencepost.broker.log.segment.rising_columns import rises

TIME_INDEX_ENTRY = struct.Struct(">qi")
_UPPER = 1 if sys.byteorder == "little" else 0  # place of a timestamp's upper half in memory; in the file it is 0


class TimeIndex:
    """The entries of one segment: `timestamps_ms` (int64) and `last_offsets` (int32, relative to the base offset).

    greatest_timestamp_ms: timestamp of the last entry; -1 if there is none.
    """

    __slots__ = ("greatest_timestamp_ms", "last_offsets", "timestamps_ms", "written_count")

    def __init__(self) -> None:
        self.greatest_timestamp_ms = -1
        self.timestamps_ms = array("q")
        self.last_offsets = array("i")
        self.written_count = 0  # entries that the file holds

    @classmethod
    def from_bytes(cls, content: bytes | memoryview, offsets_count: int) -> TimeIndex:
        """Read a file's content. Raises CorruptIndexError unless timestamps and offsets rise and are in the segment.

        offsets_count: number of offsets that the segment may hold.
        """
        if len(content) % TIME_INDEX_ENTRY.size:
            raise CorruptIndexError(f"{len(content)} bytes are not whole entries of {TIME_INDEX_ENTRY.size}")
        index = cls()
        if content:
            # In columns, without Python for every entry: a segment has a quarter of a million.
            words = array("I", bytes(content))
            if sys.byteorder == "little":
                words.byteswap()
            timestamps = array("I", bytes(2 * len(content) // TIME_INDEX_ENTRY.size * words.itemsize))
            timestamps[_UPPER::2], timestamps[1 - _UPPER :: 2] = words[0::3], words[1::3]
            index.timestamps_ms.frombytes(memoryview(timestamps).cast("B"))
            index.last_offsets.frombytes(memoryview(words[2::3]).cast("B"))
        index.written_count = len(index.last_offsets)
        is_rising = rises(index.timestamps_ms) and rises(index.last_offsets, strictly=False)
        if not is_rising or (index.last_offsets and index.last_offsets[0] < 0):
            raise CorruptIndexError("its entries do not rise")
        if index.last_offsets and index.last_offsets[-1] >= offsets_count:
            raise CorruptIndexError("an entry is about an offset behind the segment")
        index.greatest_timestamp_ms = index.timestamps_ms[-1] if index.timestamps_ms else -1
        return index

    def __len__(self) -> int:
        return len(self.last_offsets)

    def append(self, timestamp_ms: int, last_offset: int) -> None:
        """Add an entry, if its timestamp is above all before and above -1, which is no time."""
        if timestamp_ms > self.greatest_timestamp_ms:
            self.greatest_timestamp_ms = timestamp_ms
            self.timestamps_ms.append(timestamp_ms)
            self.last_offsets.append(last_offset)

    def offset_before(self, timestamp_ms: int) -> int:
        """Return an offset (relative) below which no record has a timestamp of `timestamp_ms` or later."""
        slot = bisect_left(self.timestamps_ms, timestamp_ms)
        return self.last_offsets[slot - 1] + 1 if slot else 0

    def to_bytes(self) -> bytes:
        """Return the content of the whole file."""
        return _to_bytes(self.timestamps_ms, self.last_offsets)

    def unwritten_bytes(self) -> bytes:
        """Return the entries that the file does not hold yet, encoded."""
        return self.bytes_from(self.written_count)

    def bytes_from(self, slot: int) -> bytes:
        """Return the entries from this one on, encoded."""
        return _to_bytes(self.timestamps_ms[slot:], self.last_offsets[slot:])


def _to_bytes(timestamps_ms: array[int], last_offsets: array[int]) -> bytes:
    """Encode entries, in columns as `TimeIndex.from_bytes` decodes them."""
    halves = array("I", timestamps_ms.tobytes())
    words = array("I", bytes(len(last_offsets) * TIME_INDEX_ENTRY.size))
    words[0::3], words[1::3] = halves[_UPPER::2], halves[1 - _UPPER :: 2]
    words[2::3] = array("I", last_offsets.tobytes())
    if sys.byteorder == "little":
        words.byteswap()
    return words.tobytes()
