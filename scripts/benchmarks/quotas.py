"""What a quota costs those that never reach it: produce without any, with one of another client id, and with one's own.

The quota is a rate that no producer reaches, so nobody is throttled and what remains is the metering.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fencepost.protocol.messages.client_quotas import AlterClientQuotasRequest, AlterEntryData, EntityData, OpData
from scripts.benchmarks.client import Client, require_success
from scripts.benchmarks.client_process import Measured, bootstrap, measure_client
from scripts.benchmarks.figures import COMPARED, Broker, Figure, Round, Sample
from scripts.benchmarks.measuring import rate, topic_of

PRODUCER_CLIENT_ID, OTHER_CLIENT_ID = "bench-producer", "bench-other"
UNREACHABLE_BYTES_PER_S = 10.0**12
RECORD_BYTES, BATCH_BYTES = 1_000, 16_384

NO_QUOTA = "no quota"
CASES = {
    NO_QUOTA: None,
    "a quota of another client id": OTHER_CLIENT_ID,
    "a quota of its own client id": PRODUCER_CLIENT_ID,
}
"""Whose quota is in force in each case."""


def measure(round_: Round) -> Iterator[Sample]:
    """The cases take turns, so that whatever changes on the machine within a round meets all of them."""
    broker = round_.running()
    records = max(1, round_.sizes["total_bytes"] // RECORD_BYTES)
    passes: dict[str, list[Measured]] = {case: [] for case in CASES}
    for number in range(round_.sizes["passes"]):
        for place, (case, client_id) in enumerate(CASES.items()):
            round_.say(f"pass {number + 1}: {case}")
            with (
                topic_of(broker, f"quotas-{place}-{number}-{round_.number}", 1) as topic,
                producer_byte_rate(broker, client_id, UNREACHABLE_BYTES_PER_S),
            ):
                passes[case].append(_produce(broker, topic, records))
    total_bytes = records * RECORD_BYTES * round_.sizes["passes"]
    without: dict[str, float] = {}
    for case, measured in passes.items():
        duration_s = sum(one.result["duration_s"] for one in measured)
        for sample in rate(case, "produce", total_bytes, duration_s, sum(one.broker_cpu_s for one in measured)):
            yield sample
            if case == NO_QUOTA:
                without[sample.quantity] = sample.value
            else:
                share = sample.value / without[sample.quantity]
                yield Sample(f"{sample.quantity}, of that without a quota", share, "times", case)


@contextlib.contextmanager
def producer_byte_rate(broker: Broker, client_id: str | None, bytes_per_s: float) -> Iterator[None]:
    """A quota of a client id for as long as it is measured; none where that is None. Raises RefusedError."""
    if client_id is None:
        yield
        return
    _alter(broker, client_id, OpData("producer_byte_rate", bytes_per_s))
    try:
        yield
    finally:
        _alter(broker, client_id, OpData("producer_byte_rate", remove=True))


def _alter(broker: Broker, client_id: str, change: OpData) -> None:
    """Kafka may apply it some milliseconds after its reply: long before a client process has started."""
    entry = AlterEntryData(entity=[EntityData("client-id", client_id)], ops=[change])
    with Client(broker.address) as admin:
        require_success(admin.call(AlterClientQuotasRequest(entries=[entry])))


def _produce(broker: Broker, topic: str, records: int) -> Measured:
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
        settings={"client.id": PRODUCER_CLIENT_ID},
    )


FIGURES = (
    Figure(
        name="quotas",
        about="produce (librdkafka, 1 KB records in 16 KB batches, one partition) while a `producer_byte_rate` is in "
        "force that is too high to throttle",
        measure=measure,
        sizes={"total_bytes": 200_000_000, "passes": 3},
        small_sizes={"total_bytes": 500_000, "passes": 1},
        subjects=COMPARED,
        needs_launches=False,
    ),
)
