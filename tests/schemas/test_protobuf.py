"""Values in Protobuf."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf import type_pb2
from hypothesis import given
from hypothesis import strategies as st

from fencepost.schemas.protobuf import ProtobufCodec
from fencepost.schemas.schema import Kind, Schema, SchemaError

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "shop/item.proto";
message Order {
  int64 order_id = 1;
  google.protobuf.Timestamp at = 2;
  repeated Item items = 3;
  map<string, bytes> extras = 4;
  message Line { string text = 1; }
  Order before = 5;
}
message Payment { double amount = 1; }
"""
ITEM = 'syntax = "proto3"; package shop; message Item { string name = 1; }'


@pytest.fixture(scope="module")
def orders() -> ProtobufCodec:
    return ProtobufCodec(Schema(Kind.PROTOBUF, ORDER, (("shop/item.proto", ITEM),)))


VALUE = {
    "order_id": "9007199254740993",
    "at": "2026-01-31T14:02:00Z",
    "items": [{"name": "é"}],
    "extras": {"a": "/w=="},
}


def test_what_was_written_is_read_again(orders: ProtobufCodec) -> None:
    content, indexes = orders.encode({**VALUE, "before": VALUE}, "")
    assert indexes == (0,)
    assert orders.decode(content, (0,)) == {**VALUE, "before": VALUE}


def test_a_message_is_chosen_by_its_name_and_found_by_its_indexes(orders: ProtobufCodec) -> None:
    for name in ("Order.Line", "shop.Order.Line"):
        content, indexes = orders.encode({"text": "x"}, name)
        assert indexes == (0, 1)  # the map has a message of its own
        assert orders.decode(content, indexes) == {"text": "x"}
    assert orders.encode({"amount": 1.5}, "Payment")[1] == (1,)
    with pytest.raises(SchemaError, match=r"no message Refund; it has shop\.Order"):
        orders.encode({}, "Refund")
    with pytest.raises(SchemaError, match=r"no message with the indexes \[7\]"):
        orders.decode(b"", (7,))


def test_a_value_that_does_not_fit_is_refused_in_words(orders: ProtobufCodec) -> None:
    wrong: list[Any] = [{"no_such": 1}, {"order_id": "x"}, [], "text", {"items": {"name": 1}}]
    for value in wrong:
        with pytest.raises(SchemaError, match="the Protobuf message"):
            orders.encode(value, "")


def test_a_schema_may_be_a_descriptor_in_base64() -> None:
    described = base64.b64encode(type_pb2.DESCRIPTOR.serialized_pb).decode()
    codec = ProtobufCodec(Schema(Kind.PROTOBUF, described))
    content = type_pb2.Type(name="n").SerializeToString()
    assert codec.decode(content, (0,))["name"] == "n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no message|cannot be read"),
        ("message {", "line 1:9"),
        ('syntax = "proto3"; import "no.proto"; message A {}', "no.proto"),
        ('syntax = "proto3"; import "../../etc/passwd"; message A {}', "not allowed"),
        ('syntax = "proto3"; message A { B b = 1; }', '"B" is not defined'),
    ],
)
def test_a_schema_that_is_none_is_refused_with_the_place_and_no_folder_of_ours(text: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason) as failure:
        ProtobufCodec(Schema(Kind.PROTOBUF, text)).encode({}, "")
    assert "/tmp" not in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("name", ["../outside.proto", "/etc/passwd.proto", "a/../../b.proto", "nul\0.proto"])
def test_a_reference_writes_nothing_outside_of_its_folder(name: str) -> None:
    with pytest.raises(SchemaError, match="no path within a project"):
        ProtobufCodec(Schema(Kind.PROTOBUF, 'syntax = "proto3"; message A {}', ((name, ITEM),)))


@given(st.data())
def test_damaged_bytes_are_a_value_or_a_schema_error(orders: ProtobufCodec, data: st.DataObject) -> None:
    damaged = bytearray(orders.encode(VALUE, "")[0])
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] = data.draw(st.integers(0, 255))
    try:
        value = orders.decode(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]), (0,))
    except SchemaError:
        return
    json.dumps(value, allow_nan=False)
