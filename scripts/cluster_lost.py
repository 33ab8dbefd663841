"""The loss of one of two brokers that lead thousands of partitions, for `scripts.cluster_costs take-over`."""

from __future__ import annotations

import datetime as dt
import os
import re
import time
from collections.abc import Sequence

from confluent_kafka import Producer

from scripts.process_costs import LED, create_topic, leaders
from tests.support.conditions import until
from tests.support.machines import Machines

TAKEN_OVER = re.compile(r"(\S+) \[warning +\] node_taken_over")
PARTITIONS = 2_000
"""Of each topic: one request creates at most 10,000."""
LONGEST_S = 300.0


def lost(cluster: Machines, count: int) -> str:
    """Kill node 2, which leads about `count` partitions with a record each; return a row of a table."""
    topics = {f"many-{start}": min(PARTITIONS, 2 * count - start) for start in range(0, 2 * count, PARTITIONS)}
    led = []
    for topic, partitions in topics.items():
        create_topic(cluster.bootstrap, topic, partitions)
        found = until(lambda: _leaders(cluster, topic), timeout_s=LONGEST_S)  # noqa: B023  # called at once
        led += [(topic, number) for number, leader in found.items() if leader == 2]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 0})
    _write_to_each(producer, [(topic, number) for topic, partitions in topics.items() for number in range(partitions)])
    heir = cluster[1]
    seen = len(heir.output)
    killed_at, killed_s = dt.datetime.now(dt.UTC), time.monotonic()
    cluster[2].kill()
    _write_to_each(producer, led)
    acknowledged_s = time.monotonic() - killed_s
    until(lambda: len(LED.findall(heir.output[seen:])) >= len(led), timeout_s=LONGEST_S)
    output = heir.output[seen:]
    noticed = TAKEN_OVER.search(output)
    assert noticed is not None
    times = [_moment(noticed[1]), _moment(max(LED.findall(output)))]
    taken_over_s, led_s = ((time - killed_at).total_seconds() for time in times)
    load = os.getloadavg()[0]
    return f"| {len(led)} | {taken_over_s:.1f} s | {led_s:.1f} s | {acknowledged_s:.1f} s | {load:.0f} |"


def _leaders(cluster: Machines, topic: str) -> dict[int, int]:
    """Node ids by partition, once all have a leader."""
    found = leaders(cluster.bootstrap, topic)
    return {} if -1 in found.values() else found


def _write_to_each(producer: Producer, partitions: Sequence[tuple[str, int]]) -> None:
    """Write a record to each partition, and wait until all are acknowledged."""
    failures: list[object] = []
    for topic, number in partitions:
        producer.produce(topic, b"x" * 100, partition=number, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(LONGEST_S) == 0
    assert set(failures) == {None}, set(map(str, failures))


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
