"""When a coordinator's partition that failed unexpectedly is loaded again from its log, and when it is given up.

A shard that may differ from its log is not served again: the log is the truth, and loading makes the shard anew. What
fails at every load is not tried for ever.
Source: Kafka's CoordinatorRuntime, states FAILED and LOADING.
"""

from __future__ import annotations

from typing import NamedTuple

FIRST_PAUSE_S = 1.0
MAX_RELOADS = 5
QUIET_S = 600.0
"""Without a failure for so long, a partition is trusted as before."""
DOUBT_PAUSE_S = 30.0


class _FailureCount(NamedTuple):
    times: int
    latest_s: float


class ReloadPolicy:
    """The failures of a coordinator's partitions. Times are those of the event loop's clock."""

    def __init__(self) -> None:
        self._failures: dict[int, _FailureCount] = {}
        self._doubted_s: dict[int, float] = {}

    def pause_s(self, index: int, now_s: float) -> float | None:
        """A shard is not to be served again: how long to wait before it is loaded; None where it is given up.

        At once the first time, then after 1, 2, 4, 8 seconds.
        """
        known = self._failures.get(index)
        count = 0 if known is None or now_s - known.latest_s > QUIET_S else known.times
        if count >= MAX_RELOADS:
            return None
        self._failures[index] = _FailureCount(count + 1, now_s)
        return FIRST_PAUSE_S * 2 ** (count - 1) if count else 0.0

    def pause_after_decision_s(self, index: int, now_s: float) -> float:
        """A decision failed before anything was appended; a shard that changes at decisions may be half changed. How
        long to wait before it is loaded again: it is served meanwhile, so that a request that fails each time does not
        keep the others from being served.
        """
        doubted_s = self._doubted_s.get(index)
        delay_s = 0.0 if doubted_s is None else max(0.0, doubted_s + DOUBT_PAUSE_S - now_s)
        if not delay_s:
            self._doubted_s[index] = now_s
        return delay_s

    def forget(self, index: int) -> None:
        """The partition was given up, by an operator or for another leader: what failed here says nothing any more."""
        self._failures.pop(index, None)
        self._doubted_s.pop(index, None)
