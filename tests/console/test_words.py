"""Figures as people read them, lists in addresses, options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.console import words


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0 s"),
        (40, "40 ms"),
        (4_200, "4.2 s"),
        (5_000, "5 s"),
        (46_000, "46 s"),
        (14 * 60_000, "14 min"),
        (200 * 60_000, "3 h 20 min"),
        (7_200_000, "2 h"),
        (6 * 86_400_000 + 4 * 3_600_000, "6 d 4 h"),
    ],
)
def test_durations(milliseconds: int, text: str) -> None:
    assert words.duration(milliseconds) == text


def test_sizes_and_counts() -> None:
    assert [words.size(n) for n in (512, 1434, 3 << 30)] == ["512 B", "1.4 KiB", "3.0 GiB"]
    assert words.counted(1, "offset") == "1 offset"
    assert words.counted(1234, "entry") == "1,234 entries"


@given(st.integers(0, 4_000_000_000_000))
def test_a_time_that_is_shown_can_be_entered(time_ms: int) -> None:
    assert words.parse_clock(words.clock(time_ms)) == time_ms


def test_times_that_are_none_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="write 2026"):
        words.parse_clock("yesterday")
    assert words.clock(2**62) == f"{2**62} ms"
