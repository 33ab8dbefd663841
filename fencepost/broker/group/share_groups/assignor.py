"""Assignor for share groups: every partition has at least one reader, and several if there are more members. Pure.

It assigns every partition to enough members for every member to have one, gives members about equal numbers of
partitions, and keeps earlier assignments where they fit.
Source: KIP-932; Kafka's SimpleAssignor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fencepost.broker.group.modern import Assignment

SIMPLE_ASSIGNOR = "simple"

_Partition = tuple[bytes, int]


def assign(
    subscriptions: Mapping[str, frozenset[bytes]], assignable: Assignment, previous: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """Return the assignment of each member.

    subscriptions: topic ids by member id. assignable: partitions that can be read. previous: the last assignment.
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
    """Distribute these partitions among the members and add them to the members' shares."""
    if not partitions:
        return
    member_count = len(member_ids)
    sharing = -(-member_count // len(partitions))
    total = sharing * len(partitions)
    quotas = {
        member_id: -(-total * (index + 1) // member_count) - -(-total * index // member_count)
        for index, member_id in enumerate(member_ids)
    }
    targets = set(partitions)
    held = {member_id: _kept(previous.get(member_id, {}), targets, quotas[member_id]) for member_id in member_ids}
    readers: dict[_Partition, list[str]] = {partition: [] for partition in partitions}
    for member_id, kept in held.items():
        for partition in kept:
            readers[partition].append(member_id)
    for partition, of_partition in readers.items():
        surplus_count = max(0, len(of_partition) - sharing)
        for member_id in of_partition[:surplus_count]:
            held[member_id].remove(partition)
        del of_partition[:surplus_count]
    _fill(readers, held, quotas, sharing)
    for member_id, kept in held.items():
        shares[member_id] |= kept


def _kept(previous: Assignment, targets: Collection[_Partition], quota: int) -> set[_Partition]:
    """Return the partitions that a member keeps: the last ones of its previous assignment, up to its quota."""
    had = sorted((topic_id, number) for topic_id, numbers in previous.items() for number in numbers)
    fitting = [partition for partition in had if partition in targets]
    return set(fitting[max(0, len(fitting) - quota) :])


def _fill(
    readers: dict[_Partition, list[str]], held: dict[str, set[_Partition]], quotas: Mapping[str, int], sharing: int
) -> None:
    """Give partitions with too few readers, in turn, to members with too few partitions.

    This stops at the first partition that all of those members read already.
    """
    unfilled = [member_id for member_id, kept in held.items() if len(kept) < quotas[member_id]]
    position, is_any_given = 0, False
    for partition, of_partition in readers.items():
        while len(of_partition) < sharing:
            if position >= len(unfilled):
                if not unfilled or not is_any_given:
                    return
                position, is_any_given = 0, False
            member_id = unfilled[position]
            position += 1
            if partition in held[member_id]:
                continue
            of_partition.append(member_id)
            held[member_id].add(partition)
            is_any_given = True
            if len(held[member_id]) >= quotas[member_id]:
                position -= 1
                del unfilled[position]


def _by_topic(share: set[_Partition]) -> Assignment:
    assignment: dict[bytes, set[int]] = {}
    for topic_id, partition in share:
        assignment.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in sorted(assignment.items())}
