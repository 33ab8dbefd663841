"""Counts of transactions that ended; the observer of the transaction coordinator."""

from __future__ import annotations

from typing import Final

from fencepost.broker.kernel.clock import Clock
from fencepost.broker.metrics.histogram import MILLISECONDS, Histogram
from fencepost.broker.transaction.metadata import TransactionMetadata
from fencepost.broker.transaction.shard import ForcedEnd
from fencepost.broker.transaction.state_machine import PREPARE_COMMIT

COMMITTED: Final = "committed"
ABORTED: Final = "aborted"


class TransactionMetrics:
    """ended: counts by outcome. durations: from a transaction's start to its decision. completions: from the
    decision until all markers are written."""

    def __init__(self, clock: Clock) -> None:
        self.ended = dict.fromkeys((COMMITTED, ABORTED, *(end.value for end in ForcedEnd)), 0)
        self.durations = Histogram(MILLISECONDS)
        self.completions = Histogram(MILLISECONDS)
        self._clock = clock

    def completed(self, prepared: TransactionMetadata, forced: ForcedEnd | None) -> None:
        asked_for = COMMITTED if prepared.state is PREPARE_COMMIT else ABORTED
        outcome = asked_for if forced is None else forced.value
        self.ended[outcome] += 1
        self.durations.add(max(0, prepared.last_update_ms - prepared.start_ms) / 1000)
        self.completions.add(max(0, self._clock.now_ms() - prepared.last_update_ms) / 1000)
