"""Cached Produce requests for several partitions are answered and stored like decoded ones.

Two brokers are sent the same frames. The clients of one stay connected, each frame to the other comes from a connection
of its own, whose caches are empty.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.request_cache import produce_topic_cache
from fencepost.broker.request_cache.produce_topic_cache import MAXIMUM_COUNT, MAXIMUM_PARTITIONS
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk, LocalFile
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES
from fencepost.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from fencepost.protocol.schema import decode
from tests.support.handler_context import NOW_MS, batch
from tests.support.produce_clients import PRODUCER_ID, TOPICS, Served, served
from tests.support.produce_frames import BY_ID, BY_NAME, OWN_ID, produce_frame, produce_frame_of_several

STEPS_COUNT = 150


def answers(reply: bytes | str | None, version: int = BY_NAME) -> list[PartitionProduceResponse]:
    assert isinstance(reply, bytes)
    assert len(reply) == LENGTH_BYTES + int.from_bytes(reply[:LENGTH_BYTES], "big")
    (topic,) = decode(ProduceResponse, reply, version, LENGTH_BYTES + 5).responses
    return topic.partition_responses


def base_offsets(reply: bytes | str | None, version: int = BY_NAME) -> dict[int, int]:
    replied = answers(reply, version)
    assert {answer.error_code for answer in replied} == {ErrorCode.NONE}
    return {answer.index: answer.base_offset for answer in replied}


def errors(reply: bytes | str | None, version: int = BY_NAME) -> dict[int, int]:
    return {answer.index: answer.error_code for answer in answers(reply, version)}


def transactional(sequence: int = 0, *, producer_epoch: int = 0, producer_id: int = PRODUCER_ID) -> bytes:
    return batch(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence, is_transactional=True)


def transactional_frame(
    sequence: int = 0, *, partitions: Sequence[int] = (0, 1, 2), version: int = BY_ID, producer_epoch: int = 0
) -> bytes:
    records = transactional(sequence, producer_epoch=producer_epoch)
    batches = [(partition, records) for partition in partitions]
    return produce_frame_of_several(batches, version=version, transactional_id="application")


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "one") as opened:
        yield opened


@pytest.mark.parametrize("version", [9, 10, 11, BY_NAME, BY_ID])
async def test_only_the_first_request_for_a_topic_is_decoded(one: Served, version: int) -> None:
    for number, partitions in enumerate([(0, 1, 2), (0, 1, 2), (2, 0), (1, 2), (1, 2, 0)]):
        batches = [(partition, batch(bytes(number * 90))) for partition in partitions]
        frame = produce_frame_of_several(batches, version=version, correlation_id=-number)
        reply = await one.produce(frame)
        replied = base_offsets(reply, version)
        assert isinstance(reply, bytes)
        assert int.from_bytes(reply[LENGTH_BYTES : LENGTH_BYTES + 4], "big", signed=True) == -number
        assert list(replied) == list(partitions)
    assert replied == {1: 3, 2: 4, 0: 3}
    assert one.known_count == 4


async def test_a_partition_that_was_not_asked_for_before_is_learnt(one: Served) -> None:
    for partitions in ((0, 1), (1, 2), (1, 2), (0, 2)):
        await one.produce(produce_frame_of_several([(partition, batch()) for partition in partitions]))
    assert (one.known_count, one.remembered_count) == (2, 1)


async def test_a_partition_may_come_twice_in_a_request(one: Served) -> None:
    batches = [(0, batch()), (1, batch()), (0, batch())]
    replied = [[(answer.index, answer.base_offset) for answer in answers(reply)] for reply in [
        await one.produce(produce_frame_of_several(batches)) for _ in range(2)
    ]]  # fmt: skip
    assert replied == [[(0, 0), (1, 0), (0, 1)], [(0, 2), (1, 1), (0, 3)]]
    assert one.known_count == 1


TWO = [(0, batch()), (1, batch())]


@pytest.mark.parametrize(
    "frame",
    [
        produce_frame_of_several(TWO, acks=0),
        produce_frame_of_several(TWO, version=8),
        produce_frame_of_several(TWO, topic="__consumer_offsets"),
        produce_frame_of_several(TWO, topic="missing"),
        produce_frame_of_several([]),
    ],
    ids=["acks=0", "without tagged fields", "internal topic", "no such topic", "no partitions"],
)
async def test_other_requests_are_always_decoded(one: Served, frame: bytes) -> None:
    for _ in range(3):
        await one.produce(frame)
    assert one.known_count == 0


@pytest.mark.parametrize(
    "batches",
    [
        [(0, batch()), (7, batch())],
        [(0, batch()), (1, None)],
        [(0, batch()), (1, b"")],
        [(0, batch()), (1, batch()[:-1])],
        [(0, batch()), (1, batch() * 2)],
        [(0, batch()), (1, transactional())],
    ],
    ids=["no such partition", "null", "no batch", "a part of a batch", "two batches", "of a transaction"],
)
async def test_a_request_with_a_batch_that_no_log_needs_to_see_is_decoded(
    one: Served, batches: list[tuple[int, bytes | None]]
) -> None:
    decoded = await one.produce(produce_frame_of_several(batches))
    one.connect_again()
    for _ in range(2):
        await one.produce(produce_frame_of_several(TWO))
    known_count = one.known_count
    again = await one.produce(produce_frame_of_several(batches))
    assert (errors(again), one.known_count) == (errors(decoded), known_count)


async def test_a_request_that_is_written_in_another_way_is_always_decoded(one: Served) -> None:
    plain = produce_frame_of_several(TWO)
    assert plain.endswith(bytes(3))
    await one.produce(plain)
    tagged = b"\x01\x63\x02ab"  # field 99
    written = {
        "the request has tagged fields": plain[:-1] + tagged,
        "the topic has tagged fields": plain[:-2] + tagged + plain[-1:],
        "the partition has tagged fields": plain[:-3] + tagged + plain[-2:],
        "something follows": plain + b"\0",
    }
    for about, frame in written.items():
        assert len(answers(await one.produce(frame))) == 2, about
    cut_off = await one.produce(plain[:-20])
    assert isinstance(cut_off, str)
    assert one.known_count == 0


@pytest.mark.parametrize("count", [MAXIMUM_PARTITIONS, MAXIMUM_PARTITIONS + 1])
async def test_a_request_for_very_many_partitions_is_always_decoded(one: Served, count: int) -> None:
    await one.broker.create_topic("wide", count)
    frame = produce_frame_of_several([(partition, batch()) for partition in range(count)], topic="wide")
    for number in range(2):
        assert base_offsets(await one.produce(frame)) == dict.fromkeys(range(count), number)
    assert one.known_count == (count <= MAXIMUM_PARTITIONS)


async def test_no_more_topics_are_remembered_than_there_is_room_for(one: Served) -> None:
    frames = [produce_frame_of_several(TWO, client_id=f"client {number:3}") for number in range(MAXIMUM_COUNT + 2)]
    for frame in frames * 2:
        await one.produce(frame)
    assert one.known_count == one.remembered_count == MAXIMUM_COUNT


async def test_no_more_partitions_are_remembered_than_there_is_room_for(
    one: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_topic_cache, "MAXIMUM_LOGS", 3)
    for topic, known_count in (("orders", 1), ("stamped", 1), ("orders", 3)):
        frame = produce_frame_of_several(TWO, topic=topic)
        for _ in range(2):
            assert set(errors(await one.produce(frame)).values()) == {ErrorCode.NONE}
        assert one.known_count == known_count


async def test_requests_for_one_partition_and_for_several_are_distinguished(one: Served) -> None:
    for number in range(3):
        assert base_offsets(await one.produce(produce_frame(batch()))) == {0: 2 * number}
        assert base_offsets(await one.produce(produce_frame_of_several(TWO))) == {0: 2 * number + 1, 1: number}
    assert one.known_count == 4


async def test_a_topic_that_was_created_again_is_not_mistaken_for_the_one_before(one: Served) -> None:
    frames = [produce_frame_of_several(TWO, version=version) for version in (BY_NAME, BY_ID)]
    old_id = one.broker.topic_id("orders")
    for frame in frames:
        for _ in range(2):
            await one.produce(frame)
    await one.broker.topics.delete("orders")
    await one.broker.create_topic("orders", 3)
    by_old_id = frames[1].replace(OWN_ID, old_id)
    assert errors(await one.produce(by_old_id), BY_ID) == dict.fromkeys((0, 1), ErrorCode.UNKNOWN_TOPIC_ID)
    for number in range(2):
        assert base_offsets(await one.produce(frames[0])) == {0: number, 1: number}


@pytest.mark.parametrize("is_elsewhere", [False, True])
@pytest.mark.parametrize("version", [11, BY_NAME, BY_ID])
async def test_only_the_first_request_of_a_transactional_producer_is_decoded(
    one: Served, version: int, is_elsewhere: bool
) -> None:
    one.broker.verifier.is_elsewhere = is_elsewhere
    for number in range(3):
        reply = await one.produce(transactional_frame(version=version, producer_epoch=number))
        assert base_offsets(reply, version) == dict.fromkeys(range(3), 2 * number)
        one.end_transaction("orders", 0, 1, 2, producer_epoch=number + 1)
    assert one.known_count == 2
    partitions = [TopicPartition("orders", partition) for partition in range(3)]
    assert [call["topic_partitions"] for call in one.broker.verifier.calls] == [partitions] * 3
    assert [call["add"] for call in one.broker.verifier.calls] == [version >= BY_NAME] * 3
    assert [call["producer_epoch"] for call in one.broker.verifier.calls] == [0, 1, 2]


async def test_batches_of_two_producers_in_one_request_are_refused_though_it_could_be_cached(one: Served) -> None:
    await one.produce(transactional_frame())
    batches = [(0, transactional(1)), (1, transactional(producer_epoch=1))]
    frame = produce_frame_of_several(batches, version=BY_ID, transactional_id="application")
    assert set(errors(await one.produce(frame), BY_ID).values()) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert one.known_count == 0


async def test_partitions_that_are_in_the_transaction_are_not_verified_again(one: Served) -> None:
    for sequence, partitions in ((0, (0, 1, 2)), (1, (0, 1))):
        assert set(errors(await one.produce(transactional_frame(sequence, partitions=partitions)), BY_ID).values()) == {
            0
        }
    one.end_transaction("orders", 0)
    one.broker.verifier.calls.clear()
    assert base_offsets(await one.produce(transactional_frame(2, partitions=(1, 0))), BY_ID) == {1: 2, 0: 3}
    assert [call["topic_partitions"] for call in one.broker.verifier.calls] == [[TopicPartition("orders", 0)]]
    assert one.known_count == 2


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_each_partition_gets_the_answer_of_the_coordinator(one: Served, is_elsewhere: bool) -> None:
    await one.produce(transactional_frame())
    one.end_transaction("orders", 0, 1, 2)
    one.broker.verifier.is_elsewhere = is_elsewhere
    said = [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.PRODUCER_FENCED]
    partitions = [TopicPartition("orders", partition) for partition in range(3)]
    one.broker.verifier.answers = [dict(zip(partitions, said, strict=True))]
    replied = errors(await one.produce(transactional_frame(1)), BY_ID)
    assert replied == {0: ErrorCode.NONE, 1: ErrorCode.TRANSACTION_ABORTABLE, 2: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert one.known_count == 1
    assert one.broker.services.produce_verifications == {}


async def test_pipelined_cached_requests_keep_their_order_while_the_first_is_verified(one: Served) -> None:
    await one.produce(transactional_frame(0))
    one.end_transaction("orders", 0, 1, 2)
    one.broker.verifier.is_elsewhere = True
    one.broker.verifier.answers = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
    replies = await asyncio.gather(*(one.produce(transactional_frame(sequence)) for sequence in (1, 2, 3)))
    assert [base_offsets(reply, BY_ID) for reply in replies] == [
        dict.fromkeys(range(3), offset) for offset in (2, 3, 4)
    ]
    assert one.known_count == 3
    assert one.broker.services.produce_verifications == {}


async def test_a_marker_between_verification_and_append_refuses_the_batch_that_it_is_for(
    one: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.produce(transactional_frame(0, version=11))
    one.end_transaction("orders", 0, 1, 2)
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def verify(*, topic_partitions: Sequence[TopicPartition], **_: Any) -> dict[TopicPartition, ErrorCode]:
        asked.set()
        await may_answer.wait()
        return dict.fromkeys(topic_partitions, ErrorCode.NONE)

    monkeypatch.setattr(one.broker.verifier, "verify", verify)
    waiting = asyncio.ensure_future(one.produce(transactional_frame(1, version=11)))
    await asked.wait()
    one.end_transaction("orders", 1)
    may_answer.set()
    assert errors(await waiting, 11) == {0: ErrorCode.NONE, 1: ErrorCode.INVALID_TXN_STATE, 2: ErrorCode.NONE}
    assert one.known_count == 1


@pytest.mark.parametrize("is_at_once", [False, True])
async def test_a_verification_that_fails_unexpectedly_is_answered_as_if_it_were_decoded(
    one: Served, monkeypatch: pytest.MonkeyPatch, is_at_once: bool
) -> None:
    await one.produce(transactional_frame(0))
    one.end_transaction("orders", 0, 1, 2)

    def fail_to_verify(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    async def fail_later(*_: object, **__: object) -> None:
        fail_to_verify()

    monkeypatch.setattr(one.broker.verifier, "verify", fail_to_verify if is_at_once else fail_later)
    known = await one.produce(transactional_frame(1))
    assert one.known_count == 1
    one.connect_again()
    assert await one.produce(transactional_frame(1)) == known
    assert set(errors(known, BY_ID).values()) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert one.broker.services.produce_verifications == {}


def fail(*_: object) -> None:
    raise StorageError("the disk is gone")


async def fail_to_sync(*_: object) -> None:
    fail()


@pytest.mark.parametrize("patched", [(LocalFile, "append", fail), (LocalDisk, "sync", fail_to_sync)])
async def test_batches_that_cannot_be_stored_are_answered_as_if_they_were_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patched: tuple[type, str, Any]
) -> None:
    async with served(tmp_path / "a") as known, served(tmp_path / "b") as decoded:
        replies: list[list[bytes | str | None]] = [[], []]
        for one, kept in ((known, replies[0]), (decoded, replies[1])):
            frame = produce_frame_of_several(TWO)
            kept.append(await one.produce(frame))
            with monkeypatch.context() as broken:
                broken.setattr(*patched)
                if one is decoded:
                    one.connect_again()
                kept.append(await one.produce(frame))
            kept.append(await one.produce(frame))
        assert replies[0] == replies[1]
        lost = dict.fromkeys((0, 1), ErrorCode.KAFKA_STORAGE_ERROR)
        assert [errors(reply) for reply in replies[0]] == [{0: 0, 1: 0}, lost, lost]
        assert known.known_count == 1


async def test_a_cached_request_is_answered_when_all_of_its_batches_are_durable(tmp_path: Path) -> None:
    async with served(tmp_path, log_flush_interval_messages=1) as one:
        await one.produce(produce_frame_of_several(TWO))
        logs = [one.broker.log("orders", partition) for partition in (0, 1)]
        waiting = asyncio.ensure_future(one.produce(produce_frame_of_several(TWO)))
        await asyncio.sleep(0)
        assert [log.log_end_offset for log in logs] == [2, 2]
        assert not waiting.done()
        assert base_offsets(await waiting) == {0: 1, 1: 1}
        assert [log.high_watermark for log in logs] == [2, 2]
        assert one.known_count == 1


class Producer:
    """Frames by chance: what producers send, now and then what they should not."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._version = self._random.choice((9, 11, BY_NAME, BY_ID, BY_ID))
        self._sequences: dict[tuple[str, int, bool], int] = {}
        self._epoch = 0

    def frame(self, topic: str) -> bytes:
        choose = self._random
        partitions = choose.choice(([0, 1, 2], [0, 1], [2, 0], [1, 2, 0], [0], [1, 1], [0, 7], [0, 1, 2]))
        is_transactional = not choose.randrange(2)
        if is_transactional and not choose.randrange(6):
            self._epoch += 1
            self._sequences.clear()
        return produce_frame_of_several(
            [(partition, self._records(topic, partition, is_transactional)) for partition in partitions],
            topic=topic,
            version=self._version if choose.randrange(20) else choose.randrange(9, 14),
            acks=choose.choice((-1,) * 9 + (1, 0, 5)),
            client_id=choose.choice(("client",) * 8 + (None, "klient")),
            correlation_id=choose.randrange(-(2**31), 2**31),
            transactional_id="application" if is_transactional else choose.choice((None,) * 9 + ("application",)),
        )

    def _records(self, topic: str, partition: int, is_transactional: bool) -> bytes | None:
        choose = self._random
        if not choose.randrange(30):
            plain = batch()
            return choose.choice((None, b"", plain[:-1], plain[:40], plain * 2, bytes(70), transactional()))
        values = [choose.randbytes(choose.choice((0, 1, 20, 200))) for _ in range(choose.randrange(1, 9))]
        key = (topic, partition, is_transactional)
        sequence = max(0, self._sequences.get(key, 0) + choose.choice((0,) * 15 + (-1, 1)))
        self._sequences[key] = sequence + len(values)
        return batch(
            *values,
            timestamp_ms=NOW_MS + choose.choice((0, 0, 0, 0, -5, 7, 10**10)),
            codec=choose.choice((Codec.NONE, Codec.ZSTD, Codec.GZIP)),
            producer_id=PRODUCER_ID if is_transactional else 5,
            producer_epoch=self._epoch if is_transactional and choose.randrange(40) else 0,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )


@pytest.mark.parametrize("flush_messages", [1, 2**31 - 1], ids=["durable", "page cache"])
@pytest.mark.parametrize("seed", range(4))
async def test_cached_requests_are_answered_and_stored_like_decoded_ones(
    tmp_path: Path, seed: int, flush_messages: int
) -> None:
    producer = Producer(seed)
    choose = random.Random(-1 - seed)
    configs = ({"message.timestamp.type": "LogAppendTime"}, {"max.message.bytes": "300"}, {"compression.type": "gzip"})
    settings = {"log_flush_interval_messages": flush_messages}
    async with served(tmp_path / "a", **settings) as known, served(tmp_path / "b", **settings) as decoded:
        for _ in range(STEPS_COUNT):
            topic = choose.choice((*TOPICS, "orders", "orders", "orders", "missing"))
            config = choose.choice(configs)
            before_offset = choose.randrange(4)
            step = choose.randrange(20)
            verified = choose.choice((ErrorCode.NONE,) * 5 + (ErrorCode.TRANSACTION_ABORTABLE,))
            is_elsewhere = choose.choice((False, True))
            frame = producer.frame(topic)
            decoded.connect_again()
            for one in (known, decoded):
                one.broker.verifier.answers = [verified]
                one.broker.verifier.is_elsewhere = is_elsewhere
                await one.happen(step, topic, config, before_offset)
                if step in (6, 7, 8) and topic in TOPICS:
                    one.end_transaction(topic, 0, 1)
            assert await known.produce(frame, topic) == await decoded.produce(frame, topic)
        assert known.stored() == decoded.stored()
        assert decoded.known_count == 0
        assert known.known_count >= STEPS_COUNT // 15
