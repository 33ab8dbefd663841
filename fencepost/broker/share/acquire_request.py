"""The records that one request of a member may acquire: whole batches, fewer if they were released often. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from fencepost.broker.share.acquired_records import RecordSpan, RecordState

MINIMUM_THROTTLE_DELIVERY_COUNT = 2


class AcquireMode(IntEnum):
    """Whether whole batches may exceed `maximum_count`. The numbers of ShareFetch."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """Settings of a group that limit decisions."""

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    renew_acknowledge_enable: bool = True
    has_dead_letter_topic: bool = False


class OffsetRange(NamedTuple):
    """A range of offsets, both inclusive; a record batch of the log, for one."""

    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class AcquireRequest:
    """Request of a member to acquire records. offsets: the range that was read."""

    member_id: str
    offsets: OffsetRange
    mode: AcquireMode
    maximum_count: int
    limits: ShareLimits
    lock_deadline_ms: int

    def acquired(self, span: RecordSpan) -> RecordSpan:
        return span.acquired_by(self.member_id, self.lock_deadline_ms)

    def acquired_first(self, together: OffsetRange, span: RecordSpan) -> RecordSpan:
        return self.acquired(span.acquired_within(*together))


def throttle_threshold(delivery_count_limit: int) -> int:
    """Return the delivery count from which records are acquired in smaller numbers, so that one that breaks its readers
    is found: half of a batch, then a quarter, and so on, and for the last time alone."""
    return max(MINIMUM_THROTTLE_DELIVERY_COUNT, -(-delivery_count_limit // 2))


def throttled_count(span: RecordSpan, delivery_count_limit: int) -> int:
    batch_count = span.batch_last_offset - span.batch_first_offset + 1
    return max(1, batch_count >> (span.delivery_count - throttle_threshold(delivery_count_limit) + 1))


def is_isolated(spans: Sequence[RecordSpan], request: AcquireRequest) -> bool:
    """Whether a batch was released so often that its records are acquired without others."""
    threshold = throttle_threshold(request.limits.delivery_count_limit)
    return any(span.state is RecordState.AVAILABLE and span.delivery_count >= threshold for span in spans)


def end_of_batch(offset: int, batches: Sequence[OffsetRange]) -> int:
    """Return the last offset of the batch that contains an offset; the offset itself if none does."""
    for batch in batches:
        if offset <= batch.last_offset:
            return batch.last_offset if offset >= batch.first_offset else offset
    return offset


def divided(first_offset: int, last_offset: int, batch_size: int, batches: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Cut a range at the starts of batches, into ranges of at least `batch_size` records."""
    ranges = []
    if last_offset - first_offset + 1 > batch_size:
        for batch in batches:
            if batch.first_offset > last_offset:
                break
            if batch.first_offset > first_offset and batch.first_offset - first_offset >= batch_size:
                ranges.append(OffsetRange(first_offset, batch.first_offset - 1))
                first_offset = batch.first_offset
    ranges.append(OffsetRange(first_offset, last_offset))
    return ranges
