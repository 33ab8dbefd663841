"""What is sealed next, as tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.cluster.remote.upload_plan import (
    MERGED_COUNT,
    MergeLimits,
    RolledSegment,
    StoredSegment,
    TailOfLog,
    UploadLimits,
    merge_limits,
    plan_merge,
    plan_uploads,
)
from fencepost.broker.kernel.topic_partition import TopicPartition

LIMITS = UploadLimits(segment_bytes=60, internal_segment_bytes=10, tail_budget_bytes=100, old_ms=1_000)
A, B, C = (TopicPartition(name, 0) for name in "abc")
OFFSETS = TopicPartition("__consumer_offsets", 7)


def log(name: TopicPartition, active: int, age: int = 0, rolled: tuple[RolledSegment, ...] = ()) -> TailOfLog:
    return TailOfLog(name, active, age, rolled)


# fmt: off
ROLLS = [
    # the logs                                              rolled
    ([],                                                    []),
    ([log(A, 59)],                                          []),
    ([log(A, 60)],                                          [A]),
    ([log(A, 9), log(OFFSETS, 10)],                         [OFFSETS]),
    ([log(A, 50, age=999), log(B, 40)],                     []),
    ([log(A, 50, age=1_000), log(B, 40)],                   [A]),
    ([log(A, 40, age=1_000)],                               []),
    ([log(A, 0, age=1_000), log(B, 59), log(C, 1)],         []),
    ([log(A, 30), log(B, 50), log(C, 21)],                  [B]),
    ([log(A, 40), log(B, 45), log(C, 20)],                  [B]),
    ([log(A, 60), log(B, 40), log(C, 20)],                  [A]),
    ([log(A, 55), log(B, 55), log(C, 55)],                  [A, B]),
]
# fmt: on


@pytest.mark.parametrize(("logs", "rolled"), ROLLS)
def test_logs_are_rolled_by_size_by_age_and_for_the_budget(logs: list[TailOfLog], rolled: list[TopicPartition]) -> None:
    assert plan_uploads(logs, LIMITS).rolls == rolled


def test_a_log_of_many_small_flushes_is_rolled() -> None:
    limits = LIMITS._replace(segment_rows=1_000)
    few, many = log(A, 5)._replace(active_rows=999), log(B, 5)._replace(active_rows=1_000)
    assert plan_uploads([few, many], limits).rolls == [B]


def test_what_is_rolled_already_makes_no_other_log_roll() -> None:
    waiting = (RolledSegment(0, 95, is_ready=False, is_in_tail=True),)
    assert plan_uploads([log(A, 5, rolled=waiting), log(B, 30)], LIMITS).rolls == []


def test_the_largest_tail_is_sealed_first_and_of_each_log_its_first_segment() -> None:
    logs = [
        log(
            A,
            5,
            rolled=(
                RolledSegment(0, 10, is_ready=True, is_in_tail=True),
                RolledSegment(5, 10, is_ready=True, is_in_tail=True),
            ),
        ),
        log(B, 5, rolled=(RolledSegment(70, 60, is_ready=True, is_in_tail=True),)),
        log(C, 500),
    ]
    assert plan_uploads(logs, LIMITS).seals == [(B, 70), (A, 0)]


def test_a_segment_that_is_not_ready_holds_up_those_of_its_log_only() -> None:
    held = (RolledSegment(0, 10, is_ready=False, is_in_tail=True), RolledSegment(5, 99, is_ready=True, is_in_tail=True))
    ready = (RolledSegment(3, 1, is_ready=True, is_in_tail=True),)
    assert plan_uploads([log(A, 0, rolled=held), log(B, 0, rolled=ready)], LIMITS).seals == [(B, 3)]


def test_compacted_segments_wait_for_those_of_the_tail() -> None:
    compacted = (RolledSegment(0, 500, is_ready=True, is_in_tail=False),)
    small = (RolledSegment(9, 1, is_ready=True, is_in_tail=True),)
    plan = plan_uploads([log(A, 0, rolled=compacted), log(B, 0, rolled=small)], LIMITS)
    assert plan.seals == [(B, 9), (A, 0)]
    assert plan.tail_bytes == 1


@given(
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 2_000)), max_size=12),
    st.integers(1, 80),
    st.integers(1, 300),
)
def test_the_active_segments_that_stay_are_never_above_the_budget(
    actives: list[tuple[int, int]], segment_bytes: int, budget_bytes: int
) -> None:
    logs = [log(TopicPartition("t", number), *active) for number, active in enumerate(actives)]
    limits = LIMITS._replace(segment_bytes=segment_bytes, tail_budget_bytes=budget_bytes)
    rolls = plan_uploads(logs, limits).rolls
    assert len(set(rolls)) == len(rolls)
    staying = [one for one in logs if one.name not in rolls]
    assert sum(one.active_bytes for one in staying) <= budget_bytes
    assert all(one.active_bytes < segment_bytes for one in staying)
    assert all(one.active_bytes > 0 for one in logs if one.name in rolls)


# Merges


def stored(*sizes: int, age_ms: int = 0) -> list[StoredSegment]:
    """Neighbours of ten offsets each, with so much time between them."""
    return [StoredSegment(10 * slot, 10 * slot + 10, size, age_ms * slot) for slot, size in enumerate(sizes)]


# fmt: off
MERGES = [
    # the segments                                  limits                      from, to
    ([],                                            MergeLimits(60),            None),
    (stored(*[1] * 7),                              MergeLimits(60),            None),
    (stored(*[1] * 8),                              MergeLimits(60),            (0, 80)),
    (stored(*[1] * 70),                             MergeLimits(60),            (0, 600)),
    (stored(60, *[1] * 8),                          MergeLimits(60),            (10, 90)),
    (stored(*[31] * 20),                            MergeLimits(60),            None),
    (stored(40, *[1] * 8),                          MergeLimits(60),            (10, 90)),
    (stored(8, *[1] * 8),                           MergeLimits(60),            (0, 90)),
    (stored(*[1] * 4, 60, *[1] * 4),                MergeLimits(60),            None),
    (stored(*[1] * 20, age_ms=10),                  MergeLimits(60, 100),       (0, 110)),
    (stored(*[1] * 20, age_ms=10),                  MergeLimits(60, 69),        None),
    (stored(*[1] * 8)[:4] + stored(*[1] * 9)[5:],   MergeLimits(60),            None),
    (stored(*[1] * 8),                              MergeLimits(0),             None),
]
# fmt: on


@pytest.mark.parametrize(("segments", "limits", "planned"), MERGES)
def test_small_neighbours_that_fit_into_one_segment_are_merged(
    segments: list[StoredSegment], limits: MergeLimits, planned: tuple[int, int] | None
) -> None:
    assert plan_merge(segments, limits) == planned


def test_a_merged_segment_is_a_small_part_of_what_retention_keeps() -> None:
    def of(retention_bytes: int, retention_ms: int, *, is_internal: bool = False) -> MergeLimits:
        return merge_limits(
            LIMITS,
            is_internal=is_internal,
            segment_bytes=50,
            segment_ms=7,
            retention_bytes=retention_bytes,
            retention_ms=retention_ms,
        )

    assert of(-1, -1) == (50, None)
    assert of(-1, -1, is_internal=True) == (10, None)
    assert of(200, 1_000) == (20, 100)
    assert of(0, 10) == (0, 7)


@given(st.lists(st.integers(1, 80), min_size=1, max_size=200))
def test_merging_bounds_the_number_of_segments_and_how_often_a_record_is_merged(sizes: list[int]) -> None:
    limits = MergeLimits(100)
    segments: list[StoredSegment] = []
    merged: dict[int, int] = {}  # by offset, how often
    for number, size in enumerate(sizes):
        segments.append(StoredSegment(number, number + 1, size, 0))
        while (planned := plan_merge(segments, limits)) is not None:
            base, end = planned
            group = [one for one in segments if base <= one.base_offset < end]
            total = sum(one.size_bytes for one in group)
            assert len(group) >= MERGED_COUNT
            assert total <= limits.size_bytes
            segments = sorted([*(one for one in segments if one not in group), StoredSegment(base, end, total, 0)])
            for offset in range(base, end):
                merged[offset] = merged.get(offset, 0) + 1
    assert max(merged.values(), default=0) <= 7, "a part at least doubles"
    # Another merge would gain nothing: of MERGED_COUNT neighbours, the largest has half of the bytes, or all of them
    # together are larger than a segment may be.
    for first in range(len(segments) - MERGED_COUNT + 1):
        sizes_of = [one.size_bytes for one in segments[first : first + MERGED_COUNT]]
        assert sum(sizes_of) > limits.size_bytes or 2 * max(sizes_of) > sum(sizes_of)
