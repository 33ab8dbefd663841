"""Streaming queries: bounded batches, checkpoints, topics that grow or lose records, and a sink through a crash."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.compat.python_checks import Check, FailedError
from tests.compat.spark.session import (
    QUERY_FAILURES,
    create_topic,
    delete_before,
    grow,
    numbers,
    produce,
    read,
    read_stream,
    spark,
    values_of,
)


def folder(check: Check) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"fencepost-{check.name('spark')}-"))


def to_table(check: Check, frame: Any, kind: str = "table") -> tuple[Any, str]:
    """A running query that writes values into a table in memory; the table's name."""
    table = check.name(kind).replace("-", "_")
    query = (
        frame.selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("memory")
        .queryName(table)
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    return query, table


def in_table(table: str) -> list[str]:
    return sorted((row["value"] for row in spark().table(table).collect()), key=lambda value: (len(value), value))


def copy_what_is_there(frame: Any, where: Path) -> list[int]:
    """Run the query over what is there, with its checkpoint and its files below `where`; the sizes of its batches."""
    query = (
        frame.selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("parquet")
        .option("path", str(where / "copied"))
        .option("checkpointLocation", str(where / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def copied(where: Path) -> list[str]:
    rows = spark().read.parquet(str(where / "copied")).collect()
    return sorted((row["value"] for row in rows), key=int)


def to_sink(check: Check, frame: Any, *, topic: str) -> Any:
    """A running query that writes its rows into a topic."""
    return (
        frame.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", check.bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(folder(check)))
        .trigger(processingTime="100 milliseconds")
        .start()
    )


def stream_available_now(check: Check) -> None:
    topic = create_topic(check, "topic", 2)
    produce(check, topic, numbers(0, 60), partition=0)
    produce(check, topic, numbers(60, 120), partition=1)
    where = folder(check)
    frame = read_stream(check, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="25")
    sizes = copy_what_is_there(frame, where)
    check.equal("no batch above the limit", all(size <= 25 for size in sizes), True)
    check.equal("records in all", sum(sizes), 120)
    check.equal("values", copied(where), numbers(0, 120))


def stream_from_latest(check: Check) -> None:
    topic = create_topic(check, "topic", 1)
    produce(check, topic, ["before"])
    query, table = to_table(check, read_stream(check, subscribe=topic, startingOffsets="latest"))
    try:
        check.until("it has started", lambda: bool(query.recentProgress))
        produce(check, topic, ["after", "after that"])
        check.until("they have come", lambda: len(in_table(table)) >= 2)
        check.equal("values", in_table(table), ["after", "after that"])
    finally:
        query.stop()


def stream_restarts_from_checkpoint(check: Check) -> None:
    topic = create_topic(check, "topic", 2)
    where = folder(check)

    def copy() -> None:
        frame = read_stream(check, subscribe=topic, startingOffsets="earliest", kafka__isolation_level="read_committed")
        copy_what_is_there(frame, where)

    for turn, how in enumerate(("kill", "terminate", "")):
        produce(check, topic, numbers(turn * 20, turn * 20 + 10), partition=0)
        produce(check, topic, numbers(turn * 20 + 10, turn * 20 + 20), partition=1)
        copy()
        if how:
            check.restart(how)
    check.equal("values", copied(where), numbers(0, 60))


def stream_while_topic_grows(check: Check) -> None:
    """Partitions that come while it runs are read from their beginning."""
    topic = create_topic(check, "topic", 1)
    produce(check, topic, numbers(0, 10))
    frame = read_stream(check, subscribe=topic, startingOffsets="earliest", kafka__metadata_max_age_ms="500")
    query, table = to_table(check, frame)
    try:
        check.until("the first have come", lambda: len(in_table(table)) == 10)
        grow(check, topic, 3)
        for partition in (1, 2):
            produce(check, topic, numbers(partition * 10, partition * 10 + 10), partition=partition)
        check.until("the others have come", lambda: len(in_table(table)) >= 30)
        check.equal("values", in_table(table), numbers(0, 30))
    finally:
        query.stop()


def stream_by_pattern_with_new_topic(check: Check) -> None:
    first = create_topic(check, "matches-a", 1)
    produce(check, first, numbers(0, 5))
    pattern = f"matches-.-{check.name('').removeprefix('-')}"
    frame = read_stream(check, subscribePattern=pattern, startingOffsets="earliest", kafka__metadata_max_age_ms="500")
    query, table = to_table(check, frame)
    try:
        check.until("the first have come", lambda: len(in_table(table)) == 5)
        produce(check, create_topic(check, "matches-b", 2), numbers(5, 10), partition=1)
        check.until("the others have come", lambda: len(in_table(table)) >= 10)
        check.equal("values", in_table(table), numbers(0, 10))
    finally:
        query.stop()


def stream_with_data_loss(check: Check) -> None:
    """Records that were deleted before they were read end a query, unless `failOnDataLoss` is false."""
    topic = create_topic(check, "topic", 1)
    produce(check, topic, numbers(0, 10))
    strict, tolerant = folder(check), folder(check)

    def frame(fail: str) -> Any:
        return read_stream(check, subscribe=topic, startingOffsets="earliest", failOnDataLoss=fail)

    copy_what_is_there(frame("true"), strict)
    copy_what_is_there(frame("false"), tolerant)
    produce(check, topic, numbers(10, 30))
    delete_before(check, topic, 0, 20)
    copy_what_is_there(frame("false"), tolerant)
    check.equal("without the lost ones", copied(tolerant), numbers(0, 10) + numbers(20, 30))
    try:
        copy_what_is_there(frame("true"), strict)
    except QUERY_FAILURES as refusal:
        check.equal("why", "data may have been lost" in str(refusal) or "DATA_LOSS" in str(refusal), True)
    else:
        raise FailedError("lost records were not missed")


def stream_to_sink_through_kill(check: Check) -> None:
    stream_to_sink_through(check, "kill")


def stream_to_sink_through_termination(check: Check) -> None:
    stream_to_sink_through(check, "terminate")


def stream_to_sink_through(check: Check, how: str) -> None:
    """The broker ends while records go from topic to topic: every one arrives, none of a task twice."""
    source = create_topic(check, "source", 2)
    target = create_topic(check, "target", 2)
    produce(check, source, numbers(0, 1_000), partition=0)
    produce(check, source, numbers(1_000, 2_000), partition=1)
    frame = read_stream(check, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="200")
    query = to_sink(check, frame.select("key", "value"), topic=target)
    try:
        check.until("it is on its way", lambda: len(query.recentProgress) >= 2)
        check.restart(how)
        produce(check, source, numbers(2_000, 2_500), partition=0)
        query.processAllAvailable()
    finally:
        query.stop()
    got = values_of(read(check, subscribe=target))
    check.equal("values", sorted(set(got), key=int), numbers(0, 2_500))
    check.equal("how many", len(got), 2_500)
