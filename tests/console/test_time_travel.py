"""The stair of the last stable offset, against the one that was noted while the partition was written."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fencepost.console.time_travel import history_of
from tests.console.partition import BEGINNING_MS, Action, carry_out
from tests.console.test_record_marks import ACTIONS


@given(ACTIONS)
def test_the_stair_is_what_readers_saw_after_each_batch(actions: list[Action]) -> None:
    partition = carry_out(actions)
    history = history_of(partition.batches, 0, begins_the_log=True)
    assert [(step.end_offset, step.last_stable_offset) for step in history.steps] == partition.stable


@given(ACTIONS)
def test_neither_line_ever_falls_and_the_stair_stays_below(actions: list[Action]) -> None:
    history = history_of(carry_out(actions).batches, 0, begins_the_log=True)
    for before, after in pairwise(history.steps):
        assert before.end_offset <= after.end_offset
        assert before.time_ms <= after.time_ms
        assert before.last_stable_offset <= after.last_stable_offset <= after.end_offset


@given(ACTIONS)
def test_who_holds_readers_back_is_named_at_each_step(actions: list[Action]) -> None:
    history = history_of(carry_out(actions).batches, 0, begins_the_log=True)
    for step in history.steps:
        holder = history.holding(step)
        assert (holder is None) == (step.last_stable_offset == step.end_offset)
        assert holder is None or holder.first_offset == step.last_stable_offset


@given(ACTIONS, st.data())
def test_a_later_range_ends_as_the_whole_does(actions: list[Action], data: st.DataObject) -> None:
    partition = carry_out(actions)
    boundaries = [batch.header.base_offset for batch in partition.batches] or [0]
    first = data.draw(st.sampled_from(boundaries))
    part = [batch for batch in partition.batches if batch.header.base_offset >= first]
    history = history_of(part, first, begins_the_log=False, open_since=partition.first_offsets)
    assert history.to_offset == max(first, partition.end)
    assert history.steps[-1].last_stable_offset == max(first, partition.last_stable_offset)


def test_a_transaction_that_began_before_the_range_is_marked() -> None:
    partition = carry_out([("write", 1, 2), ("plain", -1, 1), ("commit", 1, 0)])
    history = history_of(partition.batches[1:], 2, begins_the_log=False)
    (transaction,) = history.transactions
    assert (transaction.began_before, transaction.outcome, transaction.first_offset) == (True, "committed", 2)
    assert [step.last_stable_offset for step in history.steps] == [2, 2, 4]


def test_a_marker_of_an_empty_transaction_holds_nothing() -> None:
    history = history_of(carry_out([("plain", -1, 3), ("commit", 7, 0)]).batches, 0, begins_the_log=True)
    assert not history.transactions
    assert [step.last_stable_offset for step in history.steps] == [0, 3, 4]


def test_a_time_is_found_in_the_history() -> None:
    history = history_of(carry_out([("plain", -1, 3), ("plain", -1, 2)]).batches, 0, begins_the_log=True)
    assert history.at_time(0).end_offset == 0
    assert history.at_time(BEGINNING_MS + 10_000).end_offset == 5
    assert history.at_offset(4).end_offset == 3
