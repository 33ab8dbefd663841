"""Segments of one log in order of their offsets, and searches over them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from fencepost.broker.log.log_types import AbortedRange
from fencepost.broker.log.segment.offset_index import CorruptIndexError
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.log.segment.segment_batches import NO_RECORDS, SegmentRead


class CorruptTransactionIndexError(Exception):
    """A segment's `.txnindex` cannot be right."""

    def __init__(self, segment: Segment, reason: str) -> None:
        super().__init__(reason)
        self.segment = segment


class LogSegments:
    """At least one segment; only the last, the active one, is appended to.

    departures_count: number of removals and replacements of segments.
    departed_bytes:   bytes by which these, and nothing else, have made the log smaller.
    """

    __slots__ = ("_base_offsets", "_segments", "active", "departed_bytes", "departures_count", "sealed_bytes")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.departures_count = 0
        self.departed_bytes = 0
        self.replace_all(segments)

    def replace_all(self, segments: Sequence[Segment]) -> None:
        self.departures_count += 1
        self._segments = list(segments)
        self._base_offsets = [segment.base_offset for segment in segments]
        self.active = self._segments[-1]
        self.sealed_bytes = sum(segment.size_bytes for segment in self._segments[:-1])

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def sealed(self) -> Sequence[Segment]:
        return self._segments[:-1]

    @property
    def size_bytes(self) -> int:
        return self.sealed_bytes + self.active.size_bytes

    def add(self, segment: Segment) -> None:
        """Add a new active segment, above all others."""
        segment.batches.known_epochs = self.active.batches.known_epochs
        self.sealed_bytes += self.active.size_bytes
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)
        self.active = segment

    def remove_first(self) -> Segment:
        """Remove the oldest segment; the active one stays."""
        self.departures_count += 1
        segment = self._segments.pop(0)
        del self._base_offsets[0]
        self.sealed_bytes -= segment.size_bytes
        self.departed_bytes += segment.size_bytes
        return segment

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace sealed neighbours by a cleaned segment."""
        new.batches.known_epochs = old[0].batches.known_epochs
        self.departed_bytes += sum(segment.size_bytes for segment in old) - new.size_bytes
        slot = self._segments.index(old[0])
        self._segments[slot : slot + len(old)] = [new]
        self.replace_all(self._segments)

    def next_base_offset(self, segment: Segment) -> int | None:
        """Return the base offset of the following segment; None for the active one."""
        slot = bisect_right(self._base_offsets, segment.base_offset)
        return self._base_offsets[slot] if slot < len(self._base_offsets) else None

    def after(self, segment: Segment) -> Segment | None:
        """Return the following segment; None for the active one."""
        slot = bisect_right(self._base_offsets, segment.base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def from_offset(self, offset: int) -> Sequence[Segment]:
        """Return the segment whose range an offset falls into, and all after it."""
        slot = max(0, bisect_right(self._base_offsets, offset) - 1)
        return self._segments[slot:] if slot else self._segments

    def read(
        self, offset: int, max_bytes: int, bound_offset: int, *, minimum_one_batch: bool, is_lazy: bool = False
    ) -> tuple[Segment, SegmentRead]:
        """Read batches of one segment, as `Segment.read` does; of the next one if compaction left a gap."""
        active = self.active
        if offset >= active.base_offset:
            found = active.read(offset, max_bytes, bound_offset, minimum_one_batch=minimum_one_batch, is_lazy=is_lazy)
            return active, found if found is not None else SegmentRead(NO_RECORDS, 0)
        for segment in self.from_offset(offset):
            found = segment.read(offset, max_bytes, bound_offset, minimum_one_batch=minimum_one_batch, is_lazy=is_lazy)
            if found is not None:
                return segment, found
        return active, SegmentRead(NO_RECORDS, 0)

    def aborted_transactions(self, segment: Segment, offset: int, end_position: int) -> list[AbortedRange]:
        """Return the aborted transactions with records from `offset` to a position in the segment: by first offset and
        marker.

        May include some that begin a little later. Raises CorruptTransactionIndexError.
        """
        aborted: list[AbortedRange] = []
        upper_offset: int | None = None
        for candidate in self.from_offset(segment.base_offset):
            if candidate.transactions.exists:
                if upper_offset is None:
                    upper_offset = segment.offset_bound_after(end_position)
                try:
                    index = candidate.transactions.index
                except CorruptIndexError as error:
                    raise CorruptTransactionIndexError(candidate, str(error)) from error
                if index.collect(offset, upper_offset, aborted):
                    break
        return aborted
