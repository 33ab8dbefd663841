"""Keys and values of `produce`, as consumers of Confluent read them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf import type_pb2

from fencepost.cli.records import Content, from_json
from fencepost.cli.written_values import ValueWriter, current_writer, write_options
from fencepost.schemas.options import RegistryOptions
from fencepost.schemas.schema import SchemaError
from tests.support.confluent_values import (
    ORDER,
    ORDER_READ,
    ORDER_SCHEMA,
    PERSON_SCHEMA,
    client_of,
    context,
    field,
    protobuf,
)
from tests.support.schema_registry import SchemaRegistry


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


def written(server: SchemaRegistry, value_format: str, value: Any, schema: str = "orders-value") -> bytes:
    writer = ValueWriter("string", value_format)
    try:
        writer.use("value", RegistryOptions((server.url,)), schema, "orders-value")
        content = writer.of_line(Content(None, json.dumps(value).encode())).value
        assert content is not None
        return content
    finally:
        writer.close()


def test_avro_is_read_by_confluents_deserializer(server: SchemaRegistry) -> None:
    server.register("orders-value", ORDER_SCHEMA)
    content = written(server, "avro", ORDER_READ)
    with client_of(server.url) as client:
        assert AvroDeserializer(client)(content, context("orders")) == ORDER


def test_json_schema_is_read_by_confluents_deserializer(server: SchemaRegistry) -> None:
    server.register("orders-value", PERSON_SCHEMA, "JSON")
    content = written(server, "json-schema", {"name": "Ann"})
    with client_of(server.url) as client:
        read = JSONDeserializer(PERSON_SCHEMA, schema_registry_client=client)(content, context("orders"))
    assert read == {"name": "Ann"}


@pytest.mark.parametrize(("name", "indexes"), [("Type", [0]), ("Field", [1]), ("EnumValue", [3])])
def test_protobuf_is_read_by_confluents_reader_of_ids_and_protobufs_own(
    server: SchemaRegistry, name: str, indexes: list[int]
) -> None:
    with client_of(server.url) as client:
        protobuf(client, "orders", field("f"))
    content = written(server, "protobuf", {"name": "x"}, f"orders-value@1#google.protobuf.{name}")
    schema_id = SchemaId("PROTOBUF")
    rest = schema_id.from_bytes(io.BytesIO(content)).read()
    assert (schema_id.id, schema_id.message_indexes) == (1, indexes)
    assert getattr(type_pb2, name).FromString(rest).name == "x"


def test_a_file_is_registered_once(server: SchemaRegistry, tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(ORDER_SCHEMA)
    first, second = (written(server, "avro", ORDER_READ, f"file:{path}") for _ in range(2))
    assert first == second == written(server, "avro", ORDER_READ, "1") == written(server, "avro", ORDER_READ)


@pytest.mark.parametrize(
    ("wanted", "schema", "reason"),
    [
        ("avro", "none", "does not have its schema"),
        ("avro", "orders-value@2", "does not have its schema"),
        ("avro", "77", "does not have its schema"),
        ("protobuf", "orders-value", "orders-value is Avro, not protobuf"),
        ("avro", "file:/no/such/file", "/no/such/file cannot be read: No such file"),
        ("schema", "file:order.avsc", "a file needs a format, one of avro, protobuf, json-schema"),
        ("avro", "", "its name is empty"),
    ],
)
def test_a_schema_that_cannot_be_had_is_refused(server: SchemaRegistry, wanted: str, schema: str, reason: str) -> None:
    server.register("orders-value", ORDER_SCHEMA)
    with pytest.raises(SchemaError, match=reason):
        written(server, wanted, ORDER_READ, schema)


def test_a_value_that_does_not_fit_is_refused_with_its_place(server: SchemaRegistry) -> None:
    server.register("orders-value", ORDER_SCHEMA)
    with pytest.raises(ValueError, match=r"the value cannot be written: the value\.id must be of the type long"):
        written(server, "avro", {**ORDER_READ, "id": "x"})


def test_lines_and_objects_are_written_in_their_formats() -> None:
    writer = ValueWriter("int32", "json")
    line = writer.of_line(Content(b"7", b'{ "a": 1 }'))
    assert (line.key, line.value) == (b"\x00\x00\x00\x07", b'{"a":1}')
    assert writer.of_line(Content(b"7", None)).value is None
    given = from_json(b'{"key": 7, "value": {"a": 1}, "headers": [["h", "x"]]}', convert=writer.of_json)
    assert (given.key, given.value, given.headers) == (line.key, line.value, (("h", b"x"),))
    assert from_json(b'{"value": null}', convert=writer.of_json).value is None
    writer.close()


def test_without_formats_bytes_are_written_as_they_are() -> None:
    writer = ValueWriter("string", "string")
    assert writer.of_line(Content(b"\xff", b"{")) == Content(b"\xff", b"{")
    assert from_json(b'{"value": {"base64": "/w=="}}', convert=writer.of_json).value == b"\xff"
    writer.close()


@click.command()
@write_options
def command() -> None:
    click.echo(repr(current_writer("orders").of_text("value", b"7")))


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ([], "b'7'"),
        (["--value-format", "int16"], "b'\\x00\\x07'"),
        (["--value-format", "avro"], "--value-format avro needs a schema registry"),
        (["--value-schema", "orders-value"], "--value-schema needs --value-format, one of schema, avro"),
    ],
)
def test_a_command_writes_in_the_formats_of_its_options(arguments: list[str], output: str) -> None:
    assert output in CliRunner().invoke(command, arguments).output


def test_a_command_whose_schema_cannot_be_had_ends_with_a_line(server: SchemaRegistry) -> None:
    result = CliRunner().invoke(command, ["--value-format", "avro", "--schema-registry", server.url])
    assert result.exit_code == 1
    assert "the schema of values: the schema registry does not have its schema" in result.output
