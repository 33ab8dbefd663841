"""A bound on the events of one kind that clients cause: none of them can fill the log, or hide the events of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final

WINDOW_S: Final = 10.0
SHARE: Final = 20
"""Events of one principal or address that are logged in a window."""
FULL_SHARES: Final = 20
"""Principals or addresses that have a whole share in a window; each further one has one event."""
MAXIMUM_SHARES: Final = 500
"""Principals or addresses that have a share in a window. Events of further ones are counted together."""
NAMED: Final = 20
"""Principals or addresses whose number of unlogged events is logged: those that caused the most."""
OTHERS: Final = ""


class LogLimit:
    """Lets each principal or address have SHARE events logged in WINDOW_S.

    now_s:    a clock, in seconds. If it goes back, a new window begins.
    left_out: logs how many events of the last window were not logged, and of whom; OTHERS for all that have no number
              of their own.
    """

    __slots__ = ("_begun_s", "_left_out", "_logged", "_now_s", "_remaining", "_unlogged")

    def __init__(self, now_s: Callable[[], float], left_out: Callable[[int, str], object]) -> None:
        self._now_s = now_s
        self._left_out = left_out
        self._begun_s = now_s()
        self._remaining: dict[str, int] = {}  # events that may still be logged in this window
        self._unlogged: Counter[str] = Counter()
        self._logged: set[Hashable] = set()

    def allows(self, whose: str, *, event: Hashable = None) -> bool:
        """Count an event; return whether it is to be logged.

        whose: the principal or address that causes it. event: is logged once in a window; None for any number of times.
        """
        now_s = self._now_s()
        if not 0 <= now_s - self._begun_s < WINDOW_S:
            self._begin_window(now_s)
        remaining = self._remaining.get(whose)
        if remaining is None:
            if len(self._remaining) >= MAXIMUM_SHARES:
                self._unlogged[OTHERS] += 1
                return False
            remaining = SHARE if len(self._remaining) < FULL_SHARES else 1
        is_logged = remaining > 0 and (event is None or event not in self._logged)
        self._remaining[whose] = remaining - is_logged
        if not is_logged:
            self._unlogged[whose] += 1
        elif event is not None:
            self._logged.add(event)
        return is_logged

    def _begin_window(self, now_s: float) -> None:
        unlogged, self._unlogged = self._unlogged, Counter()
        self._remaining.clear()
        self._logged.clear()
        self._begun_s = now_s
        others_count = unlogged.pop(OTHERS, 0)
        named = unlogged.most_common(NAMED)
        for whose, count in named:
            self._left_out(count, whose)
        others_count += unlogged.total() - sum(count for _, count in named)
        if others_count:
            self._left_out(others_count, OTHERS)
