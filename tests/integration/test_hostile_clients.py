"""Hostile and buggy clients: every request class of every version, by structure and by bytes, on real sockets.

What they get is Kafka's error or a closed connection. The broker neither crashes nor logs an internal failure, takes
no memory for what they only announce, and a witness that works beside them notices nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.node import Node
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from fencepost.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from fencepost.protocol.record_batch import Record, build_batch, check_crc, iterate_batches
from fencepost.protocol.schema import decode
from tests.support.broker_process import BrokerProcess
from tests.support.captured_events import capture_logs
from tests.support.hostile_clients import Caller, Witness, attack, victims, watched
from tests.support.hostile_requests import HostileRequests
from tests.support.wire import WireConnection, frame, request_frame

SEED = 20_261_121
SLOWEST_REPLY_S = 30.0  # many times what it takes, for machines that are busy with other things
LEAST_ROUNDS = 3  # of the witness during an attack
MOST_FURTHER_ATTACKS = 10
SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("hostile") / "data", settings=SETTINGS) as process:
        yield process
        assert process.is_running, process.output
        assert_nothing_failed(process)


@pytest.fixture
def fresh_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One whose memory no other test has a part in."""
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as process:
        assert_serves(process)  # what is loaded with the first request is in memory now
        yield process
        assert_nothing_failed(process)


def assert_nothing_failed(process: BrokerProcess) -> None:
    """A refusal is a warning at most; an error in the log is a failure of the broker's own."""
    lines = process.output.splitlines()
    wrong = [number for number, line in enumerate(lines) if "[error" in line or "Traceback" in line]
    assert not wrong, "\n".join(lines[wrong[0] : wrong[0] + 60])


def assert_undisturbed(witness: Witness, *, least_rounds: int) -> None:
    assert witness.rounds >= least_rounds
    assert witness.slowest_s < SLOWEST_REPLY_S


async def assail(host: str, port: int, requests: HostileRequests, witness: Witness, *, rounds: int) -> int:
    """Attack, and go on while a busy disk lets the witness do less than it shall. Returns how many frames went out."""
    sent = await attack(host, port, requests, rounds=rounds)
    for _ in range(MOST_FURTHER_ATTACKS):
        if witness.rounds >= LEAST_ROUNDS:
            break
        sent += await attack(host, port, requests, rounds=1)
    return sent


async def assail_process(process: BrokerProcess, seed: int, rounds: int) -> int:
    topic_ids = await victims(process.host, process.port)
    async with watched(process.host, process.port) as witness:
        sent = await assail(process.host, process.port, HostileRequests(seed, topic_ids), witness, rounds=rounds)
    assert_undisturbed(witness, least_rounds=LEAST_ROUNDS)
    return sent


async def assail_node(directory: Path, seed: int, rounds: int) -> list[dict[str, Any]]:
    """Attack a node in this process; returns what it logged."""
    node = Node(
        Settings(
            log_dirs=str(directory),
            listeners=("PLAINTEXT://127.0.0.1:0",),
            transaction_state_log_num_partitions=2,
            offsets_topic_num_partitions=2,
            fencepost_shutdown_drain_ms=500,
        )
    )
    with capture_logs() as logged:
        await node.start()
        try:
            _, host, port = node.address
            topic_ids = await victims(host, port)
            async with watched(host, port) as witness:
                await assail(host, port, HostileRequests(seed, topic_ids), witness, rounds=rounds)
        finally:
            await node.stop()
    assert_undisturbed(witness, least_rounds=LEAST_ROUNDS)
    return [dict(event) for event in logged]


def assert_no_failures(logged: list[dict[str, Any]]) -> None:
    failures = [event for event in logged if event["log_level"] in ("error", "critical") or "exc_info" in event]
    assert not failures, failures[:3]


def test_a_broker_survives_every_request_of_every_version(broker: BrokerProcess) -> None:
    before_bytes = broker.resident_bytes()
    asyncio.run(assail_process(broker, SEED, rounds=2))
    assert broker.resident_bytes() - before_bytes < 150_000_000
    assert_nothing_failed(broker)


async def test_a_node_logs_no_failure_under_any_request(tmp_path: Path) -> None:
    assert_no_failures(await assail_node(tmp_path, SEED + 1, rounds=1))


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(5))
def test_a_broker_survives_a_flood_of_requests(broker: BrokerProcess, seed: int) -> None:
    before_bytes = broker.resident_bytes()
    asyncio.run(assail_process(broker, seed, rounds=40))
    assert broker.resident_bytes() - before_bytes < 300_000_000
    assert_nothing_failed(broker)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(100, 103))
async def test_a_node_logs_no_failure_under_very_many_requests(tmp_path: Path, seed: int) -> None:
    assert_no_failures(await assail_node(tmp_path, seed, rounds=20))


@pytest.mark.parametrize("announced_bytes", [2**31 - 1, 100 * 1024 * 1024], ids=["too large", "as large as allowed"])
def test_a_length_alone_takes_no_memory(fresh_broker: BrokerProcess, announced_bytes: int) -> None:
    before_bytes = fresh_broker.peak_resident_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(WireConnection(fresh_broker.host, fresh_broker.port))
            with contextlib.suppress(ConnectionError):
                connection.send(struct.pack(">i", announced_bytes) + b"\0\x03\0\x01\0\0\0\x01" + bytes(1_000))
        assert_serves(fresh_broker)
        # 200 requests of 100 MiB would be 20 GiB.
        assert fresh_broker.peak_resident_bytes() - before_bytes < 100_000_000


def test_a_count_alone_takes_no_memory(fresh_broker: BrokerProcess) -> None:
    before_bytes = fresh_broker.peak_resident_bytes()
    for _ in range(50):
        with WireConnection(fresh_broker.host, fresh_broker.port) as connection:
            header = struct.pack(">hhih", 3, 1, 1, -1)
            connection.send(struct.pack(">i", len(header) + 4) + header + struct.pack(">i", 2**31 - 1))
            assert connection.is_closed_by_peer()
    assert fresh_broker.peak_resident_bytes() - before_bytes < 20_000_000


def test_slow_senders_do_not_disturb_other_clients(broker: BrokerProcess) -> None:
    asyncio.run(_send_slowly(broker))
    assert_nothing_failed(broker)


async def _send_slowly(broker: BrokerProcess) -> None:
    """Fifty clients that send a request byte by byte, all the while, and get their answers."""
    slow = request_frame(MetadataRequest(topics=[]), 12)

    async def dribble() -> None:
        reader, writer = await asyncio.open_connection(broker.host, broker.port)
        for position in range(len(slow)):
            writer.write(slow[position : position + 1])
            await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            assert await reader.readexactly(4)
        writer.close()

    async with watched(broker.host, broker.port) as witness:
        await asyncio.gather(*(dribble() for _ in range(50)))
    assert_undisturbed(witness, least_rounds=1)


def test_large_replies_to_clients_that_do_not_read_take_little_memory_and_are_whole(broker: BrokerProcess) -> None:
    now_ms = time.time_ns() // 1_000_000  # retention deletes what is older, also while it is being sent
    batch = bytes(build_batch([Record(0, now_ms, None, b"v" * 900_000)]))
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(WireConnection(broker.host, broker.port)) for _ in range(30)]
        writer = connections[0]
        topics = CreateTopicsRequest(topics=[CreatableTopic(name="large", num_partitions=1, replication_factor=1)])
        writer.call(topics, CreateTopicsResponse, 5, flexible_header=True)
        sent = PartitionProduceData(index=0, records=batch)
        write = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="large", partition_data=[sent])])
        for _ in range(40):
            written = writer.call(write, ProduceResponse, 9, flexible_header=True)
            assert written.responses[0].partition_responses[0].error_code == 0
        before_bytes = broker.resident_bytes()
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000_000)
        fetch = FetchRequest(max_bytes=50_000_000, topics=[FetchTopic(topic="large", partitions=[wanted])])
        for connection in connections:
            connection.send(request_frame(fetch, 11))
        assert_serves(broker)
        # Thirty times 36 MB would be 1,080.
        assert broker.resident_bytes() - before_bytes < 400_000_000
        for connection in connections[:3]:
            reply = connection.receive_frame()
            assert reply is not None
            (partition,) = decode(FetchResponse, reply, 11, 4).responses[0].partitions
            batches = list(iterate_batches(memoryview(partition.records or b"")))
            assert [found.header.base_offset for found in batches] == list(range(40))
            assert all(check_crc(found.buffer) for found in batches)


def test_half_open_connections_do_not_disturb_other_clients(broker: BrokerProcess) -> None:
    """Clients that closed their own direction, and such that never say or read anything."""
    whole = request_frame(MetadataRequest(topics=None), 12)
    with contextlib.ExitStack() as stack:
        for number in range(300):
            connection = stack.enter_context(WireConnection(broker.host, broker.port))
            if number % 3:
                connection.send(whole if number % 3 == 1 else whole[:9])
            if number % 2:
                connection.socket.shutdown(socket.SHUT_WR)
        asyncio.run(_work_a_while(broker))
    assert_serves(broker)


async def _work_a_while(broker: BrokerProcess) -> None:
    async with watched(broker.host, broker.port) as witness:
        await asyncio.sleep(0.5)
    assert_undisturbed(witness, least_rounds=1)


def test_very_many_small_elements_in_one_request_do_not_disturb_other_clients(broker: BrokerProcess) -> None:
    """Ten thousand topics of one character: an answer, and no memory kept."""
    before_bytes = broker.resident_bytes()
    topics = [MetadataRequestTopic(name=f"{number:x}") for number in range(10_000)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    async def ask() -> None:
        caller = await Caller.connect(broker.host, broker.port)
        async with watched(broker.host, broker.port) as witness:
            for _ in range(5):
                reply = await caller.call(request, 9)
                assert len(reply.topics) == len(topics)
        assert_undisturbed(witness, least_rounds=1)
        caller.close()

    asyncio.run(ask())
    assert broker.resident_bytes() - before_bytes < 100_000_000


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        pytest.param(3, 1, struct.pack(">i", 1_000_000) + bytes(2_000_000), id="a million topics"),
        pytest.param(
            9,
            1,
            b"\0\x01g" + struct.pack(">i", 10) + (b"\0\x01t" + struct.pack(">i", 100_000) + bytes(400_000)) * 10,
            id="a million partitions of ten topics",
        ),
        pytest.param(3, 9, b"\x01\0\0\0\xc0\x84\x3d" + bytes(2_000_000), id="a million tagged fields"),
    ],
)
def test_an_absurd_number_of_elements_closes_the_connection_at_once(
    broker: BrokerProcess, key: int, version: int, body: bytes
) -> None:
    started_s = time.monotonic()
    with WireConnection(broker.host, broker.port) as connection:
        connection.send(frame(key, version, body))
        assert connection.is_closed_by_peer()
    assert_serves(broker)
    assert time.monotonic() - started_s < SLOWEST_REPLY_S


def test_a_readable_header_with_an_unreadable_body_closes_the_connection(broker: BrokerProcess) -> None:
    header = struct.pack(">hhih", ProduceRequest.api_key, 3, 1, 1) + b"x"  # type: ignore[attr-defined]  # set by @message
    with WireConnection(broker.host, broker.port) as connection:
        connection.send(struct.pack(">i", len(header) + 3) + header + b"\xff\xff\xff")
        assert connection.is_closed_by_peer()
    assert_serves(broker)


def test_requests_before_one_that_cannot_be_read_are_answered(broker: BrokerProcess) -> None:
    good = request_frame(MetadataRequest(topics=[]), 12)
    bad = struct.pack(">ihhih", 10, 3, 12, 2, 32_000)
    with WireConnection(broker.host, broker.port) as connection:
        connection.send(good + good + bad)
        assert connection.receive_frame() is not None
        assert connection.receive_frame() is not None
        assert connection.receive_frame() is None


def assert_serves(broker: BrokerProcess) -> None:
    started_s = time.monotonic()
    with WireConnection(broker.host, broker.port) as other:
        other.send(request_frame(MetadataRequest(topics=[]), 12))
        assert other.receive_frame() is not None
    assert time.monotonic() - started_s < SLOWEST_REPLY_S
