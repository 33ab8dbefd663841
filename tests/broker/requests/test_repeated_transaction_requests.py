"""Cached AddPartitionsToTxn and EndTxn requests are answered and stored like decoded ones.

Two brokers are sent the same frames. The client of one stays connected, each frame to the other comes from a connection
of its own, whose cache is empty.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.requests.request_cache import MAXIMUM_BYTES, MAXIMUM_COUNT
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, request_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
)
from fencepost.protocol.schema import decode
from fencepost.protocol.shape import ReplyForm
from tests.support.handler_context import ManualClock
from tests.support.known_requests import FrameClient
from tests.support.transaction_handlers import TransactionHandlers, transaction_handlers

ID = "tx-1"
STEPS_COUNT = 300
PARTITIONS_COUNT = 3


class Producer:
    """A transactional producer with its identity, and the frames that it sends."""

    def __init__(self, producer_id: int, producer_epoch: int, transactional_id: str = ID) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.transactional_id = transactional_id

    def add_frame(
        self,
        *partitions: int,
        topic: str = "out",
        version: int = 3,
        correlation_id: int = 1,
        client_id: str | None = "client",
        **fields: Any,
    ) -> bytes:
        request = AddPartitionsToTxnRequest(
            **{
                "v3_and_below_transactional_id": self.transactional_id,
                "v3_and_below_producer_id": self.producer_id,
                "v3_and_below_producer_epoch": self.producer_epoch,
                "v3_and_below_topics": [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
                **fields,
            }
        )
        return request_frame(correlation_id, client_id, request, version)

    def end_frame(
        self, *, committed: bool = True, version: int = 4, correlation_id: int = 1, client_id: str | None = "client"
    ) -> bytes:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )
        return request_frame(correlation_id, client_id, request, version)

    def take(self, answer: EndTxnResponse) -> None:
        """Go on as the reply to EndTxn 5 says."""
        if answer.error_code == ErrorCode.NONE:
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch


def added(reply: bytes | str | None, version: int = 3) -> list[int]:
    assert isinstance(reply, bytes)
    position = LENGTH_BYTES + 4 + response_header_version(ApiKey.ADD_PARTITIONS_TO_TXN, version)
    response = decode(AddPartitionsToTxnResponse, reply, version, position)
    topics = response.results_by_topic_v3_and_below
    return [partition.partition_error_code for topic in topics for partition in topic.results_by_partition]


def end_answer(reply: bytes | str | None, version: int) -> EndTxnResponse:
    assert isinstance(reply, bytes)
    position = LENGTH_BYTES + 4 + response_header_version(ApiKey.END_TXN, version)
    return decode(EndTxnResponse, reply, version, position)


def ended(reply: bytes | str | None, version: int = 4) -> int:
    return end_answer(reply, version).error_code


def correlation_id_of(reply: bytes | str | None) -> int:
    assert isinstance(reply, bytes)
    assert len(reply) == LENGTH_BYTES + int.from_bytes(reply[:LENGTH_BYTES], "big")
    return int.from_bytes(reply[LENGTH_BYTES : LENGTH_BYTES + 4], "big", signed=True)


async def new_producer(handlers: TransactionHandlers, transactional_id: str = ID) -> Producer:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    reply = await handlers.call(request, 5)
    assert reply.error_code == ErrorCode.NONE
    return Producer(reply.producer_id, reply.producer_epoch, transactional_id)


@pytest.fixture
async def handlers() -> AsyncIterator[TransactionHandlers]:
    async with transaction_handlers(clock=ManualClock(), out=PARTITIONS_COUNT) as handlers:
        yield handlers


@pytest.fixture
async def client(handlers: TransactionHandlers) -> FrameClient:
    return FrameClient(handlers.services)


@pytest.fixture
async def producer(handlers: TransactionHandlers) -> Producer:
    return await new_producer(handlers)


@pytest.mark.parametrize("version", range(5))
async def test_only_the_first_transaction_is_decoded(
    handlers: TransactionHandlers, client: FrameClient, producer: Producer, version: int
) -> None:
    add_version = min(version, 3)
    for number in range(4):
        reply = await client.send(producer.add_frame(0, 2, version=add_version, correlation_id=-number))
        assert (added(reply, add_version), correlation_id_of(reply)) == ([ErrorCode.NONE] * 2, -number)
        reply = await client.send(producer.end_frame(version=version, correlation_id=number))
        assert (ended(reply, version), correlation_id_of(reply)) == (ErrorCode.NONE, number)
        await handlers.settled()
    assert client.known_count == 6
    markers = [[written.marker.committed for written in log.markers] for log in handlers.topics.logs.values()]
    assert markers[:PARTITIONS_COUNT] == [[True] * 4, [], [True] * 4]


async def test_commits_and_aborts_of_several_producers_are_distinguished(
    handlers: TransactionHandlers, client: FrameClient
) -> None:
    producers = [await new_producer(handlers, f"tx-{number}") for number in range(2)]
    for is_first_commit in (True, False, True):
        for producer, committed in zip(producers, (is_first_commit, not is_first_commit), strict=True):
            assert added(await client.send(producer.add_frame(0))) == [ErrorCode.NONE]
            assert ended(await client.send(producer.end_frame(committed=committed))) == ErrorCode.NONE
            await handlers.settled()
    written = next(iter(handlers.topics.logs.values())).markers
    outcomes = [(marker.producer_id, marker.marker.committed) for marker in written]
    first, second = (producer.producer_id for producer in producers)
    assert outcomes == [
        (first, True), (second, False), (first, False), (second, True), (first, True), (second, False),
    ]  # fmt: skip
    assert client.known_count == 4 + 2


async def test_a_fenced_producer_is_refused_though_its_requests_are_cached(
    handlers: TransactionHandlers, client: FrameClient, producer: Producer
) -> None:
    for _ in range(2):
        assert added(await client.send(producer.add_frame(0, 1))) == [ErrorCode.NONE] * 2
        assert ended(await client.send(producer.end_frame())) == ErrorCode.NONE
        await handlers.settled()
    await new_producer(handlers)
    assert added(await client.send(producer.add_frame(0, 1))) == [ErrorCode.PRODUCER_FENCED] * 2
    assert ended(await client.send(producer.end_frame())) == ErrorCode.PRODUCER_FENCED
    assert client.known_count == 4


def transactions_of(producer: Producer) -> list[AddPartitionsToTxnTransaction]:
    """As a partition's leader sends them."""
    topics = [AddPartitionsToTxnTopic(name="out", partitions=[0])]
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=topics,
        )
    ]


def add_frame_of_leader(producer: Producer, version: int = 5, correlation_id: int = 1) -> bytes:
    request = AddPartitionsToTxnRequest(transactions=transactions_of(producer))
    return request_frame(correlation_id, "client", request, version)


@pytest.mark.parametrize("version", [4, 5])
async def test_only_the_first_request_of_a_partitions_leader_is_decoded(
    client: FrameClient, producer: Producer, version: int
) -> None:
    replies = set()
    for number in range(3):
        reply = await client.send(add_frame_of_leader(producer, version, correlation_id=number))
        assert correlation_id_of(reply) == number
        assert isinstance(reply, bytes)
        replies.add(reply[LENGTH_BYTES + 4 :])
    assert len(replies) == 1
    assert client.known_count == 2


async def test_only_the_first_end_of_a_transaction_of_version_2_is_decoded(
    handlers: TransactionHandlers, client: FrameClient, producer: Producer
) -> None:
    first_epoch = producer.producer_epoch
    for number in range(4):
        await client.send(add_frame_of_leader(producer))
        reply = await client.send(producer.end_frame(version=5, correlation_id=-number))
        answer = end_answer(reply, 5)
        assert (answer.error_code, correlation_id_of(reply)) == (ErrorCode.NONE, -number)
        assert (answer.producer_id, answer.producer_epoch) == (producer.producer_id, first_epoch + number + 1)
        producer.take(answer)
        await handlers.settled()
    assert client.known_count == 3, "the epoch of AddPartitionsToTxn does not vary"
    markers = next(iter(handlers.topics.logs.values())).markers
    assert [marker.producer_epoch for marker in markers] == [first_epoch + number + 1 for number in range(4)]


async def test_the_end_of_a_transaction_of_version_2_may_be_requested_again_though_it_is_cached(
    handlers: TransactionHandlers, client: FrameClient, producer: Producer
) -> None:
    for _ in range(2):
        await client.send(add_frame_of_leader(producer))
        frame = producer.end_frame(version=5)
        first = await client.send(frame)
        await handlers.settled()
        assert await client.send(frame) == first
        producer.take(end_answer(first, 5))
    assert client.known_count == 3


@pytest.mark.parametrize("behind", [b"\1\x07\0", b"\0\0"], ids=["an unknown field", "more than the request"])
async def test_an_end_of_version_2_that_is_written_in_another_way_is_cached_as_it_is_written(
    handlers: TransactionHandlers, client: FrameClient, producer: Producer, behind: bytes
) -> None:
    for number in range(3):
        await client.send(add_frame_of_leader(producer))
        for is_strange in (True, False):
            frame = producer.end_frame(version=5)[LENGTH_BYTES:]
            if is_strange:
                frame = frame[:-1] + behind
            reply = await client.send(len(frame).to_bytes(LENGTH_BYTES, "big") + frame)
            answer = end_answer(reply, 5)
            assert answer.error_code == ErrorCode.NONE, "the second is a retry"
            await handlers.settled()
        assert answer.producer_epoch == producer.producer_epoch + 1
        producer.take(answer)
        assert client.known_count == 2 * number


async def test_unwritable_partitions_are_refused_though_their_requests_are_cached(
    client: FrameClient, producer: Producer
) -> None:
    frames = {
        producer.add_frame(0, topic="missing"): [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        producer.add_frame(0, 9): [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        producer.add_frame(0, topic=CONSUMER_OFFSETS_TOPIC): [ErrorCode.TOPIC_AUTHORIZATION_FAILED],
    }
    for frame, errors in list(frames.items()) * 3:
        assert added(await client.send(frame)) == errors
    assert client.remembered_count == 3
    assert client.known_count == 6


async def test_a_topic_that_comes_to_be_between_two_requests_is_found(
    handlers: TransactionHandlers, client: FrameClient, producer: Producer
) -> None:
    frame = producer.add_frame(0, topic="later")
    for _ in range(2):
        assert added(await client.send(frame)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    handlers.topics.add("later", 1)
    for _ in range(2):
        assert added(await client.send(frame)) == [ErrorCode.NONE]
    assert client.known_count == 3


async def test_a_request_that_is_too_large_is_always_decoded(client: FrameClient, producer: Producer) -> None:
    frame = producer.add_frame(*[0] * (MAXIMUM_BYTES // 4))
    for _ in range(2):
        assert set(added(await client.send(frame))) == {ErrorCode.NONE}
    assert client.remembered_count == client.known_count == 0


async def test_a_topic_that_was_created_again_with_fewer_partitions_is_not_mistaken_for_the_one_before(
    handlers: TransactionHandlers, client: FrameClient, producer: Producer
) -> None:
    frame = producer.add_frame(2)
    for _ in range(2):
        assert added(await client.send(frame)) == [ErrorCode.NONE]
    handlers.topics.metadata.put(TopicMetadata("out", b"another id of it", 2))
    for _ in range(2):
        assert added(await client.send(frame)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert client.known_count == 3


async def test_a_change_of_other_topics_is_none_of_a_transactions_business(
    handlers: TransactionHandlers, client: FrameClient, producer: Producer
) -> None:
    await client.send(producer.add_frame(0))
    handlers.topics.add("others", 1)
    for _ in range(2):
        assert added(await client.send(producer.add_frame(0))) == [ErrorCode.NONE]
    assert client.known_count == 2


async def test_the_cache_is_switched_off_for_a_client_whose_partitions_never_repeat(
    client: FrameClient, producer: Producer
) -> None:
    for number in range(MAXIMUM_COUNT * 2):
        await client.send(producer.add_frame(0, client_id=f"at {number}"))
    assert client.remembered_count == client.known_count == 0


async def test_a_decision_that_cannot_be_stored_is_answered_as_if_it_were_decoded(
    handlers: TransactionHandlers, client: FrameClient, producer: Producer
) -> None:
    frames = [producer.add_frame(0), producer.end_frame()]
    for frame in frames:
        await client.send(frame)
    await handlers.settled()
    for log in handlers.topics.logs.values():
        log.disk_failed = True
    known = [await client.send(frame) for frame in frames]
    assert client.known_count == 2
    client.connect_again()
    assert [await client.send(frame) for frame in frames] == known
    assert (added(known[0]), ended(known[1])) == ([ErrorCode.NOT_COORDINATOR], ErrorCode.NOT_COORDINATOR)


async def test_a_request_that_fails_unexpectedly_is_answered_as_if_it_were_decoded(
    handlers: TransactionHandlers, client: FrameClient, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [producer.add_frame(0), producer.end_frame()]
    for frame in frames:
        await client.send(frame)

    async def fail(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    for asked in ("add_partitions", "end_transaction"):
        monkeypatch.setattr(type(handlers.services.transactions), asked, fail)
    known = [await client.send(frame) for frame in frames]
    assert client.known_count == 2
    client.connect_again()
    assert [await client.send(frame) for frame in frames] == known
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    assert (added(known[0]), ended(known[1])) == ([unknown], unknown)


@pytest.mark.parametrize("planted", ["write", "__init__"])
async def test_a_reply_that_fails_unexpectedly_is_answered_as_a_failure(
    handlers: TransactionHandlers,
    client: FrameClient,
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
    planted: str,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    for _ in range(2 if planted == "write" else 1):
        await client.send(add_frame_of_leader(producer))
        ended = end_answer(await client.send(producer.end_frame(version=5)), 5)
        assert ended.error_code == ErrorCode.NONE
        producer.take(ended)
        await handlers.settled()
    await client.send(add_frame_of_leader(producer))
    with monkeypatch.context() as broken:
        broken.setattr(ReplyForm, planted, fail)
        failed = end_answer(await client.send(producer.end_frame(version=5)), 5)
    assert failed.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    await handlers.settled()
    again = end_answer(await client.send(producer.end_frame(version=5)), 5)
    assert (again.error_code, again.producer_epoch) == (ErrorCode.NONE, producer.producer_epoch + 1), "it is a retry"


async def test_the_reply_to_a_cached_request_leaves_when_it_is_durable(
    handlers: TransactionHandlers, client: FrameClient, producer: Producer
) -> None:
    for frame in (producer.add_frame(0), producer.end_frame()):
        await client.send(frame)
    await handlers.settled()
    for number, frame in enumerate((producer.add_frame(0), producer.end_frame()), 1):
        for log in handlers.topics.logs.values():
            log.flush_gate.clear()
        waiting = asyncio.ensure_future(client.send(frame))
        for _ in range(10):
            await asyncio.sleep(0)
        assert client.known_count == number
        assert not waiting.done()
        for log in handlers.topics.logs.values():
            log.flush_gate.set()
        assert isinstance(await waiting, bytes)


class Producers:
    """Frames by chance: what producers ask, now and then what they should not."""

    def __init__(self, seed: int, producers: list[Producer]) -> None:
        self._random = random.Random(seed)
        self.producers = producers
        self._version = self._random.choice((0, 1, 2, 3, 3, 3))
        self._is_of_version_2 = seed % 2 == 1
        self._ends: Producer | None = None

    def take(self, reply: bytes | str | None) -> None:
        """What was answered to the last frame."""
        if self._ends is not None:
            self._ends.take(end_answer(reply, 5))

    def frame(self) -> bytes:
        choose = self._random
        producer = choose.choice(self.producers)
        self._ends = None
        if self._is_of_version_2 and choose.randrange(5):
            correlation_id = choose.randrange(-(2**31), 2**31)
            if choose.randrange(2):
                return add_frame_of_leader(producer, correlation_id=correlation_id)
            self._ends = producer
            return producer.end_frame(committed=bool(choose.randrange(4)), version=5, correlation_id=correlation_id)
        version = self._version if choose.randrange(20) else choose.randrange(4)
        common: dict[str, Any] = {
            "correlation_id": choose.randrange(-(2**31), 2**31),
            "client_id": choose.choice(("client", None)),
        }
        if choose.randrange(3) == 0:
            end_version = version if choose.randrange(9) else choose.choice((4, 5))
            return producer.end_frame(committed=bool(choose.randrange(4)), version=end_version, **common)
        if choose.randrange(20) == 0:
            request = AddPartitionsToTxnRequest(transactions=transactions_of(producer))
            return request_frame(common["correlation_id"], common["client_id"], request, choose.choice((4, 5)))
        asked = [
            AddPartitionsToTxnTopic(
                name=choose.choice(("out", "out", "out", "other", "missing")),
                partitions=choose.choice(([0], [0, 1], [2], [])),
            )
            for _ in range(choose.choice((0, 1, 1, 1, 1, 2)))
        ]
        return producer.add_frame(version=version, v3_and_below_topics=asked, **common)


@pytest.mark.parametrize("seed", range(8))
async def test_cached_requests_are_answered_and_stored_like_decoded_ones(seed: int) -> None:
    choose = random.Random(-1 - seed)
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(
                transaction_handlers(clock=ManualClock(), out=PARTITIONS_COUNT, other=PARTITIONS_COUNT)
            )
            for _ in range(2)
        ]
        known, decoded = [FrameClient(broker.services) for broker in brokers]
        identities = [[await new_producer(broker, name) for name in ("tx-1", "tx-2", "tx-3")] for broker in brokers]
        stranger = Producer(7_777, 0)
        producers = Producers(seed, [*identities[0], stranger])
        for _ in range(STEPS_COUNT):
            step = choose.randrange(60)
            changed = TopicMetadata("other", b"other-----------", choose.randrange(1, PARTITIONS_COUNT + 1))
            for broker in brokers:
                if step == 0:
                    broker.topics.metadata.put(changed)
                elif step == 1:
                    again = await new_producer(broker, "tx-2")
            if step == 1:
                producers.producers.append(again)
            frame = producers.frame()
            for _ in range(choose.choice((1, 3))):
                decoded.connect_again()
                reply = await known.send(frame)
                assert reply == await decoded.send(frame)
                for broker in brokers:
                    await broker.settled()
            producers.take(reply)
        stored, also_stored = ([log.batches for log in broker.topics.logs.values()] for broker in brokers)
        assert stored == also_stored
        assert decoded.known_count == 0
        assert known.known_count >= STEPS_COUNT // 4
