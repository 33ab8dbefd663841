"""Filters of records."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.console.record_filters import Filter, FilterError, filter_of, path_of, values_at
from fencepost.console.values import Part, Shown
from fencepost.protocol.record_batch import Record

ORDER = {
    "order": {"customer": {"id": 42, "name": "Ada"}, "items": [{"sku": "a-1"}, {"sku": "b-2"}], "paid": True},
    "big": 9_007_199_254_740_993,
    "a.b": "dotted",
    "none": None,
}


def shown(value: object = ORDER, key: str | None = "c42", **headers: str) -> Shown:
    text = value if isinstance(value, str) or value is None else json.dumps(value)
    parts = tuple((name, Part(content)) for name, content in headers.items())
    record = Record(0, 0, None if key is None else key.encode(), None if text is None else text.encode(), ())
    return Shown(record, Part(key), Part(text), parts)


@pytest.mark.parametrize(
    ("field", "op", "operand", "expected"),
    [
        ("order.customer.id", "=", "42", True),
        ("order.customer.id", "=", "42.0", True),
        ("order.customer.id", "=", "4", False),
        ("order.customer.id", ">", "41.5", True),
        ("order.customer.id", "<", "42", False),
        ("order.customer.id", "contains", "4", True),
        ("order.customer.name", ">", "Aa", True),
        ("order.customer.name", "=", "ada", False),
        ("order.customer", "=", "42", False),
        ("order.items.1.sku", "=", "b-2", True),
        ("order.items.sku", "=", "b-2", True),
        ("order.items.2.sku", "=", "b-2", False),
        ("order.paid", "=", "true", True),
        ("order.paid", "=", "1", False),
        ("none", "=", "null", True),
        ("none", "<", "1", False),
        ("big", "=", "9007199254740993", True),
        ("big", "=", "9007199254740992", False),
        (r"a\.b", "=", "dotted", True),
        ("a.b", "=", "dotted", False),
        ("__class__", "contains", "", False),
    ],
)
def test_a_field_is_found_by_its_path_and_compared(field: str, op: str, operand: str, expected: bool) -> None:
    assert filter_of({"field": field, "op": op, "operand": operand}).takes(shown()) is expected


def test_a_value_that_is_no_json_has_no_fields() -> None:
    for value in ("plain", None, "[" * 100_000, '{"a": NaN}', ""):
        assert not filter_of({"field": "a", "op": "contains"}).takes(shown(value))


def test_a_field_is_found_in_whatever_format_the_value_is_shown() -> None:
    record = Record(0, 0, None, b'{"id": 7}', ())
    wanted = filter_of({"field": "id", "operand": "7"})
    assert wanted.takes(Shown(record, Part(None), Part("7b 22 69 64"), ()))
    assert wanted.takes(Shown(record._replace(value=b"\0\1"), Part(None), Part("Avro", data={"id": 7}), ()))
    masked = record._replace(value=b'{"id": "***"}')
    assert not wanted.takes(Shown(masked, Part(None), Part("7b 22"), ()))


def test_key_header_and_text_must_all_be_there() -> None:
    record = shown(source="shop", trace="00-4bf9")
    for parameters, expected in (
        ({"key": "42"}, True),
        ({"key": "42", "key_is": "yes"}, False),
        ({"key": "c42", "key_is": "yes"}, True),
        ({"header": "source"}, True),
        ({"header": "source", "header_value": "shop"}, True),
        ({"header": "source", "header_value": "4bf9"}, False),
        ({"header_value": "4bf9"}, True),
        ({"header": "nowhere"}, False),
        ({"contains": "Ada"}, True),
        ({"contains": "Ada", "key": "x"}, False),
    ):
        assert filter_of(parameters).takes(record) is expected, parameters


def test_a_null_key_is_no_text() -> None:
    assert not Filter(key="null").takes(shown(key=None))
    assert not Filter(key="", key_is=True).takes(shown(key=None))
    assert Filter(key="", key_is=True).takes(shown(key=""))


def test_a_filter_looks_at_what_is_shown_and_not_at_what_is_hidden() -> None:
    record = Record(0, 0, b"secret", b'{"card": "4111"}', ())
    hidden = Shown(record._replace(key=b"***", value=b'{"card": "***"}'), Part("***"), Part('{"card": "***"}'), ())
    for parameters in ({"key": "secret"}, {"contains": "4111"}, {"field": "card", "op": "contains", "operand": "4"}):
        assert not filter_of(parameters).takes(hidden)
    assert not filter_of({"field": "card", "op": "=", "operand": "4111"}).takes(hidden)


@pytest.mark.parametrize(
    "parameters",
    [
        {"field": "a..b"},
        {"field": "."},
        {"field": "a", "op": "=="},
        {"contains": "x" * 2_000},
        {"field": "a." * 30 + "a"},
    ],
)
def test_a_filter_that_cannot_be_is_refused(parameters: dict[str, str]) -> None:
    with pytest.raises(FilterError):
        filter_of(parameters)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    ),
    st.text(min_size=1),
    st.sampled_from(["=", "contains", "<", ">"]),
    st.text(),
)
def test_no_value_makes_a_filter_fail(value: object, field: str, op: str, operand: str) -> None:
    try:
        wanted = filter_of({"field": field, "op": op, "operand": operand})
    except FilterError:
        return
    assert wanted.takes(shown(value)) in (True, False)


def test_a_field_of_a_long_array_is_bounded() -> None:
    found = list(values_at([{"a": number} for number in range(20_000)], path_of("a")))
    assert len(found) == 1_000
