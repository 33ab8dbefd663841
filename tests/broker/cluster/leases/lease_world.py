"""A model of processes, their locks and the directories of partitions, to try events on leases in any order.

The store is the table itself: each event reads and changes it in one step, as in one transaction. What a process knows
of it may be old.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field

from fencepost.broker.cluster.leases.lease_table import (
    LeaseTable,
    Move,
    NodeChange,
    NodeEvent,
    NodeId,
    NodeState,
    PartitionLease,
    all_due_moves,
    apply,
    apply_placed,
    decide_creation,
    decide_event,
    decide_move,
    next_moves,
    preferred,
)
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TopicPartition

NODE_IDS = (1, 2, 3, 4)


class BrokenInvariantError(AssertionError):
    """An invariant does not hold."""


@dataclass
class ProcessOfNode:
    """A running process.

    known:        the table as it last read it.
    open:         its open logs, with the epochs it leads them in.
    handing_over: moves whose logs it has closed, and that it has not stored yet.
    """

    incarnation: int
    known: LeaseTable
    open: dict[TopicPartition, int] = field(default_factory=dict)
    handing_over: list[Move] = field(default_factory=list)


class LeaseWorld:
    """Events, and the invariants that hold after each.

    directories: in which node's directory a partition's files are. written: the epochs of its records, each with the
    process that wrote in it.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.table = LeaseTable()
        self.running: dict[NodeId, ProcessOfNode] = {}
        self.directories: dict[TopicPartition, NodeId] = {}
        self.written: dict[TopicPartition, dict[int, tuple[NodeId, int]]] = {}
        self.incarnations = 0
        self.events: list[str] = []
        for node_id in NODE_IDS[:2]:
            self.start(node_id)
        self.create_topic(1, "first", 12)

    # What processes do

    def start(self, node_id: NodeId) -> None:
        if node_id in self.running:
            return
        self.incarnations += 1
        process = self.running[node_id] = ProcessOfNode(self.incarnations, LeaseTable())
        change = decide_event(self.table, node_id, NodeEvent.STARTED)
        assert change is not None
        self.store(change)
        self.follow(node_id, process)

    def kill(self, node_id: NodeId) -> None:
        self.running.pop(node_id, None)

    def stop(self, node_id: NodeId) -> None:
        process = self.running.get(node_id)
        if process is not None:
            process.open.clear()
            process.handing_over.clear()
            change = decide_event(self.table, node_id, NodeEvent.STOPPED)
            if change is not None:
                self.store(change)
            del self.running[node_id]

    def follow(self, node_id: NodeId, process: ProcessOfNode) -> None:
        """Read the table, close what is led elsewhere and open what is led here."""
        process.known = copy.deepcopy(self.table)
        closed = {move.topic_partition for move in process.handing_over}
        for name, lease in process.known.partitions.items():
            if name in closed:
                continue
            if lease.leader != node_id:
                process.open.pop(name, None)
            elif process.open.get(name) != lease.epoch:
                self.open(node_id, process, name, lease)

    def open(self, node_id: NodeId, process: ProcessOfNode, name: TopicPartition, lease: PartitionLease) -> None:
        self.bring(node_id, name, lease)
        process.open[name] = lease.epoch
        stored = self.table.partitions[name]
        stored.is_created = True

    def bring(self, node_id: NodeId, name: TopicPartition, lease: PartitionLease) -> None:
        """Take the directory from wherever it is; create it only if it has never been."""
        if name not in self.directories and lease.is_created:
            raise BrokenInvariantError(f"{name} has been created, and its directory is nowhere")
        self.directories[name] = node_id

    def take_over(self, node_id: NodeId, lost: NodeId) -> None:
        if (node_id in self.running or not self.running) and self.may_lock(lost):
            change = decide_event(self.table, lost, NodeEvent.LOST)
            if change is not None:
                self.store(change)

    def lose_all(self) -> None:
        """The machine loses its power; before the next start one node is taken out of service."""
        self.running.clear()
        for lost in self.chance.sample(NODE_IDS, 2):
            self.take_over(0, lost)

    def may_lock(self, node_id: NodeId) -> bool:
        return node_id not in self.running

    def hand_over(self, node_id: NodeId) -> int:
        """Close the logs of moves that are due, or store those whose logs are closed: anything may happen between."""
        process = self.running.get(node_id)
        if process is None:
            return 0
        if not process.handing_over:
            process.handing_over = self.close(process, list(next_moves(all_due_moves(process.known, node_id))))
            return len(process.handing_over)
        moves, process.handing_over = process.handing_over, []
        for move in moves:
            self.commit(move)
        self.follow(node_id, process)
        return len(moves)

    def close(self, process: ProcessOfNode, moves: list[Move]) -> list[Move]:
        for move in moves:
            process.open.pop(move.topic_partition, None)
        return moves

    def commit(self, move: Move) -> None:
        placed = decide_move(self.table, move)
        if placed is not None:
            apply_placed(self.table, placed)

    def append(self, node_id: NodeId) -> None:
        process = self.running.get(node_id)
        if process is None:
            return
        for name, epoch in process.open.items():
            if self.directories.get(name) != node_id:
                raise BrokenInvariantError(
                    f"{name} is written by {node_id}, and its files are with {self.directories.get(name)}"
                )
            epochs = self.written.setdefault(name, {})
            if epochs and epoch < max(epochs):
                raise BrokenInvariantError(f"{name} is written in epoch {epoch} after {max(epochs)}")
            writer = (node_id, process.incarnation)
            if epochs.setdefault(epoch, writer) != writer:
                raise BrokenInvariantError(f"{name} is written in epoch {epoch} by {epochs[epoch]} and by {writer}")

    def create_topic(self, node_id: NodeId, name: str, partition_count: int) -> None:
        if node_id in self.running:
            names = [TopicPartition(name, partition) for partition in range(partition_count)]
            topic_id = name.encode().ljust(16, b".")[:16]
            for placed in decide_creation(self.table, topic_id, names):
                self.table.partitions[placed.topic_partition] = PartitionLease(topic_id, placed.leader, placed.epoch)

    def tell(self, node_id: NodeId, event: NodeEvent) -> None:
        """What an operator asks for."""
        change = decide_event(self.table, node_id, event)
        if change is not None:
            self.store(change)

    def store(self, change: NodeChange) -> None:
        before = {name: lease.epoch for name, lease in self.table.partitions.items()}
        apply(self.table, change)
        for name, epoch in before.items():
            if self.table.partitions[name].epoch < epoch:
                raise BrokenInvariantError(f"the epoch of {name} fell")

    # Any order

    def step(self) -> None:
        """Do one thing that may happen, and check what must hold after it."""
        node_id = self.chance.choice(NODE_IDS)
        kind = self.chance.choices(
            (
                "start",
                "kill",
                "stop",
                "follow",
                "take over",
                "hand over",
                "append",
                "topic",
                "operator",
                "choose",
                "power",
            ),
            weights=(14, 8, 3, 24, 14, 20, 16, 3, 4, 8, 2),
        )[0]
        self.events.append(f"{kind} {node_id}")
        match kind:
            case "start":
                self.start(node_id)
            case "kill":
                self.kill(node_id)
            case "stop":
                self.stop(node_id)
            case "follow":
                if node_id in self.running:
                    self.follow(node_id, self.running[node_id])
                    self.append(node_id)
            case "take over":
                self.take_over(node_id, self.chance.choice([each for each in NODE_IDS if each != node_id]))
            case "hand over":
                self.hand_over(node_id)
            case "append":
                self.append(node_id)
            case "topic":
                name = CONSUMER_OFFSETS_TOPIC if self.chance.random() < 0.3 else f"topic-{len(self.events)}"
                if TopicPartition(name, 0) not in self.table.partitions:
                    self.create_topic(node_id, name, self.chance.randint(1, 15))
            case "operator":
                self.tell(node_id, self.chance.choice((NodeEvent.DRAINED, NodeEvent.RESUMED)))
            case "power":
                self.lose_all()
            case _:
                if self.table.partitions:
                    wanted = self.chance.choice((None, *NODE_IDS))
                    for name_of in self.chance.sample(list(self.table.partitions), 1 + len(self.table.partitions) // 3):
                        self.table.partitions[name_of].wanted = wanted
        self.check()

    def check(self) -> None:
        for name, lease in self.table.partitions.items():
            if lease.leader is None and self.table.nodes_in(NodeState.ALIVE):
                raise BrokenInvariantError(f"{name} has no leader, though a node is alive")
            openers = [node_id for node_id, process in self.running.items() if name in process.open]
            if len(openers) > 1:
                raise BrokenInvariantError(f"{name} is open in {openers}")

    def settle(self) -> int:
        """Start every node and let all happen that is due; return after how many rounds nothing was left to do."""
        for node_id in NODE_IDS:
            self.start(node_id)
        for rounds in range(1, 200):
            moved = 0
            for node_id, process in self.running.items():
                self.follow(node_id, process)
                moved += self.hand_over(node_id)
            self.check()
            if not moved:
                for node_id in NODE_IDS:
                    self.append(node_id)
                return rounds
        raise BrokenInvariantError("the moves do not end")

    def check_settled(self) -> None:
        alive = self.table.nodes_in(NodeState.ALIVE)
        for name, lease in self.table.partitions.items():
            count = self.table.partition_count(name.topic)
            if lease.leader != (preferred(name, lease, alive, count) if alive else lease.leader):
                raise BrokenInvariantError(f"{name} is led by {lease.leader}")
            assert lease.leader is not None
            if self.running[lease.leader].open.get(name) != lease.epoch:
                raise BrokenInvariantError(f"{name} is not open where it is led")
            if self.directories[name] != lease.leader:
                raise BrokenInvariantError(f"the files of {name} are not where it is led")
