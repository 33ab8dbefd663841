"""Values with a JSON Schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost.schemas.json_schema import JsonSchemaCodec
from fencepost.schemas.schema import Kind, Schema, SchemaError


def codec(schema: Any, *dependencies: tuple[str, str]) -> JsonSchemaCodec:
    return JsonSchemaCodec(Schema(Kind.JSON, json.dumps(schema), dependencies))


def test_json_is_read_and_what_is_none_is_refused() -> None:
    assert codec({}).decode(b'{"a": [1]}', ()) == {"a": [1]}
    with pytest.raises(SchemaError, match="not JSON that can be read"):
        codec({}).decode(b'{"a": NaN}', ())


def test_a_value_is_checked_before_it_is_written() -> None:
    orders = codec({"properties": {"id": {"type": "integer"}}, "required": ["id"]})
    assert orders.encode({"id": 1, "note": "é"}, "") == ('{"id":1,"note":"é"}'.encode(), None)
    with pytest.raises(SchemaError, match="at id: 'x' is not of type 'integer'"):
        orders.encode({"id": "x"}, "")


def test_a_schema_refers_to_others_that_come_with_it_and_fetches_none() -> None:
    item = ("item.json", json.dumps({"$id": "http://shop/item.json", "type": "integer"}))
    for reference in ("item.json", "http://shop/item.json"):
        items = codec({"type": "array", "items": {"$ref": reference}}, item)
        assert items.encode([1], "")[0] == b"[1]"
        with pytest.raises(SchemaError, match="does not fit"):
            items.encode(["x"], "")
    with pytest.raises(SchemaError, match="which it does not bring along"):
        codec({"$ref": "http://127.0.0.1:1/other.json"}).encode(1, "")


@pytest.mark.parametrize("text", ["", "{", "7", '{"type": 7}', '{"$ref": "#"}', "[" * 5_000])
def test_a_schema_that_is_none_is_refused_in_words(text: str) -> None:
    with pytest.raises(SchemaError, match="its JSON Schema"):
        JsonSchemaCodec(Schema(Kind.JSON, text)).encode({}, "")
