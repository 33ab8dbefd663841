"""Spark writing the batches of a streaming query: the exactly-once sink beside Spark's own, in one session."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.benchmarks.client_process import bootstrap, measure_client
from scripts.benchmarks.figures import Figure, Round, Sample, Target
from scripts.benchmarks.measuring import topic_of

PARTITIONS_COUNT = 4
RECORD_BYTES = 100


def measure(round_: Round) -> Iterator[Sample]:
    broker = round_.running()
    rows = round_.sizes["rows_per_batch"]
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
            rows=rows,
            record_bytes=RECORD_BYTES,
            batches=round_.sizes["batches"],
        )
    batches_ms = {sink: result[sink] for sink in ("kafka", "fencepost")}
    for sink, batch_ms in batches_ms.items():
        yield Sample("rows", 1000 * rows / batch_ms, "/s", f'format("{sink}")')
        yield Sample("batch", batch_ms, "ms", f'format("{sink}")')
    yield Sample("rows, exactly once to Spark's own", batches_ms["kafka"] / batches_ms["fencepost"], "times")
    yield Sample("batch, exactly once to Spark's own", batches_ms["fencepost"] / batches_ms["kafka"], "times")


FIGURES = (
    Figure(
        name="spark-sinks",
        about="Spark writes batches of 100,000 rows of 100 B by its own sink and by the exactly-once one",
        measure=measure,
        sizes={"rows_per_batch": 100_000, "batches": 6},
        small_sizes={"rows_per_batch": 1_000, "batches": 1},
        targets=(
            Target("rows, exactly once to Spark's own", 0.7, is_lower_bound=True),
            Target("batch, exactly once to Spark's own", 1.5),
        ),
        needs_launches=False,
        needs_java=True,
        most_rounds=3,
    ),
)
