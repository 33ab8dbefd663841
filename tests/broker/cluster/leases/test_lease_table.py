"""Leases of nodes and who leads what: each state with each event, and the rules of placing and moving partitions."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from fencepost.broker.cluster.leases.lease_table import (
    INTERNAL_MOVED_TOGETHER,
    MOVED_TOGETHER,
    NODE_TRANSITIONS,
    LeaseTable,
    Move,
    NodeEvent,
    NodeState,
    PartitionLease,
    Placed,
    all_due_moves,
    apply,
    apply_placed,
    decide_creation,
    decide_event,
    decide_move,
    next_moves,
    preferred,
    shares,
    should_lead,
)
from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition

ALIVE, LEAVING, GONE = NodeState.ALIVE, NodeState.LEAVING, NodeState.GONE
TOPIC_ID = b"t" * 16
TOPIC_IDS = [number.to_bytes(16, "big") for number in range(200)]


def table(nodes: dict[int, NodeState], leaders: dict[str, int | None] | None = None, *, epoch: int = 4) -> LeaseTable:
    """Nodes in their states, and the leaders of partitions such as `orders-0`."""
    made = LeaseTable(dict(nodes))
    for text, leader in (leaders or {}).items():
        topic, partition = text.rsplit("-", 1)
        lease = PartitionLease(TOPIC_ID, leader, epoch, is_created=True)
        made.partitions[TopicPartition(topic, int(partition))] = lease
    return made


def many(leader: int, count: int, topic: str = "orders") -> dict[str, int | None]:
    return {f"{topic}-{partition}": leader for partition in range(count)}


# Each state and each event


EXPECTED = """
            STARTED  DRAINED  RESUMED  STOPPED  LOST
    GONE    ALIVE    -        -        -        GONE
    ALIVE   ALIVE    LEAVING  ALIVE    GONE     GONE
    LEAVING ALIVE    LEAVING  ALIVE    GONE     GONE
"""


def test_the_table_of_node_states_is_as_written_here() -> None:
    header, *rows = [line.split() for line in EXPECTED.strip().splitlines()]
    for state, *cells in rows:
        for event, cell in zip(header, cells, strict=True):
            after = NODE_TRANSITIONS.get((NodeState[state], NodeEvent[event]))
            assert ("-" if after is None else after.name) == cell, (state, event)
    assert len(rows) * len(header) == len(NodeState) * len(NodeEvent)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(NodeState, NodeEvent)))
def test_an_event_changes_the_node_and_no_other_and_no_epoch_falls(state: NodeState, event: NodeEvent) -> None:
    before = table({1: state, 2: ALIVE}, {**many(1, 20), **many(2, 20, "others")})
    change = decide_event(before, 1, event)
    assert (change is None) == ((state, event) not in NODE_TRANSITIONS)
    if change is None:
        return
    apply(before, change)
    assert before.nodes == {1: NODE_TRANSITIONS[state, event], 2: ALIVE}
    for name, lease in before.partitions.items():
        assert lease.epoch >= 4
        if name.topic == "others":
            assert (lease.leader, lease.epoch) == (2, 4), "what another node leads stays as it is"
        elif event is NodeEvent.LOST:
            assert (lease.leader, lease.epoch) == (2, 5)
        elif event is NodeEvent.STARTED:
            assert (lease.leader, lease.epoch) == (1, 5), "another process leads in a higher epoch"
        else:
            assert (lease.leader, lease.epoch) == (1, 4)


def test_a_node_that_stops_and_starts_keeps_what_it_led() -> None:
    leases = table({1: ALIVE, 2: ALIVE}, many(1, 3))
    for event in (NodeEvent.STOPPED, NodeEvent.STARTED):
        change = decide_event(leases, 1, event)
        assert change is not None
        apply(leases, change)
    assert {(lease.leader, lease.epoch) for lease in leases.partitions.values()} == {(1, 5)}


def test_what_a_stopped_node_leads_may_be_taken_over() -> None:
    change = decide_event(table({1: GONE, 2: ALIVE}, many(1, 1)), 1, NodeEvent.LOST)
    assert change is not None
    assert change.placed == (Placed(TopicPartition("orders", 0), 2, 5),)


def test_nodes_that_leave_take_over_only_if_no_other_is_alive() -> None:
    lost = decide_event(table({1: ALIVE, 2: LEAVING, 3: ALIVE}, many(1, 20)), 1, NodeEvent.LOST)
    assert lost is not None
    assert {placed.leader for placed in lost.placed} == {3}
    lost = decide_event(table({1: ALIVE, 2: LEAVING, 3: GONE}, many(1, 20)), 1, NodeEvent.LOST)
    assert lost is not None
    assert {placed.leader for placed in lost.placed} == {2}


def test_what_nobody_can_lead_waits_for_the_next_node_that_starts() -> None:
    leases = table({1: ALIVE}, many(1, 3))
    lost = decide_event(leases, 1, NodeEvent.LOST)
    assert lost is not None
    apply(leases, lost)
    assert {lease.leader for lease in leases.partitions.values()} == {None}
    started = decide_event(leases, 7, NodeEvent.STARTED)
    assert started is not None
    apply(leases, started)
    assert {(lease.leader, lease.epoch) for lease in leases.partitions.values()} == {(7, 6)}


# Who should lead


def test_a_node_that_has_just_come_gets_only_what_was_chosen_for_it() -> None:
    leases = table({1: ALIVE, 2: ALIVE, 3: ALIVE}, many(1, 300))
    chosen = TopicPartition("orders", 7)
    leases.partitions[chosen].wanted = 3
    names = list(leases.partitions)
    settled = {name: should_lead(leases, name, leases.partitions[name]) for name in names}
    without = {name: should_lead(leases, name, leases.partitions[name], {3}) for name in names}
    assert [name for name, leader in without.items() if leader == 3] == [chosen]
    assert all(without[name] == leader for name, leader in settled.items() if leader != 3), "nothing else moves"
    assert {move.target for move in all_due_moves(leases, 1, {3})} <= {2, 3}


def test_a_node_that_has_just_come_keeps_what_it_leads() -> None:
    leases = table({1: ALIVE, 2: ALIVE, 3: ALIVE}, many(1, 300))
    for name, lease in leases.partitions.items():
        lease.leader = should_lead(leases, name, lease)
    assert all(should_lead(leases, name, lease, {3}) == lease.leader for name, lease in leases.partitions.items())


def test_a_node_that_leaves_hands_over_also_to_one_that_has_just_come_if_no_other_is_there() -> None:
    moves = all_due_moves(table({1: LEAVING, 2: ALIVE}, many(1, 3)), 1, {2})
    assert {move.target for move in moves} == {2}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 7, 50, 1000])
def test_partitions_of_each_topic_are_dealt_out_evenly_to_the_nodes_that_are_alive(count: int) -> None:
    leases = table({1: ALIVE, 2: ALIVE, 3: ALIVE, 4: LEAVING, 5: GONE})
    names = [TopicPartition("orders", partition) for partition in range(count)]
    for topic_id in TOPIC_IDS:
        placed = decide_creation(leases, topic_id, names)
        counts = Counter(each.leader for each in placed)
        assert {counts[node_id] for node_id in (1, 2, 3)} <= {count // 3, -(-count // 3)}
        assert counts.total() == count
        assert {each.epoch for each in placed} == {0}


def test_single_partitions_of_many_topics_are_led_by_all_nodes() -> None:
    counts = Counter(shares(number.to_bytes(16, "big"), 1, (1, 2, 3))[0] for number in range(3_000))
    assert all(850 < counts[node_id] < 1_150 for node_id in (1, 2, 3)), counts


@pytest.mark.parametrize("count", [6, 12, 50])
def test_a_node_that_joins_takes_its_share_and_hardly_anything_moves_between_the_others(count: int) -> None:
    to_the_node, between_others = 0, 0
    for topic_id in TOPIC_IDS:
        before, after = shares(topic_id, count, (1, 2, 3)), shares(topic_id, count, (1, 2, 3, 4))
        moved = [new for old, new in zip(before, after, strict=True) if new != old]
        to_the_node += moved.count(4)
        between_others += len(moved) - moved.count(4)
    assert count / 4 - 1 <= to_the_node / len(TOPIC_IDS) <= count / 4 + 1
    assert between_others <= to_the_node / 3


def test_partitions_are_placed_as_their_number_in_the_topic_grows() -> None:
    leases = table({1: ALIVE, 2: ALIVE, 3: ALIVE})
    for numbers in (range(4), range(4, 5), range(5, 9)):
        for placed in decide_creation(leases, TOPIC_ID, [TopicPartition("orders", number) for number in numbers]):
            leases.partitions[placed.topic_partition] = PartitionLease(TOPIC_ID, placed.leader)
    assert leases.partition_count("orders") == 9
    for node_id in (1, 2, 3):
        for move in all_due_moves(leases, node_id):
            leases.partitions[move.topic_partition].leader = move.target
    assert Counter(lease.leader for lease in leases.partitions.values()) == {1: 3, 2: 3, 3: 3}


def test_the_count_of_partitions_is_that_of_the_topic_and_of_no_other() -> None:
    leases = table({1: ALIVE}, {**many(1, 7), **many(1, 3, "others")})
    assert [leases.partition_count(topic) for topic in ("orders", "others", "none")] == [7, 3, 0]


def test_the_node_that_an_operator_chose_leads_while_it_is_alive_and_nothing_else_moves_for_it() -> None:
    leases = table({1: ALIVE, 2: ALIVE, 3: ALIVE}, many(1, 6))
    settled = {name: should_lead(leases, name, lease) for name, lease in leases.partitions.items()}
    name = TopicPartition("orders", 0)
    for wanted in (1, 2, 3):
        leases.partitions[name].wanted = wanted
        chosen = {each: should_lead(leases, each, lease) for each, lease in leases.partitions.items()}
        assert chosen == {**settled, name: wanted}
    by_share = preferred(name, PartitionLease(TOPIC_ID, None), [1, 2], 6)
    assert preferred(name, PartitionLease(TOPIC_ID, None, wanted=3), [1, 2], 6) == by_share


# Moves


def test_a_few_partitions_move_at_a_time_and_internal_ones_last_and_one_by_one() -> None:
    leases = table({1: LEAVING, 2: ALIVE}, {**many(1, 25), **many(1, 3, TRANSACTION_STATE_TOPIC)})
    batches = []
    while moves := next_moves(all_due_moves(leases, 1)):
        batches.append([move.topic_partition.topic for move in moves])
        for move in moves:
            placed = decide_move(leases, move)
            assert placed == Placed(move.topic_partition, 2, 5)
            apply_placed(leases, placed)
    assert (MOVED_TOGETHER, INTERNAL_MOVED_TOGETHER) == (10, 1)
    assert batches == [["orders"] * 10, ["orders"] * 10, ["orders"] * 5, *[[TRANSACTION_STATE_TOPIC]] * 3]


def test_a_node_keeps_what_no_other_node_can_lead() -> None:
    assert all_due_moves(table({1: LEAVING, 2: LEAVING, 3: GONE}, many(1, 5)), 1) == []


def test_nothing_moves_where_everything_is_led_by_the_node_that_should() -> None:
    leases = table({1: ALIVE, 2: ALIVE}, many(1, 50))
    for name, lease in leases.partitions.items():
        lease.leader = preferred(name, lease, [1, 2], 50)
    assert all_due_moves(leases, 1) == all_due_moves(leases, 2) == []


@pytest.mark.parametrize(
    "move",
    [
        Move(TopicPartition("orders", 0), 1, 3, 2, TOPIC_ID),
        Move(TopicPartition("orders", 0), 2, 4, 2, TOPIC_ID),
        Move(TopicPartition("orders", 0), 1, 4, 3, TOPIC_ID),
        Move(TopicPartition("orders", 0), 1, 4, 4, TOPIC_ID),
        Move(TopicPartition("deleted", 0), 1, 4, 2, TOPIC_ID),
        Move(TopicPartition("orders", 0), 1, 4, 2, b"an earlier one" + bytes(2)),
    ],
    ids=[
        "another epoch",
        "another leader",
        "to a node that leaves",
        "to one that is gone",
        "of no topic",
        "of an earlier topic",
    ],
)
def test_a_move_that_is_out_of_date_is_refused(move: Move) -> None:
    assert decide_move(table({1: ALIVE, 2: ALIVE, 3: LEAVING, 4: GONE}, many(1, 1)), move) is None
