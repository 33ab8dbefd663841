"""What several processes on one machine cost and gain: pauses when one dies, processor time for a byte, throughput.

    .venv/bin/python -m scripts.process_costs [kills | take-over | cost | throughput] [--quick]

Prints the tables of docs/performance/processes.md. A busy machine makes all times longer; the ratios of one run count.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import re
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from scripts.benchmarks.batches import BatchTemplate
from scripts.measured_parts import read_arguments
from scripts.tls_costs import Case, consume, produce
from tests.support.broker_process import BrokerProcess
from tests.support.broker_processes import BrokerProcesses
from tests.support.clients_of_processes import SETTINGS, Transactions, create, read
from tests.support.conditions import until
from tests.support.produce_frames import produce_frame

GIGABYTE = 1_000_000_000
PARTITIONS = 24
FRAME_BYTES = 16_000
FRAMES_AHEAD = 64
LED = re.compile(r"(\S+) \[info +\] partition_led ")
AFTER_S = 4.0
"""After a kill, before what the others have logged is read: longer than a take-over, shorter than the settling."""
BEFORE_S = 8.0
"""How long the clients are watched before a kill: on a busy machine they pause without one, too."""
QUIET = {"log_level": 0}
"""Requests that a connection has sent and that are not answered."""


class Sizes(NamedTuple):
    """How much is done: kills, partitions that are taken over, bytes, seconds, rounds."""

    kills: int = 20
    taken_over: int = 1_000
    total_bytes: int = 200_000_000
    seconds: float = 8.0
    rounds: int = 3


QUICK = Sizes(kills=3, taken_over=100, total_bytes=10_000_000, seconds=1.0, rounds=1)


@contextmanager
def broker_of(count: int, settings: Mapping[str, str] = {}) -> Iterator[BrokerProcess]:
    """A broker of `count` processes; 0: without a parent, as by default."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "data"
        broker = BrokerProcesses(path, count, settings=settings) if count else BrokerProcess(path, settings=settings)
        with broker:
            yield broker


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()


def leaders(bootstrap: str, topic: str) -> dict[int, int]:
    metadata = AdminClient({"bootstrap.servers": bootstrap, **QUIET}).list_topics(topic, timeout=30)
    return {number: partition.leader for number, partition in metadata.topics[topic].partitions.items()}


# Kills


class Probe:
    """An idempotent producer that writes to one partition without a pause. answered: when each record was."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        self.answered: list[float] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(bootstrap, topic, partition))
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self, bootstrap: str, topic: str, partition: int) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, **QUIET})
        while not self._stopping.is_set():
            producer.produce(topic, b"x", partition=partition)
            producer.flush(60)
            self.answered.append(time.monotonic())


def longest_gap(times: list[float], since: float, until_then: float = float("inf")) -> float:
    """The longest pause between two answers that ended in this time."""
    return max((after - before for before, after in pairwise(times) if since < after <= until_then), default=0.0)


def taken_over_s(output: str, killed_at: dt.datetime) -> float:
    """How long after the kill the others led the last partition of the process, by the broker's log."""
    led = [found[1] for found in LED.finditer(output)]
    return (dt.datetime.fromisoformat(max(led)).replace(tzinfo=dt.UTC) - killed_at).total_seconds() if led else 0.0


def kills(sizes: Sizes) -> None:
    """kill -9 of one of three processes, again and again, under transactions and a writer of one of its partitions."""
    chance = random.Random(1)
    of_writers, of_transactions, of_writers_before, of_transactions_before = [], [], [], []
    of_brokers = []
    with broker_of(3, {**SETTINGS, "fencepost.node.settling.ms": "15000"}) as broker:
        assert isinstance(broker, BrokerProcesses)
        create(broker.bootstrap, "orders")
        create_topic(broker.bootstrap, "probe", 30)
        transactions = Transactions(broker.bootstrap, 4)
        try:
            until(lambda: all(len(ends) > 20 for ends in transactions.ends.values()))
            for number in range(sizes.kills):
                node_id = chance.choice(list(broker.node_ids))
                led = [each for each, leader in leaders(broker.bootstrap, "probe").items() if leader == node_id]
                probe = Probe(broker.bootstrap, "probe", led[0])
                time.sleep(BEFORE_S)
                killed_at, killed_then, seen = time.monotonic(), dt.datetime.now(dt.UTC), len(broker.output)
                killed = broker.kill_node(node_id)
                broker.wait_for_another(node_id, than=killed)
                time.sleep(AFTER_S)
                of_brokers.append(taken_over_s(broker.output[seen:], killed_then))
                until(lambda: set(leaders(broker.bootstrap, "orders").values()) == set(broker.node_ids), timeout_s=60)
                time.sleep(1)  # it leads again what it led before, and clients have followed
                probe.stop()
                before_s = killed_at - BEFORE_S
                of_writers_before.append(longest_gap(probe.answered, before_s, killed_at))
                of_transactions_before.append(
                    max(longest_gap(ends, before_s, killed_at) for ends in transactions.ends.values())
                )
                of_writers.append(longest_gap(probe.answered, killed_at))
                of_transactions.append(max(longest_gap(ends, killed_at) for ends in transactions.ends.values()))
                print(
                    f"kill {number + 1} of node {node_id}: led again {of_brokers[-1]:.2f} s, "
                    f"writer {of_writers[-1]:.2f} s, slowest of 4 transacting producers {of_transactions[-1]:.2f} s",
                    file=sys.stderr,
                )
        finally:
            transactions.stop()
        transactions.check(read(broker.bootstrap))
    print(f"| | median | longest of {sizes.kills} | within 2 s |\n|---|---|---|---|")
    for name, found in (
        ("all partitions of the process are led by others", of_brokers),
        ("a writer of a partition that the process led", of_writers),
        ("the slowest of four transacting producers", of_transactions),
        (f"that writer in the {BEFORE_S:.0f} s before", of_writers_before),
        (f"those producers in the {BEFORE_S:.0f} s before", of_transactions_before),
    ):
        within = sum(one <= 2 for one in found)
        print(f"| {name} | {statistics.median(found):.2f} s | {max(found):.2f} s | {within} of {len(found)} |")


# Take-over of many partitions


def take_over(sizes: Sizes) -> None:
    """kill -9 of one of two processes that lead equally many partitions, each with a record."""
    with broker_of(2, {"fencepost.max.partitions": "100000"}) as broker:
        assert isinstance(broker, BrokerProcesses)
        count = 2 * sizes.taken_over
        create_topic(broker.bootstrap, "many", count)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for partition in range(count):
            producer.produce("many", b"x" * 100, partition=partition)
        assert producer.flush(120) == 0
        led = [number for number, leader in leaders(broker.bootstrap, "many").items() if leader == 2]
        seen = len(broker.output)
        killed_at = dt.datetime.now(dt.UTC)
        os.kill(broker.process_of(2), 9)
        until(lambda: len(LED.findall(broker.output[seen:])) >= len(led), timeout_s=120)
        last = max(LED.findall(broker.output[seen:])[: len(led)])
        noticed = re.search(r"(\S+) \[warning +\] node_taken_over", broker.output[seen:])
        assert noticed is not None
    began, ended = (dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) for text in (noticed[1], last))
    print("| partitions | taken over after | the last one is served after |\n|---|---|---|")
    print(f"| {len(led)} | {(began - killed_at).total_seconds():.2f} s | {(ended - killed_at).total_seconds():.2f} s |")


# Processor time


def named(count: int) -> str:
    return str(count) if count else "one, without a parent"


def processor_s(process_id: int) -> float:
    """Processor time so far of a process and those that it has started."""
    process = psutil.Process(process_id)
    times = [one.cpu_times() for one in (process, *process.children())]
    return float(sum(one.user + one.system for one in times))


def cost(sizes: Sizes) -> None:
    """Processor time of all processes for a gigabyte through librdkafka, by the number of processes."""
    case = Case("16 KB batches", FRAME_BYTES, sizes.total_bytes)
    found: dict[int, dict[str, list[float]]] = {count: {"produce": [], "consume": []} for count in (0, 1, 2, 4)}
    for number in range(sizes.rounds):
        for count, of_count in found.items():
            with broker_of(count) as broker:
                for topic in ("warm", "measured"):
                    create_topic(broker.bootstrap, topic, PARTITIONS)
                client = {"bootstrap.servers": broker.bootstrap}
                produce(client, "warm", case._replace(total_bytes=case.total_bytes // 10))
                consume(client, "warm", case._replace(total_bytes=case.total_bytes // 10))
                for name, work in (("produce", produce), ("consume", consume)):
                    before_s = processor_s(broker.process_id)
                    work(client, "measured", case)
                    taken_s = processor_s(broker.process_id) - before_s
                    of_count[name].append(taken_s * GIGABYTE / case.total_bytes)
                print(f"round {number + 1}, {count} processes: {of_count}", file=sys.stderr)
    print("| processes | produce, s/GB | consume, s/GB |\n|---|---|---|")
    for count, of_count in found.items():
        name = "one, without a parent" if count == 0 else str(count)
        print(
            f"| {name} | {statistics.median(of_count['produce']):.2f} | {statistics.median(of_count['consume']):.2f} |"
        )


# Throughput


def send_frames(address: tuple[str, int], frames: list[bytes], until_s: float, sent: list[int]) -> None:
    """Send prepared requests over one connection, FRAMES_AHEAD ahead, and count the answers."""
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        half = b"".join(frames[number % len(frames)] for number in range(FRAMES_AHEAD // 2))
        reader = connection.makefile("rb", buffering=1 << 16)
        connection.sendall(half)
        answered = 0
        while time.monotonic() < until_s:
            connection.sendall(half)
            for _ in range(FRAMES_AHEAD // 2):
                length = int.from_bytes(reader.read(4), "big")
                reader.read(length)
                answered += 1
        sent.append(answered)


def throughput(sizes: Sizes) -> None:
    """Prepared Produce requests of 16 KB over two connections; the client needs the same processors."""
    found: dict[int, list[float]] = {0: [], 1: [], 2: []}
    of_brokers: dict[int, list[float]] = {0: [], 1: [], 2: []}  # processor time for a gigabyte
    of_clients: dict[int, list[float]] = {0: [], 1: [], 2: []}
    records = BatchTemplate(record_bytes=1_000, records_count=FRAME_BYTES // 1_000).batch()
    for number in range(sizes.rounds):
        for count, of_count in found.items():
            with broker_of(count, {"log.flush.interval.messages": str(2**63 - 1)}) as broker:
                create_topic(broker.bootstrap, "orders", PARTITIONS)
                addresses = broker.bootstrap.split(",")
                by_leader: dict[int, list[bytes]] = {}
                for partition, leader in leaders(broker.bootstrap, "orders").items():
                    by_leader.setdefault(leader, []).append(produce_frame(records, partition=partition))
                sent: list[int] = []
                until_s = time.monotonic() + sizes.seconds
                connections = [
                    threading.Thread(target=send_frames, args=(split(addresses[leader - 1]), frames, until_s, sent))
                    for leader, frames in by_leader.items()
                    for _ in range(2 // len(by_leader))
                ]
                broker_before_s, client_before_s = processor_s(broker.process_id), time.process_time()
                in_parallel(connections)
                gigabytes = sum(sent) * len(records) / GIGABYTE
                of_brokers[count].append((processor_s(broker.process_id) - broker_before_s) / gigabytes)
                of_clients[count].append((time.process_time() - client_before_s) / gigabytes)
                of_count.append(gigabytes * 1_000 / sizes.seconds)
                print(f"round {number + 1}, {count} processes: {of_count[-1]:.0f} MB/s", file=sys.stderr)
    base = statistics.median(found[0])
    print("| processes | MB/s | against one | broker, s/GB | client, s/GB |\n|---|---|---|---|---|")
    for count, of_count in found.items():
        broker_s, client_s = statistics.median(of_brokers[count]), statistics.median(of_clients[count])
        print(
            f"| {named(count)} | {statistics.median(of_count):.0f} | {statistics.median(of_count) / base:.2f} | "
            f"{broker_s:.2f} | {client_s:.2f} |"
        )
    broker_s, client_s = statistics.median(of_brokers[0]), statistics.median(of_clients[0])
    print(f"\nTwo processors that do nothing else could take {2 * broker_s / (broker_s + client_s):.2f} times as much.")


def split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def in_parallel(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


PARTS: Mapping[str, Callable[[Sizes], None]] = {
    "kills": kills,
    "take-over": take_over,
    "cost": cost,
    "throughput": throughput,
}


def main() -> None:
    asked = read_arguments(__doc__, PARTS)
    sizes = QUICK if asked.is_quick else Sizes()
    for name in asked.each():
        PARTS[name](sizes)


if __name__ == "__main__":
    main()
