"""Our declarations are Kafka's: compared field by field with the definitions that kafka-python ships, which are
Kafka's own of Kafka 4.3, and which allow the same versions. What is newer: `newer_messages`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fencepost.protocol.declaration import (
    HIGHEST_VERSION,
    ArrayOf,
    Field,
    StructOf,
    Versions,
    WireType,
    struct_schema_of,
)
from fencepost.protocol.primitives import ZERO_UUID, FixedWidth
from fencepost.protocol.schema import schema_of
from tests.protocol.kafka_python import definition_of, knows
from tests.protocol.message_strategies import ALL_TYPES, api_name, for_every_message, is_own, snake_case
from tests.protocol.newer_messages import HIGHEST_OF_OTHERS, NAMES_OF_OTHERS

# The bytes of the others are compared with kio's, see test_oracles.
for_every_defined_message = pytest.mark.parametrize(
    "message_type",
    [message_type for message_type in ALL_TYPES if knows(message_type.__name__)],
    ids=lambda message_type: message_type.__name__,
)

NAMES_OF_NUMBERS = {"int8", "int16", "int32", "int64", "uint16", "uint32", "float64"}


def parsed(versions: str | None) -> Versions:
    return Versions.parse(versions or "none")


def limited(versions: Versions, limits: Versions) -> Versions:
    both = Versions(max(versions.first, limits.first), min(versions.last, limits.last))
    return both if both.first <= both.last else Versions(1, 0)


def type_name(wire_type: WireType) -> str:
    if isinstance(wire_type, ArrayOf):
        return "[]" + type_name(wire_type.element)
    if isinstance(wire_type, StructOf):
        return wire_type.python_class.__name__
    return wire_type.name


def default_of(definition: dict[str, Any]) -> Any:
    """Kafka's default: as stated, else the zero value of the type; records and only they are null then, if they may."""
    kind, stated = definition["type"], definition.get("default")
    if kind == "records":
        return None if parsed(definition.get("nullableVersions")).last == HIGHEST_VERSION else b""
    if stated == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind in NAMES_OF_NUMBERS:
        return int(str(stated or 0), 0)
    if kind == "bool":
        return str(stated).lower() == "true"
    if kind == "uuid":
        return ZERO_UUID
    if kind in ("string", "bytes"):
        return str(stated or "") if kind == "string" else b""
    return "a struct of defaults"


def describe(field: Field, limits: Versions) -> dict[str, Any]:
    default = field.default
    if isinstance(field.type, StructOf) and default is not None:
        assert default == field.type.python_class()
        default = "a struct of defaults"
    return {
        "name": field.name,
        "type": type_name(field.type),
        "versions": limited(field.versions, limits),
        "nullable": limited(field.nullable, limits),
        "tag": field.tag,
        "tagged": limited(field.tagged, limits),
        "default": default,
    }


def describe_definition(definition: dict[str, Any], limits: Versions) -> dict[str, Any]:
    versions = limited(parsed(definition["versions"]), limits)
    return {
        "name": snake_case(definition["name"]),
        "type": definition["type"],
        "versions": versions,
        "nullable": limited(parsed(definition.get("nullableVersions")), versions),
        "tag": definition.get("tag"),
        "tagged": limited(parsed(definition.get("taggedVersions")), versions),
        "default": default_of(definition),
    }


# Kafka uses one name for different structs where the classes of one of our modules must differ.
RENAMED = {
    "[]DescribeTransactionsTransactionState": "[]TransactionState",
    "[]ListTransactionsTransactionState": "[]TransactionState",
    "[]IncrementalAlterConfigsResource": "[]AlterConfigsResource",
    "[]IncrementalAlterableConfig": "[]AlterableConfig",
    "[]AlterEntryData": "[]EntryData",
    "[]AlteredEntryData": "[]EntryData",
    "[]DescribeQuorumTopic": "[]TopicData",
    "[]DescribeQuorumPartition": "[]PartitionData",
}


def compare(
    fields: tuple[Field, ...],
    definitions: list[dict[str, Any]],
    limits: Versions,
    path: str,
    their_names: Mapping[tuple[str, str], str],
    *,
    with_struct_names: bool = True,
) -> None:
    """Fail unless the fields are as defined. their_names: see `NAMES_OF_OTHERS`."""
    # Versions that Kafka has dropped have left fields behind that no valid version holds.
    relevant = [one for one in definitions if limited(parsed(one["versions"]), limits).last >= 0]
    relevant = [one for one in relevant if list(limited(parsed(one["versions"]), limits))]
    of_kafka = [field for field in fields if not is_own(field) and list(limited(field.versions, limits))]
    names = [their_names.get((path.split(".")[0], field.name), field.name) for field in of_kafka]
    assert names == [snake_case(one["name"]) for one in relevant], path
    for field, definition in zip(of_kafka, relevant, strict=True):
        here = f"{path}.{field.name}"
        ours = describe(field, limits)
        ours["type"] = RENAMED.get(ours["type"], ours["type"])
        ours["name"] = snake_case(definition["name"])
        inner = field.type.element if isinstance(field.type, ArrayOf) else field.type
        theirs = describe_definition(definition, limits)
        if isinstance(inner, StructOf) and not with_struct_names:
            assert ours["type"].startswith("[]") == theirs["type"].startswith("[]"), here
            ours["type"] = theirs["type"]
        assert ours == theirs, here
        if isinstance(inner, StructOf):
            inside = limited(field.versions, limits)
            inner_fields = struct_schema_of(inner.python_class).fields
            compare(inner_fields, definition["fields"], inside, here, their_names, with_struct_names=with_struct_names)


@for_every_defined_message
def test_every_field_is_as_kafka_defines_it(message_type: type[Any]) -> None:
    definition, schema = definition_of(message_type.__name__), schema_of(message_type)
    limits = limited(schema.versions, parsed(definition["validVersions"]))
    compare(schema.fields, definition["fields"], limits, message_type.__name__, NAMES_OF_OTHERS)


@for_every_defined_message
def test_key_versions_and_flexible_versions_are_as_kafka_defines_them(message_type: type[Any]) -> None:
    definition, schema = definition_of(message_type.__name__), schema_of(message_type)
    assert schema.api_key == definition["apiKey"]
    theirs = parsed(definition["validVersions"])
    highest = HIGHEST_OF_OTHERS.get(api_name(message_type))
    assert schema.versions.first == theirs.first
    if highest is None:
        assert schema.versions.last == theirs.last
    else:
        assert schema.versions.last > theirs.last == highest
    assert schema.flexible == parsed(definition["flexibleVersions"])
    assert schema.is_request == (definition["type"] == "request")


@for_every_message
def test_a_new_object_holds_the_defaults(message_type: type[Any]) -> None:
    message = message_type()
    for field in schema_of(message_type).fields:
        value = getattr(message, field.name)
        assert value == field.default
        if isinstance(value, FixedWidth):
            pytest.fail(f"{field.name} still holds its declaration")


def test_an_open_range_reaches_to_the_highest_version() -> None:
    assert Versions.parse("3+") == Versions(3, HIGHEST_VERSION)
    assert list(Versions.parse("2-4")) == [2, 3, 4]
    assert list(Versions.parse("7")) == [7]
    assert list(Versions.parse("none")) == []
