"""The one Spark session of the program, and the plain client that prepares topics for it."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from scripts.pipeline.flights_summary import spark_session
from tests.compat.python_checks import Check, FailedError

TIMEOUT_S = 30.0

# What a query ends with: Spark's own exceptions come as the first, what its executors threw may come as the second.
QUERY_FAILURES = (PySparkException, Py4JError)

# The timestamps of records count from here, in milliseconds since 1970, in steps of a second.
START_MS = int(time.time() * 1000) - 600_000


@functools.cache
def spark() -> Any:
    return spark_session("compat-checks")


def admin(check: Check) -> Any:
    """An administrator. What it was asked for ends with it: keep it until then."""
    return AdminClient({"bootstrap.servers": check.bootstrap, "log_level": 0})


def create_topic(check: Check, kind: str, partitions: int) -> str:
    """A topic of the check's own, once it is known."""
    topic = check.name(kind)
    client = admin(check)
    client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)
    check.until("the topic is known", lambda: topic in client.list_topics(timeout=TIMEOUT_S).topics)
    check.known(topic, partitions)
    return topic


def grow(check: Check, topic: str, partitions: int) -> None:
    client = admin(check)
    client.create_partitions([NewPartitions(topic, partitions)])[topic].result(TIMEOUT_S)
    check.known(topic, partitions)


def delete_before(check: Check, topic: str, partition: int, offset: int) -> None:
    """Delete the records below an offset."""
    client = admin(check)
    for deleted in client.delete_records([ck.TopicPartition(topic, partition, offset)]).values():
        deleted.result(TIMEOUT_S)


def produce(check: Check, topic: str, values: Sequence[str], *, partition: int = 0, **settings: object) -> None:
    """Values at one-second steps from START_MS."""
    producer = ck.Producer({"bootstrap.servers": check.bootstrap, "log_level": 0, **settings})
    for index, value in enumerate(values):
        producer.produce(topic, value=value, partition=partition, timestamp=START_MS + 1_000 * index)
    if producer.flush(TIMEOUT_S):
        raise FailedError("the records were not produced")


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


def configured(reader: Any, check: Check, options: Mapping[str, object]) -> Any:
    """A reader of Kafka; `kafka__a` stands for `kafka.a`, and `_` in the rest for a dot."""
    reader = reader.format("kafka").option("kafka.bootstrap.servers", check.bootstrap)
    for name, value in options.items():
        prefix, _, rest = name.rpartition("__")
        reader = reader.option(f"{prefix}.{rest.replace('_', '.')}" if prefix else name, value)
    return reader.load()


def read(check: Check, **options: object) -> Any:
    """What a batch query sees."""
    return configured(spark().read, check, options)


def read_stream(check: Check, **options: object) -> Any:
    return configured(spark().readStream, check, options)


def rows_of(frame: Any) -> list[tuple[int, int, str]]:
    """(partition, offset, value), sorted."""
    rows = frame.selectExpr("partition", "offset", "CAST(value AS STRING) AS value").collect()
    return sorted((row["partition"], row["offset"], row["value"]) for row in rows)


def values_of(frame: Any) -> list[str]:
    """By partition and offset."""
    return [value for _, _, value in rows_of(frame)]
