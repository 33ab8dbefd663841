from __future__ import annotations

from itertools import product

import pytest

from tests.support.covering import covering

PAIRS = list(product("abc", "de", "fg"))


@pytest.mark.parametrize("first", range(len(PAIRS)))
def test_each_value_has_its_turn_in_as_few_rows_as_the_longest_column_has_values(first: int) -> None:
    chosen = [PAIRS[number] for number in covering(PAIRS, first)]
    assert [set(column) for column in zip(*chosen, strict=True)] == [set("abc"), set("de"), set("fg")]
    assert len(chosen) == 3


def test_the_values_of_a_short_column_have_their_turn_equally_often() -> None:
    rows = list(product("abcdef", "gh"))
    second = [rows[number][1] for number in covering(rows)]
    assert sorted(second) == list("ggghhh")


def test_a_table_that_lacks_some_rows_is_covered_by_those_that_it_has() -> None:
    rows = [("a", 1), ("b", 1), ("b", 2)]
    assert covering(rows) == {0, 2}
    assert covering([("a",), ("b",)]) == {0, 1}
