"""Partitions of share groups and their members."""

from __future__ import annotations

from fencepost.broker.group.share_groups.assignor import assign

TOPIC, OTHER = bytes([1]) * 16, bytes([2]) * 16


def test_every_member_has_a_partition_and_every_partition_as_many_members() -> None:
    members = {f"m{number}": frozenset({TOPIC}) for number in range(4)}
    assigned = assign(members, {TOPIC: frozenset({0, 1})}, {})
    assert all(len(each[TOPIC]) == 1 for each in assigned.values())
    assert [sum(partition in each[TOPIC] for each in assigned.values()) for partition in (0, 1)] == [2, 2]


def test_earlier_assignments_are_kept_when_a_member_joins() -> None:
    partitions = {TOPIC: frozenset(range(4))}
    before = assign({"a": frozenset({TOPIC})}, partitions, {})
    assert before == {"a": partitions}
    after = assign({"a": frozenset({TOPIC}), "b": frozenset({TOPIC})}, partitions, before)
    assert after["a"][TOPIC] < partitions[TOPIC]
    assert after["a"][TOPIC] | after["b"][TOPIC] == partitions[TOPIC]
    assert len(after["a"][TOPIC]) == len(after["b"][TOPIC]) == 2


def test_members_get_partitions_of_their_own_topics_only() -> None:
    members = {"a": frozenset({TOPIC}), "b": frozenset({OTHER})}
    assigned = assign(members, {TOPIC: frozenset({0}), OTHER: frozenset({0})}, {})
    assert assigned == {"a": {TOPIC: frozenset({0})}, "b": {OTHER: frozenset({0})}}


def test_a_topic_without_partitions_gives_none() -> None:
    assert assign({"a": frozenset({TOPIC})}, {}, {}) == {"a": {}}
