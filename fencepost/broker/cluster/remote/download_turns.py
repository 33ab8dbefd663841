"""Turns of downloads: a bound on those that are under way, shared fairly among the partitions that want some."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fencepost.broker.kernel.topic_partition import TopicPartition


class DownloadTurns:
    """at_once: the most turns that are taken; beyond it, partitions get them one after another."""

    def __init__(self, at_once: int) -> None:
        self._free_count = at_once
        self._waiting: OrderedDict[TopicPartition, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def are_free(self) -> bool:
        """Whether a turn would begin at once."""
        return self._free_count > 0

    @asynccontextmanager
    async def turn(self, of: TopicPartition) -> AsyncIterator[None]:
        """Wait for a turn; it ends with the block."""
        if self._free_count:
            self._free_count -= 1
        else:
            await self._wait(of)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, of: TopicPartition) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(of, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # it was given a turn in the step that cancelled it
            raise

    def _pass_on(self) -> None:
        """Give the turn to the next partition, or back."""
        while self._waiting:
            of, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[of] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._free_count += 1
