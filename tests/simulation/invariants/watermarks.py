"""Invariants 7 and 8: the four offsets of a log, and the last stable one above all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fencepost.broker.log.partition_log import PartitionLog
from tests.simulation.invariants.evidence import Evidence
from tests.simulation.invariants.history import PartitionHistory
from tests.simulation.invariants.invariant import Invariant, Violation
from tests.simulation.invariants.stored_log import StoredBatch


class _Seen(NamedTuple):
    high_watermark: int
    last_stable_offset: int
    is_durable: bool


class OrderedWatermarks(Invariant):
    """7. Log start <= last stable offset <= high watermark <= log end; the last stable offset and the high watermark
    never go down.
    """

    number = 7

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._seen: dict[PartitionHistory, _Seen] = {}

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        partition_log = self.evidence.live_log(history)
        return () if partition_log is None else self._check(history, partition_log)

    def observe(self) -> Iterable[Violation]:
        for history, partition_log in self.evidence.live_logs():
            yield from self._check(history, partition_log)

    def _check(self, history: PartitionHistory, partition_log: PartitionLog) -> Iterator[Violation]:
        start, end = partition_log.log_start_offset, partition_log.log_end_offset
        high, stable = partition_log.high_watermark, partition_log.last_stable_offset
        if not start <= stable <= high <= end:
            yield self.violation(
                f"{history}: log start {start}, last stable offset {stable}, high watermark {high}, log end {end}"
            )
        seen = self._seen.get(history)
        if seen is not None and (high < seen.high_watermark or stable < seen.last_stable_offset):
            yield self.violation(
                f"{history}: high watermark {seen.high_watermark} -> {high}, last stable offset "
                f"{seen.last_stable_offset} -> {stable}"
            )
        self._seen[history] = _Seen(high, stable, partition_log.config.is_durable)

    def rewound(self, history: PartitionHistory) -> Iterable[Violation]:
        seen = self._seen.get(history)
        if seen is None:
            return
        if seen.is_durable and history.end_offset < seen.high_watermark:
            yield self.violation(
                f"{history} ends at {history.end_offset}, below its high watermark {seen.high_watermark}"
            )
        else:
            # The page cache was enough for it, so its high watermark was no promise.
            self._seen.pop(history)


class ReckonedStableOffset(Invariant):
    """8. The last stable offset is the lesser of the high watermark and the first offset of any transaction that is
    undecided, or whose marker is not below the high watermark.
    """

    number = 8

    def observe(self) -> Iterable[Violation]:
        for history, partition_log in self.evidence.live_logs():
            high = partition_log.high_watermark
            unstable = history.first_unstable_offset(high)
            expected = high if unstable is None else min(high, max(unstable, partition_log.log_start_offset))
            if partition_log.last_stable_offset != expected:
                yield self.violation(
                    f"the last stable offset of {history} is {partition_log.last_stable_offset}, not {expected} (high "
                    f"watermark {high})",
                    *history.open.values(),
                    *[transaction for transaction in history.transactions if transaction.first_offset == unstable],
                )
