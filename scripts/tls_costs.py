"""What TLS costs a broker: processor time for a gigabyte, with and without it, beside Apache Kafka in the same run.

    .venv/bin/python -m scripts.tls_costs [--alone]

Clients are librdkafka's; only the broker's processor time counts, so that a busy machine changes little. Prints the
tables of docs/performance/tls.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer

from fencepost.soak.free_port import free_port
from scripts.apache_kafka import ApacheKafka
from tests.support.certificates import Authority

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
GIGABYTE = 1_000_000_000
ROUNDS = 3


class Case(NamedTuple):
    """A load. batch_bytes: what the client sends in one request, about."""

    name: str
    batch_bytes: int
    total_bytes: int


CASES = (Case("16 KB batches", 16_000, 100_000_000), Case("1 MB batches", 1_000_000, 400_000_000))


def cpu_s(process_id: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


@contextmanager
def fencepost(directory: Path, settings: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """A broker process with Kafka's promise: its id and address."""
    command = [sys.executable, "-m", "fencepost", "serve", "--data-dir", str(directory)]
    for name, value in ({"log.flush.interval.messages": str(2**63 - 1)} | dict(settings)).items():
        command += ["--set", f"{name}={value}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split("ready: ")[1].split(" ")[0]
        yield process.pid, address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        process.stdout.close()


@contextmanager
def kafka(directory: Path, settings: Mapping[str, str], protocol: str) -> Iterator[tuple[int, str]]:
    node = ApacheKafka(directory, free_port(), properties=dict(settings), protocol=protocol)
    with node:
        assert node.process is not None
        yield node.process.pid, node.bootstrap_servers


def produce(client: Mapping[str, Any], topic: str, case: Case) -> None:
    producer = Producer(
        {**client, "batch.size": case.batch_bytes, "linger.ms": 20, "compression.type": "none", "acks": "all"}
    )
    value = os.urandom(min(case.batch_bytes, 100_000) // (1 if case.batch_bytes > 100_000 else 16))
    for _ in range(case.total_bytes // len(value)):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(120) == 0


def consume(client: Mapping[str, Any], topic: str, case: Case) -> None:
    consumer = Consumer(
        {
            **client,
            "group.id": f"{topic}-{time.time()}",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": case.batch_bytes,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    left = case.total_bytes * 0.99
    try:
        while left > 0:
            for message in consumer.consume(1_000, 1.0):
                assert message.error() is None, message.error()
                left -= len(message.value())
    finally:
        consumer.close()


def measured(process_id: int, work: Callable[[], None]) -> tuple[float, float]:
    """Processor time of the broker and time of the clock, in seconds."""
    cpu_before_s, before_s = cpu_s(process_id), time.perf_counter()
    work()
    return cpu_s(process_id) - cpu_before_s, time.perf_counter() - before_s


def measure(process_id: int, client: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """For each load the processor seconds for a gigabyte, and megabytes in a second: medians of ROUNDS."""
    found = {}
    for case in CASES:
        produce(client, "warm", case._replace(total_bytes=case.total_bytes // 4))
        for what, work in (("produce", produce), ("consume", consume)):
            taken = []
            for number in range(ROUNDS):
                topic = f"t-{case.batch_bytes}-{number}"
                taken.append(measured(process_id, lambda topic=topic, work=work, case=case: work(client, topic, case)))  # type: ignore[misc]
            cpu, clock = statistics.median(one for one, _ in taken), statistics.median(two for _, two in taken)
            found[f"{what}, {case.name}"] = (cpu * GIGABYTE / case.total_bytes, case.total_bytes / clock / 1e6)
            print(what, case.name, *(f"{value:.2f}" for value in found[f"{what}, {case.name}"]), file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    options = parser.parse_args()
    columns: dict[str, dict[str, tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        authority = Authority(directory / "authority")
        stored = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.server().both),
            "ssl.truststore.type": "PEM",  # Kafka's broker has to trust itself
            "ssl.truststore.location": str(authority.path),
        }
        tls_client = {"security.protocol": "SSL", "ssl.ca.location": str(authority.path)}
        for protocol, settings, client in (("PLAINTEXT", {}, {}), ("SSL", stored, tls_client)):
            listeners = {"listeners": f"{protocol}://127.0.0.1:0"}
            with fencepost(directory / protocol, listeners | settings) as (process_id, address):
                columns[f"Fencepost, {protocol}"] = measure(process_id, {"bootstrap.servers": address, **client})
            if not options.alone:
                with kafka(directory / f"kafka-{protocol}", settings, protocol) as (process_id, address):
                    columns[f"Kafka, {protocol}"] = measure(process_id, {"bootstrap.servers": address, **client})
    print(f"| processor seconds for a gigabyte (megabytes in a second) | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 1) + "|")
    for row in next(iter(columns.values())):
        cells = (f"{column[row][0]:.2f} ({column[row][1]:.0f})" for column in columns.values())
        print(f"| {row} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
