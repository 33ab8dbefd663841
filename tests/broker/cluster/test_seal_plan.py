"""What is sealed next, as tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.cluster.seal_plan import RolledSegment, SealLimits, TailOfLog, plan_seals
from fencepost.broker.kernel.topic_partition import TopicPartition

LIMITS = SealLimits(segment_bytes=60, internal_segment_bytes=10, tail_budget_bytes=100, old_ms=1_000)
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
    assert plan_seals(logs, LIMITS).rolls == rolled


def test_what_is_rolled_already_makes_no_other_log_roll() -> None:
    waiting = (RolledSegment(0, 95, is_ready=False, is_in_tail=True),)
    assert plan_seals([log(A, 5, rolled=waiting), log(B, 30)], LIMITS).rolls == []


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
    assert plan_seals(logs, LIMITS).seals == [(B, 70), (A, 0)]


def test_a_segment_that_is_not_ready_holds_up_those_of_its_log_only() -> None:
    held = (RolledSegment(0, 10, is_ready=False, is_in_tail=True), RolledSegment(5, 99, is_ready=True, is_in_tail=True))
    ready = (RolledSegment(3, 1, is_ready=True, is_in_tail=True),)
    assert plan_seals([log(A, 0, rolled=held), log(B, 0, rolled=ready)], LIMITS).seals == [(B, 3)]


def test_compacted_segments_wait_for_those_of_the_tail() -> None:
    compacted = (RolledSegment(0, 500, is_ready=True, is_in_tail=False),)
    small = (RolledSegment(9, 1, is_ready=True, is_in_tail=True),)
    plan = plan_seals([log(A, 0, rolled=compacted), log(B, 0, rolled=small)], LIMITS)
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
    rolls = plan_seals(logs, limits).rolls
    assert len(set(rolls)) == len(rolls)
    staying = [one for one in logs if one.name not in rolls]
    assert sum(one.active_bytes for one in staying) <= budget_bytes
    assert all(one.active_bytes < segment_bytes for one in staying)
    assert all(one.active_bytes > 0 for one in logs if one.name in rolls)
