"""Rates of use, and the throttle that brings one back to its limit. Pure.

Source: Kafka's Rate, SampledStat, TokenBucket and QuotaUtils; KIP-599.
"""

from __future__ import annotations

from collections import deque


class SampledRate:
    """Amounts over the last windows of time; a burst is spread over all of them.

    window_ms, window_count: the length of a window, and how many count.
    """

    __slots__ = ("_samples", "_window_count", "_window_ms", "used_ms")

    def __init__(self, *, window_ms: int, window_count: int) -> None:
        self._window_ms = window_ms
        self._window_count = window_count
        self._samples: deque[list[float]] = deque()  # start of the window in ms, amount
        self.used_ms = 0

    def record(self, amount: float, now_ms: int) -> None:
        self.used_ms = now_ms
        samples = self._samples
        if not samples or not samples[-1][0] <= now_ms < samples[-1][0] + self._window_ms:
            samples.append([now_ms, 0.0])
        samples[-1][1] += amount

    def is_unused(self, now_ms: int) -> bool:
        """Whether nothing has been used in the windows that count."""
        self._forget(now_ms)
        return not any(amount > 0 for _, amount in self._samples)

    def per_s(self, now_ms: int) -> float:
        """Return the rate over the windows that count."""
        self._forget(now_ms)
        elapsed_ms = self._elapsed_ms(now_ms)
        return sum(amount for _, amount in self._samples) * 1000 / elapsed_ms if elapsed_ms else 0.0

    def _elapsed_ms(self, now_ms: int) -> float:
        samples = self._samples
        if not samples:
            return 0
        elapsed_ms = now_ms - samples[0][0]
        # Windows that have not been yet count as empty: a client that has just begun may use their share.
        missing_count = self._window_count - 1 - int(elapsed_ms // self._window_ms)
        return elapsed_ms + max(0, missing_count) * self._window_ms

    def throttle_ms(self, limit_per_s: float, now_ms: int) -> int:
        """Return the throttle after which the rate is down to a limit; 0 if it is not above."""
        rate_per_s = self.per_s(now_ms)
        if rate_per_s <= limit_per_s:
            return 0
        elapsed_ms = self._elapsed_ms(now_ms)
        return min(round((rate_per_s - limit_per_s) / limit_per_s * elapsed_ms), 2**31 - 1)

    def _forget(self, now_ms: int) -> None:
        """Drop windows that are too old, and those in the future after the clock was set back."""
        samples = self._samples
        oldest_ms = now_ms - self._window_count * self._window_ms
        while samples and not oldest_ms < samples[0][0] <= now_ms:
            samples.popleft()


class TokenBucket:
    """Tokens that may be used at once, refilled at a rate; the last caller may take more than there are.

    burst_s: the capacity, in seconds of the rate.
    """

    __slots__ = ("_burst_s", "_tokens", "used_ms")

    def __init__(self, *, burst_s: float, rate_per_s: float, now_ms: int) -> None:
        self._burst_s = burst_s
        self._tokens = burst_s * rate_per_s
        self.used_ms = now_ms

    def owed_ms(self, rate_per_s: float, now_ms: int) -> int:
        """Return the time until tokens are available again; 0 if some are."""
        elapsed_s = max(0, now_ms - self.used_ms) / 1000
        self.used_ms = now_ms
        self._tokens = min(self._burst_s * rate_per_s, self._tokens + elapsed_s * rate_per_s)
        return round(-self._tokens / rate_per_s * 1000) if self._tokens < 0 else 0

    def take(self, amount: float) -> None:
        self._tokens -= amount
