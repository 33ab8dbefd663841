"""Distribution of durations in a fixed array of 24 buckets: one for each doubling."""

from __future__ import annotations

from itertools import accumulate
from math import ceil
from typing import Final

BUCKETS_COUNT: Final = 24
MICROSECONDS: Final = 1e-6
"""Of the first bucket; the last ends at 8 seconds."""
MILLISECONDS: Final = 1e-3
"""Of the first bucket; the last ends at 2.3 hours."""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class Histogram:
    """counts: of each bucket, and of what is longer than all. unit_s: the upper bound of the first bucket."""

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
        """Of each bucket, in seconds, inclusive."""
        return [self.unit_s * 2**exponent for exponent in range(BUCKETS_COUNT)]

    def cumulative(self) -> list[int]:
        """How many durations are within each of `upper_bounds_s`, and how many there are in all."""
        return list(accumulate(self.counts))


class RecentHistogram:
    """A histogram since the start, and quantiles of the last one to two minutes: `turn` is called each minute."""

    __slots__ = ("_earlier", "_latest", "all")

    def __init__(self) -> None:
        self.all = Histogram()
        self._latest = Histogram()
        self._earlier = Histogram()

    def add(self, duration_s: float, count: int = 1) -> None:
        self.all.add(duration_s, count)
        self._latest.add(duration_s, count)

    def turn(self) -> None:
        """Begin a minute: what is older than the last one counts in no quantile any more."""
        self._earlier, self._latest = self._latest, Histogram()

    def quantiles_s(self) -> list[float] | None:
        """The `QUANTILES`, in seconds, exact to the width of a bucket; None if nothing was counted."""
        counts = [first + second for first, second in zip(self._earlier.counts, self._latest.counts, strict=True)]
        total = sum(counts)
        return [_quantile_s(counts, total, quantile) for quantile in QUANTILES] if total else None


def _quantile_s(counts: list[int], total: int, quantile: float) -> float:
    """Interpolate within the bucket that the quantile is in."""
    rank = quantile * total
    below = 0
    for bucket, count in enumerate(counts):
        if count and below + count >= rank:
            upper_s = MICROSECONDS * float(1 << min(bucket, BUCKETS_COUNT - 1))
            lower_s = upper_s / 2 if 0 < bucket < BUCKETS_COUNT else 0.0 if not bucket else upper_s
            return lower_s + (upper_s - lower_s) * (rank - below) / count
        below += count
    return MICROSECONDS * 2.0 ** (BUCKETS_COUNT - 1)
