"""Counts the records that groups can still get, by Fetch, within bounds."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable
from typing import Final, NamedTuple

from fencepost.client.cluster import Cluster
from fencepost.client.consuming import COMMITTED
from fencepost.client.errors import ClusterError
from fencepost.console.reading.groups import GroupLag, lag_in
from fencepost.console.reading.records import fetch
from fencepost.console.reading.topics import PartitionState
from fencepost.console.record_marks import Aborted, Batch
from fencepost.diagnosis.lag import ReadableRecords, count_readable

MOST_COUNTED: Final = 50
"""Positions that one page counts: those with the fewest offsets, among which a few markers matter most."""
AT_ONCE: Final = 8
FETCH_BYTES: Final = 256 << 10
MOST_BYTES: Final = 1 << 20
"""Read for one position. Offsets stand for the records behind them."""
MOST_REMEMBERED: Final = 10_000


class Position(NamedTuple):
    """A position of a reader in a partition, and the last stable offset. Between the two nothing changes any more."""

    topic: str
    partition: int
    leader_epoch: int
    start: int
    last_stable_offset: int


class ReadableCounts:
    """Counts for one person, whose earlier counts are remembered."""

    def __init__(self) -> None:
        self._counted: dict[Position, ReadableRecords | None] = {}

    async def fill(
        self,
        cluster: Cluster,
        lags: Iterable[tuple[GroupLag, PartitionState]],
        most_counted: int = MOST_COUNTED,
    ) -> None:
        """Count the lags with the fewest offsets in records. Those that may not be read keep their offsets."""
        waiting = await asyncio.to_thread(_fewest, lags, most_counted)
        if len(self._counted) > MOST_REMEMBERED:
            self._counted.clear()
        at_once = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(self._fill(cluster, one, partition, at_once) for one, partition in waiting))

    async def _fill(
        self, cluster: Cluster, one: GroupLag, partition: PartitionState, at_once: asyncio.Semaphore
    ) -> None:
        if partition.offsets is None:
            return
        start, stable = partition.offsets.position(one.committed), partition.offsets.last_stable_offset
        position = Position(one.topic, one.partition, partition.leader_epoch, start, stable)
        if position not in self._counted:
            async with at_once:
                self._counted[position] = await count_in(cluster, partition, start, stable)
        counted = self._counted[position]
        if counted is not None:
            one.lag = lag_in(partition, one.committed, counted)
            one.first_ms = counted.first_ms if counted.records_count else None


def _fewest(lags: Iterable[tuple[GroupLag, PartitionState]], most: int) -> list[tuple[GroupLag, PartitionState]]:
    return heapq.nsmallest(
        most, (each for each in lags if each[0].lag.deliverable), key=lambda each: each[0].lag.deliverable or 0
    )


async def count_in(cluster: Cluster, partition: PartitionState, start: int, stable: int) -> ReadableRecords | None:
    """Count the records from `start` to the last stable offset, in about MOST_BYTES; None if they may not be read."""
    batches: list[Batch] = []
    aborted: list[Aborted] = []
    position, read_bytes = start, 0
    while position < stable and read_bytes < MOST_BYTES:
        try:
            fetched = await fetch(cluster, partition, position, COMMITTED, FETCH_BYTES)
        except ClusterError:
            return None
        if not fetched.batches:
            # Compaction has left nothing up to there.
            position = stable if fetched.last_stable_offset >= stable else position
            break
        batches += fetched.batches
        aborted += fetched.aborted
        read_bytes += sum(batch.header.size_bytes for batch in fetched.batches)
        position = fetched.batches[-1].header.last_offset + 1
    headers = [batch.header for batch in batches if batch.header.base_offset < stable]
    return count_readable(headers, start, min(position, stable), aborted)
