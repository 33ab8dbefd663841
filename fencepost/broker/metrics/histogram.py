"""Distribution of durations in a fixed array of 24 buckets: one for each doubling."""

from __future__ import annotations

from itertools import accumulate
from math import ceil
from typing import Final

BUCKETS_COUNT: Final = 24
MICROSECONDS: Final = 1e-6
"""Upper bound of the first bucket; the last ends at 8 seconds."""
MILLISECONDS: Final = 1e-3
"""Upper bound of the first bucket; the last ends at 2.3 hours."""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class Histogram:
    """counts: durations per bucket, and those above the last bound. unit_s: the upper bound of the first bucket."""

    __slots__ = ("counts", "total_s", "unit_s")

    def __init__(self, unit_s: float = MICROSECONDS) -> None:
        self.unit_s = unit_s
        self.counts = [0] * (BUCKETS_COUNT + 1)
        self.total_s = 0.0

    def add(self, duration_s: float, count: int = 1) -> None:
        """Count durations, of 0 seconds or more."""
        units = duration_s / self.unit_s
        bucket = 0 if units <= 1 else (ceil(units) - 1).bit_length()
        self.counts[min(bucket, BUCKETS_COUNT)] += count
        self.total_s += duration_s * count

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def upper_bounds_s(self) -> list[float]:
        """The upper bound of each bucket, in seconds, inclusive."""
        return [self.unit_s * 2**exponent for exponent in range(BUCKETS_COUNT)]

    def cumulative(self) -> list[int]:
        """The count of durations within each of `upper_bounds_s`, then the count of all."""
        return list(accumulate(self.counts))


_LENGTH: Final = 64
"""Length of the arrays of recent durations: no duration is longer than 2^63 microseconds, so none is compared."""


class RecentHistogram:
    """Durations since the start, and quantiles of the last one to two minutes: `turn` is called each minute.

    For paths that every request takes: one addition to an array, indexed by the bits of the microseconds.
    """

    __slots__ = ("_before", "_earlier", "_latest", "total_us")

    def __init__(self) -> None:
        self._latest = [0] * _LENGTH
        self._earlier = [0] * _LENGTH
        self._before = [0] * _LENGTH
        self.total_us = 0

    def add(self, duration_s: float, count: int = 1) -> None:
        """Count durations, of 0 seconds or more."""
        duration_us = int(duration_s * 1_000_000)
        self._latest[duration_us.bit_length()] += count
        self.total_us += duration_us * count

    def merge(self, other: RecentHistogram) -> None:
        """Add the durations of another one."""
        self.total_us += other.total_us
        for mine, others in (
            (self._latest, other._latest),
            (self._earlier, other._earlier),
            (self._before, other._before),
        ):
            for bucket, count in enumerate(others):
                mine[bucket] += count

    @property
    def count(self) -> int:
        return sum(self._latest) + sum(self._earlier) + sum(self._before)

    def turn(self) -> None:
        """Begin a minute: durations from before the last minute leave the quantiles."""
        self._before = [first + second for first, second in zip(self._before, self._earlier, strict=True)]
        self._earlier, self._latest = self._latest, [0] * _LENGTH

    def quantiles_s(self) -> list[float] | None:
        """The `QUANTILES`, in seconds, exact to the width of a bucket; None if nothing was counted."""
        counts = [first + second for first, second in zip(self._earlier, self._latest, strict=True)]
        total = sum(counts)
        return [_quantile_s(counts, total, quantile) for quantile in QUANTILES] if total else None


def _quantile_s(counts: list[int], total: int, quantile: float) -> float:
    """Interpolate within the bucket that the quantile is in."""
    rank = quantile * total
    below = 0
    for bucket, count in enumerate(counts):
        if count and below + count >= rank:
            upper_s = MICROSECONDS * float(1 << bucket)
            lower_s = upper_s / 2 if bucket else 0.0
            return lower_s + (upper_s - lower_s) * (rank - below) / count
        below += count
    return MICROSECONDS * float(1 << _LENGTH)
