"""Counts the records that groups can still get, by Fetch, within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from fencepost.console.kafka.cluster import Cluster
from fencepost.console.kafka.errors import ClusterError
from fencepost.console.lag import readable_records
from fencepost.console.reading.groups import GroupLag
from fencepost.console.reading.records import fetch
from fencepost.console.reading.topics import COMMITTED, PartitionState
from fencepost.console.record_marks import Aborted, Batch, Outcomes

MOST_COUNTED: Final = 50
"""Positions that one page counts: those with the fewest offsets, among which a few markers matter most."""
AT_ONCE: Final = 8
FETCH_BYTES: Final = 256 << 10
MOST_BYTES: Final = 1 << 20
"""Read for one position. A position that is farther from its end keeps its offsets."""
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
        self._counted: dict[Position, int | None] = {}

    async def fill(self, cluster: Cluster, lags: Iterable[tuple[GroupLag, PartitionState]]) -> None:
        """Put records for offsets into the lags with the fewest offsets. Those that may not be read, or are too far
        from their end, stay as they are.
        """
        waiting = sorted(
            ((one, partition) for one, partition in lags if one.lag.deliverable),
            key=lambda each: each[0].lag.deliverable or 0,
        )[:MOST_COUNTED]
        if len(self._counted) > MOST_REMEMBERED:
            self._counted.clear()
        at_once = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(self._fill(cluster, one, partition, at_once) for one, partition in waiting))

    async def _fill(
        self, cluster: Cluster, one: GroupLag, partition: PartitionState, at_once: asyncio.Semaphore
    ) -> None:
        stable, start = partition.last_stable_offset or 0, max(one.committed, partition.start or 0)
        position = Position(one.topic, one.partition, partition.leader_epoch, start, stable)
        if position not in self._counted:
            async with at_once:
                self._counted[position] = await count_readable(cluster, partition, start, stable)
        count = self._counted[position]
        if count is not None:
            one.lag = one.lag._replace(deliverable=count)


async def count_readable(cluster: Cluster, partition: PartitionState, start: int, stable: int) -> int | None:
    """Count the records from `start` up to the last stable offset; None if they are too many, or may not be read."""
    batches: list[Batch] = []
    aborted: list[Aborted] = []
    position, read_bytes = start, 0
    while position < stable:
        if read_bytes >= MOST_BYTES:
            return None
        try:
            fetched = await fetch(cluster, partition, position, COMMITTED, FETCH_BYTES)
        except ClusterError:
            return None
        if not fetched.batches:
            # Compaction has left nothing up to there.
            return _count(batches, aborted, start, stable) if fetched.last_stable_offset >= stable else None
        batches += fetched.batches
        aborted += fetched.aborted
        read_bytes += sum(batch.header.size_bytes for batch in fetched.batches)
        position = fetched.batches[-1].header.last_offset + 1
    return _count(batches, aborted, start, stable)


def _count(batches: Sequence[Batch], aborted: Sequence[Aborted], start: int, stable: int) -> int:
    return readable_records(batches, Outcomes(batches, aborted, {}, stable), start, stable)
