"""Ranges of a log file whose headers were checked."""

from __future__ import annotations

from fencepost.broker.log.segment.checked_ranges import MAX_RANGES, CheckedRange, CheckedRanges


def checked(start: int, end: int) -> CheckedRange:
    return CheckedRange(start, end, end * 10, 1)


def test_a_position_within_or_at_the_end_of_a_range_is_found() -> None:
    ranges = CheckedRanges()
    ranges.add(checked(10, 20))
    assert [ranges.containing(position) for position in (9, 21)] == [None, None]
    assert {ranges.containing(position) for position in (10, 15, 20)} == {checked(10, 20)}


def test_ranges_that_touch_or_overlap_become_one_that_knows_what_its_end_follows() -> None:
    ranges = CheckedRanges()
    ranges.add(checked(0, 10))
    ranges.add(checked(20, 30))
    assert ranges.add(checked(10, 25)) == checked(0, 30)
    assert ranges.containing(30) == checked(0, 30)


def test_beyond_the_most_ranges_they_are_forgotten() -> None:
    ranges = CheckedRanges()
    for number in range(MAX_RANGES + 1):
        ranges.add(checked(number * 10, number * 10 + 5))
    assert ranges.containing(0) is None
    assert ranges.containing(MAX_RANGES * 10) is not None
    ranges.clear()
    assert ranges.containing(MAX_RANGES * 10) is None
