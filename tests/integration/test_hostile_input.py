"""Bad input over real sockets: Kafka's error or a closed connection, nothing in a log, nobody else disturbed."""

from __future__ import annotations

import asyncio
import random
import resource
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from fencepost.broker.handlers import APIS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataResponse
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from fencepost.protocol.record_batch import Record, build_batch
from fencepost.protocol.schema import encode
from tests.support.broker_process import BrokerProcess
from tests.support.wire import WireConnection, frame, request_frame


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[WireConnection]:
    with WireConnection(broker.host, broker.port) as opened:
        yield opened


def assert_serves(broker: BrokerProcess) -> None:
    with WireConnection(broker.host, broker.port) as other:
        answer = other.call(ApiVersionsRequest(), ApiVersionsResponse, 0, flexible_header=False)
        assert answer.error_code == 0


@pytest.mark.parametrize(
    "content",
    [
        struct.pack(">i", -1) + b"x" * 32,
        struct.pack(">i", 2**31 - 1) + b"x" * 32,
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 10, 3, 12, 1, 32_000),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
    ],
    ids=["negative length", "absurd length", "empty", "too short", "client id too long", "http", "tls"],
)
def test_bytes_that_are_no_request_close_the_connection(
    broker: BrokerProcess, connection: WireConnection, content: bytes
) -> None:
    connection.send(content)
    assert connection.is_closed_by_peer()
    assert_serves(broker)


@pytest.mark.parametrize(("api_key", "version"), [(9_999, 0), (-1, 0), (3, 999), (3, -1), (1, 3), (0, 99), (4, 0)])
def test_an_unknown_key_or_version_closes_the_connection(
    broker: BrokerProcess, connection: WireConnection, api_key: int, version: int
) -> None:
    header = struct.pack(">hhih", api_key, version, 1, 1) + b"x"
    connection.send(struct.pack(">i", len(header) + 8) + header + b"\x00" * 8)
    assert connection.is_closed_by_peer()
    assert_serves(broker)


def test_an_unknown_version_of_api_versions_is_answered_with_the_versions_there_are(connection: WireConnection) -> None:
    connection.send(frame(18, 9, b"\xff" * 20))
    reply = connection.receive_frame()
    assert reply is not None
    correlation_id, error, count, key, minimum, maximum = struct.unpack(">ihihhh", reply)
    assert (correlation_id, error, count, key, minimum) == (1, ErrorCode.UNSUPPORTED_VERSION, 1, 18, 0)
    assert maximum >= 3
    answer = connection.call(ApiVersionsRequest(), ApiVersionsResponse, 0, flexible_header=False)
    assert answer.error_code == 0


def test_a_truncated_body_closes_the_connection(broker: BrokerProcess, connection: WireConnection) -> None:
    whole = request_frame(MetadataRequest(topics=None), 12)
    connection.send(struct.pack(">i", len(whole) - 4 - 2) + whole[4:-2])
    assert connection.is_closed_by_peer()
    assert_serves(broker)


def test_a_connection_cut_in_the_middle_of_a_frame_does_not_disturb_others(broker: BrokerProcess) -> None:
    whole = request_frame(MetadataRequest(topics=None), 12)
    for length in range(1, len(whole)):
        with WireConnection(broker.host, broker.port) as cut:
            cut.send(whole[:length])
    assert_serves(broker)


def batch(count: int = 3) -> bytearray:
    return build_batch([Record(number, 1_700_000_000_000, b"k", b"v" * 20, ()) for number in range(count)])


def corrupt(position: int, content: bytes, *, fix_crc: bool = True) -> bytes:
    """A batch with some bytes replaced; with its CRC made right again, the lie is inside."""
    from crc32c import crc32c

    damaged = batch()
    damaged[position : position + len(content)] = content
    if fix_crc:
        damaged[17:21] = struct.pack(">I", crc32c(bytes(damaged[21:])))
    return bytes(damaged)


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (corrupt(70, b"\x00\x00", fix_crc=False), ErrorCode.CORRUPT_MESSAGE),
        (corrupt(57, struct.pack(">i", 1_000_000)), ErrorCode.INVALID_RECORD),
        (corrupt(57, struct.pack(">i", 2)), ErrorCode.INVALID_RECORD),
        (corrupt(57, struct.pack(">i", -3)), ErrorCode.INVALID_RECORD),
        (corrupt(23, struct.pack(">i", 1_000_000)), ErrorCode.INVALID_RECORD),
        (corrupt(16, b"\x01"), ErrorCode.INVALID_RECORD),
        (corrupt(21, b"\x00\x20"), ErrorCode.INVALID_RECORD),
        (corrupt(61, b"\xff\xff\xff\xff\x0f"), ErrorCode.INVALID_RECORD),
        (bytes(batch()) + bytes(batch()), ErrorCode.INVALID_RECORD),
        (bytes(batch())[:-5], ErrorCode.CORRUPT_MESSAGE),
        (b"\x00" * 10, ErrorCode.CORRUPT_MESSAGE),
        (b"", ErrorCode.INVALID_RECORD),
    ],
    ids=[
        "wrong crc",
        "count too large",
        "count too small",
        "negative count",
        "offset delta too large",
        "old magic",
        "control batch",
        "hostile varint",
        "two batches",
        "cut batch",
        "shorter than a header",
        "no batch",
    ],
)
def test_a_bad_batch_is_refused_and_leaves_the_log_untouched(
    broker: BrokerProcess, connection: WireConnection, records: bytes, error: ErrorCode
) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    producer.send("guarded", b"first", partition=0).get(timeout=60)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)
    partition = TopicPartition("guarded", 0)
    before = consumer.end_offsets([partition])[partition]
    answer = connection.call(
        ProduceRequest(
            acks=-1,
            timeout_ms=1_000,
            topic_data=[
                TopicProduceData(name="guarded", partition_data=[PartitionProduceData(index=0, records=records)])
            ],
        ),
        ProduceResponse,
        9,
        flexible_header=True,
    )
    (topic,) = answer.responses
    (refused,) = topic.partition_responses
    assert ErrorCode(refused.error_code) in {error, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}
    assert refused.base_offset == -1
    assert consumer.end_offsets([partition])[partition] == before
    consumer.close()


def test_requests_of_every_api_with_damaged_bytes_never_hurt_the_broker(broker: BrokerProcess) -> None:
    """Every request class, with bytes changed, cut and inserted by a seeded generator."""
    generator = random.Random(20_131_231)  # seeded, so that a failure repeats
    frames = [damaged for api in APIS.values() for damaged in _damaged_frames(generator, api.key)]
    generator.shuffle(frames)
    asyncio.run(_send_all(broker, frames))
    assert_serves(broker)
    assert "Traceback" not in broker.output, broker.output[-5_000:]


def _damaged_frames(generator: random.Random, api_key: int) -> list[bytes]:
    api = APIS[api_key]
    frames = []
    for version in range(api.minimum_version, api.maximum_version + 1):
        body = bytearray(encode(api.request(), version))
        for _ in range(12):
            damaged = bytearray(body)
            for _ in range(generator.randrange(1, 4)):
                place = generator.randrange(len(damaged) + 1)
                kind = generator.randrange(4)
                if kind == 0 and place < len(damaged):
                    damaged[place] = generator.randrange(256)
                elif kind == 1:
                    damaged[place:place] = generator.randbytes(generator.randrange(1, 9))
                elif kind == 2:
                    del damaged[place:]
                else:
                    damaged[place:place] = generator.choice(
                        [b"\xff\xff\xff\xff\x7f", b"\x80" * 11, b"\x7f\xff\xff\xff"]
                    )
            frames.append(frame(api_key, version, bytes(damaged)))
    return frames


async def _send_all(broker: BrokerProcess, frames: list[bytes]) -> None:
    slots = asyncio.Semaphore(40)

    async def send(content: bytes) -> None:
        async with slots:
            reader, writer = await asyncio.open_connection(broker.host, broker.port)
            writer.write(content)
            try:
                # A request that was still whole may rightly wait (a long poll): nobody has to answer it here.
                await asyncio.wait_for(reader.read(4), 0.05)
            except (TimeoutError, ConnectionError):
                pass
            finally:
                writer.close()

    await asyncio.gather(*(send(content) for content in frames))


def test_a_client_that_never_reads_its_replies_is_held_back(broker: BrokerProcess) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=5)
    for _ in range(400):
        producer.send("large", b"x" * 50_000, partition=0)
    producer.flush()
    producer.close()
    before = broker.resident_bytes()
    fetch = request_frame(
        FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=50_000_000,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic="large",
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=20_000_000)],
                )
            ],
        ),
        12,
    )
    with WireConnection(broker.host, broker.port) as greedy:
        greedy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        greedy.socket.settimeout(1.0)
        try:
            for _ in range(2_000):
                greedy.send(fetch)
        except (TimeoutError, ConnectionError):
            pass
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            assert_serves(broker)
        # 2,000 replies of 20 MB would be 40 GB.
        assert broker.resident_bytes() - before < 400_000_000
    assert_serves(broker)


def test_ten_thousand_idle_connections_are_carried(broker: BrokerProcess) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 10_000
    if hard < count + 500:
        count = hard - 500
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count + 400)), hard))
    idle: list[socket.socket] = []
    try:
        while len(idle) < count:
            idle.append(socket.create_connection((broker.host, broker.port), timeout=60))
        with WireConnection(broker.host, broker.port) as busy:
            answer = busy.call(MetadataRequest(topics=[]), MetadataResponse, 12, flexible_header=True)
            assert len(answer.brokers) == 1
    finally:
        for opened in idle:
            opened.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert_serves(broker)
