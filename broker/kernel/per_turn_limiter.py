"""Work that comes in bursts, such as thousands of transactions that time out in one instant, spread over turns of the
event loop: whatever else there is to do is done in between.
"""

from __future__ import annotations

import asyncio
from collections import deque

from fencepost.broker.kernel.supervision import Place, Policy

TURN = Place("turn of work that came in a burst", Policy.RETRY)


class PerTurnLimiter:
    """Lets so many through in one turn of the event loop, the others in the turns after it, in the order they came.

    Work that is larger than the usual counts as many: see `enter`.
    """

    __slots__ = ("_entered_count", "_is_counting", "_per_turn_count", "_waiting")

    def __init__(self, per_turn_count: int) -> None:
        self._per_turn_count = per_turn_count
        self._entered_count = 0
        self._is_counting = False  # the next turn has something to do
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    async def enter(self, weight: int = 1) -> None:
        """Go on at once, unless many have done so in this turn.

        weight: as how many this one counts. The last one of a turn may weigh more than there is room for.
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

    @TURN.handles
    def _begin_turn(self) -> None:
        try:
            self._let_in()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            TURN.failed(error, on_failure=lambda _: self._count())

    def _let_in(self) -> None:
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
