"""Delays of failed authentications: those of one address grow with their number. Pure.

A client that tries passwords waits longer and longer for each answer; clients of other addresses do not notice.
Source of the first delay: Kafka's `connection.failed.authentication.delay.ms`.
"""

from __future__ import annotations

from typing import Final

from fencepost.broker.kernel.addresses import network_of

FREE_FAILURES: Final = 10
"""Failures of one address in a minute that have the usual delay. Each further one has twice the delay of the last."""
MINUTE_MS: Final = 60_000
LONGEST_DELAY_MS: Final = 5_000
MAXIMUM_ADDRESSES: Final = 10_000
"""Addresses that are remembered; the one that failed least recently is forgotten for another."""


class FailureDelays:
    """The failures of each address, which are forgotten at the rate of FREE_FAILURES a minute."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, float]] = {}  # time of the last in ms, and how many count then

    def failed(self, host: str, first_delay_ms: int, now_ms: int) -> int:
        """Count a failure; return its delay in ms. No delay grows from a first one of 0."""
        address = network_of(host)
        last_ms, count = self._failures.pop(address, (now_ms, 0.0))
        forgotten = max(0, now_ms - last_ms) * FREE_FAILURES / MINUTE_MS
        count = max(0.0, count - forgotten) + 1
        if len(self._failures) >= MAXIMUM_ADDRESSES:
            del self._failures[next(iter(self._failures))]
        # More would keep the longest delay for minutes after the last failure.
        count = min(count, 2.0 * FREE_FAILURES)
        self._failures[address] = now_ms, count
        doublings = max(0, round(count) - FREE_FAILURES)
        return min(first_delay_ms << doublings, max(LONGEST_DELAY_MS, first_delay_ms))
