"""What a node seals next: which logs begin a segment, and which segments go into the object store first.

Pure. A tail in the database costs more than an object, and is what a take-over reads; many small objects cost more than
few large ones. So logs go on in one segment until it is large enough, or until the node's tails together are too much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition

SEGMENT_BYTES: Final = 64 * 1024 * 1024
INTERNAL_SEGMENT_BYTES: Final = 8 * 1024 * 1024
"""Coordinators load all of their logs at a take-over, and small segments are compacted sooner."""
TAIL_BUDGET_BYTES: Final = 128 * 1024 * 1024
ROLLED_DOWN_TO: Final = 0.75
"""Of the budget: what is left after logs were rolled for it, so that they are not rolled for every few bytes."""
OLD_MS: Final = 10 * 60 * 1000


class SealLimits(NamedTuple):
    """segment_bytes: a segment of this size is rolled; internal_segment_bytes: one of a coordinator's topic.

    tail_budget_bytes: of all tails of a node together.
    old_ms:            a segment that was begun so long ago is rolled once half of the budget is used.
    """

    segment_bytes: int = SEGMENT_BYTES
    internal_segment_bytes: int = INTERNAL_SEGMENT_BYTES
    tail_budget_bytes: int = TAIL_BUDGET_BYTES
    old_ms: int = OLD_MS


class RolledSegment(NamedTuple):
    """A rolled segment that is not in the object store as it is now.

    is_ready:   whether all of it is committed, and all of its files are written.
    is_in_tail: whether rows of the tail hold it; else it was compacted, and older objects hold what it was made from.
    """

    base_offset: int
    size_bytes: int
    is_ready: bool
    is_in_tail: bool


class TailOfLog(NamedTuple):
    """What of a log is not sealed. active_age_ms: since its active segment was begun. rolled: in rising order."""

    name: TopicPartition
    active_bytes: int
    active_age_ms: int
    rolled: Sequence[RolledSegment] = ()

    @property
    def tail_bytes(self) -> int:
        return self.active_bytes + sum(one.size_bytes for one in self.rolled if one.is_in_tail)


class SealPlan(NamedTuple):
    """rolls: logs to begin a new segment. seals: the next segment of logs to upload, the most urgent first.

    tail_bytes: of all logs, before.
    """

    rolls: list[TopicPartition]
    seals: list[tuple[TopicPartition, int]]
    tail_bytes: int


def plan_seals(logs: Sequence[TailOfLog], limits: SealLimits) -> SealPlan:
    """Plan the next steps of a node.

    A log's segments are sealed one after another, in order: where its tail begins is one number.
    """
    tail_bytes = sum(one.tail_bytes for one in logs)
    return SealPlan(_rolls(logs, limits, tail_bytes), _seals(logs), tail_bytes)


def _rolls(logs: Sequence[TailOfLog], limits: SealLimits, tail_bytes: int) -> list[TopicPartition]:
    rolls = []
    staying_bytes = 0  # in active segments, which no upload will take out of the tail
    is_half_used = tail_bytes > limits.tail_budget_bytes / 2
    candidates = []
    for one in logs:
        is_internal = one.name.topic in INTERNAL_TOPICS
        is_large = one.active_bytes >= (limits.internal_segment_bytes if is_internal else limits.segment_bytes)
        is_old = is_half_used and one.active_bytes > 0 and one.active_age_ms >= limits.old_ms
        if is_large or is_old:
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
