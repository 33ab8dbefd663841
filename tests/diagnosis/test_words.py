"""Durations and counts as people read them."""

from __future__ import annotations

import pytest

from fencepost.diagnosis.words import counted, duration


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
    assert duration(milliseconds) == text


def test_counts() -> None:
    assert counted(1, "offset") == "1 offset"
    assert counted(1234, "entry") == "1,234 entries"
