"""Spark: a batch query over a whole topic, and streaming queries that write batches through two sinks."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

PAUSE_S = 0.02
WARM_UP_BATCHES = 2
TURNS = ("kafka", "fencepost", "fencepost", "kafka")
"""Each sink twice, so that a machine that becomes slower or faster meanwhile favours neither."""
FORGET_PEAK = "5"
"""Written to a process's clear_refs, it has Linux count the peak of its memory anew."""


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


def write(
    *, bootstrap: str, topics: Mapping[str, str], cases: Sequence[Mapping[str, int]], batches: int
) -> Generator[Any]:
    """For each case, medians by sink: `batch_ms` from a batch's trigger to its commit in the checkpoint, and `cpu_ms`
    of all processes of Spark for a batch; and `worker_bytes`, the most memory that a Python worker of a task had.

    cases: `rows` of a batch, their `record_bytes`, and its `tasks`.
    """
    from fencepost.spark import register
    from scripts.pipeline.flights_summary import spark_session  # starts a JVM

    session = spark_session("fencepost-bench", driver_memory="1500m")
    register(session)

    def run(sink: str, case: Mapping[str, int]) -> tuple[list[int], float]:
        options = {"kafka.bootstrap.servers": bootstrap, "topic": topics[sink]}
        return _batches(session, sink, options, case, batches)

    for sink in topics:
        run(sink, cases[0])
    yield None
    results = []
    for case in cases:
        _forget_peaks()
        durations_ms: dict[str, list[int]] = {sink: [] for sink in topics}
        cpu_ms: dict[str, list[float]] = {sink: [] for sink in topics}
        for sink in TURNS:
            durations, cpu = run(sink, case)
            durations_ms[sink] += durations
            cpu_ms[sink].append(cpu)
        results.append(
            {
                "batch_ms": {sink: statistics.median(values) for sink, values in durations_ms.items()},
                "cpu_ms": {sink: statistics.mean(values) for sink, values in cpu_ms.items()},
                "worker_bytes": max(map(_peak_bytes, _workers()), default=0),
            }
        )
    yield {"cases": results}
    session.stop()


def _batches(
    session: Any, sink: str, options: Mapping[str, str], case: Mapping[str, int], count: int
) -> tuple[list[int], float]:
    """Durations of the batches after the first ones, and the mean of their processor time."""
    query = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", case["rows"])
        .option("numPartitions", case["tasks"])
        .load()
        .selectExpr(f"lpad(CAST(value AS STRING), {case['record_bytes']}, '0') AS value")
        .writeStream.format(sink)
        .options(**options)
        .option("checkpointLocation", tempfile.mkdtemp(prefix="fencepost-bench-"))
        .start()
    )

    def cpu_after_ms(done: int) -> float:
        while len(query.recentProgress) < done and query.isActive:
            time.sleep(PAUSE_S)
        return _cpu_ms()

    before_ms = cpu_after_ms(WARM_UP_BATCHES)
    cpu_ms = cpu_after_ms(WARM_UP_BATCHES + count) - before_ms
    query.stop()
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    measured = query.recentProgress[WARM_UP_BATCHES : WARM_UP_BATCHES + count]
    if any(progress["numInputRows"] != case["rows"] for progress in measured):
        raise RuntimeError(f"a batch had not {case['rows']:,} rows")
    return [progress["durationMs"]["triggerExecution"] for progress in measured], cpu_ms / count


def _cpu_ms() -> float:
    """Processor time until now of Spark: of the processes that this one has started."""
    total_s = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total_s += times.user + times.system
    return 1000 * total_s


def _workers() -> list[psutil.Process]:
    """The Python processes that run tasks."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # Spark ends one that has had nothing to do
            parent = process.parent()
            command = process.cmdline()
            if command[-1:] == ["pyspark.worker"] and parent is not None and command == parent.cmdline():
                found.append(process)
    return found


def _forget_peaks() -> None:
    for worker in _workers():
        with suppress(OSError):  # it has ended
            Path(f"/proc/{worker.pid}/clear_refs").write_text(FORGET_PEAK)


def _peak_bytes(process: psutil.Process) -> int:
    """The largest resident memory of a process since `_forget_peaks`; 0 if it has ended."""
    with suppress(OSError, ValueError):
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        (line,) = (line for line in lines if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    return 0
