"""Lag: what a consumer can still get, what is blocked, what is unknown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.console.record_marks import Mark, read_batches
from fencepost.diagnosis.lag import Lag, Offsets, ReadableRecords, count_readable, lag_of, total
from fencepost.protocol.record_batch import Record, build_batch
from tests.console.partition import Action, carry_out
from tests.console.test_record_marks import ACTIONS

OFFSETS = st.integers(0, 1_000)


@given(OFFSETS, OFFSETS, OFFSETS)
def test_what_can_be_read_and_what_is_blocked_are_the_whole_lag(committed: int, one: int, other: int) -> None:
    stable, high = sorted((one, other))
    lag = lag_of(committed, Offsets(0, stable, high))
    assert lag.end is not None
    assert lag.deliverable is not None
    assert lag.blocked is not None
    assert lag.end == max(0, high - committed) == lag.deliverable + lag.blocked
    assert lag.deliverable == max(0, stable - committed)
    assert lag.blocked == max(0, high - max(committed, stable))


def test_what_was_deleted_below_the_start_of_the_log_cannot_be_read_any_more() -> None:
    assert lag_of(100, Offsets(900, 1_000, 1_000)) == Lag(end=900, deliverable=100, blocked=0)
    assert lag_of(100, Offsets(1_000, 950, 1_000)) == Lag(end=900, deliverable=0, blocked=0)
    assert lag_of(100, Offsets(900, 950, 1_000)) == Lag(end=900, deliverable=50, blocked=50)
    assert lag_of(5_000, Offsets(0, 1_000, 1_000)) == Lag(0, 0, 0)


def test_a_reader_that_has_read_all_it_may_is_blocked_but_not_late() -> None:
    assert lag_of(6, Offsets(0, 6, 17)) == Lag(end=11, deliverable=0, blocked=11)


def test_what_is_counted_stands_for_its_offsets_and_offsets_for_the_rest() -> None:
    offsets = Offsets(900, 1_000, 1_010)
    assert lag_of(100, offsets, ReadableRecords(7, 1_000, 5)) == Lag(end=910, deliverable=7, blocked=10)
    assert lag_of(100, offsets, ReadableRecords(7, 950, 5)) == Lag(end=910, deliverable=57, blocked=10)
    assert lag_of(995, offsets, ReadableRecords(7, 1_000, 5)) == Lag(end=15, deliverable=5, blocked=10)


def test_an_unknown_lag_says_why_and_counts_for_nothing_in_a_sum() -> None:
    unknown = Lag.of_nothing("KAFKA_STORAGE_ERROR")
    assert total([unknown, Lag(3, 1, 2)]) == Lag(3, 1, 2)
    assert total([unknown]) == unknown
    assert total([]) == Lag.of_nothing("nothing is committed")


@given(ACTIONS, st.data())
def test_as_many_records_are_counted_as_a_read_committed_consumer_gets(
    actions: list[Action], data: st.DataObject
) -> None:
    partition = carry_out(actions)
    stable = partition.last_stable_offset
    committed = data.draw(st.integers(0, stable))
    readable = [
        at for at, mark in partition.marks.items() if committed <= at < stable and mark in (Mark.COMMITTED, Mark.PLAIN)
    ]
    # As a Fetch answers: batches from the position on, and some aborted transactions twice, once for each of two.
    headers = [one.header for one in partition.batches if committed <= one.header.last_offset < stable]
    aborted = partition.aborted_from(committed)
    counted = count_readable(headers, committed, stable, [*aborted, *aborted])
    assert (counted.records_count, counted.next_offset) == (len(readable), stable)
    more = count_readable([], stable, stable + 3, ())
    assert counted.followed_by(more) == counted._replace(next_offset=stable + 3)


def test_compaction_leaves_fewer_records_than_offsets_and_no_count_falls_below_them() -> None:
    """A batch of offsets 0 to 9 with 3 records left: any of them may be behind offset 5."""
    (batch,) = read_batches(build_batch([Record(0, 1, None, b"v"), Record(4, 1, None, b"v"), Record(9, 1, None, b"v")]))
    header = batch.header._replace(records_count=3, last_offset_delta=9)
    assert count_readable([header], 5, 10, ()).records_count == 3
    assert count_readable([header], 8, 10, ()).records_count == 2
