"""Cached Produce requests for several partitions are answered and stored like decoded ones.

Two brokers are sent the same frames. The clients of one stay connected, each frame to the other comes from a connection
of its own, whose cache is empty.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.requests import request_cache
from fencepost.broker.requests.request_cache import MAXIMUM_ALIKE, MAXIMUM_COUNT, MAXIMUM_RECORDS
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk, LocalFile
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, request_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fencepost.protocol.schema import decode
from fencepost.protocol.shape import ReplyForm, shape_of
from tests.support.handler_context import NOW_MS, batch
from tests.support.produce_clients import PRODUCER_ID, TOPICS, Served, served
from tests.support.produce_frames import BY_ID, BY_NAME, OWN_ID, produce_frame, produce_frame_of_several

STEPS_COUNT = 150


def answers(reply: bytes | str | None, version: int = BY_NAME) -> list[PartitionProduceResponse]:
    assert isinstance(reply, bytes)
    assert len(reply) == LENGTH_BYTES + int.from_bytes(reply[:LENGTH_BYTES], "big")
    position = LENGTH_BYTES + 4 + response_header_version(ApiKey.PRODUCE, version)
    (topic,) = decode(ProduceResponse, reply, version, position).responses
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


@pytest.mark.parametrize("version", range(3, 14))
async def test_only_the_first_request_for_the_same_partitions_is_decoded(one: Served, version: int) -> None:
    for number, partitions in enumerate([(0, 1, 2), (0, 1, 2), (2, 0), (2, 0), (1, 2, 0), (1, 2, 0)]):
        batches = [(partition, batch(bytes(number * 90))) for partition in partitions]
        frame = produce_frame_of_several(batches, version=version, correlation_id=-number)
        reply = await one.produce(frame)
        replied = base_offsets(reply, version)
        assert isinstance(reply, bytes)
        assert int.from_bytes(reply[LENGTH_BYTES : LENGTH_BYTES + 4], "big", signed=True) == -number
        assert list(replied) == list(partitions)
    assert replied == {1: 3, 2: 5, 0: 5}
    assert one.known_count == 3


async def test_requests_for_other_partitions_of_the_topic_are_remembered_beside_it(one: Served) -> None:
    for partitions in ((0, 1), (1, 2), (1, 2), (0, 2), (0, 1)):
        await one.produce(produce_frame_of_several([(partition, batch()) for partition in partitions]))
    assert (one.known_count, one.remembered_count) == (2, 3)


async def test_requests_that_differ_in_a_partition_behind_the_first_are_distinguished(one: Served) -> None:
    frames = [produce_frame_of_several([(0, batch()), (partition, batch())]) for partition in (1, 2)]
    for number in range(3):
        assert base_offsets(await one.produce(frames[0])) == {0: 2 * number, 1: number}
        assert base_offsets(await one.produce(frames[1])) == {0: 2 * number + 1, 2: number}


async def test_requests_for_several_topics_are_cached(tmp_path: Path) -> None:
    frames = []
    for number in range(4):
        topics = [
            TopicProduceData(
                name=name,
                partition_data=[
                    PartitionProduceData(index=index, records=batch(bytes(number * size))) for index in indexes
                ],
            )
            for name, indexes, size in (("orders", (0, 1), 90), ("stamped", (), 0), ("returned-orders", (2,), 500))
        ]
        frames.append(request_frame(number, "client", ProduceRequest(acks=-1, topic_data=topics), BY_NAME))
    assert await answered_alike(tmp_path, frames) == 3


async def answered_alike(directory: Path, frames: Sequence[bytes]) -> int:
    """Return how many of the frames were cached; each is answered and stored like one that is decoded."""
    async with served(directory / "a") as known, served(directory / "b") as decoded:
        for frame in frames:
            decoded.connect_again()
            assert await known.produce(frame) == await decoded.produce(frame)
        assert known.stored() == decoded.stored()
        assert decoded.known_count == 0
        return known.known_count


async def test_a_partition_may_come_twice_in_a_request(one: Served) -> None:
    batches = [(0, batch()), (1, batch()), (0, batch())]
    replied = [[(answer.index, answer.base_offset) for answer in answers(reply)] for reply in [
        await one.produce(produce_frame_of_several(batches)) for _ in range(2)
    ]]  # fmt: skip
    assert replied == [[(0, 0), (1, 0), (0, 1)], [(0, 2), (1, 1), (0, 3)]]
    assert one.known_count == 1


TWO = [(0, batch()), (1, batch())]


@pytest.mark.parametrize(
    ("frame", "known_count"),
    [
        (produce_frame_of_several(TWO, acks=0), 2),
        (produce_frame_of_several(TWO, acks=5), 2),
        (produce_frame_of_several(TWO, version=8), 2),
        (produce_frame_of_several(TWO, topic="__consumer_offsets"), 2),
        (produce_frame_of_several(TWO, topic="missing"), 2),
        (produce_frame_of_several([]), 2),
        (produce_frame_of_several([(0, batch()), (7, batch())]), 2),
        (produce_frame_of_several([(0, batch()), (1, None)]), 0),
        (produce_frame_of_several([(0, batch()), (1, b"")]), 2),
        (produce_frame_of_several([(0, batch()), (1, batch()[:-1])]), 2),
        (produce_frame_of_several([(0, batch()), (1, batch() * 2)]), 2),
        (produce_frame_of_several([(0, batch()), (1, transactional())]), 2),
    ],
    ids=[
        "acks=0",
        "unknown acks",
        "without tagged fields",
        "internal topic",
        "no such topic",
        "no partitions",
        "no such partition",
        "null",
        "no batch",
        "a part of a batch",
        "two batches",
        "of a transaction",
    ],
)
async def test_any_other_request_is_answered_like_a_decoded_one(tmp_path: Path, frame: bytes, known_count: int) -> None:
    assert await answered_alike(tmp_path / "alone", [frame] * 3) == known_count
    await answered_alike(tmp_path / "mixed", [produce_frame_of_several(TWO), frame] * 3)


async def test_a_request_that_is_written_in_another_way_is_answered_as_it_is_written(tmp_path: Path) -> None:
    plain = produce_frame_of_several(TWO)
    assert plain.endswith(bytes(3))
    tagged = b"\x01\x63\x02ab"  # field 99
    written = [
        plain[:-1] + tagged,
        plain[:-2] + tagged + plain[-1:],
        plain[:-3] + tagged + plain[-2:],
        plain + b"\0",
        plain[:-20],
    ]
    for number, frame in enumerate(written):
        await answered_alike(tmp_path / str(number), [plain, frame, frame, plain, plain])


@pytest.mark.parametrize("count", [MAXIMUM_RECORDS, MAXIMUM_RECORDS + 1, 700])
async def test_a_request_for_very_many_partitions_is_always_decoded(one: Served, count: int) -> None:
    await one.broker.create_topic("wide", count)
    frame = produce_frame_of_several([(partition, batch()) for partition in range(count)], topic="wide")
    for number in range(2):
        assert base_offsets(await one.produce(frame)) == dict.fromkeys(range(count), number)
    assert one.known_count == (count <= MAXIMUM_RECORDS)


async def test_a_producer_to_changing_partitions_has_room_for_a_few_of_its_requests(one: Served) -> None:
    await one.broker.create_topic("wide", MAXIMUM_ALIKE + 2)
    frames = [
        produce_frame_of_several([(0, batch()), (partition, batch())], topic="wide")
        for partition in range(1, MAXIMUM_ALIKE + 2)
    ]
    for number in range(5):
        for frame in frames[:MAXIMUM_ALIKE]:
            assert list(base_offsets(await one.produce(frame)).values())[1] == number
        if number:
            assert set(errors(await one.produce(frames[-1])).values()) == {ErrorCode.NONE}
    assert one.known_count == 4 * MAXIMUM_ALIKE
    assert one.remembered_count == MAXIMUM_ALIKE


async def test_a_producer_whose_partitions_never_repeat_does_not_pay_for_the_cache(
    one: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.broker.create_topic("wide", 10 * MAXIMUM_ALIKE)
    shapes_count = 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal shapes_count
        shapes_count += 1
        return shape_of(*arguments, **options)

    monkeypatch.setattr(request_cache, "shape_of", counted)
    for partition in range(1, 10 * MAXIMUM_ALIKE):
        frame = produce_frame_of_several([(0, batch()), (partition, batch())], topic="wide")
        assert set(errors(await one.produce(frame)).values()) == {ErrorCode.NONE}
    assert shapes_count == MAXIMUM_ALIKE + 1
    assert one.remembered_count == 0


async def test_a_client_whose_requests_never_repeat_does_not_pay_for_the_cache(one: Served) -> None:
    frames = [produce_frame_of_several(TWO, client_id=f"client {number:3}") for number in range(MAXIMUM_COUNT + 2)]
    for frame in frames * 2:
        await one.produce(frame)
    assert one.known_count == one.remembered_count == 0


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
    for _ in range(2):
        assert set(errors(await one.produce(frame), BY_ID).values()) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert one.known_count == 1


async def test_partitions_that_are_in_the_transaction_are_not_verified_again(one: Served) -> None:
    for sequence in (0, 1):
        reply = await one.produce(transactional_frame(sequence, partitions=(1, 0)))
        assert base_offsets(reply, BY_ID) == {1: sequence, 0: sequence}
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
        assert known.known_count == 2


@pytest.mark.parametrize("planted", [(PartitionLog, "append"), (ReplyForm, "write")])
async def test_a_cached_request_that_fails_unexpectedly_is_answered_as_any_other(
    one: Served, monkeypatch: pytest.MonkeyPatch, planted: tuple[type, str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    for number in range(2):
        assert base_offsets(await one.produce(produce_frame_of_several(TWO))) == {0: number, 1: number}
    with monkeypatch.context() as broken:
        broken.setattr(*planted, fail)
        reply = await one.produce(produce_frame_of_several(TWO))
    assert errors(reply) == dict.fromkeys((0, 1), ErrorCode.UNKNOWN_SERVER_ERROR)
    assert set(errors(await one.produce(produce_frame_of_several(TWO))).values()) == {ErrorCode.NONE}
    assert one.known_count == 3


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
