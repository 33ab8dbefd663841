"""Spark's Kafka source and sink against the broker: where reading starts, what is carried along, and what isolation
hides."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.support.broker_process import BrokerProcess

# An hour ago: what is older than the topic's retention may be gone at any time.
TIMESTAMP_MS = int(time.time() * 1000) - 3_600_000


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """A new topic of two partitions."""
    name = f"spark-{uuid.uuid4().hex[:8]}"
    administration = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    administration.create_topics([confluent_kafka.admin.NewTopic(name, num_partitions=2)])[name].result(20)
    return name


def produce(broker: BrokerProcess, topic: str, values: Sequence[str], *, partition: int = 0) -> None:
    """Values at one-second steps from TIMESTAMP_MS."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for index, value in enumerate(values):
        producer.produce(topic, value=value, partition=partition, timestamp=TIMESTAMP_MS + 1000 * index)
    assert producer.flush(20) == 0


def read(spark: Any, broker: BrokerProcess, topic: str, **options: str) -> Any:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def values_of(frame: Any) -> list[str]:
    rows = frame.selectExpr("partition", "offset", "CAST(value AS STRING) AS value").collect()
    return [row["value"] for row in sorted(rows, key=lambda row: (row["partition"], row["offset"]))]


def test_a_batch_query_reads_between_offsets_given_as_json(spark: Any, broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic, ["a", "b", "c", "d"], partition=0)
    produce(broker, topic, ["e", "f"], partition=1)
    frame = read(
        spark,
        broker,
        topic,
        startingOffsets=json.dumps({topic: {"0": 1, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": 3, "1": -1}}),
    )
    assert values_of(frame) == ["b", "c", "e", "f"]


def test_a_batch_query_starts_at_a_timestamp(spark: Any, broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic, ["a", "b", "c"], partition=0)
    produce(broker, topic, ["d", "e", "f", "g"], partition=1)
    by_partition = {topic: {"0": TIMESTAMP_MS + 1500, "1": TIMESTAMP_MS + 3000}}
    assert values_of(read(spark, broker, topic, startingOffsetsByTimestamp=json.dumps(by_partition))) == ["c", "g"]
    assert values_of(read(spark, broker, topic, startingTimestamp=str(TIMESTAMP_MS + 1000))) == [
        "b",
        "c",
        "e",
        "f",
        "g",
    ]


def test_written_rows_come_back_with_keys_headers_partitions_and_nulls(
    spark: Any, broker: BrokerProcess, topic: str
) -> None:
    header = "array(named_struct('key', 'origin', 'value', CAST('JFK' AS BINARY)))"
    source = spark.sql(
        f"SELECT CAST('k1' AS BINARY) AS key, CAST('v1' AS BINARY) AS value, 0 AS partition, {header} AS headers "
        f"UNION ALL SELECT NULL, CAST('v2' AS BINARY), 1, NULL "
        f"UNION ALL SELECT CAST('k3' AS BINARY), NULL, 1, NULL"
    )
    source.coalesce(1).write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option(
        "topic", topic
    ).save()
    rows = read(spark, broker, topic, includeHeaders="true").collect()
    found = {
        (
            row["partition"],
            None if row["key"] is None else bytes(row["key"]),
            None if row["value"] is None else bytes(row["value"]),
            tuple((one["key"], bytes(one["value"])) for one in row["headers"] or ()),
        )
        for row in rows
    }
    assert found == {(0, b"k1", b"v1", (("origin", b"JFK"),)), (1, None, b"v2", ()), (1, b"k3", None, ())}


def test_committed_reading_hides_aborted_and_open_transactions_and_uncommitted_reading_shows_them(
    spark: Any, broker: BrokerProcess, topic: str
) -> None:
    def transactional_producer(name: str) -> Any:
        configuration = {"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-{name}"}
        producer = confluent_kafka.Producer(configuration)
        producer.init_transactions(20)
        producer.begin_transaction()
        return producer

    committing, aborting, lingering = (transactional_producer(name) for name in ("commits", "aborts", "lingers"))
    for producer, value in ((committing, "committed"), (aborting, "aborted")):
        producer.produce(topic, value=value, partition=0)
        producer.flush(20)
    committing.commit_transaction(20)
    aborting.abort_transaction(20)
    lingering.produce(topic, value="open", partition=0)
    lingering.flush(20)

    assert values_of(read(spark, broker, topic, **{"kafka.isolation.level": "read_committed"})) == ["committed"]
    uncommitted = values_of(read(spark, broker, topic, **{"kafka.isolation.level": "read_uncommitted"}))
    assert uncommitted == ["committed", "aborted", "open"]
    lingering.abort_transaction(20)


def test_a_stream_killed_with_the_broker_goes_on_from_its_checkpoint(
    spark: Any, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    def copy_what_is_there() -> None:
        stream = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("CAST(value AS STRING) AS value")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "copied"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        stream.awaitTermination()

    produce(broker, topic, ["a", "b"])
    copy_what_is_there()
    broker.restart_after_kill()
    produce(broker, topic, ["c"])
    copy_what_is_there()
    copied = spark.read.parquet(str(tmp_path / "copied")).collect()
    assert sorted(row["value"] for row in copied) == ["a", "b", "c"]
