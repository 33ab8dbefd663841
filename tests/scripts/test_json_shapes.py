"""Shapes that are written short mean what they say."""

from __future__ import annotations

import jsonschema
import pytest

from scripts.json_shapes import Output, done, lines, many, one, opened, rows


def fits(output: Output, document: object) -> bool:
    return bool(jsonschema.Draft202012Validator(output.schema).is_valid(document))


@pytest.mark.parametrize(
    ("shape", "right", "wrong"),
    [
        ("text", "a", None),
        ("text?", None, 1),
        ("count", 0, -1),
        ("integer", -1, 1.5),
        ("flag", True, "true"),
        ("texts", ["a"], [1]),
        ("counts", [1], ["a"]),
        ("by name", {"a": 1}, {"a": "b"}),
    ],
)
def test_a_type_takes_its_values_and_no_others(shape: str, right: object, wrong: object) -> None:
    assert fits(one({"it": shape}), {"it": right})
    assert not fits(one({"it": shape}), {"it": wrong})
    assert not fits(one({"it": shape}), {})


def test_a_field_that_may_be_left_out_is_marked() -> None:
    assert fits(one({"~it": "text"}), {})
    assert fits(one({"~it": "text"}), {"it": "a"})
    assert not fits(one({"~it": "text"}), {"other": "a"})


def test_all_rows_of_an_output_have_the_same_of_several_shapes() -> None:
    output = rows({"a": "text"}, {"b": "text"})
    assert fits(output, [{"a": "x"}, {"a": "y"}])
    assert fits(output, [])
    assert not fits(output, [{"a": "x"}, {"b": "y"}])


def test_lists_of_objects_and_changes_with_their_words() -> None:
    assert fits(one({"inner": many({"a": "text"})}), {"inner": [{"a": "x"}]})
    assert not fits(one({"inner": many({"a": "text"})}), {"inner": [{"a": "x", "b": 1}]})
    assert fits(done(a="text"), {"a": "x", "message": "done"})
    assert lines({"a": "text"}).is_lines


def test_an_opened_schema_takes_more_fields_at_each_depth() -> None:
    schema = opened(one({"inner": many({"a": "text"})}).schema)
    jsonschema.validate({"inner": [{"a": "x", "b": 1}], "more": 1}, schema)
    assert not jsonschema.Draft202012Validator(schema).is_valid({"inner": [{}]})
