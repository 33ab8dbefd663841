"""Which partitions each member of a share group reads: all of them are read, each by as many members as need be. Pure.

Every partition has as many members as it takes for every member to have something, every member about as many
partitions, and whoever has one keeps it if that fits.
Source: KIP-932; Kafka's SimpleAssignor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.group.consumer.group import Assignment

SIMPLE_ASSIGNOR = "simple"

_Partition = tuple[bytes, int]


def assign(
    subscriptions: Mapping[str, frozenset[bytes]], assignable: Assignment, previous: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """What each member is to read.

    subscriptions: by member id, the ids of the topics that it wants. assignable: the partitions that can be read.
    previous:      what the members read until now.
    """
    shares: dict[str, set[_Partition]] = {member_id: set() for member_id in subscriptions}
    if len(set(subscriptions.values())) == 1:
        wanted = next(iter(subscriptions.values()))
        _share_out(sorted(subscriptions), _partitions(wanted, assignable), previous, shares)
    else:
        for topic_id in sorted(frozenset().union(*subscriptions.values())):
            subscribers = sorted(member_id for member_id, wanted in subscriptions.items() if topic_id in wanted)
            _share_out(subscribers, _partitions((topic_id,), assignable), previous, shares)
    return {member_id: _by_topic(share) for member_id, share in shares.items()}


def _partitions(topic_ids: Collection[bytes], assignable: Assignment) -> list[_Partition]:
    return [
        (topic_id, partition) for topic_id in sorted(topic_ids) for partition in sorted(assignable.get(topic_id, ()))
    ]


def _share_out(
    member_ids: list[str],
    partitions: list[_Partition],
    previous: Mapping[str, Assignment],
    shares: dict[str, set[_Partition]],
) -> None:
    """Add to the members' shares what they get of these partitions."""
    if not partitions:
        return
    member_count = len(member_ids)
    sharing = -(-member_count // len(partitions))
    total = sharing * len(partitions)
    quotas = {
        member_id: -(-total * (index + 1) // member_count) - -(-total * index // member_count)
        for index, member_id in enumerate(member_ids)
    }
    readers: dict[_Partition, set[str]] = {partition: set() for partition in partitions}
    given = dict.fromkeys(member_ids, 0)
    for member_id in member_ids:
        for topic_id, kept in previous.get(member_id, {}).items():
            for number in sorted(kept):
                of_partition = readers.get((topic_id, number))
                if of_partition is None or given[member_id] >= quotas[member_id] or len(of_partition) >= sharing:
                    continue
                of_partition.add(member_id)
                given[member_id] += 1
    unfilled = [member_id for member_id in member_ids if given[member_id] < quotas[member_id]]
    for of_partition in readers.values():
        while len(of_partition) < sharing:
            position = next((at for at, member_id in enumerate(unfilled) if member_id not in of_partition), None)
            if position is None:
                break
            member_id = unfilled.pop(position)
            of_partition.add(member_id)
            given[member_id] += 1
            if given[member_id] < quotas[member_id]:
                unfilled.append(member_id)
    for partition, of_partition in readers.items():
        for member_id in of_partition:
            shares[member_id].add(partition)


def _by_topic(share: set[_Partition]) -> Assignment:
    assignment: dict[bytes, set[int]] = {}
    for topic_id, partition in share:
        assignment.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in sorted(assignment.items())}
