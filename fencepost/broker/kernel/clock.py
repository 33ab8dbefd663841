"""Wall clock: the seam to the system's time. Cores take `now_ms` as an argument; only services have a `Clock`."""

from __future__ import annotations

import time
from typing import Final, Protocol


class Clock(Protocol):
    """Wall time in milliseconds since 1970. Durations are measured with the event loop's clock."""

    def now_ms(self) -> int: ...


class SystemClock:
    """The machine's wall clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SteadyClock:
    """The wall time of its making and the monotonic time since: for times that are neither stored nor shown.

    Nothing that lives in memory expires, or waits for a day, when an administrator or NTP sets the wall clock.
    """

    __slots__ = ("_ahead_ms",)

    def __init__(self) -> None:
        self._ahead_ms = time.time_ns() // 1_000_000 - _monotonic_ms()

    def now_ms(self) -> int:
        return self._ahead_ms + _monotonic_ms()


def steady(clock: Clock) -> Clock:
    """A clock that is never set, in place of the machine's. Others, which tests turn on purpose, stay as they are."""
    return SteadyClock() if isinstance(clock, SystemClock) else clock


CLOCK_MOVED_MS: Final = 30_000
"""Least jump of a clock that was set; less is a drift, and does little harm."""


class ClockWatch:
    """Detects that the wall clock was set. It ignores clocks that tests turn on purpose."""

    __slots__ = ("_ahead_ms", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock if isinstance(clock, SystemClock) else None
        self._ahead_ms = clock.now_ms() - _monotonic_ms()

    def moved_ms(self) -> int:
        """Milliseconds by which the clock was set ahead since the last call, or back (negative); 0 below
        CLOCK_MOVED_MS."""
        if self._clock is None:
            return 0
        ahead_ms = self._clock.now_ms() - _monotonic_ms()
        moved_ms = ahead_ms - self._ahead_ms
        if abs(moved_ms) < CLOCK_MOVED_MS:
            return 0
        self._ahead_ms = ahead_ms
        return moved_ms


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
