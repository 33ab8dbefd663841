"""Values with schemas from producer to consumer: Confluent's serializers on one side, the commands on the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry.avro import AvroDeserializer

from tests.support.broker_process import BrokerProcess
from tests.support.confluent_values import ORDER, ORDER_READ, ORDER_SCHEMA, avro, client_of, context, with_header
from tests.support.schema_registry import SchemaRegistry

Run = Callable[..., Result]
Unique = Callable[[str], str]
pytestmark = pytest.mark.integration


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


def test_consume_reads_values_of_confluents_serializers(
    broker: BrokerProcess, run: Run, unique: Unique, registry: SchemaRegistry
) -> None:
    topic = unique("orders")
    run("topics", "create", topic, "-p", "1")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    with client_of(registry.url) as client:
        producer.produce(topic, avro(client, topic), "k")
        value, headers = with_header(client, topic)
        producer.produce(topic, value, headers=headers)
        producer.produce(topic, None, "k")
    assert producer.flush(60) == 0
    options = ("--value-format", "schema", "--schema-registry", registry.url, "-e")
    shown = run("consume", topic, "--json", *options)
    assert shown.exit_code == 0, shown.output
    found = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [one["value"] for one in found] == [ORDER_READ, ORDER_READ, None]
    assert found[0]["value_schema"] == f"Avro {topic}-value version 1"
    assert json.dumps(ORDER_READ) in run("consume", topic, "-f", "%k=%s\\n", *options).stdout


def test_confluents_deserializer_reads_what_produce_writes(
    broker: BrokerProcess, run: Run, unique: Unique, registry: SchemaRegistry, tmp_path: Path
) -> None:
    topic = unique("orders")
    path = tmp_path / "order.avsc"
    path.write_text(ORDER_SCHEMA)
    run("topics", "create", topic, "-p", "1")
    schema = ("--value-format", "avro", "--value-schema", f"file:{path}", "--schema-registry", registry.url)
    keyed = ("--key", "7", "--key-format", "int32", "--header", "source=shop", "--header", "source=again")
    written = run("produce", topic, *schema, *keyed, "--null-marker", "null", input=json.dumps(ORDER_READ) + "\nnull\n")
    assert written.exit_code == 0, written.output
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    records: list[Any] = []
    while len(records) < 2:
        records += consumer.consume(2, 10)
    consumer.close()
    first, tombstone = records
    with client_of(registry.url) as client:
        assert AvroDeserializer(client)(first.value(), context(topic)) == ORDER
    assert tombstone.value() is None
    assert first.key() == tombstone.key() == b"\x00\x00\x00\x07"
    assert first.headers() == [("source", b"shop"), ("source", b"again")]


def test_a_bad_line_is_named_and_the_lines_before_it_are_written(
    run: Run, unique: Unique, registry: SchemaRegistry
) -> None:
    topic = unique("orders")
    registry.register(f"{topic}-value", ORDER_SCHEMA)
    lines = "\n".join([json.dumps(ORDER_READ), json.dumps({**ORDER_READ, "id": "x"}), json.dumps(ORDER_READ)])
    written = run("produce", topic, "--value-format", "avro", "--schema-registry", registry.url, input=lines)
    assert written.exit_code == 1
    assert "line 2: the value cannot be written: the value.id must be of the type long; it is 'x'" in written.output
    assert "1 record written" in written.output


def test_what_consume_prints_produce_writes(run: Run, unique: Unique, registry: SchemaRegistry) -> None:
    first, second = unique("orders"), unique("orders")
    for topic in (first, second):
        registry.register(f"{topic}-value", ORDER_SCHEMA)
        run("topics", "create", topic, "-p", "1")
    options = ("--value-format", "avro", "--schema-registry", registry.url)
    run("produce", first, *options, input=json.dumps(ORDER_READ))
    shown = run("consume", first, "--json", "-e", *options)
    written = run("produce", second, "--json", *options, input=shown.stdout)
    assert written.exit_code == 0, written.output
    again = run("consume", second, "--json", "-e", *options)
    assert json.loads(again.stdout)["value"] == json.loads(shown.stdout)["value"] == ORDER_READ
