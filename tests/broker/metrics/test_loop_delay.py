"""The delay of the event loop: of the last minute, whatever happened before, and as late as its timers are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fencepost.broker.metrics.loop_delay import INTERVAL_S, SAMPLES_COUNT, LoopDelay, LoopDelays


class Loop:
    """A loop whose only timer is called as late as a test says."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.due: tuple[float, Callable[[], None]] | None = None

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        self.due = (when_s, callback)
        return self  # type: ignore[return-value]  # it has `cancel`, which is all that is called

    def cancel(self) -> None:
        self.due = None

    def call(self, late_s: float = 0.0) -> None:
        assert self.due is not None
        due_s, callback = self.due
        self.now_s = due_s + late_s
        callback()


def test_before_the_first_timer_there_is_no_delay() -> None:
    loop: Any = Loop()
    assert LoopDelay(loop, lambda: None).last_minute == LoopDelays(0.0, 0.0, 0.0)


def test_the_last_minute_has_a_median_a_percentile_and_a_longest() -> None:
    loop: Any = Loop()
    delay = LoopDelay(loop, lambda: None)
    delay.start()
    loop.call(late_s=9.0)  # more than a minute ago at the end
    for number in range(SAMPLES_COUNT):
        loop.call(late_s=1.0 if number == 7 else 0.5 if number < 20 else 0.25)
    median_s, p99_s, longest_s = (round(one, 6) for one in delay.last_minute)
    assert (median_s, p99_s, longest_s) == (0.25, 0.5, 1.0)


def test_a_timer_that_comes_early_is_no_negative_delay() -> None:
    loop: Any = Loop()
    delay = LoopDelay(loop, lambda: None)
    delay.start()
    loop.call(late_s=-INTERVAL_S / 2)
    assert delay.last_minute.longest_s == 0.0


def test_once_a_minute_somebody_is_called_and_after_the_end_nobody() -> None:
    loop: Any = Loop()
    minutes: list[float] = []
    delay = LoopDelay(loop, lambda: minutes.append(loop.now_s))
    delay.start()
    for _ in range(2 * SAMPLES_COUNT):
        loop.call()
    assert len(minutes) == 2
    delay.close()
    assert loop.due is None
    delay.close()
