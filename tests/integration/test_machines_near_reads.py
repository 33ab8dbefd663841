"""Consumers with a rack read sealed segments at the broker of their rack, and all else at the leader."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from fencepost.protocol.record_batch import iterate_batches
from fencepost.protocol.schema import decode
from fencepost.soak.free_port import free_port
from scripts.apache_kafka import KAFKA_VERSION
from tests.broker.metrics.test_broker_families import values_of
from tests.compat.jvm import JVM_OPTIONS, class_path
from tests.support.clients_of_processes import SETTINGS
from tests.support.conditions import until
from tests.support.machines import Machines
from tests.support.object_server import ObjectServer
from tests.support.postgres import PostgresServer
from tests.support.steady_clients import READERS_IN_RACKS
from tests.support.wire import request_frame

pytestmark = pytest.mark.integration

TOPIC = "near"
COUNT = 300
VALUE_BYTES = 20_000
FETCH_VERSION, FETCHED_BYTES, READ_BY_EACH = 12, 65_536, 20


class Racks:
    """Three brokers in racks a, b and c, and a topic of one partition whose first records are sealed."""

    def __init__(self, machines: Machines, ports: dict[int, int]) -> None:
        self.machines = machines
        self._ports = ports

    @property
    def leader(self) -> int:
        admin = AdminClient({"bootstrap.servers": self.machines.bootstrap})
        found: int = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions[0].leader
        return found

    def figure(self, node_id: int, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._ports[node_id]}/metrics", timeout=60) as answer:
            return values_of(answer.read().decode()).get(name, 0.0)

    def read_at(self, node_id: int) -> float:
        """Bytes that a broker has served of partitions that others lead."""
        return self.figure(node_id, "fencepost_engine_replica_read_bytes_total")

    def other(self, leader: int) -> int:
        return min({1, 2, 3} - {leader})


@pytest.fixture
def racks(
    database: PostgresServer, objects: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Racks]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not checked")
    ports = {node_id: free_port() for node_id in (1, 2, 3)}
    machines = Machines(database.cluster_url(), objects.make_bucket(), tmp_path, 3, settings=SETTINGS)
    for node_id, machine in machines.machines.items():
        machine.settings |= {
            "broker.rack": "abc"[node_id - 1],
            "fencepost.cluster.tail.max.bytes": "1048576",
            "fencepost.http.listener": f"127.0.0.1:{ports[node_id]}",
        }
    with machines:
        admin = AdminClient({"bootstrap.servers": machines.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, config={"segment.bytes": "1048576"})])[TOPIC].result(60)
        yield Racks(machines, ports)


def write(racks: Racks, *, first: int = 0, transactional: bool = False) -> list[int]:
    """Write COUNT numbers, in transactions if asked: every third one is aborted. Returns those that are visible."""
    settings = {"bootstrap.servers": racks.machines.bootstrap, "linger.ms": 0, "batch.size": VALUE_BYTES}
    producer = Producer({**settings, "transactional.id": "near"} if transactional else settings)
    visible: list[int] = []
    if transactional:
        producer.init_transactions(60)
    for start in range(first, first + COUNT, 10):
        if transactional:
            producer.begin_transaction()
        for number in range(start, start + 10):
            producer.produce(TOPIC, f"{number:06d}".encode() + b"x" * VALUE_BYTES, partition=0)
        if not transactional:
            assert producer.flush(60) == 0
        elif start // 10 % 3 == 2:
            producer.flush(60)
            producer.abort_transaction(60)
            continue
        else:
            producer.commit_transaction(60)
        visible += range(start, start + 10)
    return visible


def until_sealed(racks: Racks) -> None:
    """Until nearly all of it is in objects."""
    before = COUNT * VALUE_BYTES
    until(
        lambda: sum(racks.figure(each, "fencepost_engine_sealed_bytes_total") for each in (1, 2, 3)) > 0.7 * before,
        timeout_s=120,
    )


def read(racks: Racks, rack: str, count: int, **settings: object) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": racks.machines.bootstrap,
            "group.id": "near",
            "client.rack": rack,
            "enable.auto.commit": False,
            **settings,
        }
    )
    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        found: list[int] = []

        def enough() -> bool:
            for message in consumer.consume(100, 0.2):
                assert message.error() is None
                value = message.value()
                assert value is not None
                found.append(int(value[:6]))
            return len(found) >= count

        until(enough, timeout_s=120)
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("transactional", [False, True])
def test_sealed_records_are_read_in_the_rack_and_the_rest_at_the_leader(racks: Racks, transactional: bool) -> None:
    visible = write(racks, transactional=transactional)
    until_sealed(racks)
    leader = racks.leader
    other = racks.other(leader)
    assert read(racks, "abc"[other - 1], len(visible)) == visible
    assert racks.read_at(other) > 0.6 * COUNT * VALUE_BYTES
    assert racks.read_at(leader) == 0
    served = racks.read_at(other)
    assert read(racks, "", len(visible)) == visible
    assert read(racks, "elsewhere", len(visible)) == visible
    assert racks.read_at(other) == served


@pytest.mark.timeout(400)
@pytest.mark.parametrize("client", READERS_IN_RACKS)
def test_clients_of_other_languages_read_in_their_rack_and_come_back_for_the_end(
    racks: Racks, tmp_path: Path, client: str
) -> None:
    command = READERS_IN_RACKS[client](tmp_path)
    visible = write(racks, transactional=True)
    until_sealed(racks)
    leader = racks.leader
    other = racks.other(leader)
    with (tmp_path / "read").open("wb") as found, (tmp_path / "errors").open("wb") as errors:
        reader = subprocess.Popen(
            [*command, racks.machines.bootstrap, TOPIC, "abc"[other - 1]], stdout=found, stderr=errors
        )

    def read_so_far() -> list[int]:
        return [int(line) for line in (tmp_path / "read").read_text().splitlines()]

    try:
        until(lambda: len(read_so_far()) >= len(visible), timeout_s=120)
        visible += write(racks, first=COUNT)
        until(lambda: len(read_so_far()) >= len(visible), timeout_s=120)
        assert read_so_far() == visible
        # kafka-python goes back to the leader after each answer of another broker.
        least_share = 0.1 if client == "kafka-python" else 0.6
        assert racks.read_at(other) > least_share * COUNT * VALUE_BYTES, (tmp_path / "errors").read_text()
    finally:
        reader.kill()
        reader.wait()


def test_javas_consumer_reads_in_its_rack(racks: Racks) -> None:
    visible = write(racks, transactional=True)
    until_sealed(racks)
    leader = racks.leader
    other = racks.other(leader)
    program = ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", racks.machines.bootstrap)
    read_all = ("--topic", TOPIC, "--partition", "0", "--offset", "earliest", "--max-messages", str(len(visible)))
    settings = {"client.rack": "abc"[other - 1], "isolation.level": "read_committed"}
    properties = [word for name, value in settings.items() for word in ("--command-property", f"{name}={value}")]
    finished = subprocess.run(
        ["java", *JVM_OPTIONS, "-cp", class_path(("kafka-tools", KAFKA_VERSION)), *program, *read_all, *properties],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert [int(line[:6]) for line in finished.stdout.splitlines()] == visible, finished.stderr[-4_000:]
    assert racks.read_at(other) > 0.6 * COUNT * VALUE_BYTES
    assert racks.read_at(leader) == 0


def test_consumers_go_on_when_the_broker_of_their_rack_or_the_leader_is_killed(racks: Racks) -> None:
    visible = write(racks)
    until_sealed(racks)
    leader = racks.leader
    other = racks.other(leader)
    rack = "abc"[other - 1]
    consumer = Consumer(
        {
            "bootstrap.servers": racks.machines.bootstrap,
            "group.id": "near",
            "client.rack": rack,
            "message.max.bytes": 50_000,
            "fetch.max.bytes": 50_000,
            "max.partition.fetch.bytes": 50_000,
            "queued.max.messages.kbytes": 100,
            "reconnect.backoff.max.ms": 500,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: list[int] = []

    def has_read(count: int) -> bool:
        for message in consumer.consume(min(100, count - len(found)), 0.2):
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            found.append(int(value[:6]))
        return len(found) >= count

    try:
        until(lambda: has_read(COUNT // 4), timeout_s=60)
        assert racks.read_at(other) > 0
        racks.machines[other].kill()
        until(lambda: has_read(COUNT // 2), timeout_s=90)
        racks.machines[other].start()
        until(lambda: has_read(3 * COUNT // 4), timeout_s=90)
        racks.machines[racks.leader].kill()
        until(lambda: has_read(COUNT), timeout_s=120)
    finally:
        consumer.close()
    assert found == visible


def test_a_topic_that_is_created_again_shows_nothing_of_the_deleted_one(racks: Racks) -> None:
    write(racks)
    until_sealed(racks)
    other = racks.other(racks.leader)
    rack = "abc"[other - 1]
    assert len(read(racks, rack, COUNT)) == COUNT
    admin = AdminClient({"bootstrap.servers": racks.machines.bootstrap})
    admin.delete_topics([TOPIC])[TOPIC].result(60)
    admin.create_topics([NewTopic(TOPIC, 1, config={"segment.bytes": "1048576"})])[TOPIC].result(60)
    visible = write(racks, first=500_000)
    assert read(racks, rack, len(visible)) == visible


async def fetch(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], offset: int, rack: str) -> PartitionData:
    """One Fetch of the topic's only partition."""
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCHED_BYTES)
    request = FetchRequest(
        max_wait_ms=1_000, min_bytes=1, rack_id=rack, topics=[FetchTopic(topic=TOPIC, partitions=[asked])]
    )
    reader, writer = streams
    writer.write(request_frame(request, FETCH_VERSION))
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    response = decode(FetchResponse, await reader.readexactly(length), FETCH_VERSION, 5)
    found: PartitionData = response.responses[0].partitions[0]
    return found


async def read_as_a_thousand(racks: Racks, leader: int, near: int) -> list[list[int]]:
    """The offsets that each of a thousand consumers on one host, with one client id, gets at the broker of its rack."""
    rack = "abc"[near - 1]

    async def opened(node_id: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = racks.machines[node_id].bootstrap.rsplit(":", 1)
        return await asyncio.open_connection(host, int(port))

    async def read_one() -> list[int]:
        at_leader, here = await opened(leader), await opened(near)
        sent = await fetch(at_leader, 0, rack)
        assert (sent.preferred_read_replica, bytes(sent.records or b"")) == (near, b"")
        offsets: list[int] = []
        while len(offsets) < READ_BY_EACH:
            found = await fetch(here, offsets[-1] + 1 if offsets else 0, rack)
            assert found.error_code == 0
            assert found.preferred_read_replica == -1
            for batch in iterate_batches(memoryview(found.records or b"")):
                offsets += range(batch.header.base_offset, batch.header.last_offset + 1)
        for _, writer in (at_leader, here):
            writer.close()
        return offsets

    return await asyncio.gather(*(read_one() for _ in range(1_000)))


def peak_bytes(racks: Racks, node_id: int) -> int:
    status = Path(f"/proc/{racks.machines[node_id].process_id}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1024


@pytest.mark.timeout(400)
def test_a_thousand_consumers_of_a_rack_share_the_downloads_and_producers_go_on(racks: Racks) -> None:
    write(racks)
    until_sealed(racks)
    leader = racks.leader
    near = racks.other(leader)
    before = peak_bytes(racks, near)
    waits_s: list[float] = []
    is_over = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": racks.machines.bootstrap, "linger.ms": 0})
        while not is_over.is_set():
            began_s = time.monotonic()
            producer.produce(TOPIC, b"meanwhile", partition=0)
            assert producer.flush(60) == 0
            waits_s.append(time.monotonic() - began_s)
            time.sleep(0.05)

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        found = asyncio.run(read_as_a_thousand(racks, leader, near))
    finally:
        is_over.set()
        producing.join()
    assert all(offsets[:READ_BY_EACH] == list(range(READ_BY_EACH)) for offsets in found)
    assert racks.figure(near, "fencepost_engine_brought_bytes_total") < 2 * COUNT * VALUE_BYTES, "once for all"
    grown = peak_bytes(racks, near) - before
    assert grown < 256 * 1024 * 1024, grown
    assert len(waits_s) > 10
    assert max(waits_s) < 10, sorted(waits_s)[-5:]
