"""Columns of an index: whether their numbers rise, as comparing them one by one finds."""

from __future__ import annotations

from array import array
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.log.segment import rising_columns
from fencepost.broker.log.segment.rising_columns import rises

GREATEST = {"i": 2**31 - 1, "q": 2**63 - 1}


@given(
    steps=st.lists(st.sampled_from((0, 1, 2, 1_000)), max_size=12),
    typecode=st.sampled_from(("i", "q")),
    replaced=st.none() | st.tuples(st.integers(0, 11), st.integers(-(2**31), 2**31 - 1)),
    first=st.integers(-2, 2) | st.just(2**31 - 12_001),
    at_once=st.integers(1, 5),
)
def test_a_column_rises_if_each_number_is_above_the_one_before(
    steps: list[int], typecode: str, replaced: tuple[int, int] | None, first: int, at_once: int
) -> None:
    numbers = list(accumulate(steps, initial=first))
    if replaced is not None and replaced[0] < len(numbers):
        numbers[replaced[0]] = replaced[1]
    column = array(typecode, numbers)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rising_columns, "AT_ONCE_COUNT", at_once)
        assert rises(column) is all(one < next_one for one, next_one in pairwise(numbers))
        assert rises(column, strictly=False) is all(one <= next_one for one, next_one in pairwise(numbers))


@pytest.mark.parametrize("typecode", ["i", "q"])
def test_the_least_and_the_greatest_number_may_be_neighbours(typecode: str) -> None:
    greatest = GREATEST[typecode]
    assert rises(array(typecode, [0, greatest]))
    assert not rises(array(typecode, [greatest, 0]))
    assert not rises(array(typecode, [greatest, greatest]))
    assert rises(array(typecode, [greatest, greatest]), strictly=False)


@pytest.mark.parametrize("position", [1, 2_047, 2_048, 2_049, 4_096, 4_999])
def test_one_number_that_is_too_small_is_found_wherever_it_is(position: int) -> None:
    column = array("i", range(5_000))
    assert rises(column)
    column[position] = column[position - 1]
    assert not rises(column)
    assert rises(column, strictly=False)
    column[position] -= 1
    assert not rises(column, strictly=False)
