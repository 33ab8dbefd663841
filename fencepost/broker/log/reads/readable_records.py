"""Counts the records that a read_committed consumer gets, from the headers of batches: no markers, nothing aborted.

The count goes in steps of a bounded number of batches, so that a reader of it may stop where it has done enough.
Source: Kafka's CompletedFetch, which leaves out the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple, Protocol

from fencepost.broker.log.log_types import AbortedRange
from fencepost.broker.log.segment.batch_scan import ScannedBatch
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.remote_segment import SegmentAwayError
from fencepost.broker.log.segment.segment import Segment
from fencepost.protocol.record_batch import BatchHeader

NO_TIME_MS: Final = -1


class CountedLog(Protocol):
    """The log, as the count sees it."""

    segments: LogSegments

    def aborted_transactions(self, segment: Segment, offset: int, end_position: int) -> list[AbortedRange]:
        """Return the aborted transactions of records from `offset` on, up to a position in the segment."""
        ...


class ReadableRecords(NamedTuple):
    """The count from an offset up to `next_offset`, exclusive.

    first_ms: the greatest timestamp of the batch with the first of the records; -1 if there is none, or without a time.
    """

    records_count: int
    next_offset: int
    first_ms: int

    def followed_by(self, more: ReadableRecords) -> ReadableRecords:
        first_ms = self.first_ms if self.records_count else more.first_ms
        return ReadableRecords(self.records_count + more.records_count, more.next_offset, first_ms)


def count_readable_records(log: CountedLog, offset: int, end_offset: int, most_batches: int) -> ReadableRecords | None:
    """Count the records from `offset` on, in at most `most_batches` batches of one segment.

    offset: at or above the log's start. end_offset: at or below the last stable offset.
    Returns None if the segment is not on this node. Raises StorageError; DamagedLogError for a batch that cannot be
    read.
    """
    for segment in log.segments.from_offset(offset):
        next_base_offset = log.segments.next_base_offset(segment)
        segment_end = end_offset if next_base_offset is None else min(next_base_offset, end_offset)
        try:
            found = list(islice(_batches(segment, offset, end_offset), most_batches))
        except SegmentAwayError:
            return None
        if found:
            end_position = found[-1].position + found[-1].header.size_bytes
            aborted = log.aborted_transactions(segment, offset, end_position)
            next_offset = found[-1].header.last_offset + 1 if len(found) == most_batches else segment_end
            return _counted([batch.header for batch in found], offset, next_offset, aborted)
        if segment_end == end_offset:
            break
    return ReadableRecords(0, end_offset, NO_TIME_MS)


def _batches(segment: Segment, offset: int, end_offset: int) -> Iterator[ScannedBatch]:
    for batch in segment.scan_from(max(0, offset - segment.base_offset)):
        if batch.header.base_offset >= end_offset:
            return
        if batch.header.last_offset >= offset:
            yield batch


def _counted(
    headers: Iterable[BatchHeader], offset: int, next_offset: int, aborted: Iterable[AbortedRange]
) -> ReadableRecords:
    """Count as a consumer reads: an aborted transaction lasts from its first offset to its producer's next marker."""
    to_begin = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    open_aborted: set[int] = set()
    count, first_ms = 0, NO_TIME_MS
    for header in headers:
        while to_begin and to_begin[-1].first_offset <= header.last_offset:
            open_aborted.add(to_begin.pop().producer_id)
        if header.is_control:
            open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            # At most the offsets from `offset` on; compaction may have left fewer records than the batch has offsets.
            readable = min(header.records_count, header.last_offset + 1 - max(offset, header.base_offset))
            if readable > 0:
                first_ms = first_ms if count else header.max_timestamp_ms
                count += readable
    return ReadableRecords(count, next_offset, first_ms)
