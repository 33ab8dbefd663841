"""Lag three ways."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.console.lag import NOTHING_KNOWN, Lag, lag_of, readable_records, total
from fencepost.console.record_marks import Mark, Outcomes
from tests.console.partition import Action, carry_out
from tests.console.test_record_marks import ACTIONS

OFFSETS = st.integers(0, 1_000)


@given(OFFSETS, OFFSETS, OFFSETS)
def test_what_can_be_read_and_what_is_blocked_are_the_whole_lag(committed: int, one: int, other: int) -> None:
    stable, high = sorted((one, other))
    lag = lag_of(committed, high, stable)
    assert lag.end is not None
    assert lag.deliverable is not None
    assert lag.blocked is not None
    assert lag.end == max(0, high - committed) == lag.deliverable + lag.blocked
    assert lag.deliverable == max(0, stable - committed)
    assert lag.blocked == max(0, high - max(committed, stable))


def test_what_was_deleted_below_the_start_of_the_log_cannot_be_read_any_more() -> None:
    assert lag_of(100, 1_000, 1_000, 900) == Lag(end=900, deliverable=100, blocked=0)
    assert lag_of(100, 1_000, 950, 1_000) == Lag(end=900, deliverable=0, blocked=0)
    assert lag_of(100, 1_000, 950, 900) == Lag(end=900, deliverable=50, blocked=50)
    assert lag_of(5_000, 1_000, 1_000, 0) == Lag(0, 0, 0)


def test_a_reader_that_has_read_all_it_may_is_blocked_but_not_late() -> None:
    assert lag_of(6, 17, 6) == Lag(end=11, deliverable=0, blocked=11)


def test_unknown_offsets_make_an_unknown_lag() -> None:
    assert lag_of(None, 5, 5) == lag_of(3, None, 5) == lag_of(-1, 5, 5) == NOTHING_KNOWN
    assert total([NOTHING_KNOWN, Lag(3, 1, 2)]) == Lag(3, 1, 2)
    assert total([]) == total([NOTHING_KNOWN]) == NOTHING_KNOWN


@given(ACTIONS, st.data())
def test_records_that_can_be_read_are_counted_from_headers(actions: list[Action], data: st.DataObject) -> None:
    partition = carry_out(actions)
    stable = partition.last_stable_offset
    committed = data.draw(st.integers(0, stable))
    outcomes = Outcomes(partition.batches, partition.aborted_from(0), partition.first_offsets, stable)
    counted = readable_records(partition.batches, outcomes, committed, stable)
    readable = [
        at for at, mark in partition.marks.items() if committed <= at < stable and mark in (Mark.COMMITTED, Mark.PLAIN)
    ]
    assert counted == len(readable)
