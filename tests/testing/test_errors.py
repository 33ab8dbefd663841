"""A name that does not exist is answered with the one that was meant."""

from __future__ import annotations

from fencepost.testing.errors import hint


def test_the_closest_name_is_offered() -> None:
    assert hint("EndTx", ["Produce", "EndTxn"]) == "did you mean 'EndTxn'?"


def test_without_a_close_name_the_first_ones_are_listed() -> None:
    assert hint("zzz", ["b", "a"]) == "there are 'a', 'b'"
    assert hint("zzz", map(str, range(100, 120))).endswith("'107', …")
    assert hint("zzz", []) == "there are none"
