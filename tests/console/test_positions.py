"""Positions of a reader, as a word of an address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.console.positions import MOST_PARTITIONS, Positions, PositionsError, positions_in, word_of

ID = bytes(range(16))


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=30))
def test_a_word_says_the_positions_that_it_was_made_of(offsets: dict[int, int]) -> None:
    assert positions_in(word_of(Positions(ID, offsets))) == Positions(ID, offsets)


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda content: content.hex()))
def test_any_other_word_is_refused_in_one_way(word: str) -> None:
    try:
        found = positions_in(word)
    except PositionsError:
        return
    assert all(0 <= offset < 2**63 for offset in found.offsets.values())


def test_a_word_that_was_cut_is_refused() -> None:
    with pytest.raises(PositionsError, match="cut off"):
        positions_in(word_of(Positions(ID, {1: 1_000_000}))[:-2])


def test_positions_in_a_thousand_partitions_of_ten_million_records_pass_proxies() -> None:
    assert len(word_of(Positions(ID, {index: 10_000_000 + index for index in range(MOST_PARTITIONS)}))) < 8_000


def test_a_topic_made_again_is_another_one() -> None:
    here = Positions(ID, {})
    assert here.belong_to(ID)
    assert not here.belong_to(ID[::-1])
    assert here.belong_to(bytes(16))
