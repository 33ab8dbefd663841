"""Warming a broker until its figures settle, the same for every kind.

A pass produces, consumes and commits transactions. Passes are repeated until processor time per pass no longer falls:
the median of the last three is within 5 % of, or above, the median of the three before. A virtual machine that compiles
its code as it goes takes some twenty of them; what is compiled in the background shows as processor time, too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

from scripts.benchmarks.client import Client, create_topic, delete_topic
from scripts.benchmarks.client_process import bootstrap, measure_client
from scripts.benchmarks.figures import Broker, Say

TOPIC = "warm-up"
PARTITIONS_COUNT = 3
STEADY_COUNT = 3
SETTLED_WITHIN = 0.05
LONGEST_S = 150.0
RECORD_BYTES = 1_000


class Work(NamedTuple):
    """What a pass does: records produced twice and consumed once, and a time of transactions."""

    records: int
    transactions_s: float


FULL = Work(60_000, 1.0)


def warm_up(broker: Broker, say: Say, work: Work = FULL) -> int:
    """Returns after how many passes it was warm."""
    began_at_s = time.monotonic()
    passes_cpu_s: list[float] = []
    while True:
        say(f"warming, pass {len(passes_cpu_s) + 1}")
        passes_cpu_s.append(_pass(broker, len(passes_cpu_s), work))
        if is_settled(passes_cpu_s) or time.monotonic() - began_at_s > LONGEST_S:
            return len(passes_cpu_s)


def is_settled(passes_cpu_s: Sequence[float]) -> bool:
    """Whether processor time per pass has stopped falling."""
    if len(passes_cpu_s) < 2 * STEADY_COUNT:
        return False
    last = statistics.median(passes_cpu_s[-STEADY_COUNT:])
    before = statistics.median(passes_cpu_s[-2 * STEADY_COUNT : -STEADY_COUNT])
    return last >= before * (1 - SETTLED_WITHIN)


def _pass(broker: Broker, number: int, work: Work) -> float:
    """Processor seconds for a fixed amount of work, transactions at 300 apiece."""
    topic = f"{TOPIC}-{number}"
    server = bootstrap(broker)
    with Client(broker.address) as admin:
        create_topic(admin, topic, PARTITIONS_COUNT)
        common = {"bootstrap": server, "topic": topic, "partitions": PARTITIONS_COUNT}
        produced_s = consumed_s = 0.0
        for batch_bytes in (16_384, 1_000_000):
            produced_s += measure_client(
                broker,
                "produce",
                **common,
                record_bytes=RECORD_BYTES,
                batch_bytes=batch_bytes,
                compression="none",
                connections=1,
                records=work.records,
            ).broker_cpu_s
        consumed_s += measure_client(
            broker, "consume", **common, connections=1, records=work.records, fetch_bytes=2**20
        ).broker_cpu_s
        result, cpu_s = measure_client(
            broker, "transactions", **common, per_transaction=3, producers=1, duration_s=work.transactions_s
        )
        delete_topic(admin, topic)
    return produced_s + consumed_s + cpu_s / max(1, len(result["commits_ms"])) * 300
