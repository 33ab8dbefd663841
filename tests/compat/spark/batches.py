"""Batch queries: where they start and end, how they are split, what they carry along, and what isolation hides."""

from __future__ import annotations

import json
from typing import Any

import confluent_kafka as ck

from tests.compat.python_checks import Check, FailedError
from tests.compat.spark.session import (
    QUERY_FAILURES,
    START_MS,
    TIMEOUT_S,
    create_topic,
    delete_before,
    numbers,
    produce,
    read,
    rows_of,
    spark,
    values_of,
)


def batch_from_earliest_to_latest(check: Check) -> None:
    topic = create_topic(check, "topic", 2)
    check.equal("an empty topic", rows_of(read(check, subscribe=topic)), [])
    produce(check, topic, numbers(0, 50), partition=0)
    produce(check, topic, numbers(50, 80), partition=1)
    want = [(0, offset, str(offset)) for offset in range(50)] + [(1, offset, str(50 + offset)) for offset in range(30)]
    check.equal("the usual", rows_of(read(check, subscribe=topic)), want)
    named = read(check, subscribe=topic, startingOffsets="earliest", endingOffsets="latest")
    check.equal("as named", rows_of(named), want)
    other = create_topic(check, "other", 1)
    produce(check, other, ["x"])
    check.equal("two topics", len(rows_of(read(check, subscribe=f"{topic},{other}"))), 81)


def batch_between_offsets_as_json(check: Check) -> None:
    topic = create_topic(check, "topic", 3)
    for partition in range(3):
        produce(check, topic, numbers(partition * 10, partition * 10 + 10), partition=partition)
    frame = read(
        check,
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 4, "1": -2, "2": 10}}),
        endingOffsets=json.dumps({topic: {"0": 6, "1": 1, "2": -1}}),
    )
    check.equal("values", values_of(frame), ["4", "5", "10"])


def batch_between_timestamps(check: Check) -> None:
    topic = create_topic(check, "topic", 2)
    produce(check, topic, ["a", "b", "c"], partition=0)
    produce(check, topic, ["d", "e", "f", "g"], partition=1)
    by_partition = json.dumps({topic: {"0": START_MS + 1_500, "1": START_MS + 3_000}})
    frame = read(check, subscribe=topic, startingOffsetsByTimestamp=by_partition)
    check.equal("by partition", values_of(frame), ["c", "g"])
    frame = read(check, subscribe=topic, startingTimestamp=str(START_MS + 1_000))
    check.equal("for all", values_of(frame), ["b", "c", "e", "f", "g"])
    frame = read(check, subscribe=topic, startingTimestamp=str(START_MS), endingTimestamp=str(START_MS + 2_000))
    check.equal("with an end", values_of(frame), ["a", "b", "d", "e"])
    late = {"startingTimestamp": str(START_MS + 3_000), "subscribe": topic}
    frame = read(check, **late, startingOffsetsByTimestampStrategy="latest")
    check.equal("no record that late, from the latest", values_of(frame), ["g"])
    try:
        read(check, **late).collect()
    except QUERY_FAILURES as refusal:
        check.equal("why", "No offset matched" in str(refusal), True)
    else:
        raise FailedError("a timestamp after the last record was accepted")


def batch_by_pattern_and_assignment(check: Check) -> None:
    first = create_topic(check, "matches-a", 1)
    second = create_topic(check, "matches-b", 2)
    other = create_topic(check, "differs", 1)
    for topic in (first, second, other):
        produce(check, topic, [topic])
    produce(check, second, ["not assigned"], partition=1)
    frame = read(check, subscribePattern=f"matches-.-{check.name('').removeprefix('-')}")
    check.equal("pattern", sorted(values_of(frame)), sorted([first, second, "not assigned"]))
    frame = read(check, assign=json.dumps({second: [0], other: [0]}))
    check.equal("assigned", sorted(values_of(frame)), sorted([second, other]))


def batch_in_more_partitions_than_the_topic(check: Check) -> None:
    topic = create_topic(check, "topic", 2)
    produce(check, topic, numbers(0, 100), partition=0)
    produce(check, topic, numbers(100, 120), partition=1)
    frame = read(check, subscribe=topic, minPartitions="9")
    check.equal("tasks", frame.rdd.getNumPartitions() >= 9, True)
    check.equal("values", values_of(frame), numbers(0, 120))


def batch_from_sink_to_source(check: Check) -> None:
    topic = create_topic(check, "topic", 2)
    headers = "array(named_struct('key', 'origin', 'value', CAST('JFK' AS BINARY)))"
    source = spark().sql(
        f"SELECT CAST('k1' AS BINARY) AS key, CAST('v1' AS BINARY) AS value, 0 AS partition, {headers} AS headers "
        f"UNION ALL SELECT NULL, CAST('v2' AS BINARY), 1, NULL "
        f"UNION ALL SELECT CAST('k3' AS BINARY), NULL, 1, NULL"
    )
    written = source.coalesce(1).write.format("kafka").option("kafka.bootstrap.servers", check.bootstrap)
    written.option("topic", topic).save()
    rows = read(check, subscribe=topic, includeHeaders="true").orderBy("partition", "offset").collect()
    check.equal("offsets", [(row["partition"], row["offset"]) for row in rows], [(0, 0), (1, 0), (1, 1)])
    check.equal("keys", [row["key"] for row in rows], [b"k1", None, b"k3"])
    check.equal("values", [row["value"] for row in rows], [b"v1", b"v2", None])
    check.equal("header", [(one["key"], bytes(one["value"])) for one in rows[0]["headers"]], [("origin", b"JFK")])
    check.equal("no headers", [row["headers"] for row in rows[1:]], [None, None])
    check.equal("timestamp types", {row["timestampType"] for row in rows}, {0})
    check.equal("topics", {row["topic"] for row in rows}, {topic})
    # Larger than one request.
    large = spark().range(20_000).selectExpr("CAST(id AS STRING) AS key", "repeat(CAST(id AS STRING), 20) AS value")
    many = create_topic(check, "many", 2)
    large.write.format("kafka").option("kafka.bootstrap.servers", check.bootstrap).option("topic", many).save()
    check.equal("many", read(check, subscribe=many).select("key").distinct().count(), 20_000)
    check.equal("none twice", read(check, subscribe=many).count(), 20_000)


def batch_isolation(check: Check) -> None:
    topic = create_topic(check, "topic", 1)

    def open_transaction(name: str, value: str) -> Any:
        identity = {"bootstrap.servers": check.bootstrap, "transactional.id": check.name(name), "log_level": 0}
        producer = ck.Producer(identity)
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(topic, value=value, partition=0)
        producer.flush(TIMEOUT_S)
        return producer

    open_transaction("commits", "committed").commit_transaction(TIMEOUT_S)
    open_transaction("aborts", "aborted").abort_transaction(TIMEOUT_S)
    produce(check, topic, ["plain"])
    lingering = open_transaction("lingers", "open")
    committed = read(check, subscribe=topic, kafka__isolation_level="read_committed")
    check.equal("committed", values_of(committed), ["committed", "plain"])
    uncommitted = read(check, subscribe=topic, kafka__isolation_level="read_uncommitted")
    check.equal("uncommitted", values_of(uncommitted), ["committed", "aborted", "plain", "open"])
    lingering.commit_transaction(TIMEOUT_S)
    committed = read(check, subscribe=topic, kafka__isolation_level="read_committed")
    check.equal("at last", values_of(committed), ["committed", "plain", "open"])


def batch_with_data_loss(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    produce(check, topic, numbers(0, 20))
    delete_before(check, topic, 0, 5)
    start = json.dumps({topic: {"0": 0}})
    check.equal("what is left", values_of(read(check, subscribe=topic)), numbers(5, 20))
    tolerant = read(check, subscribe=topic, startingOffsets=start, failOnDataLoss="false")
    check.equal("tolerated", values_of(tolerant), numbers(5, 20))
    try:
        read(check, subscribe=topic, startingOffsets=start, failOnDataLoss="true").collect()
    except QUERY_FAILURES as refusal:
        check.equal("why", "DATA_LOSS" in str(refusal) or "Some data may have been lost" in str(refusal), True)
    else:
        raise FailedError("lost records were not missed")
