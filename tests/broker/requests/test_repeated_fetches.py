"""Cached Fetch requests are answered like decoded ones.

What is compared comes from one broker: from a client that stays connected, and from one that connects again for each
frame, so that its cache is empty. Only clients with sessions are compared between two brokers, whose sessions have the
same ids.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.requests.fetch_sessions import FetchSessionCache
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalFile
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, request_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from fencepost.protocol.record_batch import iterate_batches, read_records
from fencepost.protocol.schema import decode
from fencepost.protocol.shape import ReplyForm
from tests.support.handler_context import NOW_MS, HandlerBroker, batch, open_broker
from tests.support.known_requests import FrameClient
from tests.support.markers import end_in_log
from tests.support.produce_frames import OWN_ID

BY_NAME, BY_ID = 12, 16
LONG_MS = 60_000
READ_COMMITTED = 1
STEPS_COUNT = 300


class Served:
    """A broker, with a client that has a request cache and a stranger whose cache stays empty.

    orders: the id of the topic to read.
    """

    def __init__(self, broker: HandlerBroker) -> None:
        self.broker = broker
        self.client = FrameClient(broker.services)
        self.stranger = FrameClient(broker.services)

    @property
    def orders(self) -> bytes:
        return self.broker.topic_id("orders")

    @property
    def known_count(self) -> int:
        assert self.stranger.known_count == 0
        return self.client.known_count

    async def fetched(self, frame: bytes) -> bytes | str | None:
        """What the client is answered, which is what the stranger is answered."""
        self.stranger.connect_again()
        known, decoded = await asyncio.gather(self.client.send(frame), self.stranger.send(frame))
        assert known == decoded
        return known

    def log(self, partition: int = 0) -> PartitionLog:
        return self.broker.log("orders", partition)

    async def append(self, *values: bytes, partition: int = 0, **build: Any) -> None:
        log = self.log(partition)
        assert log.append(memoryview(batch(*values, **build)), now_ms=NOW_MS).error is ErrorCode.NONE
        await log.flushed()

    async def transaction(self, value: bytes, *, committed: bool | None, producer_id: int = 5) -> None:
        """One record; None leaves it open."""
        log = self.log()
        sent = batch(value, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
        guard: Any = log.begin_verification(producer_id, 0, 0, transaction_version_2=False)
        assert log.append(memoryview(sent), now_ms=NOW_MS, guard=guard).error is ErrorCode.NONE
        if committed is not None:
            self.end_transaction(producer_id, committed=committed)
        await log.flushed()

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        end_in_log(self.log(), producer_id, committed=committed)

    async def both_wait(self, frame: bytes) -> asyncio.Future[Any]:
        """Both are sent a fetch that finds too little."""
        waiting = asyncio.ensure_future(self.fetched(frame))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        return waiting


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with open_broker(tmp_path) as broker:
        await broker.create_topic("orders", 3)
        yield Served(broker)


def fetch_frame(
    offset: int,
    *,
    partition: int = 0,
    topic: str = "orders",
    topic_id: bytes = bytes(16),
    version: int = BY_NAME,
    correlation_id: int = 1,
    client_id: str | None = "client",
    partition_max_bytes: int = 1_000_000,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    others: Sequence[int] = (),
    **fields: Any,
) -> bytes:
    """others: further partitions."""
    requested = [
        FetchPartition(
            partition=index,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
        )
        for index in (partition, *others)
    ]
    topics = [FetchTopic(topic=topic, topic_id=topic_id, partitions=requested)]
    request = FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 10_000_000, "topics": topics, **fields})
    return request_frame(correlation_id, client_id, request, version)


def response_in(reply: bytes | str | None, version: int = BY_NAME) -> FetchResponse:
    assert isinstance(reply, bytes)
    assert len(reply) == LENGTH_BYTES + int.from_bytes(reply[:LENGTH_BYTES], "big")
    return decode(FetchResponse, reply, version, LENGTH_BYTES + 4 + response_header_version(ApiKey.FETCH, version))


def answers(reply: bytes | str | None, version: int = BY_NAME) -> list[PartitionData]:
    return [partition for topic in response_in(reply, version).responses for partition in topic.partitions]


def answer(reply: bytes | str | None, version: int = BY_NAME) -> PartitionData:
    (found,) = answers(reply, version)
    return found


def values(found: PartitionData) -> list[bytes | None]:
    return [record.value for one in iterate_batches(found.records or b"") for record in read_records(one)]


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("isolation_level", [0, READ_COMMITTED])
async def test_only_the_first_fetch_is_decoded(served: Served, version: int, isolation_level: int) -> None:
    for value in (b"a", b"b" * 2_000, b"c" * 200_000):
        await served.append(value)
    for offset, size in enumerate((202_001, 202_000, 200_000, 0)):
        frame = fetch_frame(
            offset, topic_id=served.orders, version=version, correlation_id=-offset, isolation_level=isolation_level
        )
        reply = await served.fetched(frame)
        assert isinstance(reply, bytes)
        assert int.from_bytes(reply[LENGTH_BYTES : LENGTH_BYTES + 4], "big", signed=True) == -offset
        found = answer(reply, version)
        assert (sum(len(value or b"") for value in values(found)), found.high_watermark) == (size, 3)
    assert served.known_count == 3


async def test_fetches_of_several_partitions_and_budgets_are_distinguished(served: Served) -> None:
    frames = [
        fetch_frame(0, partition=0),
        fetch_frame(0, partition=1),
        fetch_frame(0, partition=0, partition_max_bytes=1),
        fetch_frame(0, partition=0, max_bytes=1),
        fetch_frame(0, partition=0, client_id="klient"),
    ]
    for partition in (0, 1):
        for _ in range(2):
            await served.append(b"x" * 100 * (1 + partition), partition=partition)
    for _ in range(2):
        sizes = [[len(value or b"") for value in values(answer(await served.fetched(frame)))] for frame in frames]
        assert sizes == [[100, 100], [200, 200], [100], [100], [100, 100]]
    assert served.known_count == len(frames)


def partitions(*indexes: int, offset: int = 0, max_bytes: int = 1_000_000, name: str = "orders") -> list[FetchTopic]:
    requested = [FetchPartition(index, fetch_offset=offset, partition_max_bytes=max_bytes) for index in indexes]
    return [FetchTopic(topic=name, partitions=requested)]


@pytest.mark.parametrize("version", range(4, 13))
async def test_only_the_first_fetch_of_several_partitions_is_decoded(served: Served, version: int) -> None:
    for number in range(3):
        for partition in range(3):
            await served.append(bytes([number]) * 400 * (partition + 1), partition=partition)
    for offset in (0, 1, 2, 1):
        topics = [*partitions(2, 0, offset=offset), *partitions(1, offset=offset, name="orders")]
        found = answers(await served.fetched(fetch_frame(0, version=version, topics=topics)), version)
        assert [len(values(one)) for one in found] == [3 - offset] * 3
    assert served.known_count == 3


@pytest.mark.parametrize(
    "frame",
    [
        fetch_frame(0, version=11),
        fetch_frame(0, topics=partitions(0, 0)),
        fetch_frame(0, topics=[]),
        fetch_frame(0, session_id=7, session_epoch=3),
        fetch_frame(0, forgotten_topics_data=[ForgottenTopic(topic="orders", partitions=[1])]),
        fetch_frame(0, isolation_level=2),
        fetch_frame(0, replica_id=3),
        fetch_frame(0, version=17, replica_state=ReplicaState(3)),
        fetch_frame(0, last_fetched_epoch=0),
        fetch_frame(0, last_fetched_epoch=3),
        fetch_frame(0, topic="missing"),
        fetch_frame(0, partition=9),
        fetch_frame(0, topics=partitions(0, 9)),
        fetch_frame(0, topics=[*partitions(0, name="missing"), *partitions(0, 1)]),
        fetch_frame(0, version=BY_ID, topic_id=b"no such topic id"),
        fetch_frame(0)[:-1] + b"\x01\x63\x02ab",
        fetch_frame(0).replace(b"\x02\x07orders", b"\x82\x00\x07orders"),
        fetch_frame(0) + b"junk",
    ],
    ids=[
        "without tagged fields",
        "one partition twice",
        "no topics",
        "of a session that is not there",
        "something is forgotten",
        "no isolation level has this number",
        "of a follower",
        "of a follower that says so in a tagged field",
        "with the epoch of the last record",
        "with the epoch of a record that is not there",
        "no such topic",
        "no such partition",
        "no such partition beside another",
        "no such topic beside another",
        "no such topic id",
        "with a field that is not known",
        "written in another way",
        "with bytes behind it",
    ],
)
async def test_any_other_request_is_answered_like_a_decoded_one(served: Served, frame: bytes) -> None:
    for partition in range(3):
        await served.append(b"a" * 700 * (partition + 1), partition=partition)
    for _ in range(3):
        assert isinstance(await served.fetched(frame), bytes)
    assert served.known_count == 2
    assert values(answer(await served.fetched(fetch_frame(0)))) == [b"a" * 700]


async def test_a_request_that_is_too_large_is_always_decoded(served: Served) -> None:
    for frame in (fetch_frame(0, client_id="c" * 5_000), fetch_frame(0, topics=partitions(*range(200)))):
        for _ in range(3):
            assert isinstance(await served.fetched(frame), bytes)
    assert served.client.remembered_count == served.known_count == 0


@pytest.mark.parametrize("offset", [-1, 2, 2**63 - 1])
async def test_an_offset_outside_of_the_log_is_refused(served: Served, offset: int) -> None:
    await served.append(b"a")
    for one in (0, offset, 0):
        found = answer(await served.fetched(fetch_frame(one)))
    assert values(found) == [b"a"]
    assert answer(await served.fetched(fetch_frame(offset))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert served.known_count == 3


async def test_aborted_transactions_are_reported(served: Served) -> None:
    await served.append(b"a")
    await served.transaction(b"b", committed=False)
    for offset in (0, 0, 1):
        found = answer(await served.fetched(fetch_frame(offset, isolation_level=READ_COMMITTED)))
        assert [aborted.first_offset for aborted in found.aborted_transactions or []] == [1]
    await served.append(b"c")
    found = answer(await served.fetched(fetch_frame(3, isolation_level=READ_COMMITTED)))
    assert (values(found), found.aborted_transactions) == ([b"c"], [])
    found = answer(await served.fetched(fetch_frame(0, isolation_level=READ_COMMITTED)))
    assert [aborted.first_offset for aborted in found.aborted_transactions or []] == [1]
    assert served.known_count == 4


async def test_what_the_leader_epoch_of_a_client_says_counts(served: Served) -> None:
    await served.append(b"a")
    frame = fetch_frame(0, leader_epoch=served.log().leader_epoch)
    for _ in range(2):
        assert values(answer(await served.fetched(frame))) == [b"a"]
    served.log().lead(served.log().leader_epoch + 1)
    assert answer(await served.fetched(frame)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert served.known_count == 2


async def test_a_topic_that_was_created_again_is_not_mistaken_for_the_one_before(served: Served) -> None:
    await served.append(b"old")
    frames = [fetch_frame(0), fetch_frame(0, topic_id=served.orders, version=BY_ID)]
    for frame in (frames[0], *frames, frames[1]):
        await served.fetched(frame)
    await served.broker.topics.delete("orders")
    await served.broker.create_topic("orders", 3)
    await served.append(b"new")
    assert answer(await served.fetched(frames[1]), BY_ID).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    for _ in range(2):
        assert values(answer(await served.fetched(frames[0]))) == [b"new"]


# Sessions


class InSessions:
    """Two brokers whose sessions have the same ids: one is read with a warm cache, the other with an empty one."""

    def __init__(self, *brokers: HandlerBroker) -> None:
        self.brokers = brokers
        self.known, self.decoded = [FrameClient(broker.services) for broker in brokers]

    async def append(self, *values: bytes, partition: int = 0) -> None:
        for broker in self.brokers:
            log = broker.log("orders", partition)
            assert log.append(memoryview(batch(*values)), now_ms=NOW_MS).error is ErrorCode.NONE
            await log.flushed()

    async def fetched(self, frame: bytes, version: int) -> FetchResponse:
        """The response of both."""
        self.decoded.connect_again()
        replies = []
        for broker, client in zip(self.brokers, (self.known, self.decoded), strict=True):
            own_id = broker.topic_id("orders")
            reply = await client.send(frame.replace(OWN_ID, own_id))
            assert isinstance(reply, bytes)
            replies.append(reply.replace(own_id, OWN_ID))
        assert replies[0] == replies[1]
        return response_in(replies[0], version)


@asynccontextmanager
async def in_sessions(directory: Path) -> AsyncIterator[InSessions]:
    async with open_broker(directory / "a") as one, open_broker(directory / "b") as other:
        for broker in (one, other):
            broker.services.fetch_sessions = FetchSessionCache(10, random.Random(1))
            await broker.create_topic("orders", 3)
        yield InSessions(one, other)


@pytest.mark.parametrize("version", range(7, 19))
async def test_fetches_of_a_session_that_differ_in_their_epoch_are_cached(tmp_path: Path, version: int) -> None:
    def frame(session_id: int, epoch: int, topics: list[FetchTopic]) -> bytes:
        return fetch_frame(0, version=version, session_id=session_id, session_epoch=epoch, topics=topics)

    def reading(offset: int) -> list[FetchTopic]:
        requested = [FetchPartition(index, fetch_offset=offset, partition_max_bytes=1_000) for index in range(2)]
        return [FetchTopic(topic="orders", topic_id=OWN_ID, partitions=requested)]

    async with in_sessions(tmp_path) as clients:
        await clients.append(b"a")
        opened = await clients.fetched(frame(0, 0, reading(0)), version)
        assert opened.session_id > 0
        for epoch in range(1, 9):
            topics = reading(epoch // 2) if epoch % 2 else []
            if epoch % 2 == 0:
                await clients.append(b"b" * epoch * 300)
            response = await clients.fetched(frame(opened.session_id, epoch, topics), version)
            assert (response.error_code, response.session_id) == (ErrorCode.NONE, opened.session_id)
        assert clients.known.known_count == 8 - 2
        repeated = await clients.fetched(frame(opened.session_id, 8, []), version)
        assert repeated.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        outside = await clients.fetched(frame(opened.session_id, -1, reading(0)), version)
        assert outside.session_id == 0
        ended = await clients.fetched(frame(opened.session_id, 9, []), version)
        assert ended.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert clients.known.known_count == 8 - 2 + 3


async def test_a_fetch_that_opens_a_session_is_not_mistaken_for_one_outside_of_sessions(tmp_path: Path) -> None:
    async with in_sessions(tmp_path) as clients:
        await clients.append(b"a")
        opened = set()
        for _ in range(3):
            for epoch in (-1, 0):
                response = await clients.fetched(fetch_frame(0, session_epoch=epoch), BY_NAME)
                assert (response.session_id > 0) is (epoch == 0)
                opened.add(response.session_id)
        assert len(opened) == 1 + 3
        assert clients.known.known_count == 5


async def test_a_session_that_loses_its_last_partition_ends_though_its_requests_are_cached(tmp_path: Path) -> None:
    async with in_sessions(tmp_path) as clients:
        await clients.append(b"a")
        for _ in range(3):
            opened = await clients.fetched(fetch_frame(0, session_epoch=0), BY_NAME)
            forgotten = fetch_frame(
                0,
                session_id=opened.session_id,
                session_epoch=1,
                topics=[],
                forgotten_topics_data=[ForgottenTopic(topic="orders", partitions=[0])],
            )
            for expected in (ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
                response = await clients.fetched(forgotten, BY_NAME)
                assert (response.error_code, response.session_id) == (expected, 0)


# Waiting


async def ready_to_wait(served: Served, **fields: Any) -> bytes:
    """A frame of a cached request that finds no records."""
    frame = fetch_frame(0, max_wait_ms=LONG_MS, **fields)
    await served.append(b"a" * 1_000)
    await served.fetched(frame)
    await served.broker.topics.delete_records({TopicPartition("orders", 0): 1})
    return fetch_frame(1, max_wait_ms=LONG_MS, **fields)


async def test_a_cached_fetch_waits_for_records(served: Served) -> None:
    waiting = await served.both_wait(await ready_to_wait(served))
    await served.append(b"b")
    assert values(answer(await waiting)) == [b"b"]
    assert served.known_count == 1


async def test_a_cached_fetch_waits_for_its_minimum_bytes(served: Served) -> None:
    waiting = await served.both_wait(await ready_to_wait(served, min_bytes=300))
    await served.append(b"b" * 100)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    await served.append(b"c" * 100)
    assert [len(value or b"") for value in values(answer(await waiting))] == [100, 100]


async def test_the_part_of_a_batch_that_is_cut_off_is_as_good_as_records(served: Served) -> None:
    waiting = await served.both_wait(await ready_to_wait(served, min_bytes=400, partition_max_bytes=400))
    await served.append(b"b" * 100)
    await served.append(b"c" * 1_000)
    assert values(answer(await waiting)) == [b"b" * 100]


async def test_a_cached_fetch_waits_for_a_transaction_to_end(served: Served) -> None:
    waiting = await served.both_wait(await ready_to_wait(served, isolation_level=READ_COMMITTED))
    await served.transaction(b"b", committed=None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    served.end_transaction(5, committed=True)
    found = answer(await waiting)
    assert len(list(iterate_batches(found.records or b""))) == 2


async def test_a_cached_fetch_reports_a_transaction_that_is_aborted_while_it_waits(served: Served) -> None:
    waiting = await served.both_wait(await ready_to_wait(served, isolation_level=READ_COMMITTED))
    await served.transaction(b"b", committed=False)
    assert [aborted.producer_id for aborted in answer(await waiting).aborted_transactions or []] == [5]


async def test_a_cached_fetch_is_answered_with_what_there_is_when_its_time_is_over(served: Served) -> None:
    await served.append(b"a")
    for offset in (1, 1, 0):
        found = answer(await served.fetched(fetch_frame(offset, max_wait_ms=1, min_bytes=10_000)))
        assert (values(found), found.high_watermark) == ([b"a"][offset:], 1)
    assert served.known_count == 2


async def delete_topic(served: Served) -> None:
    await served.broker.topics.delete("orders")


async def recreate_topic(served: Served) -> None:
    await served.broker.topics.delete("orders")
    await served.broker.create_topic("orders", 3)


async def fail_log(served: Served) -> None:
    served.log().give_up(StorageError("the disk is gone"))


@pytest.mark.parametrize(
    ("happen", "error"),
    [
        (delete_topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (recreate_topic, ErrorCode.OFFSET_OUT_OF_RANGE),
        (fail_log, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_a_cached_fetch_that_waits_is_answered_when_its_log_changes_state(
    served: Served, happen: Callable[[Served], Any], error: ErrorCode
) -> None:
    frame = await ready_to_wait(served)
    waiting = await served.both_wait(frame)
    await happen(served)
    assert answer(await waiting).error_code in (error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert served.known_count == 1
    assert answer(await served.fetched(frame)).error_code == error


async def test_a_fetch_does_not_wait_without_its_client(served: Served) -> None:
    waiting = asyncio.ensure_future(served.client.send(await ready_to_wait(served)))
    for _ in range(10):
        await asyncio.sleep(0)
    waiting.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert served.known_count == 1
    assert not served.log()._watchers._callbacks


async def test_an_unexpected_failure_is_answered_as_one(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = await ready_to_wait(served)
    waiting = asyncio.ensure_future(served.client.send(frame))
    for _ in range(10):
        await asyncio.sleep(0)

    def fail(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(PartitionLog, "read", fail)
    await served.append(b"b")
    for reply in (await waiting, await served.client.send(frame)):
        assert response_in(reply).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("planted", ["__init__", "write"])
async def test_a_reply_that_fails_unexpectedly_is_answered_as_a_failure(
    served: Served, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    frame = await ready_to_wait(served)
    if planted == "write":
        await served.append(b"a")
        assert values(answer(await served.client.send(frame))) == [b"a"]
    frame = fetch_frame(served.log().log_end_offset, max_wait_ms=LONG_MS)
    waiting = asyncio.ensure_future(served.client.send(frame))
    for _ in range(10):
        await asyncio.sleep(0)
    with monkeypatch.context() as broken:
        broken.setattr(ReplyForm, planted, fail)
        await served.append(b"b")
        assert response_in(await waiting).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert values(answer(await served.fetched(frame))) == [b"b"]
    assert served.known_count == 2 + (planted == "write")


async def test_an_unreadable_log_is_answered_with_an_error(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StorageError("the disk is gone")

    await served.append(b"a")
    await served.append(b"b")
    for _ in range(2):
        await served.fetched(fetch_frame(0))
    monkeypatch.setattr(LocalFile, "read", fail)
    assert answer(await served.fetched(fetch_frame(0))).error_code == ErrorCode.KAFKA_STORAGE_ERROR


# By chance


class Consumer:
    """Frames by chance: what consumers send, now and then what they should not."""

    def __init__(self, seed: int) -> None:
        self._random = choose = random.Random(seed)
        self._requests: list[dict[str, Any]] = [
            {
                "partition": choose.choice((0, 0, 1)),
                "partition_max_bytes": choose.choice((100, 1_000, 1_000_000)),
                "isolation_level": choose.choice((0, READ_COMMITTED)),
                "max_wait_ms": choose.choice((0, LONG_MS)),
                "min_bytes": choose.choice((0, 1, 90)),
                "max_bytes": choose.choice((10_000_000, 10_000_000, 0, 150)),
                "client_id": choose.choice(("client", None)),
                "others": choose.choice(((), (), (), (0,), (2, 1))),
            }
            for _ in range(4)
        ]
        self._version = choose.choice((4, 5, 7, 11, BY_NAME, 13, BY_ID, 17))

    def frame(self, served: Served) -> bytes:
        choose = self._random
        request = {**choose.choice(self._requests), "version": self._version}
        if not choose.randrange(20):
            request["version"] = choose.randrange(4, 19)
        if not choose.randrange(20):
            request["leader_epoch"] = choose.choice((0, 1))
        if not choose.randrange(20):
            request["partition"] = 7
        end_offset = served.log(request["partition"]).log_end_offset if request["partition"] < 3 else 0
        return fetch_frame(
            end_offset if choose.randrange(3) else choose.randrange(-1, end_offset + 2),
            topic_id=served.orders,
            correlation_id=choose.randrange(-(2**31), 2**31),
            **request,
        )


@pytest.mark.parametrize("flush_messages", [1, 2**31 - 1], ids=["durable", "page cache"])
@pytest.mark.parametrize("seed", range(6))
async def test_cached_requests_are_answered_like_decoded_ones(tmp_path: Path, seed: int, flush_messages: int) -> None:
    consumer = Consumer(seed)
    choose = random.Random(-1 - seed)
    async with open_broker(tmp_path, log_flush_interval_messages=flush_messages) as broker:
        await broker.create_topic("orders", 3)
        served = Served(broker)
        next_producer_id = 10
        for _ in range(STEPS_COUNT):
            step = choose.randrange(60)
            if step == 0:
                await broker.topics.delete("orders")
                await broker.create_topic("orders", 3)
            elif step == 1:
                before_offset = choose.randrange(served.log().high_watermark + 1)
                await broker.topics.delete_records({TopicPartition("orders", 0): before_offset})
            elif step == 2:
                served.log().lead(served.log().leader_epoch + 1)
            elif step < 8:
                next_producer_id += 1
                await served.transaction(
                    b"t" * 50, committed=choose.choice((True, False)), producer_id=next_producer_id
                )
            elif step < 15:
                await served.append(
                    *(choose.randbytes(choose.choice((1, 90, 2_000))) for _ in range(choose.randrange(1, 4))),
                    partition=choose.choice((0, 0, 1)),
                )
            fetching = asyncio.ensure_future(served.fetched(consumer.frame(served)))
            while not fetching.done():
                for _ in range(5):
                    await asyncio.sleep(0)
                if not fetching.done():
                    for partition in (0, 1):
                        await served.append(choose.randbytes(300), partition=partition)
            await fetching
        assert served.known_count >= STEPS_COUNT // 3
