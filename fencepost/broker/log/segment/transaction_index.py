"""Transaction index, the `.txnindex` file of a segment: the aborted transactions whose marker is in the segment.

A read_committed consumer gets them with the data and skips their records. An entry is 34 bytes, big-endian: int16
version, producer id, first offset, last offset (the marker's), last stable offset (all int64). Last offsets rise.
Source: Kafka's TransactionIndex and AbortedTxn.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from typing import Final, NamedTuple

from fencepost.broker.log.log_types import AbortedRange
from fencepost.broker.log.segment.offset_index import CorruptIndexError

TRANSACTION_INDEX_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_VERSION: Final = 0


class TransactionIndexEntry(NamedTuple):
    """One aborted transaction.

    last_offset:        offset of the marker.
    last_stable_offset: last stable offset right after the marker's append: the first offset of the earliest transaction
                        that was still open then, else the offset after the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def to_bytes(self) -> bytes:
        """Return the entry's 34 bytes."""
        return TRANSACTION_INDEX_ENTRY.pack(ENTRY_VERSION, *self)


class TransactionIndex:
    """The entries of one segment, four numbers side by side, in the order of the markers."""

    __slots__ = ("_first_offsets", "_last_offsets", "_last_stable_offsets", "_producer_ids")

    def __init__(self) -> None:
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._last_stable_offsets = array("q")

    @classmethod
    def from_bytes(cls, content: bytes | memoryview, *, base_offset: int, end_offset: int) -> TransactionIndex:
        """Read the file of the segment with the offsets from `base_offset` to before `end_offset`.

        Raises CorruptIndexError if its content cannot be right.
        """
        if len(content) % TRANSACTION_INDEX_ENTRY.size:
            raise CorruptIndexError(f"{len(content)} bytes are not whole entries of {TRANSACTION_INDEX_ENTRY.size}")
        index = cls()
        previous = base_offset - 1
        for version, *fields in TRANSACTION_INDEX_ENTRY.iter_unpack(content):
            entry = TransactionIndexEntry._make(fields)
            if version != ENTRY_VERSION:
                raise CorruptIndexError(f"entry {len(index)} has version {version}")
            if not 0 <= entry.first_offset < entry.last_offset:
                raise CorruptIndexError(f"entry {len(index)} spans {entry.first_offset} to {entry.last_offset}")
            if entry.last_offset <= previous:
                raise CorruptIndexError(f"entry {len(index)} ends at {entry.last_offset}, not after {previous}")
            if entry.last_offset >= end_offset:
                raise CorruptIndexError(f"entry {len(index)} ends at {entry.last_offset}, behind the segment")
            if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
                raise CorruptIndexError(f"entry {len(index)} has the last stable offset {entry.last_stable_offset}")
            previous = entry.last_offset
            index.append(entry)
        return index

    def __len__(self) -> int:
        return len(self._last_offsets)

    def __getitem__(self, slot: int) -> TransactionIndexEntry:
        return TransactionIndexEntry(
            self._producer_ids[slot],
            self._first_offsets[slot],
            self._last_offsets[slot],
            self._last_stable_offsets[slot],
        )

    def append(self, entry: TransactionIndexEntry) -> None:
        """Add a transaction; its marker must be after all before."""
        self._producer_ids.append(entry.producer_id)
        self._first_offsets.append(entry.first_offset)
        self._last_offsets.append(entry.last_offset)
        self._last_stable_offsets.append(entry.last_stable_offset)

    def collect(self, fetch_offset: int, upper_offset: int, into: list[AbortedRange]) -> bool:
        """Add the transactions that overlap the offsets from `fetch_offset` to before `upper_offset`.

        Returns whether these are all: if False, the caller continues in the next segment's index.
        """
        for slot in range(bisect_left(self._last_offsets, fetch_offset), len(self._last_offsets)):
            first_offset = self._first_offsets[slot]
            if first_offset < upper_offset:
                into.append(AbortedRange(self._producer_ids[slot], first_offset))
            if self._last_stable_offsets[slot] >= upper_offset:
                return True
        return False

    def truncate(self, log_end_offset: int) -> int:
        """Remove the transactions whose marker is at or after `log_end_offset`; return how many bytes the file
        keeps."""
        count = bisect_left(self._last_offsets, log_end_offset)
        for column in (self._producer_ids, self._first_offsets, self._last_offsets, self._last_stable_offsets):
            del column[count:]
        return count * TRANSACTION_INDEX_ENTRY.size

    def to_bytes(self) -> bytes:
        """Return the content of the whole file."""
        return self.bytes_from(0)

    def bytes_from(self, slot: int) -> bytes:
        """Return the entries from this one on, encoded."""
        return b"".join(self[each].to_bytes() for each in range(slot, len(self)))
