"""Topics and partitions: offsets, sizes, offline partitions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.client.cluster import Cluster
from fencepost.client.consuming import COMMITTED, EARLIEST, LATEST, UNCOMMITTED, Place, list_offsets
from fencepost.client.errors import ClusterError, RefusedError, error_name
from fencepost.client.view import ClusterView, Topic
from fencepost.diagnosis.lag import Offsets
from fencepost.protocol.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from fencepost.protocol.primitives import ZERO_UUID

PARTITIONS_PER_REQUEST: Final = 1_000
MOST_NAMED: Final = 20
BROKER_S: Final = 4.0
"""Time of one broker for one request of a page: a broker that has stopped keeps nobody from the others' answers."""


@dataclass(slots=True)
class PartitionState:
    """The state of a partition. Offsets are None if they could not be read; `error` has the reason."""

    topic: str
    index: int
    leader: int
    leader_epoch: int
    start: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    size_bytes: int | None = None
    error: str | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def records(self) -> int | None:
        """How many offsets it holds: it has at most that number of records."""
        return None if self.start is None or self.high_watermark is None else self.high_watermark - self.start

    @property
    def offsets(self) -> Offsets | None:
        """Its offsets, if all could be read."""
        if self.start is None or self.last_stable_offset is None or self.high_watermark is None:
            return None
        return Offsets(self.start, self.last_stable_offset, self.high_watermark)

    @property
    def behind(self) -> int:
        """How far the last stable offset is behind the high watermark."""
        if self.high_watermark is None or self.last_stable_offset is None:
            return 0
        return max(0, self.high_watermark - self.last_stable_offset)


@dataclass
class TopicState:
    """A topic with all its partitions."""

    name: str
    is_internal: bool
    partitions: list[PartitionState] = field(default_factory=list)
    error: str | None = None
    topic_id: bytes = ZERO_UUID

    @property
    def records(self) -> int:
        return sum(partition.records or 0 for partition in self.partitions)

    @property
    def size_bytes(self) -> int | None:
        known = [partition.size_bytes for partition in self.partitions if partition.size_bytes is not None]
        return sum(known) if known else None

    @property
    def behind(self) -> int:
        return sum(partition.behind for partition in self.partitions)

    @property
    def offline(self) -> list[PartitionState]:
        return [partition for partition in self.partitions if partition.error is not None]


async def read_topics(cluster: Cluster, view: ClusterView, *, with_sizes: bool = True) -> list[TopicState]:
    """The state of some topics."""
    is_small = len(view.topics) < MOST_NAMED and sum(len(one.partitions) for one in view.topics.values()) < 1_000
    states = states_of(view) if is_small else await asyncio.to_thread(states_of, view)
    partitions = [partition for state in states for partition in state.partitions]
    named = view.topics if len(view.topics) <= MOST_NAMED else None
    sizes = read_sizes(cluster, named) if with_sizes else _no_sizes()
    _, found = await asyncio.gather(fill_offsets(cluster, partitions), sizes)
    for partition in partitions:
        partition.size_bytes = found.of_nodes.get(partition.leader, {}).get((partition.topic, partition.index))
    return states


def by_place(topics: Iterable[TopicState]) -> dict[Place, PartitionState]:
    """All partitions by topic and number."""
    return {(topic.name, one.index): one for topic in topics for one in topic.partitions}


def states_of(view: ClusterView) -> list[TopicState]:
    """All topics of a view, without offsets and sizes."""
    return [_state_of(topic) for topic in view.topics.values()]


def _state_of(topic: Topic) -> TopicState:
    error = error_name(topic.error) if topic.error else None
    state = TopicState(topic.name, topic.is_internal, error=error, topic_id=topic.topic_id)
    for one in topic.partitions:
        partition = PartitionState(topic.name, one.index, one.leader, one.leader_epoch)
        if one.leader < 0:
            partition.error = "it has no leader" + (f" ({error_name(one.error)})" if one.error else "")
        state.partitions.append(partition)
    return state


def partition_states(view: ClusterView, places: Iterable[Place]) -> list[PartitionState]:
    """Those of some partitions that a view has, without offsets."""
    wanted = set(places)
    found = (partition for topic in view.topics.values() for partition in _state_of(topic).partitions)
    return [one for one in found if (one.topic, one.index) in wanted]


async def fill_offsets(cluster: Cluster, partitions: Sequence[PartitionState]) -> None:
    """Read start, high watermark and last stable offset, of each from its leader, in one request after another."""
    by_leader: dict[int, list[PartitionState]] = defaultdict(list)
    for partition in partitions:
        if partition.leader >= 0:
            by_leader[partition.leader].append(partition)
    await asyncio.gather(*(_fill(cluster, leader, led) for leader, led in by_leader.items()))


async def _fill(cluster: Cluster, leader: int, partitions: Sequence[PartitionState]) -> None:
    for first in range(0, len(partitions), PARTITIONS_PER_REQUEST):
        try:
            await _fill_some(cluster, leader, partitions[first : first + PARTITIONS_PER_REQUEST])
        except ClusterError as error:
            for partition in partitions[first:]:
                partition.error = str(error)
            return


async def _fill_some(cluster: Cluster, leader: int, partitions: Sequence[PartitionState]) -> None:
    places = [(partition.topic, partition.index) for partition in partitions]
    # In this order, one after another: offsets only rise, so start <= stable <= end holds.
    asked = ((EARLIEST, UNCOMMITTED), (LATEST, COMMITTED), (LATEST, UNCOMMITTED))
    starts, stable, ends = [
        await list_offsets(cluster, leader, places, timestamp, isolation, within_s=BROKER_S)
        for timestamp, isolation in asked
    ]
    for partition, place in zip(partitions, places, strict=True):
        answers = starts.get(place), stable.get(place), ends.get(place)
        if any(one is None for one in answers):
            partition.error = "the broker's answer does not have it"
            continue
        code = next((one[0] for one in answers if one and one[0]), 0)
        if code:
            partition.error = error_name(code)
            continue
        partition.start, partition.last_stable_offset, partition.high_watermark = (one[2] for one in answers if one)


async def read_partition(cluster: Cluster, topic: str, index: int) -> PartitionState:
    """The state of one partition. Raises ClusterError, also if it does not exist."""
    view = await cluster.view([topic])
    found = view.topics.get(topic)
    if found is None or found.error:
        raise RefusedError(found.error if found else 3, f"there is no topic {topic}" if not found else None)
    state = _state_of(found)
    for partition in state.partitions:
        if partition.index == index:
            await fill_offsets(cluster, [partition])
            return partition
    raise ClusterError(f"{topic} has no partition {index}; it has {len(state.partitions)}")


@dataclass
class Sizes:
    """Bytes of copies, by node id. missing: which brokers did not say, as sentences."""

    of_nodes: dict[int, dict[Place, int]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


async def _no_sizes() -> Sizes:
    return Sizes()


async def read_sizes(cluster: Cluster, topics: Mapping[str, Topic] | None = None) -> Sizes:
    """Sizes of these topics, of all for None; nothing for those that this user may not see. Raises ClusterError."""
    asked = None
    if topics is not None:
        asked = [
            DescribableLogDirTopic(topic=topic.name, partitions=[one.index for one in topic.partitions])
            for topic in topics.values()
        ]
    found = Sizes()
    for node_id, reply in (await cluster.send_to_all(DescribeLogDirsRequest(topics=asked), BROKER_S)).items():
        if isinstance(reply, ClusterError):
            found.missing.append(f"Sizes of broker {node_id} are unknown: {reply}.")
            continue
        sizes = found.of_nodes[node_id] = {}
        for place, size in _sizes_in(reply):
            sizes[place] = sizes.get(place, 0) + size
    return found


def _sizes_in(reply: Any) -> Iterable[tuple[Place, int]]:
    for directory in reply.results:
        for topic in directory.topics:
            for partition in topic.partitions:
                if not partition.is_future_key:
                    yield (topic.name, partition.partition_index), partition.partition_size
