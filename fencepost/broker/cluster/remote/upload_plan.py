"""Plan of a node's uploads: logs that begin a segment, the order in which segments go into the object store, and stored
segments that are merged.

Pure. A tail in the database costs more than an object, and a take-over reads it; many small objects cost more than
few large ones. So a log stays in one segment until that is large enough, or until the node's tails exceed the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from fencepost.broker.cluster.tail.tail_store import PartitionKey
from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from fencepost.broker.log.segment.block_layout import BLOCK_BYTES
from fencepost.broker.log.segment.header_plausibility import MAX_RELATIVE_OFFSET

SEGMENT_BYTES: Final = 64 * 1024 * 1024
INTERNAL_SEGMENT_BYTES: Final = 8 * 1024 * 1024
"""Coordinators load all of their logs at a take-over, and small segments are compacted sooner."""
SEGMENT_ROWS: Final = 100_000
"""The next leader of a partition reads and replays its tail within half a second, at some 4 microseconds a flush."""
TAIL_BUDGET_BYTES: Final = 128 * 1024 * 1024
ROLLED_DOWN_TO: Final = 0.75
"""Share of the budget that remains after logs were rolled for it, so that they are not rolled for every few bytes."""
OLD_MS: Final = 10 * 60 * 1000
MERGED_COUNT: Final = 8
"""The fewest segments that are merged; fewer are not worth the work."""
MERGED_AT_ONCE: Final = 1_000
PARTS_OF_RETENTION: Final = 10
"""Retention deletes whole segments, so a merged one has at most 1 / PARTS_OF_RETENTION of the retained bytes."""


RowsCount = Callable[[PartitionKey, int], int]
"""The number of flushes in a segment, by its base offset."""


def no_rows_count(key: PartitionKey, segment_base: int) -> int:
    """Of a node that does not count them."""
    return 0


class UploadLimits(NamedTuple):
    """segment_bytes: a segment of this size is rolled; internal_segment_bytes: one of a coordinator's topic.

    segment_rows:      so is one of as many flushes.

    tail_budget_bytes: bound of all tails of a node together.
    old_ms:            age at which a segment is rolled, once half of the budget is used.
    block_bytes:       size of the blocks in which readers fetch it.
    """

    segment_bytes: int = SEGMENT_BYTES
    internal_segment_bytes: int = INTERNAL_SEGMENT_BYTES
    tail_budget_bytes: int = TAIL_BUDGET_BYTES
    old_ms: int = OLD_MS
    block_bytes: int = BLOCK_BYTES
    segment_rows: int = SEGMENT_ROWS


class RolledSegment(NamedTuple):
    """A rolled segment that is not in the object store as it is now.

    is_ready:   whether all of it is committed, and all of its files are written.
    is_in_tail: whether rows of the tail hold it; else it was compacted, and older objects hold its sources.
    """

    base_offset: int
    size_bytes: int
    is_ready: bool
    is_in_tail: bool


class TailOfLog(NamedTuple):
    """The unsealed part of a log. active_age_ms: age of its active segment. rolled: segments in rising order.

    active_rows: flushes of the active segment.
    """

    name: TopicPartition
    active_bytes: int
    active_age_ms: int
    rolled: Sequence[RolledSegment] = ()
    active_rows: int = 0

    @property
    def tail_bytes(self) -> int:
        return self.active_bytes + sum(one.size_bytes for one in self.rolled if one.is_in_tail)


class UploadPlan(NamedTuple):
    """rolls: logs to begin a new segment. seals: the next segment of logs to upload, the most urgent first.

    tail_bytes: size of all tails, before.
    """

    rolls: list[TopicPartition]
    seals: list[tuple[TopicPartition, int]]
    tail_bytes: int


def plan_uploads(logs: Sequence[TailOfLog], limits: UploadLimits) -> UploadPlan:
    """Plan the next steps of a node.

    A log's segments are sealed one after another, in order: the start of its tail is one offset.
    """
    tail_bytes = sum(one.tail_bytes for one in logs)
    return UploadPlan(_rolls(logs, limits, tail_bytes), _seals(logs), tail_bytes)


def _rolls(logs: Sequence[TailOfLog], limits: UploadLimits, tail_bytes: int) -> list[TopicPartition]:
    rolls = []
    staying_bytes = 0  # in active segments, which no upload will take out of the tail
    is_half_used = tail_bytes > limits.tail_budget_bytes / 2
    candidates = []
    for one in logs:
        is_internal = one.name.topic in INTERNAL_TOPICS
        is_large = one.active_bytes >= (limits.internal_segment_bytes if is_internal else limits.segment_bytes)
        is_old = is_half_used and one.active_bytes > 0 and one.active_age_ms >= limits.old_ms
        if is_large or is_old or one.active_rows >= limits.segment_rows:
            rolls.append(one.name)
        else:
            staying_bytes += one.active_bytes
            candidates.append(one)
    if staying_bytes > limits.tail_budget_bytes:
        for one in sorted(candidates, key=lambda one: one.active_bytes, reverse=True):
            if staying_bytes <= limits.tail_budget_bytes * ROLLED_DOWN_TO:
                break
            rolls.append(one.name)
            staying_bytes -= one.active_bytes
    return rolls


def _seals(logs: Sequence[TailOfLog]) -> list[tuple[TopicPartition, int]]:
    """Segments of the tail go first, of the log with the largest tail; compacted ones can wait."""
    ready = [(one, one.rolled[0]) for one in logs if one.rolled and one.rolled[0].is_ready]
    ready.sort(key=lambda pair: (not pair[1].is_in_tail, -pair[0].tail_bytes))
    return [(one.name, segment.base_offset) for one, segment in ready]


class StoredSegment(NamedTuple):
    """A sealed segment that is in the object store as it is now. newest_ms: the greatest timestamp of its records."""

    base_offset: int
    end_offset: int
    size_bytes: int
    newest_ms: int


class MergeLimits(NamedTuple):
    """Of one merged segment. span_ms: from the newest record of its oldest part to that of its newest; None for any."""

    size_bytes: int
    span_ms: int | None = None


def merge_limits(
    limits: UploadLimits,
    *,
    is_internal: bool,
    segment_bytes: int,
    segment_ms: int,
    retention_bytes: int,
    retention_ms: int,
) -> MergeLimits:
    """The limits for a log. The last four are its topic's configs; -1 for no retention."""
    size_bytes = min(limits.internal_segment_bytes if is_internal else limits.segment_bytes, segment_bytes)
    if retention_bytes >= 0:
        size_bytes = min(size_bytes, retention_bytes // PARTS_OF_RETENTION)
    span_ms = None if retention_ms < 0 else max(segment_ms, retention_ms // PARTS_OF_RETENTION)
    return MergeLimits(size_bytes, span_ms)


def plan_merge(stored: Sequence[StoredSegment], limits: MergeLimits) -> tuple[int, int] | None:
    """Plan the next merge of a log: from which offset to which, the oldest first; None if none is due.

    stored: segments in rising order. A merge is due for many neighbours that fit into one segment, none of which is
    larger than the others together: so no record is merged more than some six times until its segment is full.
    """
    if sum(one.size_bytes <= limits.size_bytes // 2 for one in stored) < MERGED_COUNT:
        return None
    for first in range(len(stored) - MERGED_COUNT + 1):
        end = _end_of_merge(stored, first, limits)
        if end is not None:
            return stored[first].base_offset, end
    return None


def _end_of_merge(stored: Sequence[StoredSegment], first: int, limits: MergeLimits) -> int | None:
    """The end of the segments that can be merged, from one on."""
    total_bytes = largest_bytes = 0
    oldest_ms = newest_ms = stored[first].newest_ms
    found = None
    for slot in range(first, min(len(stored), first + MERGED_AT_ONCE)):
        one = stored[slot]
        total_bytes += one.size_bytes
        largest_bytes = max(largest_bytes, one.size_bytes)
        oldest_ms, newest_ms = min(oldest_ms, one.newest_ms), max(newest_ms, one.newest_ms)
        is_apart = slot > first and one.base_offset != stored[slot - 1].end_offset
        is_too_far = one.end_offset - stored[first].base_offset > MAX_RELATIVE_OFFSET
        is_too_long = limits.span_ms is not None and newest_ms - oldest_ms > limits.span_ms
        if is_apart or is_too_far or is_too_long or total_bytes > limits.size_bytes:
            break
        if slot - first + 1 >= MERGED_COUNT and 2 * largest_bytes <= total_bytes:
            found = one.end_offset
    return found
