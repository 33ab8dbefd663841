"""Policy of reloads: the pause before an unexpectedly failed coordinator's partition is reloaded, and their bound.

A shard that may differ from its log is not served again: a reload builds a new shard from the log. A partition that
fails at every load is dropped after MAX_RELOADS.
Source: Kafka's CoordinatorRuntime, states FAILED and LOADING.
"""

from __future__ import annotations

from typing import NamedTuple

FIRST_PAUSE_S = 1.0
MAX_RELOADS = 5
QUIET_S = 600.0
"""After this time without a failure, the count of failures starts again."""
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
        """Return the pause before the reload of a failed shard; None after the last reload.

        The first reload has no pause, later ones 1, 2, 4, 8 seconds.
        """
        known = self._failures.get(index)
        count = 0 if known is None or now_s - known.latest_s > QUIET_S else known.times
        if count >= MAX_RELOADS:
            return None
        self._failures[index] = _FailureCount(count + 1, now_s)
        return FIRST_PAUSE_S * 2 ** (count - 1) if count else 0.0

    def pause_after_deadline_s(self, index: int, now_s: float) -> float:
        """Return the pause before the reload of a shard whose deadline failed.

        The shard is served meanwhile, so that a deadline that fails each time does not block requests.
        """
        doubted_s = self._doubted_s.get(index)
        delay_s = 0.0 if doubted_s is None else max(0.0, doubted_s + DOUBT_PAUSE_S - now_s)
        if not delay_s:
            self._doubted_s[index] = now_s
        return delay_s

    def forget(self, index: int) -> None:
        """Forget the failures of a partition after a resignation, for another leader or by an operator."""
        self._failures.pop(index, None)
        self._doubted_s.pop(index, None)
