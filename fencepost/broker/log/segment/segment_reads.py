"""Reads of one segment: whole batches from an offset on, found by its index and a walk over headers.

Headers that another process has written are checked before the batches are first served; checksums are not compared:
the reader does that.
Source: Kafka's LogSegment.read.
"""

from __future__ import annotations

from fencepost.broker.log.segment.batch_scan import DamagedLogError
from fencepost.broker.log.segment.checked_ranges import CheckedRange, CheckedRanges
from fencepost.broker.log.segment.header_check import check_headers
from fencepost.broker.log.segment.header_plausibility import SMALLEST_BATCH_LENGTH, HeaderFault
from fencepost.broker.log.segment.segment_batches import (
    EXTENT,
    NO_RECORDS,
    SMALL_READ_BYTES,
    SegmentBatches,
    SegmentRead,
)
from fencepost.broker.log.segment.segment_indexes import SegmentIndexes
from fencepost.broker.storage.file_slice import FileSlice
from fencepost.protocol.record_batch import LENGTH_OVERHEAD_BYTES


class FaultFoundError(DamagedLogError):
    """Damage that a misleading index may have caused."""

    def __init__(self, message: str, fault: HeaderFault) -> None:
        super().__init__(message)
        self.fault = fault


class SegmentReads:
    """The reads of one segment, and which of its headers are checked."""

    __slots__ = ("_batches", "_checked_ranges", "_foreign_end_position", "_indexes")

    def __init__(self, batches: SegmentBatches, indexes: SegmentIndexes) -> None:
        self._batches = batches
        self._indexes = indexes
        # Bytes before it were neither written nor read with checksums by this process.
        self._foreign_end_position = batches.log.size_bytes
        self._checked_ranges = CheckedRanges()

    def accept_headers(self) -> None:
        """Trust all headers of the file: this process has read it with its checksums."""
        self._foreign_end_position = 0

    def forget_checks(self) -> None:
        """Check all headers again: an index has led to wrong positions, or the file is read again."""
        self._checked_ranges.clear()

    def read(
        self, offset: int, max_bytes: int, bound_offset: int, *, minimum_one_batch: bool, is_lazy: bool
    ) -> SegmentRead | None:
        """Read as `Segment.read` does. Raises FaultFoundError if a rebuilt index may lead elsewhere."""
        batches, index = self._batches, self._indexes.offset_index
        log = batches.log
        size_bytes = log.size_bytes
        first_position = chunk_position = index.position_before(offset - batches.base_offset)
        if first_position < self._foreign_end_position:
            size_bytes = self._check_headers(first_position, offset, max_bytes)
        walk_bytes = self._indexes.interval_bytes + EXTENT.size
        wanted_bytes = max(max_bytes, 0) + walk_bytes
        # A small read includes the batches before the wanted one; half of a large read might be these.
        is_small = wanted_bytes <= SMALL_READ_BYTES
        step_bytes = wanted_bytes if is_small else walk_bytes
        chunk = log.read(chunk_position, min(step_bytes, size_bytes - chunk_position))
        # Walk to the batch that holds the offset.
        start, least_offset = 0, batches.base_offset
        while True:
            if start + EXTENT.size > len(chunk):
                chunk_position, start = chunk_position + start, 0
                if chunk_position == size_bytes:
                    return None
                chunk = self._following_chunk(
                    chunk_position, min(step_bytes, size_bytes - chunk_position), least_offset
                )
            base_offset, length, last_offset_delta = EXTENT.unpack_from(chunk, start)
            last_offset = base_offset + last_offset_delta
            if (
                length < SMALLEST_BATCH_LENGTH
                or base_offset < least_offset
                or last_offset < base_offset
                or chunk_position + start + length + LENGTH_OVERHEAD_BYTES > size_bytes
            ):
                offsets = f"{base_offset} to {last_offset} and the length {length}"
                raise self._misplaced(chunk_position + start, least_offset, offsets)
            if last_offset >= offset:
                break
            start += length + LENGTH_OVERHEAD_BYTES
            least_offset = last_offset + 1
        batch_position = chunk_position + start
        if last_offset >= batches.next_offset or (0 < first_position == batch_position and last_offset > offset):
            raise self._misplaced(batch_position, least_offset, f"{base_offset} to {last_offset}")
        if last_offset >= bound_offset:
            return SegmentRead(chunk[:0], batch_position)
        first_bytes = length + LENGTH_OVERHEAD_BYTES
        if first_bytes > max_bytes:
            if not minimum_one_batch:
                return SegmentRead(chunk[:0], batch_position)
            return self._one_batch(batch_position, chunk[start : start + first_bytes], first_bytes, is_lazy=is_lazy)
        limit = min(batch_position + max_bytes, size_bytes)
        is_partial = chunk_position + len(chunk) < limit
        if is_partial and (not is_small or start + first_bytes > len(chunk) or start > len(chunk) // 2):
            if is_lazy and limit - batch_position > SMALL_READ_BYTES:
                return self._slice(batch_position, self._end_of_batches(batch_position, limit, bound_offset))
            chunk_position, start = batch_position, 0
            chunk = log.read(chunk_position, limit - chunk_position)
        limit = min(limit, chunk_position + len(chunk))
        end = self._end_of_batches(batch_position, limit, bound_offset, chunk, chunk_position)
        return SegmentRead(chunk[start : end - chunk_position], end)

    def _check_headers(self, position: int, offset: int, max_bytes: int) -> int:
        """Check the headers of the batches that a read from `offset` would serve and that this process has not written.

        position: place of an index entry, or 0. Batches are checked once.
        Returns the position up to which a reader may read, after the batch that holds `offset`. Raises DamagedLogError
        if that batch, or one before it, is damaged.
        """
        batches, indexes = self._batches, self._indexes
        log = batches.log
        checked = self._checked_ranges.containing(position)
        if checked is not None:
            order = batches.order_at(checked.next_offset, checked.leader_epoch)
        else:
            order = indexes.order_from(position)
            checked = CheckedRange(position, position, order.next_offset, order.leader_epoch)
        wanted_end = min(position + max(max_bytes, 0) + indexes.interval_bytes, log.size_bytes)
        if checked.next_offset > offset and checked.end >= wanted_end:
            return checked.end
        start = checked.end
        checked, fault = check_headers(
            log, checked, order, indexes.offset_index, batches.base_offset, offset=offset, wanted_end=wanted_end
        )
        if checked.end > start:
            checked = self._checked_ranges.add(checked)
        if fault is not None and (checked.end == checked.start or checked.next_offset <= offset):
            raise self._fault_found(fault)
        return checked.end

    def _following_chunk(self, position: int, size_bytes: int, offset: int) -> memoryview:
        """Read on if the walk to an offset leaves the read chunk. Raises DamagedLogError."""
        if size_bytes < EXTENT.size:
            raise self._damaged(position, offset, "the bytes from there on are no batch")
        return self._batches.log.read(position, size_bytes)

    def _one_batch(self, position: int, found: memoryview, size_bytes: int, *, is_lazy: bool) -> SegmentRead:
        """Read one batch. found: the part read already."""
        if len(found) == size_bytes:
            return SegmentRead(found, position + size_bytes)
        if is_lazy:
            return self._slice(position, position + size_bytes)
        return SegmentRead(self._batches.log.read(position, size_bytes), position + size_bytes)

    def _slice(self, position: int, end: int) -> SegmentRead:
        log = self._batches.log
        length_bytes = end - position
        if length_bytes <= SMALL_READ_BYTES:
            return SegmentRead(log.read(position, length_bytes), end)
        return SegmentRead(NO_RECORDS, end, FileSlice(log, position, length_bytes))

    def _end_of_batches(
        self, position: int, limit: int, bound_offset: int, chunk: memoryview = NO_RECORDS, chunk_position: int = 0
    ) -> int:
        """Return the end of the last whole batch between a batch's position and `limit` that is below the bound.

        chunk: bytes already read of the file, from `chunk_position` on.
        """
        batches, index = self._batches, self._indexes.offset_index
        log = batches.log
        # Jump near the end by the index, then walk to the last whole batch.
        near_end = index.batch_at_or_before(limit)
        if bound_offset < batches.next_offset:
            near_end = min(near_end, index.last_position_below(bound_offset - batches.base_offset))
        end = max(position, near_end)
        while end + EXTENT.size <= limit:
            start = end - chunk_position
            if start + EXTENT.size > len(chunk):
                chunk_position, start = end, 0
                chunk = log.read(end, min(self._indexes.interval_bytes + EXTENT.size, limit - end))
                if len(chunk) < EXTENT.size:
                    raise self._damaged(end, batches.base_offset, "the file ends there")
            base_offset, length, last_offset_delta = EXTENT.unpack_from(chunk, start)
            following = end + length + LENGTH_OVERHEAD_BYTES
            if following > limit or length < SMALLEST_BATCH_LENGTH or base_offset + last_offset_delta >= bound_offset:
                break  # the read that begins with a damaged batch reports it
            end = following
        return end

    def _misplaced(self, position: int, offset: int, found: str) -> DamagedLogError:
        return self._damaged(position, offset, f"the batch there has the offsets {found}")

    def _damaged(self, position: int, offset: int, reason: str) -> DamagedLogError:
        return self._fault_found(HeaderFault(position, offset, None, reason))

    def _fault_found(self, fault: HeaderFault) -> FaultFoundError:
        return FaultFoundError(str(self._batches.damaged(fault)), fault)
