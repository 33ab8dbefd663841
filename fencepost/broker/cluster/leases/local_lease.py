"""The time until which a node may answer as a leader, by its own clock and without a request.

The lease itself is a row of the cluster, kept by the database's clock. A node counts from the moment at which it *sent*
the last renewal that was answered, on its own monotonic clock, and stops MARGIN_S early: so it stops before another
node may take over. The duration of the renewal and the wall clocks of the machines do not matter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

MARGIN_S: Final = 0.5
"""Allows for clocks that run at different speeds: over a lease of 3 s, by a sixth."""


class LocalLease:
    """The part of this node's lease that the node may rely on.

    It is checked when an answer leaves, and no timer ends it: a process that was stopped and continues reads its
    sockets before its timers. Writes need no check: the fence guards them.
    duration_s: length of the lease in the database. monotonic_s: a clock that nobody sets, in seconds.
    """

    def __init__(self, duration_s: float, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._usable_s = duration_s - MARGIN_S
        if self._usable_s <= 0:
            raise ValueError(f"a lease of {duration_s} s leaves nothing beside the margin of {MARGIN_S} s")
        self._monotonic_s = monotonic_s
        self._until_s: float | None = None

    def now_s(self) -> float:
        """The time on this clock, to be taken before a renewal is sent."""
        return self._monotonic_s()

    def renewed(self, sent_at_s: float) -> None:
        """A renewal that was sent at this time has been answered."""
        until_s = sent_at_s + self._usable_s
        if self._until_s is None or until_s > self._until_s:
            self._until_s = until_s

    def lost(self) -> None:
        """Another node has taken over: nothing is led here any more."""
        self._until_s = None

    def is_held(self) -> bool:
        """Whether no other node can have taken over yet."""
        return self._until_s is not None and self._monotonic_s() < self._until_s

    def left_s(self) -> float:
        """For how long it is still held; 0 when it is not."""
        return 0.0 if self._until_s is None else max(0.0, self._until_s - self._monotonic_s())
