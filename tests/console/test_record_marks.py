"""How records stand, against an account that was kept while they were written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.console.record_marks import Gap, Mark, Outcomes, ShownRecord, read_batches, shown_records, with_gaps
from tests.console.partition import Action, WrittenPartition, carry_out

ACTIONS: st.SearchStrategy[list[Action]] = st.lists(
    st.tuples(st.sampled_from(["write", "write", "plain", "commit", "abort"]), st.integers(0, 3), st.integers(1, 4)),
    max_size=25,
)


def marks_from(partition: WrittenPartition, first_offset: int) -> dict[int, Mark]:
    batches = [one for one in partition.batches if one.header.last_offset >= first_offset]
    outcomes = Outcomes(
        batches, partition.aborted_from(first_offset), partition.first_offsets, partition.last_stable_offset
    )
    return {row.offset: row.mark for row in shown_records(batches, outcomes, first_offset)}


@given(ACTIONS)
def test_marks_are_those_of_what_was_written(actions: list[Action]) -> None:
    partition = carry_out(actions)
    assert marks_from(partition, 0) == partition.marks


@given(ACTIONS, st.data())
def test_marks_do_not_depend_on_where_reading_begins(actions: list[Action], data: st.DataObject) -> None:
    partition = carry_out(actions)
    first = data.draw(st.integers(0, partition.end))
    assert marks_from(partition, first) == {at: mark for at, mark in partition.marks.items() if at >= first}


@given(ACTIONS, st.data())
def test_what_is_not_read_yet_is_never_guessed(actions: list[Action], data: st.DataObject) -> None:
    """With only some batches at hand, a mark is right or "decided later"; below the last stable offset it is right."""
    partition = carry_out(actions)
    batches = partition.batches
    read = batches[: data.draw(st.integers(0, len(batches)))]
    outcomes = Outcomes(read, partition.aborted_from(0), partition.first_offsets, partition.last_stable_offset)
    for row in shown_records(read, outcomes, 0):
        right = partition.marks[row.offset]
        assert row.mark is right or (row.mark is Mark.UNDECIDED and row.offset >= partition.last_stable_offset)


def test_gaps_are_named() -> None:
    partition = carry_out([("plain", 0, 2), ("plain", 0, 3), ("plain", 0, 1)])
    first, _, last = partition.batches
    rows = shown_records([first, last], Outcomes([], [], {}, 6), 0)
    found = list(with_gaps(rows, 0))
    assert [row if isinstance(row, Gap) else row.offset for row in found] == [0, 1, Gap(2, 4), 5]


def test_a_torn_batch_at_the_end_is_left_out() -> None:
    partition = carry_out([("write", 1, 2), ("commit", 1, 0)])
    assert len(read_batches(partition.log[:-1])) == 1


def test_sequences_count_within_a_batch() -> None:
    partition = carry_out([("write", 1, 3)])
    rows: list[ShownRecord] = list(shown_records(partition.batches, Outcomes([], [], {1: 0}, 0), 0))
    assert [row.sequence for row in rows] == [0, 1, 2]
