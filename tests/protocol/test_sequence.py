"""Sequence numbers begin again at 0 after 31 bits."""

from __future__ import annotations

import pytest

from fencepost.protocol.sequence import MAXIMUM_SEQUENCE, advance_sequence


@pytest.mark.parametrize(
    ("sequence", "count", "expected"),
    [
        (-1, 1, 0),
        (5, 3, 8),
        (MAXIMUM_SEQUENCE, 1, 0),
        (MAXIMUM_SEQUENCE - 1, 5, 3),
        (3, -5, MAXIMUM_SEQUENCE - 1),
        (0, 0, 0),
    ],
)
def test_a_sequence_advances_and_goes_back_around_the_end(sequence: int, count: int, expected: int) -> None:
    assert advance_sequence(sequence, count) == expected
