"""Transactions that ended are counted by outcome, with the times until their decision and until their end."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker.metrics.transaction_metrics import ABORTED, COMMITTED, TransactionMetrics
from fencepost.broker.transaction.shard import ForcedEnd
from fencepost.broker.transaction.state_machine import PREPARE_ABORT, PREPARE_COMMIT
from tests.support.log_world import NOW_MS, ManualClock


class Prepared:
    """A transaction that took two seconds until its decision, half a second ago."""

    def __init__(self, state: Any, start_ms: int = NOW_MS - 2_500) -> None:
        self.state = state
        self.start_ms = start_ms
        self.last_update_ms = NOW_MS - 500


@pytest.mark.parametrize(
    ("state", "forced", "outcome"),
    [
        (PREPARE_COMMIT, None, COMMITTED),
        (PREPARE_ABORT, None, ABORTED),
        *((PREPARE_ABORT, end, end.value) for end in ForcedEnd),
    ],
)
def test_an_end_is_counted_once_by_its_outcome(state: Any, forced: ForcedEnd | None, outcome: str) -> None:
    metrics = TransactionMetrics(ManualClock())
    prepared: Any = Prepared(state)
    metrics.completed(prepared, forced)
    assert {name: count for name, count in metrics.ended.items() if count} == {outcome: 1}
    assert (metrics.durations.count, metrics.completions.count) == (1, 1)
    assert (round(metrics.durations.total_s, 6), round(metrics.completions.total_s, 6)) == (2.0, 0.5)


def test_a_clock_that_was_set_back_gives_no_negative_times() -> None:
    clock = ManualClock()
    clock.time_ms = NOW_MS - 3_600_000
    metrics = TransactionMetrics(clock)
    prepared: Any = Prepared(PREPARE_COMMIT, start_ms=NOW_MS + 3_600_000)
    metrics.completed(prepared, None)
    assert (metrics.durations.total_s, metrics.completions.total_s) == (0, 0)
