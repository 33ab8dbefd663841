"""Spark reading a topic in one batch query."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.benchmarks.client_process import bootstrap, measure_client
from scripts.benchmarks.figures import COMPARED, Figure, Round, Sample
from scripts.benchmarks.measuring import rate, topic_of

PARTITIONS_COUNT = 4
RECORD_BYTES = 100


def measure(round_: Round) -> Iterator[Sample]:
    broker = round_.running()
    records = round_.sizes["records"]
    server = bootstrap(broker)
    common = {"record_bytes": RECORD_BYTES, "batch_bytes": 16_384, "compression": "none", "connections": 1}
    with (
        topic_of(broker, f"spark-{round_.number}", PARTITIONS_COUNT) as topic,
        topic_of(broker, f"spark-warm-up-{round_.number}", PARTITIONS_COUNT) as warm_up_topic,
    ):
        round_.say("writing what is read")
        for name, count in ((topic, records), (warm_up_topic, records // 10)):
            measure_client(
                broker, "produce", bootstrap=server, topic=name, partitions=PARTITIONS_COUNT, records=count, **common
            )
        round_.say("reading")
        result, cpu_s = measure_client(
            broker, "spark", bootstrap=server, topic=topic, warm_up_topic=warm_up_topic, records=records
        )
    yield Sample("records", records / result["duration_s"], "/s")
    yield from rate("", "read", result["bytes"], result["duration_s"], cpu_s)


FIGURES = (
    Figure(
        name="spark",
        about="Spark 4.0 reads 5 million records of 100 B in one batch query on two cores",
        measure=measure,
        sizes={"records": 5_000_000},
        small_sizes={"records": 2_000},
        subjects=COMPARED,
        needs_launches=False,
        needs_java=True,
        most_rounds=3,
    ),
)
