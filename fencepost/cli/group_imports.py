"""Committed offsets of many groups: read with epochs and metadata, and set as a file says, checked beforehand."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fencepost.cli.group_files import FileOffset, GroupFile
from fencepost.cli.topic_choice import NOT_THERE, ZERO_ID, FoundTopic, read_found, shown_id
from fencepost.client.cluster import Cluster
from fencepost.client.consuming import Place
from fencepost.client.errors import ClusterError, RefusedError, error_name
from fencepost.client.plans import RETRIED
from fencepost.client.view import CoordinatorKind
from fencepost.console.reading.groups import ListedGroup, describe_group, list_groups
from fencepost.console.reading.topics import PartitionState, fill_offsets, partition_states
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)

GROUPS_PER_REQUEST: Final = 200
OFFSETS_PER_REQUEST: Final = 2_000
GROUPS_AT_ONCE: Final = 8
COORDINATOR_S: Final = 10.0
PAUSE_S: Final = 0.1
SHARE: Final = "share"
UNKNOWN_MEMBER, UNKNOWN_ID, GROUP_NOT_FOUND = 25, 100, 69
MOST_NAMED: Final = 5


class Committed(NamedTuple):
    """A committed offset. error: Kafka's code, if it cannot be read."""

    offset: int
    leader_epoch: int
    metadata: str
    error: int = 0


@dataclass
class GroupNow:
    """A group as it is. kind: None if there is none. who: its members, with client ids and hosts."""

    kind: str | None = None
    state: str = "Dead"
    who: Sequence[str] = ()
    committed: Mapping[Place, Committed] = field(default_factory=dict)
    error: str | None = None


@dataclass
class World:
    """The groups, topics and partitions that a file names. missing: sentences about groups that may not be listed."""

    cluster_id: str
    groups: Mapping[str, GroupNow]
    topics: Mapping[str, FoundTopic]
    topic_errors: Mapping[str, int]
    partitions: Mapping[Place, PartitionState]
    missing: Sequence[str] = ()


class Rules(NamedTuple):
    """any_topic_id: take topics with other ids, too. nearest: move offsets into the range of a log."""

    any_topic_id: bool = False
    nearest: bool = False


class Move(NamedTuple):
    """An offset to set. before: the committed one, None if there is none."""

    group: str
    topic: str
    partition: int
    before: int | None
    offset: int
    topic_id: bytes
    leader_epoch: int
    metadata: str

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


class Plan(NamedTuple):
    """The offsets to set; none if there are refusals: sentences without a full stop."""

    moves: Sequence[Move]
    refusals: Sequence[str]


def plan_of(file: GroupFile, world: World, rules: Rules) -> Plan:
    """Compare a file with the cluster. Pure."""
    refusals: dict[str, None] = {}
    moves = []
    for group in file.groups():
        refusals.update(dict.fromkeys(_group_refusals(group, world.groups.get(group, GroupNow()))))
    for one in file.offsets:
        found = _move(one, file, world, rules)
        if isinstance(found, str):
            refusals[found] = None
        else:
            moves.append(found)
    return Plan(moves, list(refusals))


def _group_refusals(name: str, now: GroupNow) -> list[str]:
    if now.error is not None:
        return [f"group {name!r} cannot be read: {now.error}"]
    if now.kind == SHARE:
        return [f"{name!r} is a share group, which has no committed offsets"]
    if now.who or now.state not in ("Empty", "Dead"):
        some = "; ".join(now.who[:MOST_NAMED]) + ("; and others" if len(now.who) > MOST_NAMED else "")
        return [f"group {name!r} is in use ({now.state}: {some or 'members unknown'}); stop its members first"]
    open_ones = [place for place, one in now.committed.items() if one.error]
    if open_ones:
        topic, index = open_ones[0]
        return [
            f"group {name!r} has an offset of {topic}-{index} that is {error_name(now.committed[topic, index].error)}"
        ]
    return []


def _move(one: FileOffset, file: GroupFile, world: World, rules: Rules) -> Move | str:
    """The move of an offset, or the reason against it."""
    topic = world.topics.get(one.topic)
    if topic is None:
        error = world.topic_errors.get(one.topic, NOT_THERE)
        return f"there is no topic {one.topic!r}" if error == NOT_THERE else f"topic {one.topic!r}: {error_name(error)}"
    is_same = one.topic_id in (ZERO_ID, topic.topic_id)
    if not is_same and not rules.any_topic_id:
        return (
            f"topic {one.topic!r} has the id {shown_id(topic.topic_id)}, and had {shown_id(one.topic_id)} in the file: "
            + (
                "it was created again, and its offsets mean other records"
                if file.cluster_id == world.cluster_id
                else "its offsets may mean other records"
            )
        )
    partition = world.partitions.get((one.topic, one.partition))
    name = f"{one.topic}-{one.partition}"
    if partition is None:
        return f"topic {one.topic!r} has no partition {one.partition}; it has {topic.partitions_count}"
    if partition.start is None or partition.high_watermark is None:
        return f"{name} does not answer: {partition.error}"
    offset = min(max(one.offset, partition.start), partition.high_watermark)
    if offset != one.offset and not rules.nearest:
        return (
            f"{name} has the offsets {partition.start} to {partition.high_watermark}, and {one.offset} is none of them"
        )
    keeps_epoch = one.topic_id == topic.topic_id and offset == one.offset and one.leader_epoch <= partition.leader_epoch
    now = world.groups.get(one.group, GroupNow()).committed.get((one.topic, one.partition))
    return Move(
        one.group,
        one.topic,
        one.partition,
        None if now is None else now.offset,
        offset,
        topic.topic_id,
        one.leader_epoch if keeps_epoch else -1,
        one.metadata,
    )


async def read_world(cluster: Cluster, file: GroupFile) -> World:
    """Read all that a file is compared with. Raises ClusterError."""
    names = file.groups()
    listing = await list_groups(cluster)
    wanted = set(names)
    listed = {group.group_id: group for group in listing.listed if group.group_id in wanted}
    committed = await read_offsets(cluster, [one for one in listed.values() if one.kind != SHARE])
    groups = {name: await _group_now(cluster, listed.get(name), committed.get(name)) for name in names}
    topics = sorted({one.topic for one in file.offsets})
    found = await read_found(cluster, topics)
    view = await cluster.view(topics)
    states = partition_states(view, {(one.topic, one.partition) for one in file.offsets})
    await fill_offsets(cluster, states)
    partitions = {(one.topic, one.index): one for one in states}
    return World(view.cluster_id, groups, found.topics, found.errors, partitions, listing.missing)


async def _group_now(
    cluster: Cluster, listed: ListedGroup | None, committed: Mapping[Place, Committed] | str | None
) -> GroupNow:
    if listed is None:
        return GroupNow()
    if listed.kind != SHARE and not isinstance(committed, Mapping):
        return GroupNow(listed.kind, listed.state, error=committed or "the broker's answer does not have it")
    now = GroupNow(listed.kind, listed.state, (), committed if isinstance(committed, Mapping) else {})
    if now.state not in ("Empty", "Dead"):
        try:
            described = await describe_group(cluster, listed)
        except ClusterError as error:
            now.error = str(error)
        else:
            now.who = [f"{one.client_id} at {one.host}" for one in described.members]
    return now


async def read_offsets(
    cluster: Cluster, groups: Sequence[ListedGroup], *, stable: bool = True
) -> dict[str, Mapping[Place, Committed] | str]:
    """By group id, its offsets, or the reason why they cannot be read.

    stable: mark offsets that an open transaction will change by an error.
    """
    by_node: dict[int, list[str]] = defaultdict(list)
    for group in groups:
        by_node[group.coordinator].append(group.group_id)
    found: dict[str, Mapping[Place, Committed] | str] = {}

    async def ask(node_id: int, ids: Sequence[str]) -> None:
        wanted = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in ids]
        try:
            reply = await cluster.send(OffsetFetchRequest(groups=wanted, require_stable=stable), node_id)
        except ClusterError as error:
            found.update(dict.fromkeys(ids, str(error)))
            return
        for group in reply.groups:
            if group.error_code == GROUP_NOT_FOUND:
                found[group.group_id] = {}
            elif group.error_code:
                found[group.group_id] = error_name(group.error_code)
            else:
                found[group.group_id] = {
                    (topic.name, one.partition_index): Committed(
                        one.committed_offset, one.committed_leader_epoch, one.metadata or "", one.error_code
                    )
                    for topic in group.topics
                    for one in topic.partitions
                    if one.error_code or one.committed_offset >= 0
                }

    await asyncio.gather(
        *(
            ask(node_id, ids[first : first + GROUPS_PER_REQUEST])
            for node_id, ids in by_node.items()
            for first in range(0, len(ids), GROUPS_PER_REQUEST)
        )
    )
    return found


async def commit(cluster: Cluster, moves: Sequence[Move]) -> list[tuple[Move, str]]:
    """Set offsets, each group's by itself; return those that were not set, with reasons."""
    by_group: dict[str, list[Move]] = defaultdict(list)
    for one in moves:
        by_group[one.group].append(one)
    at_once = asyncio.Semaphore(GROUPS_AT_ONCE)

    async def set_group(group: str, its: Sequence[Move]) -> list[tuple[Move, str]]:
        refused = []
        async with at_once:
            for first in range(0, len(its), OFFSETS_PER_REQUEST):
                some = its[first : first + OFFSETS_PER_REQUEST]
                try:
                    refused += await _commit(cluster, group, some)
                except RefusedError as error:
                    refused += [(one, str(error)) for one in some]
                except ClusterError as error:
                    refused += [(one, f"nobody knows, look again: {error}") for one in some]
        return refused

    answers = await asyncio.gather(*(set_group(group, its) for group, its in by_group.items()))
    return [one for answer in answers for one in answer]


async def _commit(cluster: Cluster, group: str, moves: Sequence[Move]) -> list[tuple[Move, str]]:
    """Commit to one group; again while its coordinator is not ready."""
    topics: dict[tuple[str, bytes], list[OffsetCommitRequestPartition]] = defaultdict(list)
    for one in moves:
        topics[one.topic, one.topic_id].append(
            OffsetCommitRequestPartition(
                partition_index=one.partition,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                committed_metadata=one.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in topics.items()
        ],
    )
    give_up_at_s = asyncio.get_running_loop().time() + COORDINATOR_S
    while True:
        try:
            reply = await cluster.send_to_coordinator(CoordinatorKind.GROUP, group, request)
        except RefusedError as error:
            if error.code not in RETRIED or asyncio.get_running_loop().time() > give_up_at_s:
                raise
        else:
            codes = {
                (topic.name, bytes(topic.topic_id), one.partition_index): one.error_code
                for topic in reply.topics
                for one in topic.partitions
            }
            if not set(codes.values()) & RETRIED or asyncio.get_running_loop().time() > give_up_at_s:
                return [(one, why) for one in moves if (why := _reason(one, codes)) is not None]
        await asyncio.sleep(PAUSE_S)


def _reason(one: Move, codes: Mapping[tuple[str, bytes, int], int]) -> str | None:
    """The reason why an offset was not set. Up to version 9 the answer has names, from 10 on ids."""
    by_name = codes.get((one.topic, ZERO_ID, one.partition))
    code = codes.get(("", one.topic_id, one.partition)) if by_name is None else by_name
    if code is None:
        return "the broker's answer does not have it"
    if code == UNKNOWN_MEMBER:
        return "the group has got members"
    if code == UNKNOWN_ID:
        return "the topic was deleted, or deleted and created again"
    return error_name(code) if code else None


def changes_between(before: Plan, now: Plan) -> list[str]:
    """The differences of two plans of one file, as sentences. Pure."""
    old = {(one.group, one.topic, one.partition): one for one in before.moves}
    new = {(one.group, one.topic, one.partition): one for one in now.moves}
    found = list(now.refusals)
    for key, one in old.items():
        other = new.get(key)
        if other is not None and one.before != other.before:
            found.append(
                f"group {one.group!r} was at {_shown(one.before)} in {one.name}, and is at {_shown(other.before)}"
            )
        elif other is not None and one != other:
            found.append(f"{one.name} is another topic, or another part of it")
    return found


def _shown(offset: int | None) -> str:
    return "no offset" if offset is None else str(offset)


class Exported(NamedTuple):
    """A file, and the reasons why it is not complete. gone: topics that there are not any more."""

    file: GroupFile
    missing: Sequence[str]
    gone: Sequence[str]


async def export(cluster: Cluster, groups: Iterable[ListedGroup], exported_at: str) -> Exported:
    """Read these groups. Raises ClusterError."""
    chosen = list(groups)
    found = await read_offsets(cluster, chosen, stable=False)
    missing = [
        f"group {group!r} cannot be read: {offsets}" for group, offsets in found.items() if isinstance(offsets, str)
    ]
    every = {group: offsets for group, offsets in found.items() if not isinstance(offsets, str)}
    missing += [
        f"group {group!r}: {topic}-{index}: {error_name(one.error)}"
        for group, offsets in every.items()
        for (topic, index), one in offsets.items()
        if one.error
    ]
    topics = await read_found(cluster, sorted({topic for offsets in every.values() for topic, _ in offsets}))
    lines = [
        FileOffset(
            group.group_id,
            topic,
            index,
            one.offset,
            topics.topics[topic].topic_id,
            one.leader_epoch,
            one.metadata,
        )
        for group in chosen
        for (topic, index), one in sorted(every.get(group.group_id, {}).items())
        if topic in topics.topics
    ]
    denied = {name: code for name, code in topics.errors.items() if code != NOT_THERE}
    missing += [f"topic {name!r} cannot be read: {error_name(code)}" for name, code in denied.items()]
    gone = sorted({topic for found in every.values() for topic, _ in found} - topics.topics.keys() - denied.keys())
    view = await cluster.view(())
    kinds = {group.group_id: group.kind for group in chosen}
    return Exported(GroupFile(lines, view.cluster_id, exported_at, kinds), missing, gone)
