"""Lag of all groups, by topic, with the age of the records that wait."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from fencepost.client.cluster import Cluster
from fencepost.client.consuming import Place
from fencepost.client.errors import ClusterError
from fencepost.console.reading.groups import (
    SHARE,
    Committed,
    GroupLag,
    GroupList,
    ListedGroup,
    groups_of,
    lags_of,
    read_committed,
)
from fencepost.console.reading.history import History
from fencepost.console.reading.lags import AT_ONCE, ReadableCounts
from fencepost.console.reading.records import time_at
from fencepost.console.reading.sharing import Answer, Reads
from fencepost.console.reading.snapshot import snapshot_of
from fencepost.console.reading.topics import PartitionState
from fencepost.diagnosis.lag import Lag, total

LAGS = "lags"
MOST_TIMED: Final = 100
"""Records that are read in one go for the age of waiting ones: of each group in its partition with the greatest lag."""
MOST_REMEMBERED: Final = 20_000
LONGEST_WAIT_S: Final = 30.0


@dataclass(frozen=True)
class GroupRow:
    """A group with its lag over all partitions. topics: its lag in each. since_ms: time of the oldest record that was
    found waiting for it; None if nothing waits, or if it was not looked for yet.
    """

    group_id: str
    kind: str
    state: str
    lag: Lag
    topics: Mapping[str, Lag] = field(default_factory=dict)
    since_ms: int | None = None

    @property
    def waits(self) -> bool:
        """Whether it has not read all."""
        return bool(self.lag.deliverable or self.lag.blocked)

    def has(self, text: str) -> bool:
        """Whether it has offsets of a topic with this in its name, which is in lower case."""
        return any(text in topic.lower() for topic in self.topics)

    def within(self, text: str) -> GroupRow:
        """The row with its lag in the topics with this in their names alone."""
        topics = {topic: lag for topic, lag in self.topics.items() if text in topic.lower()}
        return replace(self, lag=total(topics.values()), topics=topics)


@dataclass(frozen=True)
class LagTable:
    """All groups that this user may see. missing: parts that may not be in it, as sentences. by_topic: rows with
    offsets of each topic.
    """

    rows: Sequence[GroupRow]
    missing: Sequence[str]
    by_topic: Mapping[str, Sequence[GroupRow]]
    listed: Mapping[str, ListedGroup]

    @property
    def untimed(self) -> int:
        """How many groups wait for an unknown time."""
        return sum(row.waits and row.since_ms is None for row in self.rows)


class Waits:
    """Times of records at which groups wait. The record at an offset does not change, so it is read once."""

    def __init__(self) -> None:
        self._times: dict[_Position, int | None] = {}

    async def fill(self, cluster: Cluster, lags: Sequence[tuple[str, GroupLag, PartitionState]]) -> dict[str, int]:
        """By group id, the time in ms of the oldest waiting record that is known."""
        found, chosen = await asyncio.to_thread(self._choose, lags)
        if len(self._times) > MOST_REMEMBERED:
            self._times.clear()
        at_once = asyncio.Semaphore(AT_ONCE)

        async def read(place: _Place, group_ids: Sequence[str]) -> None:
            async with at_once:
                try:
                    first_ms = await time_at(cluster, place.partition, place.position[3])
                except ClusterError:
                    first_ms = None  # a topic that may be described but not read
            self._times[place.position] = first_ms = None if first_ms is None or first_ms < 0 else first_ms
            if first_ms is not None:
                found.update(dict.fromkeys(group_ids, first_ms))

        await asyncio.gather(*(read(place, group_ids) for place, group_ids in chosen))
        return found

    def _choose(
        self, lags: Sequence[tuple[str, GroupLag, PartitionState]]
    ) -> tuple[dict[str, int], list[tuple[_Place, list[str]]]]:
        """The times that are known, and the places at which most groups wait for an unknown time."""
        found: dict[str, int] = {}
        worst: dict[str, tuple[int, _Place]] = {}
        for group_id, one, partition in lags:
            position = _position(one, partition)
            known = self._times.get(position, one.first_ms)
            if known is not None:
                found[group_id] = min(found.get(group_id, known), known)
            size = one.lag.end or 0
            if group_id not in worst or size > worst[group_id][0]:
                worst[group_id] = size, _Place(position, partition)
        asked: dict[_Position, tuple[int, _Place, list[str]]] = {}
        for group_id, (size, place) in worst.items():
            if group_id not in found and place.position not in self._times:
                asked.setdefault(place.position, (size, place, []))[2].append(group_id)
        chosen = heapq.nlargest(MOST_TIMED, asked.values(), key=lambda each: (len(each[2]), each[0]))
        return found, [(place, group_ids) for _, place, group_ids in chosen]


_Position = tuple[str, int, int, int]
"""Topic, partition, leader epoch and offset of a record."""


class _Place(NamedTuple):
    position: _Position
    partition: PartitionState


def _position(one: GroupLag, partition: PartitionState) -> _Position:
    """Where a group waits: at the next record; at the last stable offset if it can read nothing now."""
    first = (partition.start if one.lag.deliverable else partition.last_stable_offset) or 0
    return one.topic, one.partition, partition.leader_epoch, max(one.committed, first)


class LagReader:
    """Reads the table for one user; counts and times are remembered."""

    def __init__(self) -> None:
        self.counts = ReadableCounts()
        self._waits = Waits()

    async def read(self, reads: Reads, cluster: Cluster, groups: GroupList) -> LagTable:
        """Read offsets of all groups, and those of their partitions. Raises ClusterError."""
        snapshot, committed = await asyncio.gather(
            snapshot_of(reads, LONGEST_WAIT_S), read_committed(cluster, groups.listed)
        )
        partitions = snapshot.value.partitions
        lags = await asyncio.to_thread(_all_lags, committed, partitions)
        waiting = await asyncio.to_thread(_waiting, lags, partitions)
        await self.counts.fill(cluster, ((one, partition) for _, one, partition in waiting))
        since = await self._waits.fill(cluster, waiting)
        missing = list(groups.missing)
        unread = sum(group.kind != SHARE and group.group_id not in committed for group in groups.listed)
        if unread:
            missing.append(f"The offsets of {unread:,} of {len(groups.listed):,} groups could not be read.")
        return await asyncio.to_thread(_table, groups, lags, since, missing)


def _all_lags(
    committed: Mapping[str, Committed], partitions: Mapping[Place, PartitionState]
) -> dict[str, list[GroupLag]]:
    return {group_id: lags_of(offsets, partitions) for group_id, offsets in committed.items()}


def _waiting(
    lags: Mapping[str, Sequence[GroupLag]], partitions: Mapping[Place, PartitionState]
) -> list[tuple[str, GroupLag, PartitionState]]:
    return [
        (group_id, one, partitions[one.topic, one.partition])
        for group_id, found in lags.items()
        for one in found
        if one.lag.deliverable or one.lag.blocked
    ]


def _table(
    groups: GroupList, lags: Mapping[str, Sequence[GroupLag]], since: Mapping[str, int], missing: Sequence[str]
) -> LagTable:
    rows = []
    by_topic: dict[str, list[GroupRow]] = defaultdict(list)
    for group in groups.listed:
        of_topics: dict[str, list[Lag]] = defaultdict(list)
        for one in lags.get(group.group_id, ()):
            of_topics[one.topic].append(one.lag)
        topics = {topic: total(found) for topic, found in of_topics.items()}
        lag = total(topics.values())
        since_ms = since.get(group.group_id) if lag.deliverable or lag.blocked else None
        row = GroupRow(group.group_id, group.kind, group.state, lag, topics, since_ms)
        rows.append(row)
        for topic in topics:
            by_topic[topic].append(row)
    return LagTable(rows, missing, by_topic, {one.group_id: one for one in groups.listed})


async def lag_table_of(reads: Reads, patience_s: float | None = None) -> Answer[LagTable]:
    """The table as all who look at it see it. Raises ClusterError."""
    reader = reads.keep(LagReader)

    async def read(cluster: Cluster) -> LagTable:
        table = await reader.read(reads, cluster, (await groups_of(reads, LONGEST_WAIT_S)).value)
        reads.keep(History).add_lags({row.group_id: row.lag.end for row in table.rows})
        return table

    return await reads.ask(LAGS, read, patience_s)


def age_ms(row: GroupRow) -> int | None:
    """How long a group has waited by now."""
    return None if row.since_ms is None else max(0, int(time.time() * 1000) - row.since_ms)
