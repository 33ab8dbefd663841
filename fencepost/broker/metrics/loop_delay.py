"""Delay of the event loop: lateness of a timer, measured ten times a second."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from fencepost.broker.kernel.supervision import Place, Policy

LOOP_DELAY = Place("look at the delay of the event loop", Policy.RETRY)

INTERVAL_S: Final = 0.1
SAMPLES_COUNT: Final = 600
"""Those of a minute."""


class LoopDelays(NamedTuple):
    """Delays of the last minute, in seconds."""

    median_s: float
    p99_s: float
    longest_s: float


class LoopDelay:
    """The delays of the last minute. on_minute: called once a minute."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_minute: Callable[[], None]) -> None:
        self._loop = loop
        self._on_minute = on_minute
        self._delays_s: deque[float] = deque(maxlen=SAMPLES_COUNT)
        self._due_s = 0.0
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def last_minute(self) -> LoopDelays:
        ordered = sorted(self._delays_s) or [0.0]
        last = len(ordered) - 1
        return LoopDelays(ordered[last // 2], ordered[-(-last * 99 // 100)], ordered[-1])

    def _arm(self) -> None:
        self._due_s = self._loop.time() + INTERVAL_S
        self._timer = self._loop.call_at(self._due_s, LOOP_DELAY.callback(self._look))

    def _look(self) -> None:
        delay_s = max(0.0, self._loop.time() - self._due_s)
        self._arm()
        self._delays_s.append(delay_s)
        self._count += 1
        if self._count % SAMPLES_COUNT == 0:
            self._on_minute()
