"""Limiter that spreads bursts of work over turns of the event loop, so that other work runs in between. For example,
thousands of transactions time out in one instant.
"""

from __future__ import annotations

import asyncio
from collections import deque

from fencepost.broker.kernel.supervision import Place, Policy

TURN = Place("turn of work that came in a burst", Policy.RETRY)


class PerTurnLimiter:
    """Admits at most N callers in one turn of the event loop; the others follow in later turns, in their order.

    Larger work has a larger weight: see `acquire`.
    """

    __slots__ = ("_entered_count", "_is_counting", "_per_turn_count", "_waiting")

    def __init__(self, per_turn_count: int) -> None:
        self._per_turn_count = per_turn_count
        self._entered_count = 0
        self._is_counting = False  # `_begin_turn` is scheduled for the next turn
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    async def acquire(self, weight: int = 1) -> None:
        """Return at once while this turn's bound is not reached; else wait for a later turn.

        weight: the share of the bound that this caller takes. The last caller of a turn may exceed the bound.
        """
        if self._entered_count < self._per_turn_count and not self._waiting:
            self._entered_count += weight
            self._count()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, weight))
        self._count()
        await turn

    def _count(self) -> None:
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._begin_turn)

    @TURN.catches_itself
    def _begin_turn(self) -> None:
        try:
            self._admit_waiting()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            TURN.failed(error, on_failure=lambda _: self._count())

    def _admit_waiting(self) -> None:
        self._is_counting = False
        self._entered_count = 0
        waiting = self._waiting
        while waiting and self._entered_count < self._per_turn_count:
            turn, weight = waiting.popleft()
            if not turn.done():  # cancelled while it waited
                turn.set_result(None)
                self._entered_count += weight
        if self._entered_count:
            self._count()
