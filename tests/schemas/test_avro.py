"""Values in Avro."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.schemas.avro import AvroCodec
from fencepost.schemas.schema import Kind, Schema, SchemaError

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "token", "type": "bytes"},
        {"name": "note", "type": ["null", "string", {"type": "array", "items": "int"}], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "weights", "type": {"type": "map", "values": "double"}},
        {"name": "before", "type": ["null", "Order"], "default": None},
    ],
}
VALUE = {
    "id": 7,
    "at": "2026-01-31T14:02:00.500000Z",
    "day": "2026-01-31",
    "total": "12.30",
    "token": "\u00ff\u0000a",
    "note": [1, 2],
    "state": "PAID",
    "weights": {"a": 1.5, "b": "NaN"},
    "before": None,
}


def codec(schema: Any, *dependencies: tuple[str, str]) -> AvroCodec:
    return AvroCodec(Schema(Kind.AVRO, json.dumps(schema), dependencies))


def test_what_was_written_is_read_again_as_people_read_it() -> None:
    orders = codec(ORDER)
    value = {**VALUE, "before": VALUE}
    content, indexes = orders.encode(value, "")
    assert indexes is None
    assert orders.decode(content, ()) == value
    json.dumps(value, allow_nan=False)


def test_a_missing_field_has_its_default_and_an_unknown_one_is_named() -> None:
    orders = codec(ORDER)
    value = {name: one for name, one in VALUE.items() if name not in ("note", "before")}
    assert orders.decode(orders.encode(value, "")[0], ())["note"] is None
    with pytest.raises(SchemaError, match=r"the value\.notes: the record shop\.Order has no such field"):
        orders.encode({**VALUE, "notes": 1}, "")
    with pytest.raises(SchemaError, match=r"the value\.id is missing"):
        orders.encode({}, "")


def test_a_branch_of_a_union_may_be_named_as_in_avros_json() -> None:
    union = codec(["null", "string", "bytes", "long"])
    assert union.decode(union.encode({"bytes": "a"}, "")[0], ()) == "a"
    assert union.encode({"bytes": "a"}, "") != union.encode("a", "") == union.encode({"string": "a"}, "")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("int", "x"),
        ("int", 2**40),
        (["null", "int"], "x"),
        ({"type": "int", "logicalType": "date"}, "soon"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}, "x"),
        ("bytes", "\u20ac"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({"type": "array", "items": "int"}, 3),
        (ORDER, []),
    ],
)
def test_a_value_that_does_not_fit_is_refused_in_words(schema: Any, value: Any) -> None:
    with pytest.raises(SchemaError, match=r"^\S+"):
        codec(schema).encode(value, "")


def test_schemas_that_others_refer_to_come_first() -> None:
    item = json.dumps({"type": "record", "name": "shop.Item", "fields": [{"name": "n", "type": "int"}]})
    orders = codec({"type": "array", "items": "shop.Item"}, ("shop.Item", item))
    assert orders.decode(orders.encode([{"n": 3}], "")[0], ()) == [{"n": 3}]
    with pytest.raises(SchemaError, match=r"shop\.Item"):
        codec({"type": "array", "items": "shop.Item"})


def test_a_bare_name_of_a_primitive_type_is_a_schema() -> None:
    assert AvroCodec(Schema(Kind.AVRO, "string")).decode(b"\x06abc", ()) == "abc"


@pytest.mark.parametrize(
    "text", ["", "{", "[]x", '{"type": "record"}', '{"type": 7}', '"no.such"', "[" * 5_000, "null null"]
)
def test_a_schema_that_is_none_is_refused_in_words(text: str) -> None:
    with pytest.raises(SchemaError, match=r"its Avro schema cannot be read"):
        AvroCodec(Schema(Kind.AVRO, text))


def test_left_over_bytes_are_no_value() -> None:
    with pytest.raises(SchemaError, match="2 are left over"):
        codec("int").decode(b"\x02xx", ())


@given(st.data())
def test_damaged_bytes_are_a_value_or_a_schema_error(data: st.DataObject) -> None:
    whole, _ = codec(ORDER).encode(VALUE, "")
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    try:
        value = codec(ORDER).decode(cut, ())
    except SchemaError:
        return
    json.dumps(value, allow_nan=False)


def test_another_writer_of_avro_is_read() -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {"type": "map", "values": "long"}, {"a": 1})
    assert codec({"type": "map", "values": "long"}).decode(out.getvalue(), ()) == {"a": 1}
