"""A batch query of Spark over a whole topic."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any


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
