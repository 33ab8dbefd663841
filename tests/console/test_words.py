"""Figures as people read them, lists in addresses, options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.console import words


def test_sizes() -> None:
    assert [words.size(n) for n in (512, 1434, 3 << 30)] == ["512 B", "1.4 KiB", "3.0 GiB"]


@given(st.integers(0, 4_000_000_000_000))
def test_a_time_that_is_shown_can_be_entered(time_ms: int) -> None:
    assert words.parse_clock(words.clock(time_ms)) == time_ms


def test_times_that_are_none_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="write 2026"):
        words.parse_clock("yesterday")
    assert words.clock(2**62) == f"{2**62} ms"
