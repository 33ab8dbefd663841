"""A wall clock that is set: who notices it, and who does not."""

from __future__ import annotations

import time

import pytest

from fencepost.broker.kernel.clock import ClockWatch, SteadyClock, SystemClock, steady
from tests.support.log_world import ManualClock

DAY_MS = 86_400_000


class SetClock(SystemClock):
    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def test_a_clock_that_was_set_is_noticed_once() -> None:
    clock = SetClock()
    watch = ClockWatch(clock)
    assert watch.moved_ms() == 0
    for moved_ms in (DAY_MS, -DAY_MS):
        clock.ahead_ms += moved_ms
        assert watch.moved_ms() == pytest.approx(moved_ms, abs=10_000)
        assert watch.moved_ms() == 0


def test_a_clock_that_a_test_turns_is_followed() -> None:
    clock = ManualClock()
    assert steady(clock) is clock
    watch = ClockWatch(clock)
    clock.time_ms += DAY_MS
    assert watch.moved_ms() == 0


def test_a_steady_clock_does_not_follow_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = steady(SystemClock())
    assert isinstance(clock, SteadyClock)
    before_ms = clock.now_ms()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert 0 <= clock.now_ms() - before_ms < 60_000
