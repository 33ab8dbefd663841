"""The clock of a broker under test, which `advance` turns: an event loop whose time can be moved forward.

Time stays the machine's, plus an offset. All timers of the broker follow, because they are the loop's; the broker's
wall clock has the same offset.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

COARSENESS = 50
"""A step of `turn` covers at most this fraction of the time that is left, so that a week takes hundreds of steps."""

BUSY_PAUSE_S = 0.0005
MOST_ROUNDS = 100_000


class TurnableLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be turned forward.

    offset_s: time by which it was turned so far.
    """

    offset_s = 0.0
    _threads_at_work = 0

    @classmethod
    @contextmanager
    def made_of(cls, loop: asyncio.AbstractEventLoop) -> Iterator[bool]:
        """Let a loop be turned while the context lasts, if it is one of asyncio's own; yields whether it can be.

        A loop that was turned stays one of this class: its time must not go back.
        """
        if isinstance(loop, cls):
            yield True
        elif type(loop) is asyncio.SelectorEventLoop:
            loop.__class__ = cls
            try:
                yield True
            finally:
                if not loop.offset_s:  # type: ignore[attr-defined]
                    loop.__class__ = asyncio.SelectorEventLoop
        else:
            yield False

    def time(self) -> float:
        return super().time() + self.offset_s

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = super().run_in_executor(executor, func, *args)
        if executor is not None:  # a broker's own; the default one may run calls of the test, too
            self._threads_at_work += 1
            future.add_done_callback(self._thread_ended)
        return future

    async def _accept_connection2(
        self, protocol_factory: Any, conn: socket.socket, extra: Any, *arguments: Any, **options: Any
    ) -> None:
        """As in asyncio, but a connection whose server is closed meanwhile is closed, too: its client would wait."""
        await super()._accept_connection2(protocol_factory, conn, extra, *arguments, **options)  # type: ignore[misc]
        if conn.fileno() >= 0 and conn.fileno() not in self._transports:  # type: ignore[attr-defined]
            conn.close()

    def _thread_ended(self, _: asyncio.Future[Any]) -> None:
        self._threads_at_work -= 1

    async def turn(self, seconds: float) -> None:
        """Let time pass, and return when all timers that became due in it have run.

        Time moves from timer to timer, in steps of at least a fiftieth of the rest: timers that are due within one step
        run in their order, at the end of that step.
        """
        # Only timers end a step, not ready callbacks: time passes even if some client never rests.
        end_s = self.time() + seconds
        await self.settle()
        while (left_s := end_s - (now_s := self.time())) > 0:
            due_s = self._next_timer_s()
            step_end_s = end_s if due_s is None else min(end_s, max(due_s, now_s + left_s / COARSENESS))
            self.offset_s += step_end_s - now_s
            await self.settle()

    async def settle(self) -> None:
        """Wait until nothing is ready to run, no timer is due and no thread of the broker is at work."""
        quiet_rounds = 0
        for _ in range(MOST_ROUNDS):
            await asyncio.sleep(0)
            if self._threads_at_work:
                await asyncio.sleep(BUSY_PAUSE_S)
                quiet_rounds = 0
            elif self._ready or self._is_timer_due():  # type: ignore[attr-defined]  # of asyncio.BaseEventLoop
                quiet_rounds = 0
            else:
                quiet_rounds += 1
                if quiet_rounds > 1:  # in the first, the selector may have seen requests of clients
                    return

    def _next_timer_s(self) -> float | None:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if timers and not timers[0].cancelled():
            return timers[0].when()
        return min((timer.when() for timer in timers if not timer.cancelled()), default=None)

    def _is_timer_due(self) -> bool:
        next_s = self._next_timer_s()
        return next_s is not None and next_s <= self.time()


class TurnableClock:
    """The wall clock of a broker on a `TurnableLoop`: the machine's, plus how far the loop was turned since the
    clock was made.

    ahead_s: time by which it is ahead of the machine's clock from its beginning, as an earlier one was turned.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ahead_s: float = 0.0) -> None:
        self._loop = loop
        self._begin_s = ahead_s - getattr(loop, "offset_s", 0.0)

    @property
    def ahead_s(self) -> float:
        """How far it is ahead of the machine's now."""
        offset_s: float = getattr(self._loop, "offset_s", 0.0)
        return self._begin_s + offset_s

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + int(self.ahead_s * 1000)
