"""MB/s and the broker's processor time for idempotent producers, with one and with five requests in flight.

A broker that is durable syncs what it has before it replies. With one request in flight each batch waits for a sync of
its own; with five, the batches that arrive during one sync share the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from scripts.benchmarks.client_process import Measured, bootstrap, measure_client
from scripts.benchmarks.figures import COMPARED, PAGE_CACHE, Broker, Figure, Round, Sample
from scripts.benchmarks.measuring import rate, topic_of

RECORD_BYTES, BATCH_BYTES = 1_000, 16_384
FLUSH_PER_BATCH = {"flush.messages": "1"}


class Case(NamedTuple):
    """in_flight:  requests that a producer sends before it waits for a reply; 5 is the most that keep their order.
    is_flushed: whether the topic is durable whatever the broker's default is."""

    in_flight: int
    is_flushed: bool

    def __str__(self) -> str:
        in_flight = f"{self.in_flight} in flight"
        return f"{in_flight}, flush per batch" if self.is_flushed else in_flight


CASES = [Case(in_flight, is_flushed) for is_flushed, in_flight in itertools.product((False, True), (1, 5))]


def measure(round_: Round) -> Iterator[Sample]:
    """A flush per batch in the setting for the page cache would be the durable setting once more."""
    broker = round_.running()
    for case in CASES:
        if case.is_flushed and round_.subject.name == PAGE_CACHE:
            continue
        round_.say(str(case))
        records = max(1, round_.sizes["flushed_bytes" if case.is_flushed else "total_bytes"] // RECORD_BYTES)
        name = f"idempotence-{case.in_flight}-{case.is_flushed}-{round_.number}"
        with topic_of(broker, name, 1, FLUSH_PER_BATCH if case.is_flushed else None) as topic:
            result, cpu_s = produce(broker, topic, case, records)
        yield from rate(str(case), "produce", records * RECORD_BYTES, result["duration_s"], cpu_s)


def produce(broker: Broker, topic: str, case: Case, records: int) -> Measured:
    """One idempotent producer writes to one partition."""
    return measure_client(
        broker,
        "produce",
        bootstrap=bootstrap(broker),
        topic=topic,
        partitions=1,
        record_bytes=RECORD_BYTES,
        batch_bytes=BATCH_BYTES,
        compression="none",
        connections=1,
        records=records,
        settings={"enable.idempotence": True, "max.in.flight.requests.per.connection": case.in_flight},
    )


FIGURES = (
    Figure(
        name="idempotence",
        about="an idempotent producer (librdkafka), 1 KB records in 16 KB batches, one partition; by each broker's "
        "default, and with `flush.messages` 1 on the topic, so that Kafka is durable too",
        measure=measure,
        # Kafka syncs the log and each of its indexes, and writes about a megabyte per second then.
        sizes={"total_bytes": 120_000_000, "flushed_bytes": 20_000_000},
        small_sizes={"total_bytes": 500_000, "flushed_bytes": 100_000},
        subjects=COMPARED,
        needs_launches=False,
        slower="With one request in flight each batch of an idempotent producer waits for a sync of its own, where "
        "Kafka by default acknowledges what is in the page cache. To sync later, for more batches at once, does not "
        "help, as the producer sends nothing more before the reply; nor does a sync on the event loop. More requests "
        "in flight, larger batches or more producers share a sync.",
    ),
)
