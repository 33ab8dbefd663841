"""In any order of starts, deaths, take-overs and moves, no partition is written by two processes, none is lost, and all
are in the end where they should be. Each planted bug is found.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fencepost.broker.cluster.leases import lease_table as leases
from fencepost.broker.cluster.leases.lease_table import (
    LeaseTable,
    Move,
    NodeChange,
    NodeEvent,
    NodeId,
    NodeState,
    PartitionLease,
    Placed,
)
from fencepost.broker.kernel.topic_partition import TopicPartition
from tests.broker.cluster.leases import lease_world
from tests.broker.cluster.leases.lease_world import BrokenInvariantError, LeaseWorld, ProcessOfNode

SEEDS = range(150)
STEPS = 150


def run(world: LeaseWorld) -> LeaseWorld:
    for _ in range(STEPS):
        world.step()
    return world


@pytest.mark.parametrize("seed", [*SEEDS[:50], *(pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS[50:])])
def test_any_order_of_events_keeps_the_invariants_and_ends_in_order(seed: int) -> None:
    world = run(LeaseWorld(seed))
    world.settle()
    world.check_settled()


def test_the_orders_that_are_tried_reach_what_matters() -> None:
    led_by_several = taken_over = with_orphans = 0
    for seed in SEEDS:
        world = LeaseWorld(seed)
        for _ in range(STEPS):
            world.step()
            with_orphans += any(lease.leader is None for lease in world.table.partitions.values())
        led_by_several += any(len({node for node, _ in each.values()}) > 1 for each in world.written.values())
        taken_over += max((max(each) for each in world.written.values()), default=0) > 4
    assert led_by_several > 50
    assert taken_over > 20
    assert with_orphans > 20


# Planted bugs


class WithoutLock(LeaseWorld):
    """A process takes over from one that still runs."""

    def may_lock(self, node_id: NodeId) -> bool:
        return True


class StillOpen(LeaseWorld):
    """A planned move is stored before the log is closed."""

    def close(self, process: ProcessOfNode, moves: list[Move]) -> list[Move]:
        return moves

    def follow(self, node_id: NodeId, process: ProcessOfNode) -> None:
        process.known = copy.deepcopy(self.table)  # and keeps what it has open
        for name in self.table.led_by(node_id):
            self.open(node_id, process, name, self.table.partitions[name])


class OwnDirectoryOnly(LeaseWorld):
    """A directory that is not here counts as one that is nowhere."""

    def bring(self, node_id: NodeId, name: TopicPartition, lease: PartitionLease) -> None:
        if self.directories.get(name, node_id) != node_id:
            del self.directories[name]
        super().bring(node_id, name, lease)


@pytest.mark.parametrize("world_of", [WithoutLock, StillOpen, OwnDirectoryOnly])
def test_a_process_that_breaks_a_rule_is_found(world_of: type[LeaseWorld]) -> None:
    def search() -> None:
        for seed in SEEDS:
            run(world_of(seed)).settle()

    with pytest.raises(BrokenInvariantError):
        search()


def same_epoch_after_a_crash(table: LeaseTable, node_id: NodeId, event: NodeEvent) -> NodeChange | None:
    change = leases.decide_event(table, node_id, event)
    if change is None or event is not NodeEvent.STARTED:
        return change
    return change._replace(placed=tuple(one for one in change.placed if one.leader != node_id))


def same_epoch_after_a_take_over(table: LeaseTable, node_id: NodeId, event: NodeEvent) -> NodeChange | None:
    change = leases.decide_event(table, node_id, event)
    if change is None or event is not NodeEvent.LOST:
        return change
    return change._replace(placed=tuple(one._replace(epoch=one.epoch - 1) for one in change.placed))


def forgets_half(table: LeaseTable, node_id: NodeId, event: NodeEvent) -> NodeChange | None:
    change = leases.decide_event(table, node_id, event)
    if change is None or event is not NodeEvent.LOST:
        return change
    return change._replace(placed=tuple(one._replace(leader=None) for one in change.placed[::2]))


@pytest.mark.parametrize("decide", [same_epoch_after_a_crash, same_epoch_after_a_take_over, forgets_half])
def test_a_wrong_decision_about_a_node_is_found(decide: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_world, "decide_event", decide)

    def search() -> None:
        for seed in SEEDS:
            world = run(LeaseWorld(seed))
            world.settle()
            world.check_settled()

    with pytest.raises(BrokenInvariantError):
        search()


def to_any(table: LeaseTable, move: Move) -> Placed | None:
    """Whether the target is still alive is not looked at."""
    lease = table.partitions[move.topic_partition]
    if (lease.leader, lease.epoch) != (move.source, move.epoch):
        return None
    return Placed(move.topic_partition, move.target, lease.epoch + 1)


class DeadTargets(LeaseWorld):
    """A move to a node that has gone meanwhile leaves the partition where nobody takes it over again."""

    def check(self) -> None:
        super().check()
        for name, lease in self.table.partitions.items():
            leader = lease.leader
            stopped = leader is not None and self.table.state(leader) is NodeState.GONE
            if stopped and (name, lease.epoch) not in self.kept:
                raise BrokenInvariantError(f"{name} was given to {leader}, which is gone")

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kept: set[tuple[TopicPartition, int]] = set()

    def stop(self, node_id: NodeId) -> None:
        self.kept |= {(name, self.table.partitions[name].epoch) for name in self.table.led_by(node_id)}
        super().stop(node_id)


def test_a_move_to_a_node_that_has_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in SEEDS[:20]:
        run(DeadTargets(seed))
    monkeypatch.setattr(lease_world, "decide_move", to_any)

    def search() -> None:
        for seed in SEEDS:
            run(DeadTargets(seed)).settle()

    with pytest.raises(BrokenInvariantError):
        search()
