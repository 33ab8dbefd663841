"""MB/s and the broker's processor time for idempotent producers, with one and with five requests in flight.

A broker that is durable syncs what it has before it replies. With one request in flight each batch waits for a sync of
its own; with five, the batches that arrive during one sync share the next. librdkafka keeps one request of an
idempotent producer in flight to each partition, whatever its settings allow (librdkafka's pull request 4989), so that
five need five partitions. A client of bare sockets has five in flight to one partition, as Kafka's Java client may.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from scripts.benchmarks.client_process import Measured, bootstrap, measure_client
from scripts.benchmarks.figures import COMPARED_BOTH_WAYS, Broker, Figure, Round, Sample
from scripts.benchmarks.measuring import rate, topic_of

LIBRDKAFKA, BARE = "librdkafka", "bare sockets"
RECORD_BYTES, BATCH_BYTES = 1_000, 16_384


class Case(NamedTuple):
    """client:     librdkafka or bare sockets.
    in_flight:  requests that the producer sends before it waits for a reply; 5 is the most that an idempotent one may.
    partitions: of its topic."""

    client: str
    in_flight: int
    partitions: int

    def __str__(self) -> str:
        partitions = f"{self.partitions} partition{'s' if self.partitions > 1 else ''}"
        return f"{self.client}, {self.in_flight} in flight, {partitions}"


CASES = (Case(LIBRDKAFKA, 1, 1), Case(LIBRDKAFKA, 5, 5), Case(BARE, 1, 1), Case(BARE, 5, 1))


def measure(round_: Round) -> Iterator[Sample]:
    broker = round_.running()
    for number, case in enumerate(CASES):
        round_.say(str(case))
        records = max(1, round_.bytes_to_produce // RECORD_BYTES)
        with topic_of(broker, f"idempotence-{number}-{round_.number}", case.partitions) as topic:
            result, cpu_s = produce(broker, topic, case, records)
        total_bytes = result.get("bytes", records * RECORD_BYTES)
        yield from rate(str(case), "produce", total_bytes, result["duration_s"], cpu_s)


def produce(broker: Broker, topic: str, case: Case, records: int) -> Measured:
    """One idempotent producer."""
    sizes = {"record_bytes": RECORD_BYTES, "batch_bytes": BATCH_BYTES, "records": records}
    if case.client == BARE:
        host, port = broker.address
        return measure_client(
            broker, "bare-idempotent-produce", host=host, port=port, topic=topic, in_flight=case.in_flight, **sizes
        )
    return measure_client(
        broker,
        "produce",
        bootstrap=bootstrap(broker),
        topic=topic,
        partitions=case.partitions,
        compression="none",
        connections=1,
        settings={"enable.idempotence": True, "max.in.flight.requests.per.connection": case.in_flight},
        **sizes,
    )


FIGURES = (
    Figure(
        name="idempotence",
        about="an idempotent producer, 1 KB records in 16 KB batches",
        measure=measure,
        # Kafka, durable, syncs the log and each of its indexes for each batch.
        sizes={"total_bytes": 120_000_000, "synced_bytes": 20_000_000},
        small_sizes={"total_bytes": 500_000, "synced_bytes": 100_000},
        subjects=COMPARED_BOTH_WAYS,
        needs_launches=False,
        slower="With one request in flight each batch of an idempotent producer waits for a sync of its own, where "
        "Kafka by default acknowledges what is in the page cache. To sync later, for more batches at once, does not "
        "help, as the producer sends nothing more before the reply; nor does a sync on the event loop. Batches "
        "that are in flight together share a sync, and larger ones need fewer.",
    ),
)
