"""Whether two globs can match the same transactional id."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.check_back.globs import common_name


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("order-*", "order-1"),
        ("*", ""),
        ("*", "*"),
        ("order-*", "*-1"),
        ("a?c", "?bc"),
        ("a*b*c", "a*c"),
        ("x[ab]", "x[bc]"),
        ("x[!a]", "x?"),
        ("x[!x0-]", "*"),
        ("[[]*", "[a"),
        ("[]a]", "]"),
        ("*ü", "grün-ü"),
    ],
)
def test_globs_that_overlap_give_a_name_that_both_match(first: str, second: str) -> None:
    for one, other in ((first, second), (second, first)):
        name = common_name(one, other)
        assert name is not None
        assert fnmatchcase(name, one)
        assert fnmatchcase(name, other)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("order-*", "orders-*"),
        ("order-?", "order-10"),
        ("a*", "b*"),
        ("Order-*", "order-*"),
        ("x[ab]", "x[cd]"),
        ("x[!a]", "xa"),
        ("*a", "*b"),
        ("", "?"),
    ],
)
def test_globs_that_do_not_overlap_give_none(first: str, second: str) -> None:
    assert common_name(first, second) is None
    assert common_name(second, first) is None


@given(st.text("ab*?", max_size=6), st.text("ab*?", max_size=6), st.text("ab", max_size=6))
def test_a_name_that_both_match_is_never_missed(first: str, second: str, name: str) -> None:
    found = common_name(first, second)
    if fnmatchcase(name, first) and fnmatchcase(name, second):
        assert found is not None
    if found is not None:
        assert fnmatchcase(found, first)
        assert fnmatchcase(found, second)
