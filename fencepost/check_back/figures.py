"""Counters of the check-back, for metrics and log lines."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final

LATENCY_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Latencies:
    """How long questions took. counts: per upper bound of `bounds_s`, and beyond the last; not cumulative."""

    bounds_s = LATENCY_BOUNDS_S

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.total_s = 0.0

    def add(self, latency_s: float) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS_S, latency_s)] += 1
        self.total_s += latency_s


class Figures:
    """Counts since the start.

    checks: answers by (resolver, answer), with `unreachable` for none. decisions: by (outcome, who); outcome is also
    `park`. latencies: by resolver.
    """

    def __init__(self, resolvers: tuple[str, ...]) -> None:
        self.checks: Counter[tuple[str, str]] = Counter()
        self.decisions: Counter[tuple[str, str]] = Counter()
        self.latencies = {name: Latencies() for name in resolvers}
