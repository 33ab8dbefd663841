"""Keys and values of records, as Confluent's serializers write them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost.schemas.decoding import Decoder, Item
from fencepost.schemas.options import RegistryOptions
from fencepost.schemas.registry import Registry
from fencepost.schemas.schema import Kind
from tests.support.confluent_values import (
    ORDER_READ,
    ORDER_SCHEMA,
    avro,
    client_of,
    field,
    json_value,
    protobuf,
    with_header,
)
from tests.support.schema_registry import SchemaRegistry


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


@pytest.fixture
async def decoder(server: SchemaRegistry) -> AsyncIterator[Decoder]:
    made = Decoder(Registry(RegistryOptions((server.url,))))
    yield made
    await made.close()


def framed(schema_id: int, content: bytes = b"") -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + content


async def test_each_kind_of_schema_is_read(server: SchemaRegistry, decoder: Decoder) -> None:
    with client_of(server.url) as client:
        items = [
            Item("orders", "value", avro(client, "orders")),
            Item("orders", "key", avro(client, "orders", "k-1", '"string"', key=True)),
            Item("people", "value", json_value(client, "people", {"name": "Ann"})),
            Item("fields", "value", protobuf(client, "fields", field("f"))),
            Item("plain", "value", b"no schema"),
        ]
    order, key, person, message, nothing = await decoder.decode(items)
    assert order is not None
    assert (order.value, order.schema, order.kind) == (ORDER_READ, "Avro orders-value version 1", Kind.AVRO)
    assert key is not None
    assert (key.value, key.schema) == ("k-1", "Avro orders-key version 1")
    assert person is not None
    assert (person.value, person.schema) == ({"name": "Ann"}, "JSON Schema people-value version 1")
    assert message is not None
    assert (message.value["name"], message.schema) == ("f", "Protobuf fields-value version 1")
    assert nothing is None


async def test_a_header_may_name_the_schema(server: SchemaRegistry, decoder: Decoder) -> None:
    with client_of(server.url) as client:
        content, headers = with_header(client, "orders")
    (found,) = await decoder.decode([Item("orders", "value", content, headers)])
    assert found is not None
    assert found.value == ORDER_READ


async def test_what_cannot_be_read_has_a_reason(server: SchemaRegistry, decoder: Decoder) -> None:
    with client_of(server.url) as client:
        order = avro(client, "orders")
        message = protobuf(client, "fields", field("f"))
    items = [
        Item("orders", "value", b"\x00\x00\x00\x00\x63abc"),
        Item("orders", "value", order[:-3]),
        Item("fields", "value", message[:5] + b"\x80"),
        Item("orders", "value", order),
    ]
    unknown, damaged, indexes, good = await decoder.decode(items)
    assert unknown is not None
    assert unknown.reason == "its schema has the id 99: the schema registry does not have its schema"
    assert damaged is not None
    assert damaged.reason.startswith("its bytes do not fit its Avro schema")
    assert damaged.schema == "Avro orders-value version 1"
    assert indexes is not None
    assert indexes.reason == "the indexes of its message are damaged"
    assert good is not None
    assert good.has_value


async def test_values_that_are_null_in_json_were_read(server: SchemaRegistry, decoder: Decoder) -> None:
    content = framed(server.register("nulls-value", '"null"'))
    (found,) = await decoder.decode([Item("nulls", "value", content)])
    assert found is not None
    assert (found.has_value, found.value) == (True, None)


@given(content=st.binary(min_size=1, max_size=60))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_bytes_of_whatever_kind_never_fail_a_call(
    content: bytes, server: SchemaRegistry, decoder: Decoder
) -> None:
    order = framed(server.register("orders-value", ORDER_SCHEMA), content)
    (found,) = await decoder.decode([Item("orders", "value", order)])
    assert found is not None
    assert found.has_value or found.reason
