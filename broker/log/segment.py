"""One segment of a partition's log: appends of batches, and reads of whole batches.

`broker.log.segment_files` has its files and indexes.
Source: Kafka's LogSegment.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from fencepost.broker.log.batch_scan import DamagedLogError
from fencepost.broker.log.checked_ranges import CheckedRange
from fencepost.broker.log.header_check import check_headers
from fencepost.broker.log.header_plausibility import MAX_RELATIVE_OFFSET, HeaderFault
from fencepost.broker.log.log_config import MAX_INT64
from fencepost.broker.log.segment_files import SegmentFiles
from fencepost.broker.storage.file_slice import FileSlice
from fencepost.protocol.record_batch import HEADER_BYTES

NO_RECORDS = memoryview(b"")
MAX_POSITION = 2**31 - 1
SMALL_READ_BYTES = 64 * 1024  # read at once, even lazily, with its surroundings; more than is copied into a reply
_WALK = struct.Struct(">qi11xi")  # base offset, batch length, last offset delta
_LENGTH_OVERHEAD = 12
_SMALLEST_LENGTH = HEADER_BYTES - _LENGTH_OVERHEAD


class SegmentRead(NamedTuple):
    """Whole batches, and the position after the last one. A lazy read leaves many of them in `slice`, not in memory."""

    records: memoryview
    end_position: int
    slice: FileSlice | None = None


class SegmentLimits(NamedTuple):
    """Limits within which a segment takes batches.

    age_ms: from the greatest timestamp of the first batch to that of the last; no limit where one has no timestamp.
    """

    size_bytes: int
    index_entries_count: int
    age_ms: int


class _FaultFoundError(DamagedLogError):
    """Damage that a misleading index may have caused."""

    def __init__(self, message: str, fault: HeaderFault) -> None:
        super().__init__(message)
        self.fault = fault


class Segment(SegmentFiles):
    """A segment of a log. The last one of a log is active; all others are sealed and take no more batches."""

    __slots__ = ()

    # Append

    def append(
        self,
        buffers: tuple[bytes | bytearray | memoryview, ...],
        size_bytes: int,
        last_offset: int,
        max_timestamp_ms: int,
        limits: SegmentLimits | None = None,
    ) -> bool:
        """Write one batch, given in pieces, at the end. Returns False where `has_room_for` finds that it does not fit.

        size_bytes: of all pieces together.
        limits:     None where the caller knows that the batch fits.
        Raises StorageError; the segment is then as it was.
        """
        file = self.log
        position = file.size_bytes
        # The first check of `has_room_for`, repeated here: it saves nearly all appends a call.
        if (
            limits is not self._room_limits
            or position + size_bytes > self._room_end_position
            or last_offset > self._room_last_offset
            or max_timestamp_ms > self._room_max_timestamp_ms
        ) and not (limits is None or self.has_room_for(size_bytes, last_offset, max_timestamp_ms, limits)):
            return False
        file.append(*buffers)
        self.was_changed = True
        if not position:
            self._first_timestamp_ms = max_timestamp_ms
            self._room_limits = None
        greatest_ms = self._max_timestamp_ms
        if greatest_ms is None:
            greatest_ms = self.max_timestamp_ms
        if max_timestamp_ms > greatest_ms:
            self._max_timestamp_ms = max_timestamp_ms
            self._offset_of_max_timestamp = last_offset
        if position > self._unindexed_end_position:
            self._index_batch(last_offset, position)
        self._last_batch_offset = self.next_offset
        self._last_batch_position = position
        self.next_offset = last_offset + 1
        return True

    def append_run(self, batches: Sequence[memoryview], base_offsets: range, max_timestamps_ms: Sequence[int]) -> None:
        """Write batches of equal length and equal record count at the end, at least one. Raises as `append`."""
        file = self.log
        position = file.size_bytes
        file.append(*batches)
        self.was_changed = True
        if not position:
            self._first_timestamp_ms = max_timestamps_ms[0]
            self._room_limits = None
        self._index_run(position, len(batches[0]), base_offsets, max_timestamps_ms)
        last_batch = base_offsets[-1]
        self._last_batch_offset, self._last_batch_position = last_batch, file.size_bytes - len(batches[-1])
        self.next_offset = last_batch + base_offsets.step

    def has_room_for(self, size_bytes: int, last_offset: int, max_timestamp_ms: int, limits: SegmentLimits) -> bool:
        """Return whether a batch fits: by size, by the offsets of an index entry, by room in the index, by age.

        An empty segment takes any batch.
        """
        position = self.log.size_bytes
        if (
            limits is self._room_limits
            and position + size_bytes <= self._room_end_position
            and last_offset <= self._room_last_offset
            and max_timestamp_ms <= self._room_max_timestamp_ms
        ):
            return True
        if not position:
            return True
        if position + size_bytes > limits.size_bytes or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return False
        index = self._offset_index
        if index is None:
            index = self.offset_index
        free_entries_count = limits.index_entries_count - len(index.positions)
        if free_entries_count <= 0:
            return False
        first_timestamp_ms = self.first_timestamp_ms
        if first_timestamp_ms is None:
            return True
        has_time = first_timestamp_ms >= 0  # without one, the sweep rolls by the time since the segment was begun
        if has_time and max_timestamp_ms >= 0 and max_timestamp_ms - first_timestamp_ms > limits.age_ms:
            return False
        # Cached, so that most appends need not compute it: an append adds at most one index entry per index interval.
        indexable_bytes = (free_entries_count - 1) * self._index_interval_bytes
        self._room_limits = limits
        self._room_end_position = min(limits.size_bytes, position + indexable_bytes)
        self._room_last_offset = self.base_offset + MAX_RELATIVE_OFFSET
        self._room_max_timestamp_ms = first_timestamp_ms + limits.age_ms if has_time else MAX_INT64
        return True

    def has_room_for_run(
        self, count: int, size_bytes: int, last_offset: int, max_timestamp_ms: int, limits: SegmentLimits
    ) -> bool:
        """Return whether `count` batches fit, which have `size_bytes` together; an empty segment takes none."""
        return (
            self.log.size_bytes > 0
            and self.has_room_for(size_bytes, last_offset, max_timestamp_ms, limits)
            and len(self.offset_index.positions) + count <= limits.index_entries_count
        )

    # Read

    def read(
        self, offset: int, max_bytes: int, bound_offset: int, *, minimum_one_batch: bool, is_lazy: bool = False
    ) -> SegmentRead | None:
        """Read whole batches from the one that holds `offset`, all of them below `bound_offset`.

        None when the segment holds nothing at or after `offset` (a compacted log has gaps).
        With `minimum_one_batch` the first batch is returned whole even if it alone is above `max_bytes`. With `is_lazy`
        more than SMALL_READ_BYTES are found but not read.
        Raises DamagedLogError where the file holds something that cannot be the next batch. Checksums are not
        compared: the reader does that.
        """
        if self._last_batch_offset <= offset < self.next_offset <= bound_offset:
            found = self._read_last_batch(max_bytes, minimum_one_batch=minimum_one_batch)
            if found is not None:
                return found
        try:
            return self._read(offset, max_bytes, bound_offset, minimum_one_batch=minimum_one_batch, is_lazy=is_lazy)
        except _FaultFoundError as error:
            # A misleading index may point to a position at which no batch begins.
            if not self.rebuild_misleading_indexes(error.fault):
                raise
            return self._read(offset, max_bytes, bound_offset, minimum_one_batch=minimum_one_batch, is_lazy=is_lazy)

    def _read(
        self, offset: int, max_bytes: int, bound_offset: int, *, minimum_one_batch: bool, is_lazy: bool
    ) -> SegmentRead | None:
        index = self.offset_index
        size_bytes = self.log.size_bytes
        first_position = chunk_position = index.position_before(offset - self.base_offset)
        if first_position < self._foreign_end_position:
            size_bytes = self._check_headers(first_position, offset, max_bytes)
        walk_bytes = self._index_interval_bytes + _WALK.size
        wanted_bytes = max(max_bytes, 0) + walk_bytes
        # A small read includes the batches before the wanted one; a large read begins at the batch, as otherwise half
        # of it might be these.
        is_small = wanted_bytes <= SMALL_READ_BYTES
        step_bytes = wanted_bytes if is_small else walk_bytes
        chunk = self.log.read(chunk_position, min(step_bytes, size_bytes - chunk_position))
        # Walk to the batch that holds the offset.
        start = 0
        least_offset = self.base_offset
        while True:
            if start + _WALK.size > len(chunk):
                chunk_position += start
                start = 0
                if chunk_position == size_bytes:
                    return None
                if chunk_position + _WALK.size > size_bytes:
                    raise self._damaged(chunk_position, least_offset, "the bytes from there on are no batch")
                chunk = self.log.read(chunk_position, min(step_bytes, size_bytes - chunk_position))
            base_offset, length, last_offset_delta = _WALK.unpack_from(chunk, start)
            last_offset = base_offset + last_offset_delta
            if (
                length < _SMALLEST_LENGTH
                or base_offset < least_offset
                or last_offset < base_offset
                or chunk_position + start + length + _LENGTH_OVERHEAD > size_bytes
            ):
                reason = f"the batch there has the offsets {base_offset} to {last_offset} and the length {length}"
                raise self._damaged(chunk_position + start, least_offset, reason)
            if last_offset >= offset:
                break
            start += length + _LENGTH_OVERHEAD
            least_offset = last_offset + 1
        if last_offset >= self.next_offset or (
            first_position and chunk_position + start == first_position and last_offset > offset
        ):
            reason = f"the batch there has the offsets {base_offset} to {last_offset}"
            raise self._damaged(chunk_position + start, least_offset, reason)
        if last_offset >= bound_offset:
            return SegmentRead(chunk[:0], chunk_position + start)
        batch_position = chunk_position + start
        first_bytes = length + _LENGTH_OVERHEAD
        if first_bytes > max_bytes:
            if not minimum_one_batch:
                return SegmentRead(chunk[:0], batch_position)
            if start + first_bytes > len(chunk):
                if is_lazy:
                    return self._slice(batch_position, batch_position + first_bytes)
                start = 0
                chunk = self.log.read(batch_position, first_bytes)
            return SegmentRead(chunk[start : start + first_bytes], batch_position + first_bytes)
        limit = min(batch_position + max_bytes, size_bytes)
        is_partial = chunk_position + len(chunk) < limit
        if is_partial and (not is_small or start + first_bytes > len(chunk) or start > len(chunk) // 2):
            if is_lazy and limit - batch_position > SMALL_READ_BYTES:
                return self._slice(batch_position, self._end_of_batches(batch_position, limit, bound_offset))
            chunk_position = batch_position
            start = 0
            chunk = self.log.read(chunk_position, limit - chunk_position)
        limit = min(limit, chunk_position + len(chunk))
        end = self._end_of_batches(batch_position, limit, bound_offset, chunk, chunk_position)
        return SegmentRead(chunk[start : end - chunk_position], end)

    def _check_headers(self, position: int, offset: int, max_bytes: int) -> int:
        """Check the headers of the batches that a read from `offset` would serve and that this process has not written.

        position: of an index entry, or 0. Batches are checked once.
        Returns the position up to which a reader may read, after the batch that holds `offset`. Raises DamagedLogError
        where that batch, or one before it, is damaged.
        """
        checked = self._checked_ranges.containing(position)
        if checked is not None:
            order = self.order_at(checked.next_offset, checked.leader_epoch)
        else:
            order = self.order_from(position)
            checked = CheckedRange(position, position, order.next_offset, order.leader_epoch)
        wanted_end = min(position + max(max_bytes, 0) + self._index_interval_bytes, self.log.size_bytes)
        if checked.next_offset > offset and checked.end >= wanted_end:
            return checked.end
        start = checked.end
        checked, fault = check_headers(
            self.log, checked, order, self.offset_index, self.base_offset, offset=offset, wanted_end=wanted_end
        )
        if checked.end > start:
            checked = self._checked_ranges.add(checked)
        if fault is not None and (checked.end == checked.start or checked.next_offset <= offset):
            raise self._fault_found(fault)
        return checked.end

    def _read_last_batch(self, max_bytes: int, *, minimum_one_batch: bool) -> SegmentRead | None:
        """Read the batch appended last, at its remembered position. None where it is too large for one read, or where
        the file holds something else, which a walk through the file reports."""
        position = self._last_batch_position
        size_bytes = self.log.size_bytes - position
        if not 0 < size_bytes <= SMALL_READ_BYTES or (size_bytes > max_bytes and not minimum_one_batch):
            return None
        chunk = self.log.read(position, size_bytes)
        if len(chunk) < _WALK.size:
            return None
        base_offset, length, last_offset_delta = _WALK.unpack_from(chunk)
        if (
            base_offset < self._last_batch_offset
            or base_offset + last_offset_delta + 1 != self.next_offset
            or length + _LENGTH_OVERHEAD != len(chunk)
        ):
            return None
        return SegmentRead(chunk, position + len(chunk))

    def _slice(self, position: int, end: int) -> SegmentRead:
        length_bytes = end - position
        if length_bytes <= SMALL_READ_BYTES:
            return SegmentRead(self.log.read(position, length_bytes), end)
        return SegmentRead(NO_RECORDS, end, FileSlice(self.log, position, length_bytes))

    def _end_of_batches(
        self, position: int, limit: int, bound_offset: int, chunk: memoryview = NO_RECORDS, chunk_position: int = 0
    ) -> int:
        """Return the end of the last whole batch between a batch's position and `limit` that is below the bound.

        chunk: bytes already read of the file, from `chunk_position` on.
        """
        index = self.offset_index
        # Jump near the end by the index, then walk to the last whole batch.
        near_end = index.batch_at_or_before(limit)
        if bound_offset < self.next_offset:
            near_end = min(near_end, index.last_position_below(bound_offset - self.base_offset))
        end = max(position, near_end)
        while end + _WALK.size <= limit:
            start = end - chunk_position
            if start + _WALK.size > len(chunk):
                chunk_position, start = end, 0
                chunk = self.log.read(end, min(self._index_interval_bytes + _WALK.size, limit - end))
                if len(chunk) < _WALK.size:
                    raise self._damaged(end, self.base_offset, "the file ends there")
            base_offset, length, last_offset_delta = _WALK.unpack_from(chunk, start)
            following = end + length + _LENGTH_OVERHEAD
            if following > limit or length < _SMALLEST_LENGTH or base_offset + last_offset_delta >= bound_offset:
                break  # the read that begins with a damaged batch reports it
            end = following
        return end

    def has_batch_below(self, bound_offset: int, position: int) -> bool:
        """Return whether the batch at a position is below the bound."""
        if self.next_offset <= bound_offset:
            return True
        header = self.log.read(position, _WALK.size)
        if len(header) < _WALK.size:
            return False
        base_offset, _, last_offset_delta = _WALK.unpack_from(header)
        last_offset: int = base_offset + last_offset_delta
        return last_offset < bound_offset

    def _damaged(self, position: int, offset: int, reason: str) -> DamagedLogError:
        return self._fault_found(HeaderFault(position, offset, None, reason))

    def _fault_found(self, fault: HeaderFault) -> _FaultFoundError:
        return _FaultFoundError(str(self.damaged(fault)), fault)

    def offset_bound_after(self, position: int) -> int:
        """Return an offset above all records before `position`: the next index entry's, else the segment's end."""
        bound = self.offset_index.first_offset_from(position)
        return self.next_offset if bound is None else self.base_offset + bound
