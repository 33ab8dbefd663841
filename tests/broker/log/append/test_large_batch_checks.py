"""Batches that take longer to check than one step of the event loop may are answered and stored like small ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.log.append import large_batch_checks
from fencepost.protocol.compression import Codec, compress
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import HEADER_BYTES, read_header, sealed_header
from fencepost.protocol.record_validation import RECORDS_AT_ONCE
from tests.support.handler_context import batch
from tests.support.longest_step import steps_until_done
from tests.support.produce_clients import PRODUCER_ID, Served, served
from tests.support.produce_frames import answers, produce_frame, produce_frame_of_several

COUNT = RECORDS_AT_ONCE + 1
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
ROOM = {"max.message.bytes": "10000000"}


def large(codec: Codec = Codec.ZSTD, *, count: int = COUNT, **build: Any) -> bytes:
    return batch(*[b"value"] * count, codec=codec, **build)


def bomb(codec: Codec) -> bytes:
    """One record of 20 MB in a few KB, which is no record: its length is of another."""
    content = compress(codec, bytes(20_000_000))
    header = read_header(batch(b"x"))._replace(attributes=int(codec))
    return sealed_header(header, content) + content


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "one") as opened:
        await opened.broker.topics.alter_configs("orders", ROOM)
        yield opened


def first_offsets(reply: bytes | str | None) -> list[tuple[int, int]]:
    return [(answer.error_code, answer.base_offset) for answer in answers(reply)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("is_known", [False, True])
async def test_a_large_batch_is_stored_as_it_was_sent(one: Served, codec: Codec, is_known: bool) -> None:
    if is_known:
        await one.produce(produce_frame(batch()))
    start_offset = one.broker.log("orders", 0).log_end_offset
    sent = large(codec)
    assert first_offsets(await one.produce(produce_frame(sent))) == [(ErrorCode.NONE, start_offset)]
    log = one.broker.log("orders", 0)
    assert log.log_end_offset == start_offset + COUNT
    stored = log.segments.active.batches.log.read(0, log.size_bytes)
    assert bytes(stored[-len(sent) + 16 :]) == sent[16:]
    assert len(one.connection.held_for) == 1


@pytest.mark.parametrize("codec", CODECS[1:])
async def test_a_bomb_is_refused_after_others_had_their_turn(one: Served, codec: Codec) -> None:
    sending = asyncio.ensure_future(one.produce(produce_frame(bomb(codec))))
    turns_count = 0
    while not sending.done():
        await asyncio.sleep(0)
        turns_count += 1
    assert [answer.error_code for answer in answers(await sending)] == [ErrorCode.INVALID_RECORD]
    assert turns_count > 2
    assert one.broker.log("orders", 0).log_end_offset == 0


async def test_of_several_batches_the_small_ones_do_not_wait_for_the_large_one(one: Served) -> None:
    await one.produce(produce_frame_of_several([(0, batch()), (1, batch())]))
    sent = [(0, batch()), (1, large()), (2, large(count=3, codec=Codec.NONE))]
    sending = asyncio.ensure_future(one.produce(produce_frame_of_several(sent)))
    await asyncio.sleep(0)
    assert [one.broker.log("orders", partition).log_end_offset for partition in range(3)] == [2, 1, 3]
    assert len(one.connection.held_for) == 1, "requests that follow on the connection wait"
    assert first_offsets(await sending) == [(0, 1), (0, 1), (0, 0)]
    assert one.connection.held_for[0].done()


async def test_a_large_batch_of_an_idempotent_producer_is_a_duplicate_when_it_comes_again(one: Served) -> None:
    sent = large(producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        assert first_offsets(await one.produce(produce_frame(sent))) == [(ErrorCode.NONE, 0)]
    assert one.broker.log("orders", 0).log_end_offset == COUNT


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_large_transactional_batch_is_verified_and_appended(one: Served, is_known: bool) -> None:
    transactional: dict[str, Any] = {"producer_id": PRODUCER_ID, "producer_epoch": 0, "is_transactional": True}
    sequence = 0
    if is_known:
        small = batch(base_sequence=0, **transactional)
        await one.produce(produce_frame(small, transactional_id="application", version=11))
        one.end_transaction("orders", 0)
        sequence = 1
    sent = large(base_sequence=sequence, **transactional)
    reply = await one.produce(produce_frame(sent, transactional_id="application", version=11))
    log = one.broker.log("orders", 0)
    assert [answer.error_code for answer in answers(reply, 11)] == [ErrorCode.NONE]
    assert log.log_end_offset == COUNT + 2 * is_known
    assert log.last_stable_offset == 2 * is_known


async def test_a_topic_gives_a_large_batch_its_time_and_compression(one: Served) -> None:
    config = {**ROOM, "message.timestamp.type": "LogAppendTime", "compression.type": "lz4"}
    await one.broker.topics.alter_configs("stamped", config)
    (answer,) = answers(await one.produce(produce_frame(large(), topic="stamped"), topic="stamped"))
    log = one.broker.log("stamped", 0)
    header = read_header(log.segments.active.batches.log.read(0, HEADER_BYTES))
    assert (answer.error_code, answer.log_append_time_ms) == (ErrorCode.NONE, one.broker.clock.now_ms())
    assert (header.codec, header.is_log_append_time, header.records_count) == (Codec.LZ4, True, COUNT)


async def test_a_large_batch_whose_topic_changes_while_it_is_checked_follows_the_new_settings(
    one: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = large_batch_checks.LargeBatches.check
    calls: list[int] = []

    async def check_and_change(*arguments: Any) -> Any:
        checked = await check(*arguments)
        if not calls:
            await one.broker.topics.alter_configs("orders", {**ROOM, "compression.type": "gzip"})
        calls.append(1)
        return checked

    monkeypatch.setattr(large_batch_checks.LargeBatches, "check", check_and_change)
    assert first_offsets(await one.produce(produce_frame(large()))) == [(ErrorCode.NONE, 0)]
    header = read_header(one.broker.log("orders", 0).segments.active.batches.log.read(0, HEADER_BYTES))
    assert (len(calls), header.codec) == (2, Codec.GZIP)


async def test_a_large_batch_without_acknowledgement_is_appended(one: Served) -> None:
    assert await one.produce(produce_frame(large(), acks=0)) is None
    assert one.broker.log("orders", 0).log_end_offset == COUNT


async def test_a_large_batch_of_a_topic_that_goes_meanwhile_is_refused(one: Served) -> None:
    sending = asyncio.ensure_future(one.produce(produce_frame(large())))
    await asyncio.sleep(0)
    await one.broker.topics.delete("orders")
    assert [answer.error_code for answer in answers(await sending)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_few_large_batches_are_in_work_at_a_time_and_small_ones_do_not_wait(one: Served) -> None:
    others = [Served(one.broker) for _ in range(6)]
    sending = [asyncio.ensure_future(other.produce(produce_frame(large()))) for other in others]
    await asyncio.sleep(0)
    assert first_offsets(await one.produce(produce_frame(batch()))) == [(ErrorCode.NONE, 0)]
    assert not any(task.done() for task in sending)
    offsets = [first_offsets(await task)[0] for task in sending]
    assert sorted(offsets) == [(ErrorCode.NONE, 1 + COUNT * number) for number in range(6)]


async def test_no_step_is_long_while_many_records_are_checked(one: Served) -> None:
    """Of processor time; a step is 2 ms and one more piece, here with room for a slower machine."""
    sent = large(count=200_000, codec=Codec.LZ4)
    sending = asyncio.ensure_future(one.produce(produce_frame(sent)))
    steps = await steps_until_done(sending)
    assert first_offsets(await sending) == [(ErrorCode.NONE, 0)]
    assert steps.longest_s < 0.05
