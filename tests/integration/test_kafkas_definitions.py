"""Our declarations are Apache Kafka's of the reference version: compared with the definitions in its jar of clients."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol.declaration import Versions
from fencepost.protocol.schema import schema_of
from fencepost.soak.kafka_jars import KAFKA_CLIENTS_VERSION
from tests.compat.harness import NotHereError
from tests.compat.jvm import class_path
from tests.protocol.message_strategies import ALL_TYPES, api_name
from tests.protocol.test_transcription import compare, parsed
from tests.support.missing_tools import missing, require_tool

FOLDER = "common/message/"


def fields_of(definition: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of a definition, with those of the structs that it names but defines elsewhere."""
    common = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}

    def resolved(fields: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for field in fields:
            inner = field.get("fields") or common.get(field["type"].removeprefix("[]"))
            yield field if inner is None else {**field, "fields": list(resolved(inner))}

    return list(resolved(definition["fields"]))


@pytest.fixture(scope="module")
def definitions() -> Mapping[str, dict[str, Any]]:
    """Apache Kafka's definitions by message."""
    require_tool("java")
    try:
        folder = Path(class_path(("kafka-clients", KAFKA_CLIENTS_VERSION)).removesuffix("/*"))
    except NotHereError as error:
        missing(str(error))
    found = {}
    with zipfile.ZipFile(folder / f"kafka-clients-{KAFKA_CLIENTS_VERSION}.jar") as jar:
        for path in jar.namelist():
            if path.startswith(FOLDER) and path.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", jar.read(path).decode(), flags=re.MULTILINE)
                definition = json.loads(text)
                found[definition["name"]] = definition
    return found


def test_every_field_of_every_message_is_as_the_jar_defines_it(definitions: Mapping[str, dict[str, Any]]) -> None:
    for message_type in ALL_TYPES:
        definition, schema = definitions[message_type.__name__], schema_of(message_type)
        assert schema.versions == parsed(definition["validVersions"]), message_type.__name__
        assert schema.flexible == parsed(definition["flexibleVersions"]), message_type.__name__
        assert schema.api_key == definition["apiKey"], message_type.__name__
        compare(
            schema.fields, fields_of(definition), schema.versions, message_type.__name__, {}, with_struct_names=False
        )


def test_every_api_that_brokers_listen_for_is_declared(definitions: Mapping[str, dict[str, Any]]) -> None:
    asked_by_clients = {
        name.removesuffix("Request")
        for name, definition in definitions.items()
        if definition["type"] == "request" and "broker" in definition.get("listeners", ())
    }
    served_by_plugins = {"GetTelemetrySubscriptions", "PushTelemetry"}
    assert asked_by_clients - {api_name(message_type) for message_type in ALL_TYPES} <= served_by_plugins


def test_a_field_that_is_declared_wrongly_is_found(definitions: Mapping[str, dict[str, Any]]) -> None:
    schema = schema_of(next(one for one in ALL_TYPES if one.__name__ == "ApiVersionsRequest"))
    fields = fields_of(definitions["ApiVersionsRequest"])
    with pytest.raises(AssertionError, match="ApiVersionsRequest"):
        compare(schema.fields, fields[:-1], Versions(0, schema.versions.last), "ApiVersionsRequest", {})
