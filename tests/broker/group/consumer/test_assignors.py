"""The assignors: every wanted partition has one owner that wants it, evenly, and moves only when it must."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.broker.group.consumer.assignors import ASSIGNORS, AssignorMember, assign_ranges, assign_uniformly
from fencepost.broker.group.modern import Assignment

TOPICS = [bytes([number]) * 16 for number in range(4)]


def spread(assignment: Mapping[str, Assignment]) -> list[tuple[bytes, int]]:
    return [
        (topic_id, partition)
        for owned in assignment.values()
        for topic_id, partitions in owned.items()
        for partition in partitions
    ]


def load(owned: Assignment) -> int:
    return sum(len(partitions) for partitions in owned.values())


def check(
    members: Mapping[str, AssignorMember], counts: Mapping[bytes, int], assigned: Mapping[str, Assignment]
) -> None:
    wanted = {topic_id for subscriber in members.values() for topic_id in subscriber.topic_ids}
    found = spread(assigned)
    assert sorted(found) == sorted((topic_id, index) for topic_id in wanted for index in range(counts[topic_id]))
    assert assigned.keys() == members.keys()
    for member_id, owned in assigned.items():
        assert owned.keys() <= members[member_id].topic_ids
        assert all(owned.values()), "topics without a partition are left out"


counts = st.fixed_dictionaries({topic_id: st.integers(1, 12) for topic_id in TOPICS})
subscriptions = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=3),
    st.frozensets(st.sampled_from(TOPICS), max_size=4),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=60, deadline=None)
@given(wanted=subscriptions, before=subscriptions, partition_counts=counts)
def test_every_wanted_partition_has_exactly_one_owner_whatever_was_before(
    name: str,
    wanted: dict[str, frozenset[bytes]],
    before: dict[str, frozenset[bytes]],
    partition_counts: dict[bytes, int],
) -> None:
    assign = ASSIGNORS[name]
    earlier = assign({name: AssignorMember(topics) for name, topics in before.items()}, partition_counts)
    members = {name: AssignorMember(topics, earlier.get(name, {})) for name, topics in wanted.items()}
    grown = {topic_id: count + 1 for topic_id, count in partition_counts.items()}
    check(members, grown, assign(members, grown))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), counts)
def test_with_equal_subscriptions_no_two_members_differ_by_more_than_one_and_nothing_moves_needlessly(
    count_before: int, count_after: int, partition_counts: dict[bytes, int]
) -> None:
    wanted = frozenset(TOPICS)
    before = assign_uniformly({f"m{n}": AssignorMember(wanted) for n in range(count_before)}, partition_counts)
    members = {f"m{n}": AssignorMember(wanted, before.get(f"m{n}", {})) for n in range(count_after)}
    after = assign_uniformly(members, partition_counts)
    loads = [load(owned) for owned in after.values()]
    assert max(loads) - min(loads) <= 1
    # A member that had too much gives only that up; one that had enough keeps all.
    largest = max(loads)
    for name in before.keys() & after.keys():
        kept = set(spread({name: before[name]})) & set(spread({name: after[name]}))
        assert len(kept) >= min(load(before[name]), min(loads)), (name, largest)
    if count_before == count_after:
        assert after == before


@settings(max_examples=60, deadline=None)
@given(subscriptions, counts)
def test_with_different_subscriptions_no_partition_could_move_to_make_it_more_even(
    wanted: dict[str, frozenset[bytes]], partition_counts: dict[bytes, int]
) -> None:
    members = {name: AssignorMember(topics) for name, topics in wanted.items()}
    assigned = assign_uniformly(members, partition_counts)
    loads = {name: load(owned) for name, owned in assigned.items()}
    for name, owned in assigned.items():
        for topic_id in owned:
            takers = [other for other, topics in wanted.items() if topic_id in topics]
            assert loads[name] - min(loads[other] for other in takers) <= 1
    again = assign_uniformly(
        {name: AssignorMember(wanted[name], owned) for name, owned in assigned.items()}, partition_counts
    )
    assert again == assigned


def test_a_member_with_one_partition_more_keeps_it_and_else_the_last_gets_it() -> None:
    (topic, *_) = TOPICS
    wanted = frozenset({topic})

    def assigned(**previous: set[int]) -> dict[str, list[int]]:
        members = {
            name: AssignorMember(wanted, {topic: frozenset(partitions)} if partitions else {})
            for name, partitions in previous.items()
        }
        found = assign_uniformly(members, {topic: 4})
        return {name: sorted(owned.get(topic, ())) for name, owned in found.items()}

    assert assigned(c={3}, b={0, 1}, a={2}) == {"c": [3], "b": [0, 1], "a": [2]}
    assert assigned(c={3}, b={0}, a={2}) == {"c": [1, 3], "b": [0], "a": [2]}
    assert assigned(a={0, 1, 2}, b=set(), c={3}) == {"a": [0, 1], "b": [2], "c": [3]}


def test_ranges_are_consecutive_and_the_same_for_topics_of_the_same_size() -> None:
    members = {name: AssignorMember(frozenset(TOPICS[:2])) for name in ("b", "a", "c")}
    assigned = assign_ranges(members, {TOPICS[0]: 7, TOPICS[1]: 7})
    expected = {"a": frozenset({0, 1, 2}), "b": frozenset({3, 4}), "c": frozenset({5, 6})}
    for name, partitions in expected.items():
        assert assigned[name] == {TOPICS[0]: partitions, TOPICS[1]: partitions}


def test_static_members_keep_their_range_when_their_processes_are_replaced() -> None:
    wanted = frozenset(TOPICS[:1])
    partition_counts = {TOPICS[0]: 4}
    before = assign_ranges(
        {"x": AssignorMember(wanted, instance_id="1"), "y": AssignorMember(wanted, instance_id="2")}, partition_counts
    )
    after = assign_ranges(
        {"q": AssignorMember(wanted, instance_id="1"), "p": AssignorMember(wanted, instance_id="2")}, partition_counts
    )
    assert (after["q"], after["p"]) == (before["x"], before["y"])


def test_a_hundred_members_share_a_thousand_partitions_in_milliseconds() -> None:
    wanted = frozenset(TOPICS)
    partition_counts = dict.fromkeys(TOPICS, 250)
    members = {f"m{number}": AssignorMember(wanted) for number in range(99)}
    before = assign_uniformly(members, partition_counts)
    members = {name: AssignorMember(wanted, before.get(name, {})) for name in (*members, "m99")}
    began_s = time.process_time()
    after = assign_uniformly(members, partition_counts)
    assert time.process_time() - began_s < 0.1
    check(members, partition_counts, after)
    moved = set(spread({name: after[name] for name in before})) ^ set(spread(before))
    assert len(moved) == 10
