"""What figures share that measure on a warm broker: topics for one round, and what a client's result says."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence

from scripts.benchmarks.client import Client, create_topic, delete_topic
from scripts.benchmarks.figures import Broker, Sample

REMOVED_AT_ONCE = {"log.segment.delete.delay.ms": "1000"}
"""For every broker: what is deleted after one turn shall not be removed while another one is measured."""


@contextlib.contextmanager
def topic_of(
    broker: Broker, name: str, partitions_count: int, configs: Mapping[str, str] | None = None
) -> Iterator[str]:
    """A topic that is there for as long as it is measured."""
    with Client(broker.address) as admin:
        create_topic(admin, name, partitions_count, dict(configs or {}))
    try:
        yield name
    finally:
        # Another connection: brokers close those that were idle for long.
        with contextlib.suppress(OSError), Client(broker.address) as admin:
            delete_topic(admin, name)


def rate(case: str, what: str, total_bytes: int, duration_s: float, broker_cpu_s: float) -> Iterator[Sample]:
    """MB/s, and processor time where it is known: of a peer on another machine it is not."""
    yield Sample(what, total_bytes / duration_s / 1e6, "MB/s", case)
    if not math.isnan(broker_cpu_s):
        yield Sample(f"broker CPU, {what}", broker_cpu_s / (total_bytes / 1e9), "s/GB", case)


def percentiles(case: str, what: str, values_ms: Sequence[float], wanted: Sequence[float]) -> Iterator[Sample]:
    ordered = sorted(values_ms)
    for percent in wanted:
        yield Sample(f"{what} p{percent:g}", percentile(ordered, percent), "ms", case)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of a hundred values do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
