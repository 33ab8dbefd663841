"""Cached Produce requests are answered and stored like decoded ones.

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
from fencepost.broker.requests.request_cache import MAXIMUM_COUNT
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk, LocalFile
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, request_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.produce import ProduceResponse
from fencepost.protocol.schema import decode
from fencepost.protocol.shape import ReplyForm
from tests.support.handler_context import NOW_MS, batch, open_broker
from tests.support.produce_clients import TOPICS, Served, served
from tests.support.produce_frames import BY_ID, BY_NAME, OWN_ID, produce_frame, produce_frame_of_several

STEPS_COUNT = 150


def answer(reply: bytes | str | None, version: int = BY_NAME) -> Any:
    assert isinstance(reply, bytes)
    response = decode(
        ProduceResponse, reply, version, LENGTH_BYTES + 4 + response_header_version(ApiKey.PRODUCE, version)
    )
    return response.responses[0].partition_responses[0]


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "one") as opened:
        yield opened


async def test_only_the_first_request_for_a_partition_is_decoded(one: Served) -> None:
    offsets = [
        answer(
            await one.produce(produce_frame(batch(b"a", b"b"), partition=number % 2, correlation_id=number))
        ).base_offset
        for number in range(10)
    ]
    assert offsets == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8]
    assert one.known_count == 8


@pytest.mark.parametrize("version", range(3, 14))
async def test_requests_of_every_version_are_cached(tmp_path: Path, version: int) -> None:
    frames = [
        produce_frame(batch(bytes(number * 90)), version=version, correlation_id=number, acks=acks)
        for number in range(4)
        for acks in (-1, 1, 0)
    ]
    assert await answered_alike(tmp_path, frames) == len(frames) - 3


async def answered_alike(directory: Path, frames: Sequence[bytes]) -> int:
    """Return how many of the frames were cached; each is answered and stored like one that is decoded."""
    async with served(directory / "a") as known, served(directory / "b") as decoded:
        for frame in frames:
            decoded.connect_again()
            assert await known.produce(frame) == await decoded.produce(frame)
        assert known.stored() == decoded.stored()
        assert decoded.known_count == 0
        return known.known_count


@pytest.mark.parametrize(
    ("frame", "known_count"),
    [
        (produce_frame(batch(), acks=5), 2),
        (produce_frame(batch(), transactional_id="application"), 2),
        (produce_frame(batch(producer_id=9, producer_epoch=0, base_sequence=0)), 2),
        (produce_frame(batch(), acks=0, topic="missing"), 0),
        (produce_frame(batch(), topic="__consumer_offsets"), 2),
        (produce_frame(batch(), topic="missing"), 2),
        (produce_frame(batch(), version=BY_ID).replace(OWN_ID, b"no such topic id"), 2),
        (produce_frame(batch(), partition=7), 2),
        (produce_frame(None), 0),
        (produce_frame(b""), 2),
        (produce_frame(batch()[:-1]), 2),
        (produce_frame(batch() * 2), 2),
        (produce_frame(batch(), client_id="c" * 5_000), 0),
    ],
    ids=[
        "unknown acks",
        "a transactional id",
        "idempotent",
        "refused without a reply",
        "internal topic",
        "no such topic",
        "no such topic id",
        "no such partition",
        "null records",
        "no records",
        "a part of a batch",
        "two batches",
        "too large",
    ],
)
async def test_any_other_request_is_answered_like_a_decoded_one(tmp_path: Path, frame: bytes, known_count: int) -> None:
    assert await answered_alike(tmp_path, [frame] * 3) == known_count


def transactional(*values: bytes, sequence: int = 0, producer_id: int = 9, producer_epoch: int = 0) -> bytes:
    return batch(
        *values or (b"v",),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def transactional_frame(sequence: int = 0, *, version: int = BY_NAME, producer_epoch: int = 0) -> bytes:
    records = transactional(sequence=sequence, producer_epoch=producer_epoch)
    return produce_frame(records, version=version, transactional_id="application")


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("confirms_in_same_step", [False, True])
async def test_only_the_first_request_of_a_transactional_producer_is_decoded(
    one: Served, version: int, confirms_in_same_step: bool
) -> None:
    one.broker.verifier.confirms_in_same_step = confirms_in_same_step
    for number in range(6):
        reply = await one.produce(transactional_frame(number, version=version))
        assert answer(reply, version).base_offset == number + number // 2
        if number % 2:
            one.end_transaction("orders", 0)
    assert one.known_count == 5
    verified = one.broker.verifier.calls
    assert [call["transactional_id"] for call in verified] == ["application"] * 3
    assert [call["add"] for call in verified] == [version >= 12] * 3


async def test_a_cached_request_that_uses_a_sequence_of_an_ended_transaction_again_is_refused(one: Served) -> None:
    for number in range(2):
        assert answer(await one.produce(transactional_frame(number))).base_offset == number
    one.end_transaction("orders", 0)
    for number in (1, 0):
        assert answer(await one.produce(transactional_frame(number))).error_code == ErrorCode.UNKNOWN_PRODUCER_ID
    assert answer(await one.produce(transactional_frame(0, producer_epoch=1))).base_offset == 3
    assert one.known_count == 4


async def test_what_is_sent_with_and_without_a_transactional_id_is_not_mixed_up(one: Served) -> None:
    for number in range(2):
        await one.produce(transactional_frame(number))
        await one.produce(produce_frame(batch()))
    assert one.known_count == 2
    plain_in_transaction = await one.produce(produce_frame(batch(), transactional_id="application"))
    assert answer(plain_in_transaction).error_code == ErrorCode.NONE
    outside = await one.produce(produce_frame(transactional(sequence=2)))
    assert answer(outside).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert one.known_count == 4


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("is_elsewhere", [False, True])
@pytest.mark.parametrize("confirms_in_same_step", [False, True])
async def test_cached_transactional_requests_are_answered_like_decoded_ones(
    tmp_path: Path, version: int, is_elsewhere: bool, confirms_in_same_step: bool
) -> None:
    replies: list[list[bytes | str | None]] = [[], []]
    async with served(tmp_path / "a") as known, served(tmp_path / "b") as decoded:
        for one, kept in ((known, replies[0]), (decoded, replies[1])):
            kept.append(await one.produce(transactional_frame(0, version=version)))
            one.end_transaction("orders", 0)
            verifier = one.broker.verifier
            verifier.is_elsewhere = is_elsewhere
            verifier.confirms_in_same_step = confirms_in_same_step
            verifier.answers = [
                ErrorCode.TRANSACTION_ABORTABLE,
                ErrorCode.PRODUCER_FENCED,
                ErrorCode.CONCURRENT_TRANSACTIONS,
            ]
            for sequence, producer_epoch in ((1, 0), (1, 0), (1, 0), (1, 0), (2, 0), (2, 0), (7, 0), (0, 1), (3, 0)):
                if one is decoded:
                    one.connect_again()
                frame = transactional_frame(sequence, version=version, producer_epoch=producer_epoch)
                kept.append(await one.produce(frame))
            assert one.broker.services.produce_verifications == {}
        assert replies[0] == replies[1]
        assert known.stored() == decoded.stored()
        assert known.unverified() == decoded.unverified()
        assert known.known_count >= 8


async def test_pipelined_cached_requests_keep_their_order_while_the_first_is_verified(one: Served) -> None:
    await one.produce(transactional_frame(0, version=12))
    one.end_transaction("orders", 0)
    one.broker.verifier.is_elsewhere = True
    one.broker.verifier.answers = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
    frames = [transactional_frame(sequence, version=12) for sequence in (1, 2, 3)]
    replies = await asyncio.gather(*(one.produce(frame) for frame in frames))
    assert [answer(reply).base_offset for reply in replies] == [2, 3, 4]
    assert one.known_count == 3
    assert one.broker.services.produce_verifications == {}


async def test_a_marker_between_verification_and_append_refuses_a_cached_batch(
    one: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.produce(transactional_frame(0, version=11))
    one.end_transaction("orders", 0)
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def verify(*, topic_partitions: Sequence[TopicPartition], **_: Any) -> dict[TopicPartition, ErrorCode]:
        asked.set()
        await may_answer.wait()
        return dict.fromkeys(topic_partitions, ErrorCode.NONE)

    monkeypatch.setattr(one.broker.verifier, "verify", verify)
    waiting = asyncio.ensure_future(one.produce(transactional_frame(1, version=11)))
    await asked.wait()
    one.end_transaction("orders", 0)
    may_answer.set()
    assert answer(await waiting, 11).error_code == ErrorCode.INVALID_TXN_STATE
    assert one.known_count == 1


async def test_a_verification_that_fails_unexpectedly_is_answered_as_if_it_were_decoded(
    one: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one.produce(transactional_frame(0))
    one.end_transaction("orders", 0)

    async def fail_to_verify(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(one.broker.verifier, "verify", fail_to_verify)
    known = await one.produce(transactional_frame(1))
    assert one.known_count == 1
    one.connect_again()
    assert await one.produce(transactional_frame(1)) == known
    assert answer(known).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_request_with_unknown_tagged_fields_is_not_mistaken_for_one_without(tmp_path: Path) -> None:
    plain = produce_frame(batch())
    assert plain.endswith(bytes(3))
    tagged, tagged_in_another_way = plain[:-1] + b"\x01\x63\x02ab", plain[:-1] + b"\x01\x63\x02cd"  # field 99
    assert await answered_alike(tmp_path / "tagged", [tagged] * 3) == 2
    assert await answered_alike(tmp_path / "mixed", [plain, tagged, tagged_in_another_way, plain] * 2) == 5


async def test_a_request_with_bytes_behind_it_is_not_mistaken_for_one_without(tmp_path: Path) -> None:
    plain = produce_frame(batch())
    longer = (len(plain) - LENGTH_BYTES + 4).to_bytes(LENGTH_BYTES, "big") + plain[LENGTH_BYTES:] + b"junk"
    assert await answered_alike(tmp_path, [plain, longer, longer, plain, plain]) == 3


async def test_a_request_that_is_written_in_another_way_is_cached_as_it_is_written(tmp_path: Path) -> None:
    plain = produce_frame(batch(), partition=1)
    timeout_and_one_topic = (1_000).to_bytes(4, "big") + b"\x02"
    longer = bytearray(plain.replace(timeout_and_one_topic, timeout_and_one_topic[:-1] + b"\x82\x00"))
    assert len(longer) == len(plain) + 1
    longer[:LENGTH_BYTES] = (len(longer) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big")
    assert await answered_alike(tmp_path, [bytes(longer), plain] * 3) == 4


@pytest.mark.parametrize("length", [b"\x00", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\x7f", b"\x81\x80\x80"])
async def test_records_of_an_impossible_length_close_the_connection_or_are_refused(
    tmp_path: Path, length: bytes
) -> None:
    plain = produce_frame(batch())
    start = plain.index(batch())
    cut = plain[LENGTH_BYTES : start - 1] + length + plain[start:]
    assert await answered_alike(tmp_path, [plain, len(cut).to_bytes(LENGTH_BYTES, "big") + cut, plain]) <= 1


async def test_a_topic_that_was_created_again_is_not_mistaken_for_the_one_before(one: Served) -> None:
    frames = [produce_frame(batch(), version=version) for version in (BY_NAME, BY_ID)]
    old_id = one.broker.topic_id("orders")
    for frame in frames * 2:
        await one.produce(frame)
    await one.broker.topics.delete("orders")
    await one.broker.create_topic("orders", 3)
    by_old_id = frames[1].replace(OWN_ID, old_id)
    assert answer(await one.produce(by_old_id), BY_ID).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert answer(await one.produce(frames[0])).base_offset == 0
    assert answer(await one.produce(frames[0])).base_offset == 1


async def test_no_more_partitions_are_remembered_than_there_is_room_for(one: Served) -> None:
    count = MAXIMUM_COUNT + 2
    await one.broker.create_topic("wide", count)
    for number in range(count):
        for offset in range(2):
            frame = produce_frame(batch(), topic="wide", partition=number)
            assert answer(await one.produce(frame)).base_offset == offset
    assert one.known_count == one.remembered_count == MAXIMUM_COUNT


async def test_quotas_count_cached_requests(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as broker:
        await broker.create_topic("orders", 1)
        one = Served(broker, quotas=broker.services.client_quotas)
        for _ in range(2):
            await one.produce(produce_frame(batch()))
        assert one.known_count == 1
        await broker.services.client_quotas.change((("client-id", "client"),), {"producer_byte_rate": 1.0})
        await one.produce(produce_frame(batch(bytes(100_000))))
        assert one.known_count == 2
        assert one.connection.muted_s


@pytest.mark.parametrize("flush_messages", [1, 2**31 - 1], ids=["durable", "page cache"])
async def test_the_memory_of_a_frame_is_free_when_its_request_is_answered(tmp_path: Path, flush_messages: int) -> None:
    frames = [
        produce_frame(batch(bytes(5_000))),
        produce_frame(batch(bytes(5_000)), acks=0),
        produce_frame(batch(bytes(5_000)), topic="missing"),
        produce_frame(batch(bytes(5_000))[:-1]),
        produce_frame_of_several([(0, batch()), (2, batch())]),
        produce_frame(None),
    ]
    async with served(tmp_path, log_flush_interval_messages=flush_messages) as one:
        for frame in frames * 3:
            await one.send(frame)
            one.memory.append(0)  # raises BufferError if the frame's memory is kept
        assert one.known_count == 11


def fail(*_: object) -> None:
    raise StorageError("the disk is gone")


async def fail_to_sync(*_: object) -> None:
    fail()


@pytest.mark.parametrize("acks", [-1, 1])
async def test_a_batch_that_cannot_be_stored_is_answered_as_if_it_were_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    async with served(tmp_path / "a") as known, served(tmp_path / "b") as decoded:
        replies: list[list[bytes | str | None]] = [[], []]
        for one, kept in ((known, replies[0]), (decoded, replies[1])):
            for partition, patched in ((0, (LocalFile, "append", fail)), (1, (LocalDisk, "sync", fail_to_sync))):
                frame = produce_frame(batch(), partition=partition, acks=acks)
                kept.append(await one.produce(frame))
                with monkeypatch.context() as broken:
                    broken.setattr(*patched)
                    if one is decoded:
                        one.connect_again()
                    kept.append(await one.produce(frame))
                kept.append(await one.produce(frame))
        assert replies[0] == replies[1]
        errors = [answer(reply).error_code for reply in replies[0]]
        assert errors == [0, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR] * 2
        assert known.known_count == 4


class Producer:
    """Frames by chance: what producers send, now and then what they should not."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._version = self._random.choice((9, 11, BY_NAME, BY_ID, BY_ID))
        self._sequences: dict[tuple[str, int], int] = {}

    def frame(self, topic: str) -> bytes:
        choose = self._random
        partition = choose.choice((0, 0, 0, 1, 2, 7))
        version = self._version if choose.randrange(20) else choose.randrange(9, 14)
        if not choose.randrange(3):
            key = (topic, -1 - partition)
            sequence = max(0, self._sequences.get(key, 0) + choose.choice((0, 0, 0, 0, 0, -1, 1)))
            self._sequences[key] = sequence + 1
            return produce_frame(
                transactional(choose.randbytes(50), sequence=sequence),
                topic=topic,
                partition=partition,
                version=version,
                transactional_id="application",
            )
        return produce_frame(
            self._records(topic, partition),
            topic=topic,
            partition=partition,
            version=version,
            acks=choose.choice((-1,) * 9 + (1, 0, 5)),
            client_id=choose.choice(("client",) * 8 + (None, "klient")),
            correlation_id=choose.randrange(-(2**31), 2**31),
            transactional_id=choose.choice((None,) * 9 + ("application",)),
        )

    def _records(self, topic: str, partition: int) -> bytes | None:
        choose = self._random
        values = [choose.randbytes(choose.choice((0, 1, 20, 200))) for _ in range(choose.randrange(1, 9))]
        timestamp_ms = NOW_MS + choose.choice((0, -5, 7, 10**10))
        plain = batch(*values, timestamp_ms=timestamp_ms, codec=choose.choice((Codec.NONE, Codec.ZSTD, Codec.GZIP)))
        match choose.randrange(16):
            case 0:
                return choose.choice((None, b"", plain[:-1], plain[:40], plain * 2, bytes(70)))
            case 1:
                changed = bytearray(plain)
                changed[choose.randrange(len(changed))] ^= 1 << choose.randrange(8)
                return bytes(changed)
            case 2:
                return batch(*values, is_transactional=True, producer_id=3, producer_epoch=0, base_sequence=0)
            case 3 | 4 | 5 | 6:
                key = (topic, partition)
                sequence = max(0, self._sequences.get(key, 0) + choose.choice((0, 0, 0, 0, 0, -1, 1)))
                self._sequences[key] = sequence + len(values)
                return batch(*values, producer_id=5, producer_epoch=0, base_sequence=sequence)
        return plain


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
        both = (known, decoded)
        for _ in range(STEPS_COUNT):
            topic = choose.choice((*TOPICS, "orders", "orders", "orders", "missing"))
            config = choose.choice(configs)
            before_offset = choose.randrange(4)
            step = choose.randrange(20)
            verified = choose.choice((ErrorCode.NONE,) * 5 + (ErrorCode.TRANSACTION_ABORTABLE,))
            is_elsewhere = choose.choice((False, True))
            confirms_in_same_step = choose.choice((False, True))
            frame = request_frame(4, "client", ApiVersionsRequest(), 3) if step == 5 else producer.frame(topic)
            decoded.connect_again()
            for one in both:
                one.broker.verifier.answers = [verified]
                one.broker.verifier.is_elsewhere = is_elsewhere
                one.broker.verifier.confirms_in_same_step = confirms_in_same_step
                await one.happen(step, topic, config, before_offset)
                if step in (6, 7, 8) and topic in TOPICS:
                    one.end_transaction(topic, 0)
            assert await known.produce(frame, topic) == await decoded.produce(frame, topic)
            assert known.unverified() == decoded.unverified()
        assert known.stored() == decoded.stored()
        assert decoded.known_count == 0
        assert known.known_count >= STEPS_COUNT // 15


@pytest.mark.parametrize("planted", [(PartitionLog, "append"), (ReplyForm, "write")])
async def test_a_cached_request_that_fails_unexpectedly_is_answered_as_any_other(
    one: Served, monkeypatch: pytest.MonkeyPatch, planted: tuple[type, str]
) -> None:
    frame = produce_frame(batch(b"a"))
    for _ in range(2):
        assert answer(await one.send(frame)).error_code == ErrorCode.NONE

    def fail(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    # The end of the connection would have a client that is not idempotent write it again.
    with monkeypatch.context() as broken:
        broken.setattr(*planted, fail)
        assert answer(await one.send(frame)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    known_count = one.known_count
    assert answer(await one.send(frame)).error_code == ErrorCode.NONE
    assert one.known_count == known_count + 1
