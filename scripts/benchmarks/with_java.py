"""The same with Kafka's own Java clients: producers are idempotent, transactions of version 2, by older clients 1."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.soak.kafka_jars import KAFKA_CLIENTS_VERSION
from scripts.benchmarks import java_clients
from scripts.benchmarks.client_process import measured
from scripts.benchmarks.figures import COMPARED_BOTH_WAYS, Figure, Round, Sample
from scripts.benchmarks.measuring import rate, topic_of
from scripts.benchmarks.transactions import (
    HEADLINE_CASES,
    HEADLINE_SIZES,
    HEADLINE_TARGETS,
    PARTITIONS_COUNT,
    SIZES,
    Case,
    transaction_samples,
)

RECORD_BYTES = 1_000
BATCHES = ((16_384, "16 KB batches"), (1_000_000, "1 MB batches"))
FETCH_BYTES = 2**20
SMALL_SIZES = {"duration_ms": 200, "most_producers": 2}
CASES = (Case(1, 1), Case(3, 1), Case(30, 1), Case(3, 50))


def measure_tools(round_: Round) -> Iterator[Sample]:
    broker = round_.running()
    records = round_.sizes["records"]
    for batch_bytes, case in BATCHES:
        with topic_of(broker, f"java-{batch_bytes}-{round_.number}", 1) as topic:
            round_.say(f"{case}: producing")
            before_s = broker.cpu_s()
            per_s = java_clients.producer_performance(
                broker, topic, records=records, record_bytes=RECORD_BYTES, batch_bytes=batch_bytes
            )
            total_bytes = records * RECORD_BYTES
            yield from rate(case, "produce", total_bytes, records / per_s, broker.cpu_s() - before_s)
            round_.say(f"{case}: consuming")
            before_s = broker.cpu_s()
            per_s = java_clients.consumer_performance(broker, topic, records=records, fetch_bytes=FETCH_BYTES)
            yield from rate(case, "consume", total_bytes, records / per_s, broker.cpu_s() - before_s)


def measure_transactions(round_: Round) -> Iterator[Sample]:
    for case in CASES:
        yield from _transactions(round_, case, KAFKA_CLIENTS_VERSION)


def measure_transactions_of_version_1(round_: Round) -> Iterator[Sample]:
    for case in HEADLINE_CASES:
        yield from _transactions(round_, case, java_clients.LAST_CLIENTS_OF_VERSION_1)


def _transactions(round_: Round, case: Case, clients_version: str) -> Iterator[Sample]:
    broker = round_.running()
    round_.say(str(case))
    name = f"java-{clients_version}-{case.per_transaction}-{case.producers}-{round_.number}"
    with topic_of(broker, name, PARTITIONS_COUNT) as topic:
        client = java_clients.transactions(
            broker,
            topic,
            partitions=PARTITIONS_COUNT,
            per_transaction=case.per_transaction,
            producers=min(case.producers, round_.sizes["most_producers"]),
            duration_ms=round_.sizes["duration_ms"],
            clients_version=clients_version,
        )
        result, cpu_s = measured(broker, client)
    yield from transaction_samples(str(case), result["duration_s"], result["commits_ms"], cpu_s)


FIGURES = (
    Figure(
        name="java-tools",
        about="kafka-producer-perf-test and kafka-consumer-perf-test, 1 KB records, one partition, processor time with "
        "the tool's start",
        measure=measure_tools,
        sizes={"records": 600_000},
        small_sizes={"records": 1_000},
        subjects=COMPARED_BOTH_WAYS,
        needs_launches=False,
        needs_java=True,
    ),
    Figure(
        name="java-transactions-version-1",
        about=f"version 1 (Kafka's Java client {java_clients.LAST_CLIENTS_OF_VERSION_1}), a record of 100 B to each "
        "partition, one transaction after another",
        measure=measure_transactions_of_version_1,
        sizes=HEADLINE_SIZES,
        small_sizes=SMALL_SIZES,
        ratio_targets=HEADLINE_TARGETS,
        subjects=COMPARED_BOTH_WAYS,
        needs_launches=False,
        needs_java=True,
    ),
    Figure(
        name="java-transactions",
        about="version 2 (Kafka's Java client), a record of 100 B to each partition, one transaction after another",
        measure=measure_transactions,
        sizes=SIZES,
        small_sizes=SMALL_SIZES,
        subjects=COMPARED_BOTH_WAYS,
        needs_launches=False,
        needs_java=True,
    ),
)
