"""Spark: a batch query over a whole topic, and streaming queries that write batches through two sinks."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Generator, Mapping
from typing import Any

PAUSE_S = 0.02
WARM_UP_BATCHES = 2
TURNS = ("kafka", "fencepost", "fencepost", "kafka")
"""Each sink twice, so that a machine that becomes slower or faster meanwhile favours neither."""


def read(*, bootstrap: str, topic: str, warm_up_topic: str, records: int) -> Generator[Any]:
    """Seconds of the query, in a session that has read another topic before."""
    from scripts.pipeline.flights_summary import spark_session  # starts a JVM

    session = spark_session("fencepost-bench", driver_memory="1500m")

    def lengths(name: str) -> tuple[int, int]:
        frame = (
            session.read.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("count(*) AS records", "sum(length(value)) AS bytes")
        )
        (row,) = frame.collect()
        return row["records"], row["bytes"]

    lengths(warm_up_topic)
    yield None
    began_at_s = time.monotonic()
    count, total_bytes = lengths(topic)
    duration_s = time.monotonic() - began_at_s
    if count != records:
        raise RuntimeError(f"{count:,} of {records:,} records were read")
    yield {"duration_s": duration_s, "bytes": total_bytes}
    session.stop()


def write(*, bootstrap: str, topics: Mapping[str, str], rows: int, record_bytes: int, batches: int) -> Generator[Any]:
    """By sink, the median of the milliseconds of a batch, from its trigger to its commit in the checkpoint."""
    from fencepost.spark import register
    from scripts.pipeline.flights_summary import spark_session  # starts a JVM

    session = spark_session("fencepost-bench", driver_memory="1500m")
    register(session)

    def run(sink: str, count: int) -> list[int]:
        """Durations of the batches after the first ones."""
        query = (
            session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", rows)
            .option("numPartitions", 2)
            .load()
            .selectExpr(f"lpad(CAST(value AS STRING), {record_bytes}, '0') AS value")
            .writeStream.format(sink)
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", topics[sink])
            .option("checkpointLocation", tempfile.mkdtemp(prefix="fencepost-bench-"))
            .start()
        )
        wanted = WARM_UP_BATCHES + count
        while len(query.recentProgress) < wanted and query.isActive:
            time.sleep(PAUSE_S)
        query.stop()
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        measured = query.recentProgress[WARM_UP_BATCHES:wanted]
        if any(progress["numInputRows"] != rows for progress in measured):
            raise RuntimeError(f"a batch had not {rows:,} rows")
        return [progress["durationMs"]["triggerExecution"] for progress in measured]

    for sink in topics:
        run(sink, 1)
    yield None
    durations_ms: dict[str, list[int]] = {sink: [] for sink in topics}
    for sink in TURNS:
        durations_ms[sink] += run(sink, batches)
    yield {sink: statistics.median(values) for sink, values in durations_ms.items()}
    session.stop()
