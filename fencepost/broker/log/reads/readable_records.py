"""Counts the records that a read_committed consumer gets, from the headers of batches: no markers, nothing aborted.

The count goes in steps of a bounded number of batches, so that a reader of it may stop in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from fencepost.broker.log.log_types import AbortedRange
from fencepost.broker.log.segment.batch_scan import ScannedBatch
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.remote_segment import SegmentNotLocalError
from fencepost.broker.log.segment.segment import Segment
from fencepost.diagnosis.lag import NO_TIME_MS, ReadableRecords, count_readable


class CountedLog(Protocol):
    """The log, as the count sees it."""

    segments: LogSegments

    def aborted_transactions(self, segment: Segment, offset: int, end_position: int) -> list[AbortedRange]:
        """Return the aborted transactions of records from `offset` on, up to a position in the segment."""
        ...


def count_readable_records(log: CountedLog, offset: int, end_offset: int, most_batches: int) -> ReadableRecords | None:
    """Count the records from `offset` on, in at most `most_batches` batches of one segment.

    offset: first offset, at or above the log's start. end_offset: end, at or below the last stable offset.
    Returns None if the segment is not on this node. Raises StorageError; DamagedLogError for a batch that cannot be
    read.
    """
    for segment in log.segments.from_offset(offset):
        next_base_offset = log.segments.next_base_offset(segment)
        segment_end = end_offset if next_base_offset is None else min(next_base_offset, end_offset)
        try:
            found = list(islice(_batches(segment, offset, end_offset), most_batches))
        except SegmentNotLocalError:
            return None
        if found:
            end_position = found[-1].position + found[-1].header.size_bytes
            aborted = log.aborted_transactions(segment, offset, end_position)
            next_offset = found[-1].header.last_offset + 1 if len(found) == most_batches else segment_end
            return count_readable([batch.header for batch in found], offset, next_offset, aborted)
        if segment_end == end_offset:
            break
    return ReadableRecords(0, end_offset, NO_TIME_MS)


def count_skipped_offsets(log: CountedLog, offset: int, end_offset: int) -> int:
    """Count the offsets that a restored log has left out: those of batches without records that begin its segments.

    Segments that are not on this node are taken for full of records. Raises StorageError; DamagedLogError.
    """
    skipped_count = 0
    for segment in log.segments.from_offset(offset):
        segment_end = log.segments.next_base_offset(segment) or end_offset
        if segment_end - segment.base_offset <= segment.size_bytes:
            continue  # as it may be with records alone: nearly all segments
        try:
            first = next(_batches(segment, segment.base_offset, end_offset), None)
        except SegmentNotLocalError:
            continue
        if first is not None and not first.header.records_count:
            skipped_count += max(0, min(first.header.last_offset + 1, end_offset) - max(segment.base_offset, offset))
    return skipped_count


def _batches(segment: Segment, offset: int, end_offset: int) -> Iterator[ScannedBatch]:
    for batch in segment.scan_from(max(0, offset - segment.base_offset)):
        if batch.header.base_offset >= end_offset:
            return
        if batch.header.last_offset >= offset:
            yield batch
