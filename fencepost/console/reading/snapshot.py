"""The whole cluster at one time: all topics with sums over their partitions, and the partitions that need a look."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fencepost.client.cluster import Cluster
from fencepost.client.consuming import Place
from fencepost.client.view import ClusterView
from fencepost.console.reading.history import History
from fencepost.console.reading.sharing import Answer, Reads
from fencepost.console.reading.topics import PartitionState, TopicState, fill_offsets, read_sizes, states_of

SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic with sums over its partitions. behind: offsets that wait for open transactions. offline: number of
    partitions that do not answer. end: sum of the high watermarks that are known.
    """

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: int
    records: int
    size_bytes: int | None
    behind: int
    offline: int
    error: str | None

    @classmethod
    def of(cls, topic: TopicState) -> TopicRow:
        return cls(
            topic.name,
            topic.topic_id,
            topic.is_internal,
            len(topic.partitions),
            topic.records,
            topic.size_bytes,
            topic.behind,
            len(topic.offline),
            topic.error,
        )


@dataclass(frozen=True)
class Snapshot:
    """All that this user may see. held: partitions whose last stable offset lags, the worst first. missing: why sizes
    are unknown, as sentences.
    """

    view: ClusterView
    topics: Sequence[TopicRow]
    partitions: Mapping[Place, PartitionState]
    held: Sequence[PartitionState]
    offline: Sequence[PartitionState]
    missing: Sequence[str] = field(default_factory=tuple)

    def of_topic(self, name: str) -> list[PartitionState]:
        """The partitions of a topic, in order."""
        topic = self.view.topics.get(name)
        return [] if topic is None else [self.partitions[name, one.index] for one in topic.partitions]


async def read_snapshot(cluster: Cluster) -> Snapshot:
    """Ask for everything, each leader for its partitions one request after another. Raises ClusterError."""
    view = await cluster.view()
    states = await asyncio.to_thread(states_of, view)
    partitions = [partition for state in states for partition in state.partitions]
    _, sizes = await asyncio.gather(fill_offsets(cluster, partitions), read_sizes(cluster))
    return await asyncio.to_thread(_put_together, view, states, sizes.of_nodes, sizes.missing)


def _put_together(
    view: ClusterView,
    states: Sequence[TopicState],
    sizes: Mapping[int, Mapping[Place, int]],
    missing: Sequence[str],
) -> Snapshot:
    partitions: dict[Place, PartitionState] = {}
    for state in states:
        for one in state.partitions:
            place = one.topic, one.index
            partitions[place] = one
            one.size_bytes = sizes.get(one.leader, {}).get(place)
    held = sorted((one for one in partitions.values() if one.behind), key=lambda one: -one.behind)
    offline = [one for one in partitions.values() if one.error is not None]
    return Snapshot(view, [TopicRow.of(state) for state in states], partitions, held, offline, missing)


async def view_of(reads: Reads, patience_s: float | None = None) -> Answer[ClusterView]:
    """Brokers, topics and leaders as all who look see them; of the snapshot if there is one. Raises ClusterError."""

    async def read(cluster: Cluster) -> ClusterView:
        return await cluster.view()

    known = reads.known(SNAPSHOT)
    if known is not None:
        return Answer(known.value.view, known.read_s, known.number)
    return await reads.ask("view", read, patience_s)


async def snapshot_of(reads: Reads, patience_s: float | None = None) -> Answer[Snapshot]:
    """The cluster as all who look at it see it. Raises ClusterError."""

    async def read(cluster: Cluster) -> Snapshot:
        snapshot = await read_snapshot(cluster)
        await asyncio.to_thread(_remember, reads.keep(History), snapshot)
        return snapshot

    return await reads.ask(SNAPSHOT, read, patience_s)


def _remember(history: History, snapshot: Snapshot) -> None:
    history.add_ends([(row, [one.high_watermark for one in snapshot.of_topic(row.name)]) for row in snapshot.topics])
