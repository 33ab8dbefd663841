"""Assignors for groups of the consumer protocol: `uniform` and `range`. Pure.

An assignor gives each partition of a subscribed topic to exactly one of the members that want it.
Source: KIP-848; Kafka's RangeAssignor, UniformAssignor and their builders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fencepost.broker.group.java_order import hash_map_order
from fencepost.broker.group.modern import Assignment

UNIFORM = "uniform"
RANGE = "range"


@dataclass(frozen=True, slots=True)
class AssignorMember:
    """Input of an assignor about one member.

    topic_ids: existing topics that the member subscribes to.
    previous:  its partitions in the last target assignment.
    """

    topic_ids: frozenset[bytes]
    previous: Assignment = field(default_factory=dict)
    instance_id: str | None = None


Assignor = Callable[[Mapping[str, AssignorMember], Mapping[bytes, int]], dict[str, Assignment]]
"""Function from members by id and partition counts by topic id to the partitions of every member."""


# Range


def assign_ranges(
    members: Mapping[str, AssignorMember], partition_counts: Mapping[bytes, int]
) -> dict[str, Assignment]:
    """Assign consecutive partitions of every topic to each subscriber. Topics with equal partition counts and equal
    subscribers are split alike. Static members come first, ordered by instance id, so a replaced process keeps its
    partitions.
    """
    ordered = sorted(
        members,
        key=lambda member_id: (
            (0, instance_id) if (instance_id := members[member_id].instance_id) is not None else (1, member_id)
        ),
    )
    subscribers: dict[bytes, list[str]] = {}
    for member_id in ordered:
        for topic_id in members[member_id].topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    assigned: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in ordered}
    for topic_id, member_ids in subscribers.items():
        quota, extra_count = divmod(partition_counts[topic_id], len(member_ids))
        start = 0
        for index, member_id in enumerate(member_ids):
            end = start + quota + (index < extra_count)
            if end > start:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return {member_id: assigned[member_id] for member_id in members}


# Uniform


def assign_uniformly(
    members: Mapping[str, AssignorMember], partition_counts: Mapping[bytes, int]
) -> dict[str, Assignment]:
    """Assign as evenly as the subscriptions allow, and move as few partitions as possible.

    If all members have the same subscription, no two differ by more than one partition.
    """
    if not members:
        return {}
    if len({subscriber.topic_ids for subscriber in members.values()}) == 1:
        return _assign_alike(members, partition_counts)
    return _Balancing(members, partition_counts).assign()


def _assign_alike(
    members: Mapping[str, AssignorMember], partition_counts: Mapping[bytes, int]
) -> dict[str, Assignment]:
    wanted = next(iter(members.values())).topic_ids
    quota, extra_count = divmod(sum(partition_counts[topic_id] for topic_id in wanted), len(members))
    taken: set[tuple[bytes, int]] = set()
    revoked: list[tuple[bytes, int]] = []
    kept: dict[str, list[tuple[bytes, int]]] = {}
    missing_counts: dict[str, int] = {}
    members_left_count = len(members)
    # In the order of Kafka's table of members, which does not depend on the order of joining.
    for member_id in hash_map_order(sorted(members)):
        own = [
            (topic_id, partition)
            for topic_id, partitions in members[member_id].previous.items()
            if topic_id in wanted
            for partition in sorted(partitions)
            if partition < partition_counts[topic_id] and (topic_id, partition) not in taken
        ]
        # A member with an extra partition keeps it; others get one when no such member is left.
        has_extra = extra_count > 0 and (len(own) > quota or members_left_count <= extra_count)
        limit = quota + has_extra
        extra_count -= has_extra
        members_left_count -= 1
        kept[member_id] = own[:limit]
        revoked += own[limit:]
        taken.update(own)
        missing_counts[member_id] = limit - len(kept[member_id])
    unassigned = [
        (topic_id, partition)
        for topic_id in sorted(wanted)
        for partition in range(partition_counts[topic_id])
        if (topic_id, partition) not in taken
    ]
    free = iter(unassigned + revoked)
    for member_id, missing_count in missing_counts.items():
        kept[member_id].extend(topic_partition for _, topic_partition in zip(range(missing_count), free, strict=False))
    return {member_id: _grouped(kept[member_id]) for member_id in members}


class _Balancing:
    """Uniform assignment for members with different subscriptions."""

    def __init__(self, members: Mapping[str, AssignorMember], partition_counts: Mapping[bytes, int]) -> None:
        self._members = members
        self._counts = partition_counts
        self._subscribers: dict[bytes, list[str]] = {}
        for member_id, subscriber in members.items():
            for topic_id in subscriber.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(member_id)
        self._owned: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
        self._load = dict.fromkeys(members, 0)

    def assign(self) -> dict[str, Assignment]:
        taken = self._keep_previous()
        # Topics with few subscribers go first: the other topics can even out the rest.
        for topic_id in sorted(self._subscribers, key=lambda topic_id: (len(self._subscribers[topic_id]), topic_id)):
            subscribers = self._subscribers[topic_id]
            for partition in range(self._counts[topic_id]):
                if (topic_id, partition) not in taken:
                    self._give(min(subscribers, key=self._load.__getitem__), topic_id, partition)
        self._balance()
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in owned.items() if partitions}
            for member_id, owned in self._owned.items()
        }

    def _keep_previous(self) -> set[tuple[bytes, int]]:
        taken: set[tuple[bytes, int]] = set()
        for member_id, subscriber in self._members.items():
            for topic_id, partitions in subscriber.previous.items():
                if topic_id not in subscriber.topic_ids:
                    continue
                for partition in partitions:
                    if partition < self._counts[topic_id] and (topic_id, partition) not in taken:
                        taken.add((topic_id, partition))
                        self._give(member_id, topic_id, partition)
        return taken

    def _balance(self) -> None:
        """Move partitions of each topic from its busiest subscriber to its least busy one while that helps.

        This ends because every move reduces the sum of the squares of the loads.
        """
        load = self._load
        has_moved = True
        while has_moved:
            has_moved = False
            for topic_id, subscribers in self._subscribers.items():
                while True:
                    givers = [name for name in subscribers if self._owned[name].get(topic_id)]
                    if not givers:
                        break
                    busiest = max(givers, key=load.__getitem__)
                    idlest = min(subscribers, key=load.__getitem__)
                    if load[busiest] - load[idlest] < 2:
                        break
                    partition = max(self._owned[busiest][topic_id])
                    self._owned[busiest][topic_id].remove(partition)
                    load[busiest] -= 1
                    self._give(idlest, topic_id, partition)
                    has_moved = True

    def _give(self, member_id: str, topic_id: bytes, partition: int) -> None:
        self._owned[member_id].setdefault(topic_id, set()).add(partition)
        self._load[member_id] += 1


def _grouped(topic_partitions: list[tuple[bytes, int]]) -> Assignment:
    grouped: dict[bytes, set[int]] = {}
    for topic_id, partition in topic_partitions:
        grouped.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in grouped.items()}


ASSIGNORS: dict[str, Assignor] = {UNIFORM: assign_uniformly, RANGE: assign_ranges}
"""All assignors by Kafka's names; the first is the default."""
