"""Spark writing the batches of a streaming query: the exactly-once sink beside Spark's own, in one session."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.benchmarks.client_process import bootstrap, measure_client
from scripts.benchmarks.figures import Figure, Round, Sample, Target
from scripts.benchmarks.measuring import topic_of

PARTITIONS_COUNT = 4
RECORDS_BYTES = (100, 1000)
TASKS_COUNTS = (2, 8)
SINKS = ("kafka", "fencepost")


def measure(round_: Round) -> Iterator[Sample]:
    broker = round_.running()
    cases = [
        {"record_bytes": record_bytes, "rows": round_.sizes["bytes_per_batch"] // record_bytes, "tasks": tasks}
        for record_bytes in RECORDS_BYTES
        for tasks in TASKS_COUNTS
    ]
    with (
        topic_of(broker, f"spark-own-{round_.number}", PARTITIONS_COUNT) as kafka_topic,
        topic_of(broker, f"spark-exactly-once-{round_.number}", PARTITIONS_COUNT) as fencepost_topic,
    ):
        round_.say("writing through both sinks")
        result, _ = measure_client(
            broker,
            "spark-sinks",
            bootstrap=bootstrap(broker),
            topics={"kafka": kafka_topic, "fencepost": fencepost_topic},
            cases=cases,
            batches=round_.sizes["batches"],
        )
    for case, measured in zip(cases, result["cases"], strict=True):
        name = f"{case['record_bytes']:,} B, {case['tasks']} tasks"
        batch_ms, cpu_ms = measured["batch_ms"], measured["cpu_ms"]
        for sink in SINKS:
            yield Sample("rows", 1000 * case["rows"] / batch_ms[sink], "/s", f'{name}: format("{sink}")')
            yield Sample("batch", batch_ms[sink], "ms", f'{name}: format("{sink}")')
            yield Sample("processor time of Spark", cpu_ms[sink], "ms/batch", f'{name}: format("{sink}")')
        yield Sample("peak memory of a Python worker", measured["worker_bytes"] / 2**20, "MiB", name)
        yield Sample(
            "processor time, exactly once to Spark's own", cpu_ms["fencepost"] / cpu_ms["kafka"], "times", name
        )
        yield Sample("rows, exactly once to Spark's own", batch_ms["kafka"] / batch_ms["fencepost"], "times", name)
        yield Sample("batch, exactly once to Spark's own", batch_ms["fencepost"] / batch_ms["kafka"], "times", name)


FIGURES = (
    Figure(
        name="spark-sinks",
        about="Spark writes batches of 10 MB, in rows of 100 B and 1 KB, by its own sink and the exactly-once one",
        measure=measure,
        sizes={"bytes_per_batch": 10_000_000, "batches": 6},
        small_sizes={"bytes_per_batch": 100_000, "batches": 1},
        targets=(
            Target("rows, exactly once to Spark's own", 1.0, is_lower_bound=True),
            Target("batch, exactly once to Spark's own", 1.1),
        ),
        needs_launches=False,
        needs_java=True,
        most_rounds=3,
    ),
)
