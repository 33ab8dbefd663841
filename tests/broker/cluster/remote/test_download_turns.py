"""Turns of downloads: bounded, fair among partitions, and none is lost when a waiter gives up."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.broker.cluster.remote.download_turns import DownloadTurns
from fencepost.broker.kernel.topic_partition import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Downloads:
    """Downloads that end at a call. begun: the names of those that have their turn, in order."""

    def __init__(self, at_once: int) -> None:
        self.turns = DownloadTurns(at_once)
        self.begun: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, name: str, of: TopicPartition) -> None:
        self._ends[name] = asyncio.Event()

        async def download() -> None:
            async with self.turns.turn(of):
                self.begun.append(name)
                await self._ends[name].wait()

        self.tasks[name] = asyncio.create_task(download())
        await self.settle()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_no_more_are_under_way_than_the_bound_and_partitions_alternate() -> None:
    downloads = Downloads(2)
    for name, of in (("a1", A), ("a2", A), ("a3", A), ("a4", A), ("b1", B)):
        await downloads.ask(name, of)
    assert downloads.begun == ["a1", "a2"]
    assert not downloads.turns.are_free
    for name in ("a1", "a2", "a3", "b1", "a4"):
        await downloads.end(name)
    assert downloads.begun == ["a1", "a2", "a3", "b1", "a4"]
    assert downloads.turns.are_free


@pytest.mark.parametrize("has_turn", [True, False])
async def test_a_waiter_that_gives_up_leaves_its_turn_to_the_next(has_turn: bool) -> None:
    downloads = Downloads(1)
    for name in ("first", "second", "third"):
        await downloads.ask(name, A)
    if has_turn:
        downloads._ends["first"].set()
        await asyncio.sleep(0)  # the turn has been passed on, and its taker has not run yet
    downloads.tasks["second"].cancel()
    await downloads.end("first")
    assert downloads.begun[-1] == "third"
    await downloads.end("third")
    assert downloads.turns.are_free
