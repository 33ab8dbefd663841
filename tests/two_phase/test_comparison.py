"""Rows and records are compared by the ids of their commits."""

from __future__ import annotations

import pytest

from fencepost.two_phase.commit_ids import new_commit
from fencepost.two_phase.comparison import Comparison, Place, TooManyCommits


def commit_id(at_ms: int) -> str:
    return new_commit(lambda: at_ms / 1000).id


def place(offset: int) -> Place:
    return Place("orders", 0, offset)


def test_what_one_side_lacks_is_listed_oldest_first() -> None:
    compared = Comparison(0, 10_000, 100)
    ids = [commit_id(at) for at in (1_000, 2_000, 3_000, 4_000, 5_000)]
    compared.add_rows([ids[3], ids[0], ids[1]])
    for offset, one in enumerate((ids[4], ids[1], ids[2], ids[2])):
        compared.add_record(one, place(offset))
    assert compared.rows_without_records() == [ids[0], ids[3]]
    assert compared.records_without_rows() == [(ids[2], place(2)), (ids[4], place(0))]
    assert (compared.rows, compared.records, compared.without_id) == (3, 3, 0)


def test_several_rows_and_records_of_one_commit_count_once() -> None:
    compared = Comparison(0, 10_000, 1)
    one = commit_id(1_000)
    compared.add_rows([one, one])
    compared.add_record(one, place(1))
    compared.add_record(one, place(2))
    assert not compared.rows_without_records()
    assert not compared.records_without_rows()
    assert (compared.rows, compared.records) == (1, 1)


def test_commits_outside_the_range_are_left_out_on_both_sides() -> None:
    compared = Comparison(2_000, 3_000, 10)
    compared.add_rows([commit_id(1_999), commit_id(3_001)])
    compared.add_record(commit_id(1_999), place(1))
    compared.add_record(commit_id(3_001), place(2))
    assert not compared.rows_without_records()
    assert not compared.records_without_rows()


@pytest.mark.parametrize("strange", [None, "", "7:0:orders", 7, b"a"])
def test_rows_and_records_without_an_id_are_counted_and_left_out(strange: object) -> None:
    compared = Comparison(0, 10_000, 10)
    compared.add_rows([strange])
    compared.add_record(strange, place(0))
    assert compared.without_id == 2
    assert not compared.rows_without_records()
    assert not compared.records_without_rows()


def test_memory_is_bounded() -> None:
    compared = Comparison(0, 10_000, 2)
    with pytest.raises(TooManyCommits):
        compared.add_rows(commit_id(at) for at in range(1_000, 9_000))
    compared = Comparison(0, 10_000, 2)
    for at in (1_000, 2_000):
        compared.add_record(commit_id(at), place(at))
    with pytest.raises(TooManyCommits):
        compared.add_record(commit_id(3_000), place(3))
