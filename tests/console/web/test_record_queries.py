"""Parameters of an address, as a query for records."""

from __future__ import annotations

import pytest

from fencepost.console.positions import Positions, word_of
from fencepost.console.reading.scan import Found
from fencepost.console.reading.topics import PartitionState
from fencepost.console.record_marks import Mark, ShownRecord
from fencepost.console.web.record_queries import query_of
from fencepost.console.web.visit import BadFormError
from fencepost.protocol.compression import Codec


def found(mark: Mark, timestamp_ms: int = 5_000) -> Found:
    return Found(PartitionState("t", 0, 1, 0), ShownRecord(0, timestamp_ms, mark, None, -1, -1, -1, Codec.NONE, None))


def test_without_parameters_it_is_everything_newest_first() -> None:
    query = query_of({})
    assert query.is_newest_first
    assert not query.is_filtered
    assert query.has(0)
    assert query.has(999)


@pytest.mark.parametrize(
    "given", [{"from": "7", "partition": "2"}, {"time": "1970-01-01 00:00:01"}, {"order": "oldest"}]
)
def test_what_begins_somewhere_goes_forwards(given: dict[str, str]) -> None:
    assert not query_of(given).is_newest_first
    assert query_of(given | {"order": "newest"}).is_newest_first


def test_partitions_are_numbers_and_ranges() -> None:
    query = query_of({"partition": "0, 4-6"})
    assert [index for index in range(9) if query.has(index)] == [0, 4, 5, 6]


@pytest.mark.parametrize(
    "given",
    [
        {"partition": "a"},
        {"partition": "\u00b2"},
        {"partition": "1," * 2_000},
        {"partition": "0-3", "from": "1"},
        {"from": "x"},
        {"time": "yesterday"},
        {"time": "9" * 30},
        {"time": "9" * 5_000},
        {"until": "-5"},
        {"at": "x"},
        {"field": "a..b"},
    ],
)
def test_what_cannot_be_read_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(BadFormError):
        query_of(given)


@pytest.mark.parametrize(
    ("stands", "expected"),
    [
        ("all", set(Mark)),
        ("committed", {Mark.COMMITTED, Mark.PLAIN}),
        ("aborted", {Mark.ABORTED}),
        ("open", {Mark.OPEN, Mark.UNDECIDED}),
        ("plain", {Mark.PLAIN}),
        ("markers", {Mark.MARKER}),
        ("other", set(Mark)),
    ],
)
def test_records_are_taken_by_how_they_stand(stands: str, expected: set[Mark]) -> None:
    query = query_of({"stands": stands})
    assert {mark for mark in Mark if query.takes(found(mark))} == expected


def test_records_are_taken_by_their_time_from_the_first_up_to_the_second() -> None:
    query = query_of({"time": "5000", "until": "6000"})
    assert [ms for ms in (4_999, 5_000, 5_999, 6_000) if query.takes(found(Mark.PLAIN, ms))] == [5_000, 5_999]


def test_positions_of_an_earlier_page_are_read() -> None:
    at = Positions(bytes(range(16)), {0: 7, 3: 9})
    assert query_of({"at": word_of(at)}).at == at
