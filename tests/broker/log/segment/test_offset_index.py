"""The offset index of a segment."""

from __future__ import annotations

import pytest

from fencepost.broker.log.segment.offset_index import CorruptIndexError, OffsetIndex


def index(*entries: tuple[int, int]) -> OffsetIndex:
    made = OffsetIndex()
    for last_offset, position in entries:
        made.append(last_offset, position)
    return made


KNOWN = index((9, 0), (19, 4_000), (29, 8_000))


@pytest.mark.parametrize(("offset", "position"), [(0, 0), (9, 0), (12, 0), (19, 4_000), (20, 4_000), (99, 8_000)])
def test_a_search_begins_at_a_batch_that_does_not_lie_behind_the_offset(offset: int, position: int) -> None:
    assert KNOWN.position_before(offset) == position


def test_entries_are_found_by_position() -> None:
    assert KNOWN.batch_at_or_before(7_999) == 4_000
    assert KNOWN.last_offset_at(8_000) == 29
    assert (KNOWN.first_offset_from(4_001), KNOWN.first_offset_from(8_001)) == (29, None)
    assert (KNOWN.last_position_below(20), KNOWN.last_position_below(9)) == (4_000, 0)


def test_the_file_is_big_endian_and_read_as_it_was_written() -> None:
    content = KNOWN.to_bytes()
    assert content[8:16] == bytes.fromhex("00000013 00000fa0")
    read = OffsetIndex.from_bytes(content, 9_000, 30)
    assert (read.last_offsets, read.positions, read.unwritten_bytes()) == (KNOWN.last_offsets, KNOWN.positions, b"")
    read.append(39, 8_500)
    assert read.unwritten_bytes() == bytes.fromhex("00000027 00002134")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\0" * 7, "not whole entries"),
        (index((9, 0), (9, 10)).to_bytes(), "do not rise"),
        (index((9, 0), (10, 9_000)).to_bytes(), "outside the log file"),
        (index((9, 0), (30, 10)).to_bytes(), "behind the segment"),
    ],
)
def test_entries_that_the_log_cannot_have_led_to_are_refused(content: bytes, reason: str) -> None:
    with pytest.raises(CorruptIndexError, match=reason):
        OffsetIndex.from_bytes(content, 9_000, 30)
