"""Produce requests that arrive together are answered and stored like those that come one after the other.

Two brokers get the same requests over a connection each, whose transport is played. To one, whole bursts arrive at
once; the other gets each request when the one before it is answered.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.dispatch import Dispatcher
from fencepost.broker.network.inbox import MIN_PIPELINED
from fencepost.broker.network.receive_buffer import SMALL_CAPACITY_BYTES, BufferPool
from fencepost.broker.network.socket_sender import SendfileSockets
from fencepost.broker.produce.produce_runs import RunResult
from fencepost.broker.requests import request_cache
from fencepost.broker.storage.descriptors import Descriptors
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk, LocalFile
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, EqualLengthFrames, request_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.produce import ProduceResponse
from fencepost.protocol.schema import decode
from fencepost.protocol.shape import ReplyForm
from tests.support import produce_frames
from tests.support.batch_runs import equal_batch, with_byte, with_header
from tests.support.handler_context import NOW_MS, HandlerBroker, open_broker
from tests.support.markers import end_in_log
from tests.support.produce_frames import BY_ID, BY_NAME, OWN_ID

TOPICS = ("orders", "returns", "compacted", "stamped")
PARTITIONS_COUNT = 2
BURSTS_COUNT = 20
TURNS_COUNT = 10
PAGE_CACHE, DURABLE = {"log_flush_interval_messages": 2**31 - 1}, {"log_flush_interval_messages": 1}


class RunDispatcher(Dispatcher):
    """run_counts: the size of each run. looked_at_count: the requests that were passed to `dispatch_run`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.run_counts: list[int] = []
        self.looked_at_count = 0
        self.takes_runs = True

    def dispatch_run(self, frames: EqualLengthFrames, connection: Connection) -> RunResult | None:
        if not self.takes_runs:
            return None
        self.looked_at_count += len(frames.buffer) // frames.frame_bytes
        started = super().dispatch_run(frames, connection)
        if started is not None:
            self.run_counts.append(started.requests_count)
        return started


class PlayedTransport(asyncio.Transport):
    """What the broker writes is kept. What arrives while it does not read comes when it reads again."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.written = bytearray()
        self.writes_count = 0
        self.has_news = asyncio.Event()
        self.readings: list[int] = []
        self._connection = connection
        self._arriving = b""
        self._is_paused = False
        self._is_closing = False

    def arrive(self, content: bytes) -> None:
        self._arriving += content
        self._continue_send()

    def _continue_send(self) -> None:
        while self._arriving and not self._is_paused and not self._is_closing:
            room = self._connection.get_buffer(-1)
            arrived, self._arriving = self._arriving[: len(room)], self._arriving[len(room) :]
            room[: len(arrived)] = arrived
            self.readings.append(len(arrived))
            self._connection.buffer_updated(len(arrived))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 50_000) if name == "peername" else default

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.written += b"".join(list_of_data)
        self.writes_count += 1
        self.has_news.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Everything is taken at once."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        self.has_news.set()

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        asyncio.get_running_loop().call_soon(self._continue_send)


class Client:
    """A connection to a broker."""

    def __init__(self, broker: HandlerBroker) -> None:
        self.broker = broker
        self.refusals: list[str] = []
        loop = asyncio.get_running_loop()
        self.dispatcher = RunDispatcher(broker.services, loop=loop, quotas=broker.services.client_quotas)
        self.pool = BufferPool()
        self.connect()

    def connect(self) -> None:
        """Connect, or connect again with an empty cache."""
        self.connection = Connection(
            1,
            dispatcher=self.dispatcher,
            owner=self,
            limits=self.broker.services.settings,
            pool=self.pool,
            sendfile_sockets=SendfileSockets(Descriptors(1_024), -1),
            loop=asyncio.get_running_loop(),
        )
        self.transport = PlayedTransport(self.connection)
        self.connection.connection_made(self.transport)

    def connection_opened(self, _: Connection) -> bool:
        return True

    def connection_closed(self, _: Connection) -> None:
        """Nobody keeps it."""

    def connection_refused(self, _: Connection, reason: str) -> None:
        self.refusals.append(reason)

    @property
    def together_count(self) -> int:
        return sum(self.dispatcher.run_counts)

    def arrive(self, *frames: bytes) -> None:
        self.transport.arrive(self.addressed(b"".join(frames)))

    def addressed(self, content: bytes) -> bytes:
        return content.replace(OWN_ID, self._topic_id)

    @property
    def _topic_id(self) -> bytes:
        metadata = self.broker.topics.metadata.get("orders")
        return OWN_ID if metadata is None else metadata.topic_id

    async def replies(self, count: int) -> list[bytes]:
        """The first `count` replies, or all if the connection is closed."""
        transport = self.transport
        while len(found := frames_of(transport.written)) < count and not transport.is_closing():
            transport.has_news.clear()
            await asyncio.wait_for(transport.has_news.wait(), 10)
        transport.written.clear()
        return [frame.replace(self._topic_id, OWN_ID) for frame in found]

    async def burst(self, frames: Sequence[bytes], *, cuts: Sequence[int] = ()) -> list[bytes]:
        """The replies to frames that arrive together, or in pieces that end at some places."""
        content = self.addressed(b"".join(frames))
        start = 0
        for end in (*sorted(cuts), len(content)):
            self.transport.arrive(content[start:end])
            start = end
            for _ in range(TURNS_COUNT):
                await asyncio.sleep(0)
        return await self.replies(sum(map(has_reply, frames)))

    async def one_by_one(self, frames: Sequence[bytes]) -> list[bytes]:
        found = []
        for frame in frames:
            self.arrive(frame)
            found += await self.replies(has_reply(frame))
        return found

    async def flush(self) -> None:
        """Make all logs durable, also where no reply waits for it."""
        for name in TOPICS:
            if self.broker.topics.metadata.get(name) is not None:
                for partition in range(PARTITIONS_COUNT):
                    await self.broker.log(name, partition).flushed()

    def stored(self) -> dict[TopicPartition, Any]:
        """Content and state of all logs of the broker."""
        found = {}
        for name in TOPICS:
            metadata = self.broker.topics.metadata.get(name)
            for partition in range(0 if metadata is None else PARTITIONS_COUNT):
                log = self.broker.log(name, partition)
                found[TopicPartition(name, partition)] = (
                    [bytes(segment.batches.log.read(0, segment.size_bytes)) for segment in log.segments],
                    [list(segment.indexes.offset_index.positions) for segment in log.segments],
                    [segment.indexes.time_index.to_bytes() for segment in log.segments],
                    log.producers.snapshot(),
                    (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset),
                )
        return found


def frames_of(content: bytes | bytearray) -> list[bytes]:
    frames = []
    position = 0
    while position < len(content):
        end = position + LENGTH_BYTES + int.from_bytes(content[position : position + LENGTH_BYTES], "big")
        frames.append(bytes(content[position:end]))
        position = end
    return frames


class Unanswered(bytes):
    """A frame of a request that asks for no reply."""


def has_reply(frame: bytes) -> bool:
    return not isinstance(frame, Unanswered)


def produce_frame(records: bytes | None, *, acks: int = -1, **request: Any) -> bytes:
    frame = produce_frames.produce_frame(records, acks=acks, **request)
    return frame if acks else Unanswered(frame)


def other_frame(size_bytes: int, correlation_id: int = 1) -> bytes:
    """A request of another kind that is so long, or one byte more where there is none."""
    for name_bytes in range(max(0, size_bytes - 60), size_bytes):
        request = ApiVersionsRequest(client_software_name="x" * name_bytes, client_software_version="1")
        frame = request_frame(correlation_id, "client", request, 3)
        if len(frame) >= size_bytes:
            return frame
    raise AssertionError


def batch(value: bytes = b"value", **build: Any) -> bytes:
    return equal_batch(value, **{"timestamp_ms": NOW_MS, **build})


def in_sequence(count: int, *, first: int = 0, producer: tuple[int, int] = (9, 0), **build: Any) -> list[bytes]:
    return [batch(producer=producer, base_sequence=first + index * 8, **build) for index in range(count)]


def frames_with(batches: Iterable[bytes], **request: Any) -> list[bytes]:
    return [produce_frame(one, correlation_id=index, **request) for index, one in enumerate(batches)]


def answer(reply: bytes, version: int = BY_NAME) -> Any:
    response = decode(
        ProduceResponse, reply, version, LENGTH_BYTES + 4 + response_header_version(ApiKey.PRODUCE, version)
    )
    return response.responses[0].partition_responses[0]


def errors_of(replies: Iterable[bytes]) -> list[int]:
    return [answer(reply).error_code for reply in replies]


def offsets_of(replies: Iterable[bytes]) -> list[int]:
    return [answer(reply).base_offset for reply in replies]


def end_transaction(
    broker: HandlerBroker, *, producer: tuple[int, int] = (9, 0), partition: int = 0, committed: bool = True
) -> None:
    end_in_log(broker.log("orders", partition), producer[0], producer[1], committed=committed)


@asynccontextmanager
async def connected(directory: Path, **settings: Any) -> AsyncIterator[Client]:
    async with open_broker(directory, **{**PAGE_CACHE, **settings}) as broker:
        await broker.create_topic("orders", PARTITIONS_COUNT)
        await broker.create_topic("returns", PARTITIONS_COUNT, {"index.interval.bytes": "300"})
        await broker.create_topic("compacted", PARTITIONS_COUNT, {"cleanup.policy": "compact"})
        await broker.create_topic("stamped", PARTITIONS_COUNT, {"message.timestamp.type": "LogAppendTime"})
        yield Client(broker)


class Both:
    """The two clients."""

    def __init__(self, together: Client, one_by_one: Client) -> None:
        self.together = together
        self._one_by_one = one_by_one

    @property
    def brokers(self) -> tuple[HandlerBroker, HandlerBroker]:
        return self.together.broker, self._one_by_one.broker

    def pipelined(self) -> Client:
        """The other client, whose requests may arrive together but are started one by one."""
        self._one_by_one.dispatcher.takes_runs = False
        return self._one_by_one

    def connect_where_closed(self) -> None:
        for client in (self.together, self._one_by_one):
            if client.transport.is_closing():
                client.connect()

    async def answers(self, frames: Sequence[bytes], *, cuts: Sequence[int] = ()) -> list[bytes]:
        """The replies to a burst, which are those to the same requests one by one."""
        replies = await self.together.burst(frames, cuts=cuts)
        assert replies == await self._one_by_one.one_by_one(frames)
        return replies

    async def send(self, frames: Sequence[bytes], *, cuts: Sequence[int] = ()) -> list[bytes]:
        """As `answers`; what is stored is the same, too."""
        replies = await self.answers(frames, cuts=cuts)
        await self.together.flush()
        await self._one_by_one.flush()
        assert self.together.stored() == self._one_by_one.stored()
        assert self.together.refusals == self._one_by_one.refusals
        assert self.together.connection.in_flight_count == 0
        return replies


@asynccontextmanager
async def both_connected(directory: Path, **settings: Any) -> AsyncIterator[Both]:
    async with (
        connected(directory / "together", **settings) as together,
        connected(directory / "one by one", **settings) as one_by_one,
    ):
        yield Both(together, one_by_one)


@pytest.fixture(params=[PAGE_CACHE, DURABLE], ids=["page cache", "durable"])
async def both(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Both]:
    async with both_connected(tmp_path, **request.param) as opened:
        yield opened


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Client]:
    async with connected(tmp_path) as client:
        yield client


@pytest.mark.parametrize("version", range(3, 14))
async def test_requests_that_arrive_together_are_appended_together(both: Both, version: int) -> None:
    batches = [batch(bytes([index]) * 20) for index in range(16)]
    await both.send(frames_with(batches[:1] * 2, version=version))
    await both.send(frames_with(batches, version=version))
    # Replies of earlier versions have no start of the log: they are encoded one by one.
    assert both.together.dispatcher.run_counts == ([16] if version >= 5 else [])


async def test_those_behind_the_first_of_a_connection_are_not_looked_at_together_before_the_next_turn(
    both: Both,
) -> None:
    await both.send(frames_with([batch()] * 16))
    assert both.together.dispatcher.run_counts == []


async def test_few_requests_are_not_worth_it(one: Client) -> None:
    await one.burst(frames_with([batch()] * 2))
    await one.burst(frames_with([batch()] * (MIN_PIPELINED - 1)))
    assert one.dispatcher.run_counts == []
    await one.burst(frames_with([batch()] * MIN_PIPELINED))
    assert one.dispatcher.run_counts == [MIN_PIPELINED]


async def test_replies_to_a_run_leave_in_one_write(one: Client) -> None:
    await one.burst(frames_with([batch()] * 2))
    writes_count = one.transport.writes_count
    assert offsets_of(await one.burst(frames_with([batch()] * 16))) == list(range(16, 144, 8))
    assert one.transport.writes_count == writes_count + 1


async def test_correlation_ids_are_those_of_the_requests(both: Both) -> None:
    ids = [0, -1, 2**31 - 1, -(2**31), 5, 5, 4, 3]
    frames = [produce_frame(batch(), correlation_id=correlation_id) for correlation_id in ids]
    await both.send(frames[:1] * 2)
    replies = await both.send(frames)
    assert [int.from_bytes(reply[4:8], "big", signed=True) for reply in replies] == ids
    assert both.together.dispatcher.run_counts == [8]


@pytest.mark.parametrize("producers", [1, 2, 3])
async def test_batches_of_producers_are_checked_one_after_the_other(both: Both, producers: int) -> None:
    await both.send(frames_with([batch()] * 2))
    mixed = [in_sequence(12, producer=(9 + index, 0)) for index in range(producers)]
    replies = await both.send(
        frames_with([mixed[index % producers][index // producers] for index in range(24 if producers > 1 else 12)])
    )
    assert set(errors_of(replies)) == {ErrorCode.NONE}
    again = await both.send(frames_with(mixed[0][-5:]))
    assert set(errors_of(again)) == {ErrorCode.NONE}


async def test_requests_of_changing_producers_are_not_looked_at_again_and_again(one: Client) -> None:
    await one.burst(frames_with([batch()] * 2))
    mixed = [in_sequence(60, producer=(9 + index, 0)) for index in range(2)]
    await one.burst(frames_with([mixed[index % 2][index // 2] for index in range(120)]))
    assert one.dispatcher.looked_at_count < 3 * 120


PLAIN = produce_frame(batch())
TAGGED = PLAIN[:3] + bytes([PLAIN[3] + 4]) + PLAIN[4:-1] + b"\x01\x63\x02ab"


@pytest.mark.parametrize(
    "other",
    [
        produce_frame(batch(), partition=1),
        produce_frame(batch(), partition=7),
        produce_frame(batch(), topic="missed"),
        produce_frame(batch(), topic="returns"),
        produce_frame(batch(), client_id="klient"),
        produce_frame(batch(), client_id=None),
        produce_frame(batch(), acks=1),
        produce_frame(batch(), acks=0),
        produce_frame(batch(), acks=5),
        produce_frame(batch(), version=11),
        produce_frame(batch(), version=9),
        produce_frame(batch(), version=8),
        produce_frame(batch(), transactional_id="application"),
        produce_frame(None),
        produce_frame(b""),
        produce_frame(batch()[:-1]),
        produce_frame(batch() + b"\0"),
        produce_frame(batch(b"another length")),
        produce_frame(batch(codec=Codec.GZIP)),
        produce_frame(with_byte(batch(), 17, 1, is_sealed=False)),
        produce_frame(with_byte(batch(), 16, 1, is_sealed=False)),
        produce_frame(with_byte(batch(), 11, 1, is_sealed=False)),
        produce_frame(with_byte(batch(), 61, 2, is_sealed=True)),
        produce_frame(with_byte(batch(), 100, 1, is_sealed=False)),
        produce_frame(with_header(batch(), records_count=7)),
        produce_frame(with_header(batch(), base_offset=7)),
        produce_frame(with_header(batch(), max_timestamp_ms=2**62)),
        produce_frame(batch(timestamp_ms=NOW_MS + 10**9)),
        produce_frame(batch(producer=(9, 0), base_sequence=-1)),
        produce_frame(batch(producer=(9, 0), base_sequence=5)),
        produce_frame(batch(is_transactional=True, producer=(9, 0), base_sequence=0)),
        other_frame(len(PLAIN)),
        TAGGED,
        PLAIN[:-1] + b"\x01",
        PLAIN[:-3] + b"\x01\x00\x00",
        PLAIN[:3] + b"\x04" + PLAIN[4:],
        PLAIN[:4] + b"\x00\x63" + PLAIN[6:],
        PLAIN[:6] + b"\x00\x63" + PLAIN[8:],
    ],
    ids=[
        "another partition",
        "no such partition",
        "no such topic",
        "another topic",
        "another client id",
        "no client id",
        "acks=1",
        "acks=0",
        "unknown acks",
        "an earlier version",
        "the first version with tags",
        "a version without tags",
        "a transactional id",
        "null records",
        "no records",
        "a part of a batch",
        "more than a batch",
        "another length",
        "compressed",
        "a wrong checksum",
        "another format",
        "another length of the batch",
        "a wrong record",
        "a changed record",
        "a wrong count",
        "a base offset",
        "a greatest time too far ahead",
        "a time too far ahead",
        "no sequence",
        "a producer",
        "a transaction",
        "another kind",
        "a tagged field",
        "a tagged field that is cut off",
        "a tagged field of the partition",
        "a short frame",
        "no such kind",
        "no such version",
    ],
)
async def test_a_request_that_deviates_is_answered_as_if_it_came_alone(tmp_path: Path, other: bytes) -> None:
    async with both_connected(tmp_path) as both:
        for place in (0, 1, 5, 9):
            await both.send([PLAIN] * 2)
            burst = [PLAIN] * 10
            burst[place] = other
            await both.send(burst)
            both.connect_where_closed()
        await both.send([PLAIN] * 6)
        await both.send([other] * 6)


async def test_a_frame_that_is_not_whole_waits(both: Both) -> None:
    await both.send([PLAIN] * 2)
    for cut in (1, 3, 4, 5, 20, len(PLAIN) - 1):
        together_count = both.together.together_count
        replies = await both.send([PLAIN] * 7, cuts=[5 * len(PLAIN) + cut])
        assert len(replies) == 7
        assert both.together.together_count == together_count + 5


async def test_a_batch_of_another_length_between_two_runs(both: Both) -> None:
    longer = produce_frame(batch(b"another length"))
    await both.send([PLAIN] * 2)
    await both.send([*[PLAIN] * 5, *[longer] * 5, *[PLAIN] * 5])
    assert both.together.together_count >= 5


async def test_partitions_in_turns(both: Both) -> None:
    frames = [produce_frame(batch(), partition=partition) for partition in (0, 1)]
    await both.send(frames * 2)
    await both.send(frames * 20)
    await both.send([*frames[:1] * 20, *frames[1:] * 20])


async def test_requests_with_a_quota_are_appended_together_while_they_are_within_it(both: Both) -> None:
    await both.send([PLAIN] * 2)
    for broker in both.brokers:
        await broker.services.client_quotas.change((("client-id", "client"),), {"producer_byte_rate": 1e12})
    await both.send([PLAIN] * 10)
    assert both.together.dispatcher.run_counts == [10]


async def test_a_topic_that_was_created_again_is_not_mistaken_for_the_one_before(both: Both) -> None:
    by_id = produce_frame(batch(), version=BY_ID)
    for frame in (PLAIN, by_id):
        await both.send([frame])
        await both.send([frame] * 6)
        old_id = both.together._topic_id
        for broker in both.brokers:
            await broker.topics.delete("orders")
        gone = await both.answers([frame.replace(OWN_ID, old_id)] * 6)
        version = BY_ID if frame is by_id else BY_NAME
        expected = ErrorCode.UNKNOWN_TOPIC_ID if frame is by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert {answer(reply, version).error_code for reply in gone} == {expected}
        for broker in both.brokers:
            await broker.create_topic("orders", PARTITIONS_COUNT)
        assert answer((await both.send([frame]))[0], version).base_offset == 0
        await both.send([frame] * 6)


async def test_a_changed_config_counts_from_the_next_burst_on(both: Both) -> None:
    await both.send([PLAIN] * 2)
    for config in (
        {"message.timestamp.type": "LogAppendTime"},
        {"cleanup.policy": "compact"},
        {"compression.type": "gzip"},
        {"max.message.bytes": "100"},
        {"segment.bytes": "1048576"},
        {},
    ):
        for broker in both.brokers:
            await broker.topics.alter_configs("orders", config)
        await both.send([PLAIN] * 8)


# Transactions


async def test_batches_of_a_transaction_are_appended_together_once_it_is_open(both: Both) -> None:
    others = in_sequence(2, producer=(8, 0), is_transactional=True)
    await both.send(frames_with(others, transactional_id="application"))
    for broker in both.brokers:
        end_transaction(broker, producer=(8, 0))
    for epoch in range(3):
        transactional = in_sequence(12, producer=(9, epoch), is_transactional=True)
        replies = await both.send(frames_with(transactional[:1], transactional_id="application"))
        replies += await both.send(frames_with(transactional[1:], transactional_id="application"))
        assert set(errors_of(replies)) == {ErrorCode.NONE}
        for broker in both.brokers:
            end_transaction(broker, producer=(9, epoch))
    assert both.together.dispatcher.run_counts == [11, 11, 11]


async def test_a_burst_that_uses_the_sequences_of_an_ended_transaction_again_is_refused(both: Both) -> None:
    transactional = in_sequence(10, is_transactional=True)
    await both.send(frames_with(transactional[:2], transactional_id="application"))
    await both.send(frames_with(transactional[2:], transactional_id="application"))
    for broker in both.brokers:
        end_transaction(broker)
    replies = await both.send(frames_with(transactional[5:], transactional_id="application"))
    assert errors_of(replies) == [ErrorCode.UNKNOWN_PRODUCER_ID] * 5
    assert both.together.dispatcher.run_counts == [8]


@pytest.mark.parametrize(
    "error", [ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTION_ABORTABLE]
)
@pytest.mark.parametrize("version", [11, BY_NAME])
async def test_a_burst_that_opens_a_transaction_is_verified(both: Both, version: int, error: ErrorCode) -> None:
    opening = frames_with(
        in_sequence(2, producer=(8, 0), is_transactional=True), version=version, transactional_id="application"
    )
    await both.send(opening)
    for broker in both.brokers:
        broker.verifier.answers = [error] * 8
    transactional = in_sequence(8, is_transactional=True)
    replies = await both.send(frames_with(transactional, version=version, transactional_id="application"))
    verified = [len(broker.verifier.calls) for broker in both.brokers]
    assert verified[0] == verified[1] > 1
    assert answer(replies[0], version).error_code == error


@pytest.mark.parametrize("producer", [(-1, -1), (-5, 0)])
async def test_transactional_batches_without_a_producer_are_answered_as_if_they_came_alone(
    both: Both, producer: tuple[int, int]
) -> None:
    opening = frames_with(in_sequence(6, is_transactional=True), transactional_id="application")
    await both.send(opening[:2])
    await both.send(opening[2:])
    for broker in both.brokers:
        broker.verifier.answers = [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 20
    without = [batch(is_transactional=True, producer=producer) for _ in range(8)]
    replies = await both.send(frames_with(without, transactional_id="application"))
    assert ErrorCode.NONE not in errors_of(replies)


async def test_batches_without_and_with_a_transaction_do_not_mix(both: Both) -> None:
    await both.send(frames_with(in_sequence(2, producer=(8, 0), is_transactional=True), transactional_id="application"))
    plain = in_sequence(4)
    transactional = in_sequence(4, first=32, is_transactional=True)
    for transactional_id in (None, "application"):
        await both.send(frames_with([*plain, *transactional], transactional_id=transactional_id))
        await both.send(frames_with([*transactional, *plain], transactional_id=transactional_id))


async def test_a_burst_while_the_producer_is_being_verified_waits_for_its_turn(both: Both) -> None:
    first, *rest = frames_with(in_sequence(8, is_transactional=True), transactional_id="application")
    await both.send(frames_with(in_sequence(2, producer=(8, 0), is_transactional=True), transactional_id="application"))
    for broker in both.brokers:
        broker.verifier.is_elsewhere = True
    replies = await both.send([first, *rest])
    assert set(errors_of(replies)) == {ErrorCode.NONE}
    for broker in both.brokers:
        assert broker.services.verifier.waiting == {}


async def test_batches_of_an_open_transaction_are_refused_without_its_id(both: Both) -> None:
    await both.send([PLAIN] * 2)
    transactional = in_sequence(8, is_transactional=True)
    await both.send(frames_with(transactional[:1], transactional_id="application"))
    replies = await both.send(frames_with(transactional[1:]))
    assert set(errors_of(replies)) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


async def test_a_burst_behind_one_that_is_being_verified_for_another_partition_waits_for_its_turn(
    one: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactional = in_sequence(8, is_transactional=True)
    for partition in (0, 1):
        await one.burst(frames_with(transactional[:1], partition=partition, transactional_id="application"))
    end_transaction(one.broker, partition=1)
    may_answer = asyncio.Event()
    verify = one.broker.verifier.verify

    async def verify_later(**call: Any) -> dict[TopicPartition, ErrorCode]:
        await may_answer.wait()
        return await verify(**call)

    monkeypatch.setattr(one.broker.verifier, "verify", verify_later)
    one.arrive(*frames_with(transactional[1:2], partition=1, transactional_id="application"))
    one.arrive(*frames_with(transactional[1:], transactional_id="application"))
    for _ in range(TURNS_COUNT):
        await asyncio.sleep(0)
    assert one.broker.log("orders").log_end_offset == 8
    may_answer.set()
    assert offsets_of(await one.replies(8)) == [9, *range(8, 64, 8)]
    assert one.dispatcher.run_counts == []


# Storage that fails


def fail(*_: object) -> None:
    raise StorageError("the disk is gone")


async def fail_to_sync(*_: object) -> None:
    fail()


async def test_requests_that_cannot_be_written_get_an_error(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = frames_with([batch()] * 8)
    await both.send(frames[:1] * 2)
    with monkeypatch.context() as broken:
        broken.setattr(LocalFile, "append", fail)
        replies = await both.answers(frames)
    assert both.together.dispatcher.run_counts == [1], "the others find the log offline"
    for burst in (replies, await both.answers(frames)):
        assert errors_of(burst) == [ErrorCode.KAFKA_STORAGE_ERROR] * 8


async def test_requests_that_cannot_be_synced_are_all_answered_with_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = frames_with([batch()] * 8)
    async with both_connected(tmp_path, **DURABLE) as both:
        await both.send(frames[:1] * 2)
        replies = []
        for client in (both.together, both.pipelined()):
            with monkeypatch.context() as broken:
                broken.setattr(LocalDisk, "sync", fail_to_sync)
                replies.append(await client.burst(frames))
            replies.append(await client.burst(frames))
        assert both.together.dispatcher.run_counts == [8]
        assert replies[:2] == replies[2:]
        for burst in replies[:2]:
            assert errors_of(burst) == [ErrorCode.KAFKA_STORAGE_ERROR] * 8


async def test_a_run_that_fails_unexpectedly_is_answered_as_its_first_request_would_be(
    one: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.burst([PLAIN] * 2)

    def fail_in_an_unthought_of_way(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(type(one.broker.log("orders")), "append_run", fail_in_an_unthought_of_way)
    errors = errors_of(await one.burst([PLAIN] * 8))
    assert errors == [ErrorCode.UNKNOWN_SERVER_ERROR] + [ErrorCode.NONE] * 7
    assert one.refusals == []
    assert one.broker.log("orders").log_end_offset == 9 * 8


async def test_what_was_appended_and_could_not_be_answered_is_not_written_twice(
    one: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.burst([PLAIN] * 2)
    end_offset = one.broker.log("orders").log_end_offset

    def fail_in_an_unthought_of_way(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    # Not the end of the connection: a client that is not idempotent would send all of it again.
    monkeypatch.setattr(ReplyForm, "write_all", fail_in_an_unthought_of_way)
    assert errors_of(await one.burst([PLAIN] * 8)) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 8
    assert one.refusals == []
    assert one.broker.log("orders").log_end_offset == end_offset + 8 * 8


async def test_what_is_durable_and_could_not_be_answered_is_not_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(tmp_path, **DURABLE) as client:
        await client.burst([PLAIN] * 2)

        def fail_in_an_unthought_of_way(*_: object, **__: object) -> None:
            raise KeyError("a defect")

        with monkeypatch.context() as broken:
            broken.setattr(ReplyForm, "write_all", fail_in_an_unthought_of_way)
            assert errors_of(await client.burst([PLAIN] * 8)) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 8
        assert client.dispatcher.run_counts == [8]
        assert client.refusals == []
        assert errors_of(await client.burst([PLAIN] * 8)) == [ErrorCode.NONE] * 8
        assert client.broker.log("orders").high_watermark == 18 * 8


async def test_a_cache_that_fails_does_not_keep_requests_from_being_answered(
    one: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.burst([PLAIN] * 2)

    def fail_in_an_unthought_of_way(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(request_cache, "_set_records", fail_in_an_unthought_of_way)
    assert offsets_of(await one.burst([PLAIN] * 8)) == list(range(16, 80, 8))
    assert one.refusals == []


# Many at a time


async def test_a_burst_above_the_shared_buffer_is_met_with_a_larger_one_which_goes_back_later(tmp_path: Path) -> None:
    large = produce_frame(batch(bytes(2_000)))
    async with both_connected(tmp_path) as both:
        client = both.together
        await both.send([large] * 2)
        for _ in range(4):
            await both.send([large] * 40)
        assert max(client.transport.readings) > 4 * SMALL_CAPACITY_BYTES
        assert client.dispatcher.run_counts[-1] == 40
        assert client.connection._inbox.buffer is None
        free_bytes = client.pool.free_bytes
        assert free_bytes > SMALL_CAPACITY_BYTES
        for _ in range(20):
            await both.send([PLAIN] * 4)
        assert len(client.connection.get_buffer(-1)) == SMALL_CAPACITY_BYTES
        assert client.pool.free_bytes == free_bytes


@pytest.mark.parametrize("most_count", [1, 2, 5, 64])
async def test_no_more_are_started_in_a_turn_than_may_be_in_flight(tmp_path: Path, most_count: int) -> None:
    frames = frames_with([batch()] * 100)
    async with connected(tmp_path, fencepost_connection_max_in_flight=most_count) as client:
        await client.burst(frames[:1] * 2)
        log = client.broker.log("orders")
        end_offset = log.log_end_offset
        client.arrive(*frames)
        assert log.log_end_offset == end_offset + most_count * 8, "others get their turn"
        assert offsets_of(await client.replies(100)) == list(range(16, 816, 8))


async def test_several_runs_of_a_turn_are_no_more_than_may_be_in_flight(tmp_path: Path) -> None:
    frames = [produce_frame(batch(), partition=partition) for partition in (0, 1)]
    async with connected(tmp_path, fencepost_connection_max_in_flight=20) as client:
        await client.burst(frames * 2)
        client.arrive(*frames[:1] * 10, *frames[1:] * 30)
        assert client.dispatcher.run_counts == [10, 10]
        assert len(await client.replies(40)) == 40


async def test_more_than_a_system_call_writes_are_appended_together(tmp_path: Path) -> None:
    async with both_connected(tmp_path, fencepost_connection_max_in_flight=10_000) as both:
        small = [produce_frame(batch(b"", records_count=6), correlation_id=index) for index in range(3_000)]
        await both.send(small[:1] * 2)
        for _ in range(2):
            await both.send(small)
        assert max(both.together.dispatcher.run_counts) > 1_024


def hold_back_syncs(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Nothing reaches the disk until the event is set."""
    may_sync = asyncio.Event()
    sync = LocalDisk.sync

    async def sync_later(*arguments: Any, **options: Any) -> Any:
        await may_sync.wait()
        return await sync(*arguments, **options)

    monkeypatch.setattr(LocalDisk, "sync", sync_later)
    return may_sync


async def test_runs_that_wait_for_the_disk_are_answered_in_order_with_what_is_around_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(tmp_path, **DURABLE) as client:
        await client.burst([produce_frame(batch()), produce_frame(batch(), partition=1)] * 2)
        may_sync = hold_back_syncs(monkeypatch)
        frames = [
            *frames_with([batch()] * 6),
            other_frame(len(PLAIN), 100),
            produce_frame(with_byte(batch(), 17, 1, is_sealed=False), correlation_id=101),
            *[produce_frame(batch(), partition=1, correlation_id=200 + index) for index in range(3)],
        ]
        client.arrive(*frames)
        client.arrive(*[produce_frame(batch(), partition=1, correlation_id=300 + index) for index in range(5)])
        client.arrive(other_frame(len(PLAIN), 400))
        for _ in range(TURNS_COUNT):
            await asyncio.sleep(0)
        assert not client.transport.written, "the first waits, and so do all behind it"
        assert client.dispatcher.run_counts == [6, 5]
        assert client.connection.in_flight_count == 1 + 2 + 3 + 1 + 1, "a run counts as one"
        may_sync.set()
        replies = await client.replies(len(frames) + 6)
        ids = [int.from_bytes(reply[4:8], "big") for reply in replies]
        assert ids == [*range(6), 100, 101, *range(200, 203), *range(300, 305), 400]


async def test_a_client_that_leaves_while_its_run_waits_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(tmp_path, **DURABLE) as client:
        await client.burst([PLAIN] * 2)
        may_sync = hold_back_syncs(monkeypatch)
        client.arrive(*[PLAIN] * 6)
        client.connection.connection_lost(None)
        may_sync.set()
        log = client.broker.log("orders")
        await log.flushed()
        assert log.high_watermark == 8 * 8
        assert not client.transport.written


# By chance


class Bursts:
    """Frames that mostly are alike, with others between them now and then."""

    def __init__(self, seed: int) -> None:
        self._choose = choose = random.Random(seed)
        self._version = choose.choice((9, 11, BY_NAME, BY_NAME, BY_ID))
        self._sequences: dict[tuple[str, int, int], int] = {}
        self._correlation_id = choose.randrange(-(2**31), 2**31)

    def burst(self) -> list[bytes]:
        choose = self._choose
        topic = choose.choice(("orders", "orders", "orders", *TOPICS)) if self._version < BY_ID else "orders"
        shape = {
            "records_count": choose.choice((6, 8, 70)),
            "key": choose.choice((None, b"key")),
            "step_ms": choose.choice((0, 0, 1)),
        }
        value_bytes = choose.choice((0, 20, 100, 1_000))
        producer_id = choose.choice((-1, -1, 5, 6))
        is_transactional = producer_id == 6
        deviation = choose.choice((0, 0, 0.05, 0.3))
        frames: list[bytes] = []
        for _ in range(choose.choice((1, 3, 4, 6, 12, 40))):
            if choose.random() < deviation:
                frames.append(self._deviant(topic, value_bytes, shape, len(frames[-1]) if frames else 200))
            else:
                records = self._batch(topic, 0, producer_id, value_bytes, is_transactional, shape)
                frames.append(
                    self._frame(records, topic=topic, transactional_id="application" if is_transactional else None)
                )
        return frames

    def _frame(self, records: bytes | None, **request: Any) -> bytes:
        choose = self._choose
        self._correlation_id += 1
        if not choose.randrange(10):
            self._correlation_id = choose.randrange(-(2**31), 2**31)
        correlation_id = (self._correlation_id + 2**31) % 2**32 - 2**31
        return produce_frame(records, correlation_id=correlation_id, **{"version": self._version, **request})

    def _batch(
        self,
        topic: str,
        partition: int,
        producer_id: int,
        value_bytes: int,
        is_transactional: bool,
        shape: dict[str, Any],
    ) -> bytes:
        choose = self._choose
        timestamp_ms = NOW_MS + choose.choice((0, 0, 1, -7, choose.randrange(1_000)))
        value = choose.randbytes(value_bytes)
        if producer_id < 0:
            return batch(value, timestamp_ms=timestamp_ms, **shape)
        key = (topic, partition, producer_id)
        sequence = self._sequences.get(key, 0)
        if not choose.randrange(25):
            sequence = max(-1, sequence + choose.choice((-1, 1, -2, -9)) * shape["records_count"])
        else:
            self._sequences[key] = sequence + shape["records_count"]
        return batch(
            value,
            timestamp_ms=timestamp_ms,
            producer=(producer_id, 0),
            base_sequence=sequence,
            is_transactional=is_transactional,
            **shape,
        )

    def _deviant(self, topic: str, value_bytes: int, shape: dict[str, Any], size_bytes: int) -> bytes:
        choose = self._choose
        plain = self._batch(topic, 0, -1, value_bytes, False, shape)
        match choose.randrange(13):
            case 0:
                return self._frame(plain, topic=topic, partition=1)
            case 1:
                return self._frame(plain, topic=topic, client_id="klient")
            case 2:
                return self._frame(plain, topic=topic, acks=choose.choice((1, 0)))
            case 3:
                return self._frame(
                    plain, topic=topic, version=choose.choice((9, 11, 12)) if self._version < BY_ID else BY_ID
                )
            case 4:
                position = choose.choice((*range(8), *range(12, len(plain))))
                change = choose.randrange(1, 256)
                return self._frame(with_byte(plain, position, change, is_sealed=choose.random() < 0.5), topic=topic)
            case 5:
                return other_frame(min(max(size_bytes, 60), 32_000), choose.randrange(1_000))
            case 6:
                return self._frame(self._batch(topic, 0, 5, value_bytes, False, shape), topic=topic)
            case 7:
                return self._frame(self._batch(topic, 0, 7, value_bytes, False, shape), topic=topic)
            case 8:
                return self._frame(
                    self._batch(topic, 0, 7, value_bytes, True, shape), topic=topic, transactional_id="application"
                )
            case 9:
                return self._frame(self._batch(topic, 0, 7, value_bytes, True, shape), topic=topic)
            case 10:
                return self._frame(choose.choice((None, b"", plain[:-1], plain * 2)), topic=topic)
            case 11:
                return self._frame(plain, topic=topic, transactional_id="application")
        return self._frame(batch(choose.randbytes(value_bytes + 1), **shape), topic=topic)

    def cuts(self, frames: Sequence[bytes]) -> list[int]:
        choose = self._choose
        return [choose.randrange(sum(map(len, frames))) for _ in range(choose.choice((0, 0, 1, 3)))]


@pytest.mark.parametrize("settings", [PAGE_CACHE, DURABLE], ids=["page cache", "durable"])
@pytest.mark.parametrize("seed", range(10))
async def test_bursts_are_answered_and_stored_like_single_requests(
    tmp_path: Path, seed: int, settings: dict[str, Any]
) -> None:
    bursts = Bursts(seed)
    choose = random.Random(-1 - seed)
    configs = ({"message.timestamp.type": "LogAppendTime"}, {"max.message.bytes": "700"}, {"compression.type": "gzip"})
    most_count = choose.choice((3, 20, 128, 128))
    async with both_connected(tmp_path, fencepost_connection_max_in_flight=most_count, **settings) as both:
        for _ in range(BURSTS_COUNT):
            topic = choose.choice(TOPICS)
            config = choose.choice((*configs, {}))
            step = choose.randrange(12)
            verified = choose.choice((ErrorCode.NONE,) * 5 + (ErrorCode.TRANSACTION_ABORTABLE,))
            for broker in both.brokers:
                broker.verifier.answers = [verified]
                if step == 0:
                    await broker.topics.delete(topic)
                    await broker.create_topic(topic, PARTITIONS_COUNT)
                elif step == 1:
                    await broker.topics.alter_configs(topic, config)
                elif step == 2:
                    broker.clock.time_ms += 10
                elif step in (3, 4, 5):
                    end_transaction(broker, producer=(6, 0), committed=step == 3)
                elif step == 6:
                    await broker.topics.delete_records({TopicPartition(topic, 0): 3})
            frames = bursts.burst()
            await both.send(frames, cuts=bursts.cuts(frames))
        assert both.together.together_count >= BURSTS_COUNT // 4
