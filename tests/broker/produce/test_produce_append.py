"""Requests with more batches than are appended in one step are answered and stored like small ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.handlers import produce
from fencepost.broker.log.partition_log import AppendResult, PartitionLog
from fencepost.broker.produce import produce_append as production
from fencepost.protocol.errors import ErrorCode
from tests.broker.log.append.test_large_batch_checks import first_offsets
from tests.support.handler_context import batch
from tests.support.longest_step import steps_until_done
from tests.support.produce_clients import Served, served
from tests.support.produce_frames import produce_frame_of_several

COUNT = 12
AT_ONCE = 5
FRAME = produce_frame_of_several([(index, batch(b"%d" % index)) for index in range(COUNT)], topic="wide")


@pytest.fixture
async def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    for module in (produce, production):
        monkeypatch.setattr(module, "APPENDED_AT_ONCE_COUNT", AT_ONCE)
    async with served(tmp_path / "one") as opened:
        await opened.broker.create_topic("wide", COUNT)
        yield opened


def ends(one: Served) -> list[int]:
    return [one.broker.log("wide", index).log_end_offset for index in range(COUNT)]


async def test_no_step_appends_more_than_some_batches(one: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 batches in one step took 150 ms."""
    appended: list[int] = []
    append = PartitionLog.append

    def counted(log: PartitionLog, *batches: Any, **named: Any) -> AppendResult:
        appended.append(1)
        return append(log, *batches, **named)

    monkeypatch.setattr(PartitionLog, "append", counted)
    sending = asyncio.ensure_future(one.produce(FRAME))
    most, before = 0, 0
    while not sending.done():
        await asyncio.sleep(0)
        most, before = max(most, len(appended) - before), len(appended)
    assert (most, before) == (AT_ONCE, COUNT)
    assert first_offsets(await sending) == [(ErrorCode.NONE, 0)] * COUNT


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_all_batches_are_stored_and_the_connection_waits(one: Served, acks: int) -> None:
    frame = produce_frame_of_several([(index, batch(b"%d" % index)) for index in range(COUNT)], topic="wide", acks=acks)
    for end_offset in (1, 2):
        reply = await one.produce(frame)
        assert (reply is None) == (acks == 0)
        assert ends(one) == [end_offset] * COUNT
    assert len(one.connection.held_for) == 2


async def test_few_batches_are_appended_at_once(one: Served) -> None:
    frame = produce_frame_of_several([(index, batch()) for index in range(AT_ONCE)], topic="wide")
    sending = asyncio.ensure_future(one.produce(frame))
    await asyncio.sleep(0)
    assert ends(one) == [1] * AT_ONCE + [0] * (COUNT - AT_ONCE)
    assert first_offsets(await sending) == [(ErrorCode.NONE, 0)] * AT_ONCE
    assert len(one.connection.held_for) == 0


async def test_batches_of_a_topic_that_goes_meanwhile_are_refused(one: Served) -> None:
    sending = asyncio.ensure_future(one.produce(FRAME))
    await asyncio.sleep(0)
    await one.broker.topics.delete("wide")
    errors = [error for error, _ in first_offsets(await sending)]
    assert errors[-1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_reply_of_many_batches_is_written_in_slices(one: Served) -> None:
    sending = asyncio.ensure_future(one.produce(FRAME))
    steps = await steps_until_done(sending)
    assert len(first_offsets(await sending)) == COUNT
    assert steps.turns_count > COUNT // AT_ONCE
