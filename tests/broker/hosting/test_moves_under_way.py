"""Refusals wait for the end of a hand-over, and no longer than is said."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.broker.hosting import moves_under_way
from fencepost.broker.hosting.moves_under_way import MovesUnderWay
from fencepost.broker.kernel.topic_partition import TopicPartition

ONE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


async def test_a_partition_is_under_way_from_the_begin_to_the_end() -> None:
    moves = MovesUnderWay()
    assert ONE not in moves
    moves.begin([ONE, ONE])
    assert ONE in moves
    assert OTHER not in moves
    moves.end(ONE)
    moves.end(ONE)
    assert ONE not in moves


async def test_a_request_waits_for_all_of_its_partitions() -> None:
    moves = MovesUnderWay()
    moves.begin([ONE, OTHER])
    waiting = asyncio.create_task(moves.ended([ONE, OTHER], within_s=60))
    moves.end(ONE)
    await asyncio.sleep(0)
    assert not waiting.done()
    moves.end(OTHER)
    await waiting


async def test_without_a_hand_over_nothing_waits() -> None:
    await asyncio.wait_for(MovesUnderWay().ended([ONE], within_s=60), 1)


@pytest.mark.parametrize("within_s", [-1.0, 0.0, 60.0])
async def test_a_hand_over_without_an_end_holds_a_request_for_a_bounded_time(
    within_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves_under_way, "LONGEST_WAIT_S", 0.01)
    moves = MovesUnderWay()
    moves.begin([ONE])
    await moves.ended([ONE], within_s=within_s)
    assert ONE in moves


async def test_one_that_waits_may_be_cancelled_without_the_others() -> None:
    moves = MovesUnderWay()
    moves.begin([ONE])
    cancelled, waiting = (asyncio.create_task(moves.ended([ONE], within_s=60)) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    moves.end(ONE)
    await waiting
    assert (await asyncio.gather(cancelled, return_exceptions=True))[0].__class__ is asyncio.CancelledError
