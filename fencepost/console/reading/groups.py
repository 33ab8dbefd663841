"""Groups of all kinds: states, members, committed offsets, lag."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.client.cluster import Cluster
from fencepost.client.consuming import Place
from fencepost.client.errors import ClusterError, check, error_name
from fencepost.console.reading.dead_letters import DeadLetters
from fencepost.console.reading.sharing import Answer, Reads
from fencepost.console.reading.topics import BROKER_S, PartitionState
from fencepost.console.reading.unserved import CONSUMER_OFFSETS, not_asked, unserved
from fencepost.diagnosis.lag import Lag, ReadableRecords, lag_of, total
from fencepost.protocol.consumer_protocol import decode_assignment
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from fencepost.protocol.messages.group_admin import DescribeGroupsRequest, ListGroupsRequest
from fencepost.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest
from fencepost.protocol.messages.share_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from fencepost.protocol.messages.streams_groups import StreamsGroupDescribeRequest
from fencepost.protocol.primitives import DecodeError

GROUPS_PER_REQUEST: Final = 100
SHARE = "share"


@dataclass(frozen=True)
class ListedGroup:
    """A group, its kind (classic, consumer, share, streams) and the broker that coordinates it."""

    group_id: str
    kind: str
    state: str
    coordinator: int
    protocol_type: str = ""


@dataclass
class GroupList:
    """The groups that this user may see. missing: why there may be more of them, as sentences."""

    listed: list[ListedGroup] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Member:
    """A member of a group. assigned: its partitions, or the tasks of a streams group, as text."""

    member_id: str
    instance_id: str
    client_id: str
    host: str
    epoch: int | None
    assigned: tuple[str, ...]


@dataclass(slots=True)
class GroupLag:
    """A committed offset and its lag. who: the client id of the member that has the partition. first_ms: the time
    of the first record that it can read; None if it was not counted. age_ms: how long that has been there; None if it
    has read all, or it was not asked.
    """

    topic: str
    partition: int
    committed: int
    lag: Lag
    high_watermark: int | None
    last_stable_offset: int | None
    metadata: str = ""
    who: str = ""
    first_ms: int | None = None
    age_ms: int | None = None


@dataclass
class GroupState:
    """A group with everything that is known of it. dead_letters: those of a share group."""

    group: ListedGroup
    epoch: int | None = None
    assignor: str = ""
    members: list[Member] = field(default_factory=list)
    offsets: list[GroupLag] = field(default_factory=list)
    dead_letters: DeadLetters | None = None
    error: str | None = None
    lag: Lag = field(default_factory=lambda: total(()))


async def list_groups(cluster: Cluster) -> GroupList:
    """Ask all brokers."""
    replies, away = await asyncio.gather(
        cluster.send_to_all(ListGroupsRequest(), BROKER_S), unserved(cluster, CONSUMER_OFFSETS)
    )
    found = GroupList(missing=[] if away is None else [f"{away}."])
    for node_id, reply in replies.items():
        if isinstance(reply, ClusterError):
            found.missing.append(not_asked(node_id, str(reply)))
        elif reply.error_code:
            found.missing.append(not_asked(node_id, error_name(reply.error_code)))
        else:
            found.listed.extend(
                # Brokers before KIP-848 have classic groups only, and do not say so.
                ListedGroup(
                    one.group_id, (one.group_type or "classic").lower(), one.group_state, node_id, one.protocol_type
                )
                for one in reply.groups
            )
    found.listed.sort(key=lambda one: one.group_id)
    return found


async def groups_of(reads: Reads, patience_s: float | None = None) -> Answer[GroupList]:
    """The groups as all who look see them. Raises ClusterError."""
    return await reads.ask("groups", list_groups, patience_s)


Committed = Mapping[Place, tuple[int, str]]
"""By place, the committed offset and its metadata."""


async def read_committed(cluster: Cluster, groups: Sequence[ListedGroup]) -> dict[str, Committed]:
    """By group id, the committed offsets; groups that could not be asked are left out."""
    by_node: dict[int, list[str]] = defaultdict(list)
    for group in groups:
        if group.kind != SHARE:
            by_node[group.coordinator].append(group.group_id)
    answers = await asyncio.gather(
        *(
            _fetch_offsets(cluster, node_id, ids[first : first + GROUPS_PER_REQUEST])
            for node_id, ids in by_node.items()
            for first in range(0, len(ids), GROUPS_PER_REQUEST)
        )
    )
    found: dict[str, Committed] = {}
    for answer in answers:
        found.update(answer)
    return found


async def _fetch_offsets(cluster: Cluster, node_id: int, ids: list[str]) -> dict[str, Committed]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in ids])
    try:
        reply = await cluster.send_within(request, node_id, BROKER_S)
    except ClusterError:
        return {}
    return {
        group.group_id: {
            (topic.name, one.partition_index): (one.committed_offset, one.metadata or "")
            for topic in group.topics
            for one in topic.partitions
            if not one.error_code and one.committed_offset >= 0
        }
        for group in reply.groups
        if not group.error_code
    }


def lag_in(partition: PartitionState | None, committed: int, counted: ReadableRecords | None = None) -> Lag:
    """The lag of a committed offset, with its counted records; unknown if the partition does not answer."""
    if partition is None:
        return Lag.of_nothing("there is no such partition")
    if partition.offsets is None:
        return Lag.of_nothing(partition.error or f"{partition.name} does not answer")
    return lag_of(committed, partition.offsets, counted)


def lags_of(committed: Committed, partitions: Mapping[Place, PartitionState]) -> list[GroupLag]:
    """The lag of each committed offset, in the order of topics and partitions."""
    found = []
    for (topic, index), (offset, metadata) in sorted(committed.items()):
        partition = partitions.get((topic, index))
        high = partition.high_watermark if partition else None
        stable = partition.last_stable_offset if partition else None
        found.append(GroupLag(topic, index, offset, lag_in(partition, offset), high, stable, metadata))
    return found


async def describe_group(cluster: Cluster, group: ListedGroup) -> GroupState:
    """Describe a group by the API of its kind. Raises ClusterError."""
    state = (await describe_groups(cluster, [group]))[0]
    if isinstance(state, ClusterError):
        raise state
    return state


async def describe_groups(cluster: Cluster, groups: Sequence[ListedGroup]) -> list[GroupState | ClusterError]:
    """Describe groups, in their order, each broker's of one kind in one request; or why one could not be."""
    asked: dict[tuple[int, str], list[ListedGroup]] = defaultdict(list)
    for group in groups:
        asked[group.coordinator, group.kind].append(group)
    found: dict[str, GroupState | ClusterError] = {}

    async def ask(node_id: int, kind: str, some: Sequence[ListedGroup]) -> None:
        request, state_of = _DESCRIBING.get(kind, (DescribeGroupsRequest, _classic_state))
        ids = [group.group_id for group in some]
        is_classic = request is DescribeGroupsRequest
        try:
            reply = await cluster.send_within(
                request(groups=ids) if is_classic else request(group_ids=ids), node_id, BROKER_S
            )
        except ClusterError as error:
            found.update(dict.fromkeys(ids, error))
            return
        by_id = {group.group_id: group for group in some}
        for one in reply.groups:
            try:
                check(one.error_code, one.error_message)
                found[one.group_id] = state_of(by_id[one.group_id], one)
            except ClusterError as error:
                found[one.group_id] = error

    await asyncio.gather(
        *(
            ask(node_id, kind, some[first : first + GROUPS_PER_REQUEST])
            for (node_id, kind), some in asked.items()
            for first in range(0, len(some), GROUPS_PER_REQUEST)
        )
    )
    silent = ClusterError("the broker's answer does not have it")
    return [found.get(group.group_id, silent) for group in groups]


def _classic_state(group: ListedGroup, found: Any) -> GroupState:
    members = [_classic_member(one) for one in found.members]
    return GroupState(group, assignor=found.protocol_data, members=members)


def _state_by(member_of: Callable[[Any], Member]) -> Callable[[ListedGroup, Any], GroupState]:
    def state_of(group: ListedGroup, found: Any) -> GroupState:
        members = [member_of(one) for one in found.members]
        return GroupState(group, found.group_epoch, getattr(found, "assignor_name", ""), members)

    return state_of


def _places(topic_partitions: Iterable[Any]) -> tuple[str, ...]:
    return tuple(f"{one.topic_name}-{index}" for one in topic_partitions for index in one.partitions)


def _host(member: Any) -> str:
    """The address of a member, without the slash that Java puts in front of one."""
    host: str = member.client_host
    return host.removeprefix("/")


def _consumer_member(one: Any) -> Member:
    assigned = _places(one.assignment.topic_partitions)
    return Member(one.member_id, one.instance_id or "", one.client_id, _host(one), one.member_epoch, assigned)


def _share_member(one: Any) -> Member:
    return Member(
        one.member_id, "", one.client_id, _host(one), one.member_epoch, _places(one.assignment.topic_partitions)
    )


def _streams_member(one: Any) -> Member:
    assigned = tuple(
        f"{kind} {task.subtopology_id}_{index}"
        for kind, tasks in (
            ("active", one.assignment.active_tasks),
            ("standby", one.assignment.standby_tasks),
            ("warm-up", one.assignment.warmup_tasks),
        )
        for task in tasks
        for index in task.partitions
    )
    return Member(one.member_id, one.instance_id or "", one.client_id, _host(one), one.member_epoch, assigned)


def _classic_member(one: Any) -> Member:
    assigned: tuple[str, ...] = ()
    if one.member_assignment:
        try:
            decoded = decode_assignment(one.member_assignment)
            assigned = tuple(
                f"{topic.topic}-{index}" for topic in decoded.assigned_partitions for index in topic.partitions
            )
        except DecodeError:
            assigned = ("an assignment of its own format",)  # not every classic group is one of consumers
    return Member(one.member_id, one.group_instance_id or "", one.client_id, _host(one), None, assigned)


_DESCRIBING: Final[Mapping[str, tuple[Any, Callable[[ListedGroup, Any], GroupState]]]] = {
    "consumer": (ConsumerGroupDescribeRequest, _state_by(_consumer_member)),
    "share": (ShareGroupDescribeRequest, _state_by(_share_member)),
    "streams": (StreamsGroupDescribeRequest, _state_by(_streams_member)),
}
"""By kind, the request that describes groups, and how a group of its answer is read; DescribeGroups for all others."""


async def read_share_offsets(
    cluster: Cluster, group: ListedGroup, partitions: Mapping[Place, PartitionState]
) -> list[GroupLag]:
    """Start offsets of a share group's partitions; its lag is the broker's. Raises ClusterError."""
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group.group_id, topics=None)]
    )
    reply = await cluster.send(request, group.coordinator)
    found = []
    for described in reply.groups:
        check(described.error_code, described.error_message)
        for topic in described.topics:
            for one in topic.partitions:
                if one.error_code:
                    continue
                partition = partitions.get((topic.topic_name, one.partition_index))
                high = partition.high_watermark if partition else None
                stable = partition.last_stable_offset if partition else None
                lag = Lag.of_nothing("nothing is acquired yet")
                if one.start_offset >= 0:
                    lag = lag_in(partition, one.start_offset)
                if one.lag >= 0:  # records that are acknowledged behind the start offset do not count
                    lag = lag._replace(end=one.lag)
                found.append(GroupLag(topic.topic_name, one.partition_index, one.start_offset, lag, high, stable))
    return sorted(found, key=lambda one: (one.topic, one.partition))
