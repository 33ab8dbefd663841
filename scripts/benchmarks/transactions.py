"""Transactions per second, what a commit takes, and loops that consume, transform and produce."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from scripts.benchmarks.client_process import bootstrap, measure_client
from scripts.benchmarks.figures import (
    COMPARED_BOTH_WAYS,
    COMPARED_WITH_LIMIT,
    DURABLE,
    Broker,
    Figure,
    RatioTarget,
    Round,
    Sample,
)
from scripts.benchmarks.measuring import percentiles, topic_of

PARTITIONS_COUNT = 30
RECORDS_PER_LOOP = 10


class Case(NamedTuple):
    per_transaction: int
    producers: int

    def __str__(self) -> str:
        partitions = f"{self.per_transaction} partition{'s' if self.per_transaction > 1 else ''}"
        return f"{partitions}, {self.producers} producer{'s' if self.producers > 1 else ''}"


HEADLINE_CASES = (Case(3, 1), Case(3, 50))
HEADLINE_TARGETS = (
    RatioTarget("transactions", 5.0, is_lower_bound=True, case=str(Case(3, 1))),
    RatioTarget("commit p99", 0.1, case=str(Case(3, 1))),
    RatioTarget("transactions", 3.0, DURABLE, is_lower_bound=True, case=str(Case(3, 1))),
    RatioTarget("transactions", 2.0, is_lower_bound=True, case=str(Case(3, 50))),
)
"""Of transactions of version 1, by whichever client."""
OTHER_CASES = (Case(1, 1), Case(30, 1), Case(1, 50), Case(30, 50))


def measure_headline(round_: Round) -> Iterator[Sample]:
    broker = round_.running()
    for case in HEADLINE_CASES:
        yield from with_librdkafka(round_, broker, case)


def measure_others(round_: Round) -> Iterator[Sample]:
    broker = round_.running()
    for case in OTHER_CASES:
        yield from with_librdkafka(round_, broker, case)


def with_librdkafka(round_: Round, broker: Broker, case: Case) -> Iterator[Sample]:
    round_.say(str(case))
    name = f"transactions-{case.per_transaction}-{case.producers}-{round_.number}"
    producers = min(case.producers, round_.sizes["most_producers"])
    with topic_of(broker, name, PARTITIONS_COUNT) as topic:
        result, cpu_s = measure_client(
            broker,
            "transactions",
            bootstrap=bootstrap(broker),
            topic=topic,
            partitions=PARTITIONS_COUNT,
            per_transaction=case.per_transaction,
            producers=producers,
            duration_s=round_.sizes["duration_ms"] / 1e3,
        )
    yield from transaction_samples(str(case), result["duration_s"], result["commits_ms"], cpu_s)


def transaction_samples(case: str, duration_s: float, commits_ms: list[float], cpu_s: float) -> Iterator[Sample]:
    yield Sample("transactions", len(commits_ms) / duration_s, "/s", case)
    yield from percentiles(case, "commit", commits_ms, (50, 99))
    if not math.isnan(cpu_s):
        yield Sample("broker CPU per transaction", cpu_s / len(commits_ms) * 1e6, "µs", case)


def measure_loops(round_: Round) -> Iterator[Sample]:
    broker = round_.running()
    loops = round_.sizes["loops"]
    records = 2 * loops * RECORDS_PER_LOOP
    with (
        topic_of(broker, f"loop-source-{round_.number}", 1) as source,
        topic_of(broker, f"loop-target-{round_.number}", 1) as target,
    ):
        server = bootstrap(broker)
        common = {"record_bytes": 100, "batch_bytes": 16_384, "compression": "none", "connections": 1, "partitions": 1}
        measure_client(broker, "produce", bootstrap=server, topic=source, records=records, **common)
        result, cpu_s = measure_client(
            broker, "loops", bootstrap=server, source=source, target=target, loops=loops, per_loop=RECORDS_PER_LOOP
        )
    yield Sample("loops", loops / result["duration_s"], "/s")
    if not math.isnan(cpu_s):
        yield Sample("broker CPU per loop", cpu_s / loops * 1e6, "µs")


SIZES = {"duration_ms": 3_000, "most_producers": 50}
HEADLINE_SIZES = {**SIZES, "duration_ms": 8_000}
SMALL_SIZES = {"duration_ms": 100, "most_producers": 2}

FIGURES = (
    Figure(
        name="transactions",
        about="version 1 (librdkafka), a record of 100 B to each partition, one transaction after another",
        measure=measure_headline,
        sizes=HEADLINE_SIZES,
        small_sizes=SMALL_SIZES,
        ratio_targets=HEADLINE_TARGETS,
        subjects=COMPARED_WITH_LIMIT,
        needs_launches=False,
        is_headline=True,
        in_the_way="librdkafka waits a millisecond before it asks for the partitions of a transaction and works for "
        "half a millisecond, so that one producer makes at most about 700 transactions a second whatever answers; "
        "Kafka's Java client does not wait (java-transactions-version-1). With 50, processor time decides, most of it "
        "the clients' own: a transaction is five requests and nine appends, 0.15 ms on one of two cores, where the "
        "limit takes 0.07. A durable one waits for the disk three times, one after another, for eight files.",
    ),
    Figure(
        name="transactions-by-size",
        about="the same for transactions of 1 and 30 partitions",
        measure=measure_others,
        sizes=SIZES,
        small_sizes=SMALL_SIZES,
        subjects=COMPARED_BOTH_WAYS,
        needs_launches=False,
    ),
    Figure(
        name="loops",
        about="consume 10 records, transform, produce, commit offsets and records in one transaction (librdkafka)",
        measure=measure_loops,
        sizes={"loops": 1_000},
        small_sizes={"loops": 5},
        subjects=COMPARED_BOTH_WAYS,
        needs_launches=False,
    ),
)
