"""Cached Produce requests of transactions: their batches wait for the coordinator as those of decoded requests do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from tests.support.handler_context import batch
from tests.support.produce_clients import PRODUCER_ID, Served, served
from tests.support.produce_frames import BY_ID, BY_NAME, answers, produce_frame_of_several

ALL = (0, 1, 2)
for_one_partition_and_several: Callable[[Any], Any] = pytest.mark.parametrize(
    "partitions", [(0,), ALL], ids=["one", "several"]
)


def base_offsets(reply: bytes | str | None, version: int = BY_ID) -> dict[int, int]:
    assert set(errors(reply, version).values()) == {ErrorCode.NONE}
    return {answer.index: answer.base_offset for answer in answers(reply, version)}


def errors(reply: bytes | str | None, version: int = BY_ID) -> dict[int, int]:
    return {answer.index: answer.error_code for answer in answers(reply, version)}


def transactional(sequence: int = 0, *, producer_epoch: int = 0) -> bytes:
    return batch(producer_id=PRODUCER_ID, producer_epoch=producer_epoch, base_sequence=sequence, is_transactional=True)


def frame_of(
    sequence: int = 0, partitions: Sequence[int] = ALL, *, version: int = BY_ID, producer_epoch: int = 0
) -> bytes:
    records = transactional(sequence, producer_epoch=producer_epoch)
    batches = [(partition, records) for partition in partitions]
    return produce_frame_of_several(batches, version=version, transactional_id="application")


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "one") as opened:
        yield opened


@for_one_partition_and_several
@pytest.mark.parametrize(
    ("version", "is_elsewhere", "confirms_in_same_step"),
    [(11, False, False), (11, False, True), (11, True, False), (BY_NAME, False, True), (BY_ID, True, False)],
)
async def test_batches_are_verified_as_those_of_decoded_requests(
    tmp_path: Path, partitions: Sequence[int], version: int, is_elsewhere: bool, confirms_in_same_step: bool
) -> None:
    replies: list[list[bytes | str | None]] = [[], []]
    async with served(tmp_path / "a") as known, served(tmp_path / "b") as decoded:
        for one, kept in ((known, replies[0]), (decoded, replies[1])):
            kept.append(await one.produce(frame_of(0, partitions, version=version)))
            one.end_transaction("orders", *partitions)
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
                frame = frame_of(sequence, partitions, version=version, producer_epoch=producer_epoch)
                kept.append(await one.produce(frame))
            assert one.broker.services.verifier.waiting == {}
        assert replies[0] == replies[1]
        assert known.stored() == decoded.stored()
        assert known.unverified() == decoded.unverified()
        assert known.known_count >= 8


async def test_batches_of_two_producers_in_one_request_are_refused_though_it_could_be_cached(one: Served) -> None:
    await one.produce(frame_of())
    batches = [(0, transactional(1)), (1, transactional(producer_epoch=1))]
    frame = produce_frame_of_several(batches, version=BY_ID, transactional_id="application")
    for _ in range(2):
        assert set(errors(await one.produce(frame)).values()) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert one.known_count == 1


async def test_partitions_that_are_in_the_transaction_are_not_verified_again(one: Served) -> None:
    for sequence in (0, 1):
        assert base_offsets(await one.produce(frame_of(sequence, (1, 0)))) == {1: sequence, 0: sequence}
    one.end_transaction("orders", 0)
    one.broker.verifier.calls.clear()
    assert base_offsets(await one.produce(frame_of(2, (1, 0)))) == {1: 2, 0: 3}
    assert [call["topic_partitions"] for call in one.broker.verifier.calls] == [[TopicPartition("orders", 0)]]
    assert one.known_count == 2


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_each_partition_gets_the_answer_of_the_coordinator(one: Served, is_elsewhere: bool) -> None:
    await one.produce(frame_of())
    one.end_transaction("orders", *ALL)
    one.broker.verifier.is_elsewhere = is_elsewhere
    said = [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.PRODUCER_FENCED]
    partitions = [TopicPartition("orders", partition) for partition in ALL]
    one.broker.verifier.answers = [dict(zip(partitions, said, strict=True))]
    replied = errors(await one.produce(frame_of(1)))
    assert replied == {0: ErrorCode.NONE, 1: ErrorCode.TRANSACTION_ABORTABLE, 2: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert one.known_count == 1
    assert one.broker.services.verifier.waiting == {}


@for_one_partition_and_several
async def test_pipelined_requests_keep_their_order_while_the_first_is_verified(
    one: Served, partitions: Sequence[int]
) -> None:
    await one.produce(frame_of(0, partitions))
    one.end_transaction("orders", *partitions)
    one.broker.verifier.is_elsewhere = True
    one.broker.verifier.answers = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
    replies = await asyncio.gather(*(one.produce(frame_of(sequence, partitions)) for sequence in (1, 2, 3)))
    assert [base_offsets(reply) for reply in replies] == [dict.fromkeys(partitions, offset) for offset in (2, 3, 4)]
    assert one.known_count == 3
    assert one.broker.services.verifier.waiting == {}


@for_one_partition_and_several
async def test_a_marker_between_verification_and_append_refuses_the_batch_that_it_is_for(
    one: Served, monkeypatch: pytest.MonkeyPatch, partitions: Sequence[int]
) -> None:
    await one.produce(frame_of(0, partitions, version=11))
    one.end_transaction("orders", *partitions)
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def verify(*, topic_partitions: Sequence[TopicPartition], **_: Any) -> dict[TopicPartition, ErrorCode]:
        asked.set()
        await may_answer.wait()
        return dict.fromkeys(topic_partitions, ErrorCode.NONE)

    monkeypatch.setattr(one.broker.verifier, "verify", verify)
    waiting = asyncio.ensure_future(one.produce(frame_of(1, partitions, version=11)))
    await asked.wait()
    ended = partitions[-1]
    one.end_transaction("orders", ended)
    may_answer.set()
    expected = dict.fromkeys(partitions, ErrorCode.NONE) | {ended: ErrorCode.INVALID_TXN_STATE}
    assert errors(await waiting, 11) == expected
    assert one.known_count == 1


@for_one_partition_and_several
@pytest.mark.parametrize("is_at_once", [False, True])
async def test_a_verification_that_fails_unexpectedly_is_answered_as_if_it_were_decoded(
    one: Served, monkeypatch: pytest.MonkeyPatch, partitions: Sequence[int], is_at_once: bool
) -> None:
    await one.produce(frame_of(0, partitions))
    one.end_transaction("orders", *partitions)

    def fail_to_verify(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    async def fail_later(*_: object, **__: object) -> None:
        fail_to_verify()

    monkeypatch.setattr(one.broker.verifier, "verify", fail_to_verify if is_at_once else fail_later)
    known = await one.produce(frame_of(1, partitions))
    assert one.known_count == 1
    one.connect_again()
    assert await one.produce(frame_of(1, partitions)) == known
    assert set(errors(known).values()) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert one.broker.services.verifier.waiting == {}
