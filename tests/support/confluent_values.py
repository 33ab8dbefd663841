"""Values as Confluent's serializers write them with a registry: the other side in tests of schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import type_pb2

ORDER_SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "note", "type": ["null", "string"], "default": None},
            {
                "name": "card",
                "type": {"type": "record", "name": "Card", "fields": [{"name": "number", "type": "string"}]},
            },
        ],
    }
)
ORDER: Final = {"id": 7, "at": datetime(2026, 1, 31, tzinfo=UTC), "note": None, "card": {"number": "4111111111111111"}}
ORDER_READ: Final = {**ORDER, "at": "2026-01-31T00:00:00Z"}
PERSON_SCHEMA: Final = json.dumps({"title": "Person", "type": "object", "properties": {"name": {"type": "string"}}})


def context(topic: str, headers: list[tuple[str, bytes]] | None = None, *, key: bool = False) -> SerializationContext:
    return SerializationContext(topic, MessageField.KEY if key else MessageField.VALUE, headers)


@contextmanager
def client_of(url: str) -> Iterator[Any]:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


def avro(client: Any, topic: str, value: Any = ORDER, schema: str = ORDER_SCHEMA, *, key: bool = False) -> bytes:
    written: bytes = AvroSerializer(client, schema)(value, context(topic, key=key))
    return written


def json_value(client: Any, topic: str, value: Any) -> bytes:
    written: bytes = JSONSerializer(PERSON_SCHEMA, client)(value, context(topic))
    return written


def protobuf(client: Any, topic: str, message: Any) -> bytes:
    written: bytes = ProtobufSerializer(type(message), client)(message, context(topic))
    return written


def field(name: str) -> type_pb2.Field:
    return type_pb2.Field(name=name, number=3)


def with_header(client: Any, topic: str) -> tuple[bytes, list[tuple[str, bytes]]]:
    """An order in Avro whose schema a header names."""
    headers: list[tuple[str, bytes]] = []
    serializer = AvroSerializer(client, ORDER_SCHEMA, conf={"schema.id.serializer": header_schema_id_serializer})
    return serializer(ORDER, context(topic, headers)), headers
