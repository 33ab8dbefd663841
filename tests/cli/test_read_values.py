"""Records of `consume`, with their keys and values read."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from kafka.consumer.fetcher import ConsumerRecord

from fencepost.cli.read_values import Reader, current_reader, read_options, refuse_formats
from fencepost.cli.records import to_bytes
from fencepost.schemas.decoding import Decoder
from fencepost.schemas.options import RegistryOptions
from fencepost.schemas.registry import Registry
from tests.support.confluent_values import ORDER_READ, avro, client_of, json_value
from tests.support.schema_registry import SchemaRegistry


def record(key: bytes | None, value: bytes | None, offset: int = 0) -> ConsumerRecord:
    return ConsumerRecord("orders", 0, None, offset, 1, 0, key, value, [], None, -1, -1, -1)


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


def reader_with(server: SchemaRegistry, key_format: str, value_format: str) -> Reader:
    return Reader(key_format, value_format, Decoder(Registry(RegistryOptions((server.url,)))))


def test_keys_and_values_are_read_each_in_its_format() -> None:
    reader = Reader("int32", "json")
    (read,) = reader.read([record(b"\x00\x00\x00\x07", b'{"a":1}')])
    reader.close()
    assert to_bytes(read, keys=True) == b'orders-0 @0 7: {"a": 1}'
    assert json.loads(read.to_json())["key"] == 7
    assert json.loads(read.to_json())["value"] == {"a": 1}


def test_null_stays_null() -> None:
    reader = Reader("json", "hex")
    (read,) = reader.read([record(None, None)])
    reader.close()
    assert (read.key, read.value) == (None, None)
    assert json.loads(read.to_json())["value"] is None


def test_a_value_with_a_schema_is_read_and_named(server: SchemaRegistry) -> None:
    with client_of(server.url) as client:
        order, person = avro(client, "orders"), json_value(client, "people", {"name": "Ann"})
    for wanted in ("schema", "avro"):
        reader = reader_with(server, "string", wanted)
        (read,) = reader.read([record(b"k", order)])
        reader.close()
        fields = json.loads(read.to_json())
        assert (fields["key"], fields["value"], fields["value_schema"]) == (
            "k",
            ORDER_READ,
            "Avro orders-value version 1",
        )
        assert read.value == json.dumps(ORDER_READ).encode()
    reader = reader_with(server, "string", "avro")
    (read,) = reader.read([record(b"k", person)])
    reader.close()
    assert json.loads(read.to_json())["value_error"] == "it is JSON Schema, not avro"


def test_what_is_not_read_is_printed_in_bytes_and_named_a_few_times(
    server: SchemaRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = reader_with(server, "string", "schema")
    unknown, plain = b"\x00\x00\x00\x00\x63\xff", b"text"
    read = reader.read([record(None, value, at) for at, value in enumerate([unknown, plain, None, *[plain] * 20])])
    reader.close()
    assert [one.value for one in read[:3]] == [unknown, plain, None]
    fields = json.loads(read[0].to_json())
    assert fields["value"] == {"base64": "AAAAAGP/"}
    assert "the id 99" in fields["value_error"]
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "orders-0 @1: its value is not read: it names no schema"
    assert lines[10:] == ["keys and values not read: 22"]


@click.command()
@read_options
@click.option("--markers", is_flag=True)
def command(markers: bool) -> None:
    if markers:
        refuse_formats("--markers")
    click.echo(f"reads: {current_reader() is not None}")


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ([], "reads: False"),
        (["--value-format", "string"], "reads: False"),
        (["--key-format", "int64"], "reads: True"),
        (["--value-format", "avro"], "--value-format avro needs a schema registry: --schema-registry URL"),
        (["--value-format", "hex", "--markers"], "--markers goes with neither --key-format nor --value-format"),
        (["--value-format", "xml"], "'xml' is not one of"),
    ],
)
def test_a_command_has_a_reader_if_it_needs_one(arguments: list[str], output: str) -> None:
    assert output in CliRunner().invoke(command, arguments).output
