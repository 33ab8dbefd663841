"""The time index of a segment, in memory and as a file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.log.segment.time_index import TimeIndex


def index_of(*entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex()
    for timestamp_ms, last_offset in entries:
        index.append(timestamp_ms, last_offset)
    return index


@pytest.mark.parametrize("entries", [[], [(0, 3)], [(10, 3), (20, 5)]])
def test_an_index_that_was_read_from_its_file_goes_on_as_it_would_have(entries: list[tuple[int, int]]) -> None:
    index = index_of(*entries)
    read = TimeIndex.from_bytes(index.to_bytes(), 1 << 31)
    for one in (index, read):
        for timestamp_ms, last_offset in ((-1, 6), (20, 7), (15, 8), (21, 9), (21, 10)):
            one.append(timestamp_ms, last_offset)
    assert read.to_bytes() == index.to_bytes()


def test_only_a_timestamp_above_all_earlier_ones_gets_an_entry() -> None:
    index = index_of((-1, 0), (0, 1), (0, 2), (7, 3), (5, 4), (8, 5))
    assert list(index.timestamps_ms) == [0, 7, 8]
    assert list(index.last_offsets) == [1, 3, 5]


@given(st.lists(st.tuples(st.integers(-1, 2**63 - 1), st.integers(0, 2**31 - 1)), max_size=20).map(sorted))
def test_an_entry_is_a_timestamp_of_eight_bytes_and_an_offset_of_four(entries: list[tuple[int, int]]) -> None:
    index = index_of(*entries)
    expected = b"".join(
        timestamp_ms.to_bytes(8, "big") + last_offset.to_bytes(4, "big")
        for timestamp_ms, last_offset in zip(index.timestamps_ms, index.last_offsets, strict=True)
    )
    assert index.to_bytes() == expected
    index.written_count = len(index) // 2
    assert index.unwritten_bytes() == expected[index.written_count * 12 :]
