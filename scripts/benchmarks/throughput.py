"""MB/s and the broker's processor time for producing and consuming: the two cases that matter most, and all others."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import NamedTuple

from scripts.benchmarks.client_process import bootstrap, measure_client
from scripts.benchmarks.figures import (
    COMPARED,
    COMPARED_BOTH_WAYS,
    PAGE_CACHE,
    REFERENCE,
    TWO_PROCESSES,
    Broker,
    Figure,
    RatioTarget,
    Round,
    Sample,
)
from scripts.benchmarks.measuring import rate, topic_of

KILOBYTE_BATCHES, MEGABYTE_BATCHES = 16_384, 1_000_000
FETCH_BYTES = 2**20


class Case(NamedTuple):
    record_bytes: int
    batch_bytes: int
    partitions: int
    compression: str
    connections: int

    def __str__(self) -> str:
        records = f"{self.record_bytes:,} B records"
        batches = "16 KB batches" if self.batch_bytes == KILOBYTE_BATCHES else "1 MB batches"
        partitions = f"{self.partitions} partition{'s' if self.partitions > 1 else ''}"
        connections = f"{self.connections} connection{'s' if self.connections > 1 else ''}"
        return f"{records}, {batches}, {partitions}, {self.compression}, {connections}"


ALL_CASES = [
    Case(*parameters)
    for parameters in itertools.product(
        (100, 1_000), (KILOBYTE_BATCHES, MEGABYTE_BATCHES), (1, 100), ("none", "lz4", "zstd"), (1, 20)
    )
]


FULL_CASES = tuple(Case(1_000, batch_bytes, 24, "none", 20) for batch_bytes in (KILOBYTE_BATCHES, MEGABYTE_BATCHES))
"""Their clients take a processor and more, so that broker and clients together fill two."""


def produce(round_: Round, broker: Broker, topic: str, case: Case, total_bytes: int) -> Iterator[Sample]:
    records = max(1, total_bytes // case.record_bytes)
    result, cpu_s = measure_client(
        broker, "produce", bootstrap=bootstrap(broker), topic=topic, records=records, **case._asdict()
    )
    yield from rate(str(case), "produce", records * case.record_bytes, result["duration_s"], cpu_s)


def consume(round_: Round, broker: Broker, topic: str, case: Case, total_bytes: int) -> Iterator[Sample]:
    records = max(1, total_bytes // case.record_bytes)
    result, cpu_s = measure_client(
        broker,
        "consume",
        bootstrap=bootstrap(broker),
        topic=topic,
        partitions=case.partitions,
        connections=case.connections,
        records=records,
        fetch_bytes=FETCH_BYTES,
    )
    yield from rate(str(case), "consume", records * case.record_bytes, result["duration_s"], cpu_s)


def measure_produce(round_: Round) -> Iterator[Sample]:
    broker = round_.running()
    for batch_bytes in (KILOBYTE_BATCHES, MEGABYTE_BATCHES):
        case = Case(1_000, batch_bytes, 1, "none", 1)
        round_.say(str(case))
        with topic_of(broker, f"produce-{batch_bytes}-{round_.number}", 1) as topic:
            yield from produce(round_, broker, topic, case, round_.bytes_to_produce)


def measure_consume(round_: Round) -> Iterator[Sample]:
    """Both with librdkafka and with a client that only counts what arrives, which librdkafka keeps from being fast."""
    broker = round_.running()
    log_bytes = round_.sizes["log_bytes"]
    written = Case(1_000, MEGABYTE_BATCHES, 1, "none", 1)
    records = log_bytes // written.record_bytes
    with topic_of(broker, f"consume-{round_.number}", 1) as topic:
        round_.say("writing what is read")
        _written = list(produce(round_, broker, topic, written, log_bytes))
        os.sync()  # or the system would write all of it to the disk while it is being read
        for fetch_bytes, fetches in ((2**20, "1 MB fetches"), (4 * 2**20, "4 MB fetches")):
            case = f"{fetches}, nothing decoded"
            round_.say(case)
            result, cpu_s = measure_client(
                broker,
                "bare-consume",
                host=broker.address[0],
                port=broker.address[1],
                topic=topic,
                fetch_bytes=fetch_bytes,
                total_bytes=round_.sizes["total_bytes"],
            )
            yield from rate(case, "consume", result["bytes"], result["duration_s"], cpu_s)
            case = f"{fetches}, librdkafka"
            round_.say(case)
            # In half of all passes, with any broker, librdkafka's threads wake each other ten times as often as in the
            # others, and take half as long again.
            passes = [
                measure_client(
                    broker,
                    "consume",
                    bootstrap=bootstrap(broker),
                    topic=topic,
                    partitions=1,
                    connections=1,
                    records=records,
                    fetch_bytes=fetch_bytes,
                )
                for _ in range(round_.sizes["passes"])
            ]
            consumed_bytes = records * written.record_bytes * len(passes)
            duration_s = sum(one.result["duration_s"] for one in passes)
            yield from rate(case, "consume", consumed_bytes, duration_s, sum(one.broker_cpu_s for one in passes))


def measure_all(round_: Round) -> Iterator[Sample]:
    broker = round_.running()
    for number, case in enumerate(ALL_CASES[:: round_.sizes["step"]]):
        round_.say(str(case))
        total_bytes = round_.sizes["kilobyte_records_bytes" if case.record_bytes == 1_000 else "small_records_bytes"]
        with topic_of(broker, f"throughput-{number}-{round_.number}", case.partitions) as topic:
            yield from produce(round_, broker, topic, case, total_bytes)
            yield from consume(round_, broker, topic, case, total_bytes)


def measure_full(round_: Round) -> Iterator[Sample]:
    broker = round_.running()
    for case in FULL_CASES:
        round_.say(str(case))
        with topic_of(broker, f"full-{case.batch_bytes}-{round_.number}", case.partitions) as topic:
            yield from produce(round_, broker, topic, case, round_.sizes["total_bytes"])
            yield from consume(round_, broker, topic, case, round_.sizes["total_bytes"])


FIGURES = (
    Figure(
        name="produce",
        about="librdkafka, 1 KB records, one partition, one connection",
        measure=measure_produce,
        sizes={"total_bytes": 600_000_000, "synced_bytes": 100_000_000},
        small_sizes={"total_bytes": 1_000_000, "synced_bytes": 500_000},
        ratio_targets=(
            RatioTarget("produce", 1.3, is_lower_bound=True, case=str(Case(1_000, KILOBYTE_BATCHES, 1, "none", 1))),
            RatioTarget("broker CPU, produce", 0.35, case=str(Case(1_000, KILOBYTE_BATCHES, 1, "none", 1))),
            RatioTarget("produce", 1.1, is_lower_bound=True, case=str(Case(1_000, MEGABYTE_BATCHES, 1, "none", 1))),
            RatioTarget("broker CPU, produce", 0.65, case=str(Case(1_000, MEGABYTE_BATCHES, 1, "none", 1))),
        ),
        subjects=COMPARED_BOTH_WAYS,
        needs_launches=False,
        is_headline=True,
        in_the_way="a request of 16 KB that comes alone is about 1,300 bytecode instructions, and no single part of "
        "them stands out. Megabytes are copied, twice, by the system for both brokers alike.",
    ),
    Figure(
        name="consume",
        about="1 KB records in 1 MB batches, one partition, one consumer, from the page cache",
        measure=measure_consume,
        sizes={"log_bytes": 2_400_000_000, "total_bytes": 3_000_000_000, "passes": 4},
        small_sizes={"log_bytes": 1_000_000, "total_bytes": 3_000_000, "passes": 2},
        ratio_targets=(
            RatioTarget("consume", 1.0, is_lower_bound=True),
            RatioTarget("broker CPU, consume", 1.0),
        ),
        subjects=COMPARED,
        needs_launches=False,
        is_headline=True,
        in_the_way="both have the system send from the page cache: Kafka always, Fencepost to clients on the same "
        "machine (docs/decisions/0007 says why). With librdkafka the client's own work is most of the time.",
    ),
    Figure(
        name="throughput",
        about="librdkafka: produce, then consume in 1 MB fetches, in 48 cases",
        measure=measure_all,
        sizes={"kilobyte_records_bytes": 100_000_000, "small_records_bytes": 30_000_000, "step": 1},
        small_sizes={"kilobyte_records_bytes": 200_000, "small_records_bytes": 20_000, "step": 7},
        subjects=COMPARED,
        needs_launches=False,
        most_rounds=3,
    ),
    Figure(
        name="processes",
        about="librdkafka: 20 producers, then 20 consumers, which with the broker fill two processors",
        measure=measure_full,
        sizes={"total_bytes": 600_000_000},
        small_sizes={"total_bytes": 1_000_000},
        subjects=(PAGE_CACHE, TWO_PROCESSES, REFERENCE),
        needs_launches=False,
    ),
)
