"""How old records of a cluster of machines are read, and how readers of new ones fare meanwhile.

    .venv/bin/python -m scripts.cluster_cold_reads [--quick]

One broker, PostgreSQL and an S3 server share this machine with the clients: 50 consumers, each of which reads one
partition from the beginning, and one that reads the records that are written meanwhile, one every 10 ms. The broker is
killed between the two replays, so that its disk is empty for the second. Prints tables of docs/performance/cluster.md.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from fencepost.soak.free_port import free_port
from scripts.cluster_costs import machines, stores
from scripts.measured_parts import read_arguments
from tests.broker.metrics.test_broker_families import values_of
from tests.support.conditions import until
from tests.support.machines import Machine
from tests.support.replays import RECORD_BYTES, fill, replay

CONSUMERS, RECORDS, QUICK_RECORDS = 50, 4_000, 800
SEGMENT_BYTES = 32 * 1024 * 1024
SCRATCH_BYTES = 300 * 1024 * 1024
TAIL_BYTES = 16 * 1024 * 1024
"""Few, so that nearly all is in objects by the time of the replays."""
INTERVAL_S, ALONE_S = 0.01, 20.0
SEALED_SHARE = 0.75


class Tail(threading.Thread):
    """A consumer of new records. latencies_s: from the call of `produce` until each record was here."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.latencies_s: list[float] = []
        self._address = bootstrap
        self._is_over = threading.Event()

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self._address, "linger.ms": 0})
        reader = Consumer({"bootstrap.servers": self._address, "group.id": "tail", "auto.offset.reset": "latest"})
        reader.assign([TopicPartition("tail", 0)])
        receive(reader, 1, 2)
        started_s = time.monotonic()  # records before are of the measurement before
        while not self._is_over.is_set():
            began_s = time.monotonic()
            producer.produce("tail", b"%f" % began_s, partition=0)
            producer.poll(0)
            for message in receive(reader, 100, INTERVAL_S):
                sent_s = float(message.value() or b"0")
                if sent_s >= started_s:
                    self.latencies_s.append(time.monotonic() - sent_s)
        reader.close()

    def end(self) -> None:
        self._is_over.set()
        self.join()


def receive(reader: Consumer, most: int, timeout_s: float) -> list[Message]:
    """Raises KafkaException for an error among the messages."""
    messages: list[Message] = reader.consume(most, timeout=timeout_s)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


class LoopTime(NamedTuple):
    """Of the thread of a process's event loop, in seconds: it worked, and it waited for a processor."""

    worked_s: float
    waited_s: float

    @classmethod
    def of(cls, process_id: int) -> LoopTime:
        worked_ns, waited_ns, _ = Path(f"/proc/{process_id}/task/{process_id}/schedstat").read_text().split()
        return cls(int(worked_ns) / 1e9, int(waited_ns) / 1e9)


@contextmanager
def tail(broker: Machine, name: str) -> Iterator[Tail]:
    """Measure a reader of new records while the block runs, and print its latencies."""
    reader = Tail(broker.bootstrap)
    reader.start()
    began_s, before = time.monotonic(), LoopTime.of(broker.process_id)
    yield reader
    took_s, after = time.monotonic() - began_s, LoopTime.of(broker.process_id)
    reader.end()
    found = sorted(reader.latencies_s)
    p99 = found[len(found) * 99 // 100]
    median = statistics.median(found)
    load = os.getloadavg()[0]
    worked, waited = ((end - start) / took_s for start, end in zip(before, after, strict=True))
    latencies = f"{median * 1000:.1f} ms | {p99 * 1000:.0f} ms | {len(found)}"
    print(f"| {name} | {latencies} | {worked:.0%} | {waited:.0%} | {load:.0f} |", flush=True)


def main() -> None:
    """Measure, and print."""
    records = QUICK_RECORDS if read_arguments(__doc__, {}).is_quick else RECORDS
    port = free_port()
    settings = {"fencepost.http.listener": f"127.0.0.1:{port}", "fencepost.cluster.tail.max.bytes": str(TAIL_BYTES)}
    total_bytes = CONSUMERS * records * RECORD_BYTES

    def shown() -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return dict(values_of(answer.read().decode()))

    def run(bootstrap: str) -> float:
        return replay(
            bootstrap, "old", partitions=CONSUMERS, records=records, consumers=CONSUMERS, meanwhile=lambda: None
        )

    with stores() as kept, machines(kept, 1, settings) as cluster:
        bootstrap = cluster.bootstrap
        for topic in ("tail", "ready"):
            fill(bootstrap, topic, partitions=1, records=1, segment_bytes=SEGMENT_BYTES)
        fill(bootstrap, "old", partitions=CONSUMERS, records=records, segment_bytes=SEGMENT_BYTES)
        print("| a reader of new records | median | p99 | records | worked | waited | load |")
        print("|---|---|---|---|---|---|---|")
        with tail(cluster[1], "alone"):
            time.sleep(ALONE_S)
        until(lambda: shown()["fencepost_engine_sealed_bytes_total"] > total_bytes * SEALED_SHARE, timeout_s=240)
        with tail(cluster[1], "beside 50 that read segments on the broker's disk"):
            local_s = run(bootstrap)
        cluster[1].kill()
        cluster[1].settings["fencepost.cluster.scratch.max.bytes"] = str(SCRATCH_BYTES)
        cluster[1].start()
        replay(bootstrap, "ready", partitions=1, records=1, consumers=1, meanwhile=lambda: None)
        before = shown()
        with tail(cluster[1], "beside 50 that read remote ones"):
            took_s = run(bootstrap)
        after = shown()
        requests = 'fencepost_engine_object_requests_total{operation="get",outcome="done"}'
        gets = after[requests] - before.get(requests, 0)
        fetched = after["fencepost_engine_brought_bytes_total"] - before["fencepost_engine_brought_bytes_total"]
        print(f"\nfrom the broker's disk: {local_s:.1f} s, {total_bytes / local_s / 1e6:.0f} MB/s")
        print(
            f"replay of {total_bytes / 1e9:.2f} GB by {CONSUMERS} consumers: {took_s:.1f} s, "
            f"{total_bytes / took_s / 1e6:.0f} MB/s; fetched {fetched / 1e9:.2f} GB in {gets:.0f} requests, "
            f"{gets / (fetched / 1e9):.0f} for each GB"
        )


if __name__ == "__main__":
    main()
