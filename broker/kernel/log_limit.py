"""A bound on the events of one kind that clients cause: none of them can fill the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

WINDOW_S: Final = 10.0
LOGGED_PER_WINDOW: Final = 20


class LogLimit:
    """Lets LOGGED_PER_WINDOW events be logged in WINDOW_S.

    now_s:    a clock that never goes back, such as the event loop's.
    left_out: logs how many events of the last window were not logged.
    """

    __slots__ = ("_count", "_ends_s", "_left_out", "_now_s")

    def __init__(self, now_s: Callable[[], float], left_out: Callable[[int], object]) -> None:
        self._now_s = now_s
        self._left_out = left_out
        self._ends_s = 0.0
        self._count = 0

    def allows(self) -> bool:
        """Count an event; return whether it is to be logged."""
        now_s = self._now_s()
        if now_s >= self._ends_s:
            unlogged = self._count - LOGGED_PER_WINDOW
            if unlogged > 0:
                self._left_out(unlogged)
            self._ends_s = now_s + WINDOW_S
            self._count = 0
        self._count += 1
        return self._count <= LOGGED_PER_WINDOW
