"""Values with schemas of a real registry: Apicurio's, asked by Confluent's API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference

from fencepost.schemas.decoding import Decoder, Item
from fencepost.schemas.options import RegistryOptions
from fencepost.schemas.registry import NotRegisteredError, Registry
from fencepost.schemas.schema import Kind
from fencepost.schemas.wire import with_prefix
from fencepost.schemas.workers import Order
from tests.support.apicurio import apicurio
from tests.support.confluent_values import ORDER_READ, ORDER_SCHEMA, avro, client_of, field, json_value, protobuf

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apicurio(tmp_path_factory.mktemp("apicurio") / "log") as address:
        yield address


@pytest.fixture
async def decoder(url: str) -> AsyncIterator[Decoder]:
    made = Decoder(Registry(RegistryOptions((url,))))
    yield made
    await made.close()


async def test_values_of_confluents_serializers_are_read(url: str, decoder: Decoder) -> None:
    with client_of(url) as client:
        items = [
            Item("orders", "value", avro(client, "orders")),
            Item("people", "value", json_value(client, "people", {"name": "Ann"})),
            Item("fields", "value", protobuf(client, "fields", field("f"))),
            Item("orders", "value", b"\x00\x7f\x00\x00\x00abc"),
        ]
    order, person, message, unknown = await decoder.decode(items, 60)
    assert order is not None
    assert (order.value, order.schema) == (ORDER_READ, "Avro orders-value version 1")
    assert person is not None
    assert (person.value, person.schema) == ({"name": "Ann"}, "JSON Schema people-value version 1")
    assert message is not None
    assert (message.value["name"], message.schema) == ("f", "Protobuf fields-value version 1")
    assert unknown is not None
    assert "does not have its schema" in unknown.reason


async def test_references_of_protobuf_are_followed(url: str, decoder: Decoder) -> None:
    item = 'syntax = "proto3"; package shop; message Item { string name = 1; }'
    cart = 'syntax = "proto3"; package shop; import "shop/item.proto"; message Cart { repeated Item items = 1; }'
    with client_of(url) as client:
        client.register_schema("shop/item.proto", Schema(item, "PROTOBUF"))
        reference = SchemaReference("shop/item.proto", "shop/item.proto", 1)
        schema_id = client.register_schema("carts-value", Schema(cart, "PROTOBUF", [reference]))
    found = await decoder.registry.by_id(schema_id)
    value = {"items": [{"name": "a"}, {"name": "b"}]}
    [answer] = await decoder.worker.carry_out([Order(found.schema, value=value)])
    content = with_prefix(schema_id, (0,), bytes([10, 3, 10, 1, 97, 10, 3, 10, 1, 98]))
    assert answer["content"] == "CgMKAWEKAwoBYg=="
    (read,) = await decoder.decode([Item("carts", "value", content)], 60)
    assert read is not None
    assert (read.value, read.schema) == (value, "Protobuf carts-value version 1")


async def test_schemas_are_registered_and_found_by_subject(decoder: Decoder) -> None:
    registry = decoder.registry
    made = await registry.register("written-value", Kind.AVRO, ORDER_SCHEMA)
    assert (await registry.register("written-value", Kind.AVRO, ORDER_SCHEMA)).schema_id == made.schema_id
    latest = await registry.by_subject("written-value")
    assert latest.schema_id == made.schema_id
    with pytest.raises(NotRegisteredError):
        await registry.by_subject("none")
