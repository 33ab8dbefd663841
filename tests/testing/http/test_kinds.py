"""Kinds of values: what they let pass, what they refuse, and that their schemas agree."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from fencepost.testing.http.kinds import (
    Flag,
    InputError,
    Kind,
    Listed,
    Mapped,
    Nothing,
    Number,
    Scalar,
    Shape,
    Text,
    Whole,
    check_names,
)

KINDS: list[Kind] = [
    Text(longest=5, least=1),
    Text(choices=("utf-8", "base64")),
    Whole(0, 10),
    Number(0, 10),
    Flag(),
    Nothing(Whole(0, 10)),
    Nothing(Text(choices=("a", "b"))),
    Scalar(longest=5),
    Listed(Whole(0, 3), 3, least=1),
    Mapped(Nothing(Text(longest=3)), 2),
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 13)
    | st.floats(-3, 13).filter(lambda number: not number.is_integer())
    | st.sampled_from(["", "a", "b", "utf-8", "longer than that"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(value=JSON)
@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_a_value_passes_exactly_if_the_schema_allows_it(kind: Kind, value: Any) -> None:
    try:
        checked = kind.check(value, "it")
    except InputError:
        assert not Draft202012Validator(kind.schema()).is_valid(value)
    else:
        assert checked == value
        assert Draft202012Validator(kind.schema()).is_valid(value)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (Whole(1, 9), 10, "count is 10: give a whole number from 1 to 9"),
        (Whole(1, 9), 1.0, "count is 1.0: give a whole number from 1 to 9"),
        (Whole(1, 9), True, "count is true: give a whole number from 1 to 9"),
        (Whole(1, 9), 10**400, "count is a very large number: give a whole number from 1 to 9"),
        (Number(0, 1), math.inf, "count is inf: give a number from 0 to 1"),
        (Number(0, 1), math.nan, "count is nan: give a number from 0 to 1"),
        (Number(0, 1), 10**400, "count is a very large number: give a number from 0 to 1"),
        (Text(longest=3), "four", "count has 4 characters: give 0 to 3"),
        (Text(), "\ud800", "count has half of a surrogate pair: give text that UTF-8 can encode"),
        (Text(choices=("a", "b")), "c", "count is 'c': give 'a' or 'b'"),
        (Listed(Whole(0, 1), 2), [0, 2], "count[1] is 2: give a whole number from 0 to 1"),
        (Listed(Whole(0, 1), 2), [0, 0, 0], "count has 3 items: give 0 to 2"),
        (Mapped(Flag(), 2), {"a": 1}, "count['a'] is 1: give true or false"),
        (Flag(), "x" * 100, f"count is '{'x' * 58}…: give true or false"),
        (Flag(), {}, "count is an object: give true or false"),
    ],
)
def test_a_refusal_says_where_and_what_to_give(kind: Kind, value: Any, said: str) -> None:
    with pytest.raises(InputError) as raised:
        kind.check(value, "count")
    assert str(raised.value) == said


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [(Whole(-5, 9), "-5", -5), (Number(0, 9), "1.5", 1.5), (Flag(), "true", True), (Nothing(Flag()), "false", False)],
)
def test_a_text_of_a_query_has_its_value(kind: Kind, text: str, value: object) -> None:
    assert kind.parse(text, "it") == value


@pytest.mark.parametrize("text", ["", "x", "1e3", "nan", "٣", "1_0", "9" * 5000])
@pytest.mark.parametrize("kind", [Whole(0, 9), Number(0, 9), Flag()], ids=repr)
def test_a_text_of_a_query_that_is_no_such_value_is_refused(kind: Kind, text: str) -> None:
    with pytest.raises(InputError, match="it is "):
        kind.parse(text, "it")


def test_an_unknown_name_is_refused_with_the_one_that_was_probably_meant() -> None:
    check_names(["topic"], ["topic", "count"], "records")
    with pytest.raises(InputError, match=r"records has no field 'tpoic': did you mean 'topic'\?"):
        check_names(["tpoic"], ["topic", "count"], "records")
    with pytest.raises(InputError, match="crash has no field 'x', nor any other: leave it out"):
        check_names(["x"], [], "crash")


def test_a_shape_needs_all_its_fields_and_no_others() -> None:
    shape = Shape("Pair", {"a": (Flag(), "First."), "b": (Listed(Shape("Inner", {}), 3), "")})
    assert [one.name for one in shape.shapes()] == ["Pair", "Inner"]
    components = {one.name: one.definition() for one in shape.shapes()}
    validator = Draft202012Validator({**shape.schema(), "components": {"schemas": components}})
    assert validator.is_valid({"a": True, "b": [{}]})
    assert not validator.is_valid({"a": True})
    assert not validator.is_valid({"a": True, "b": [], "c": 1})
    with pytest.raises(InputError):
        shape.check({}, "it")
