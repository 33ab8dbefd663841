"""Leases of nodes, and the placement of partitions that follows from them. Pure.

A node holds one lease, from its start until it stops or dies; who leads a partition follows from the leases. A
`decide_…` function reads a `LeaseTable` and returns the change; only `apply` changes the table. The caller stores the
change in one transaction with the rows that it was decided from, so that two nodes never decide from the same state.

Two rules fence. The caller has to keep both, as only it has the locks and files:
- LOST is decided only by a caller that has the lock of the lost node's directory, so that process no longer runs;
- a move is decided only by the leader itself, after it has closed the partition's log.
So the files of a partition are closed whenever its leader changes, in any directory.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition

NodeId = int

MOVED_TOGETHER: Final = 10
"""Partitions that a node hands over at a time: each is without a leader while its files change hands."""
INTERNAL_MOVED_TOGETHER: Final = 1
"""Of internal topics: their next leader loads a coordinator's state."""
MOST_PARTITIONS: Final = 2**31 - 1
"""Of a topic: the protocol numbers them by 32 bits with a sign."""
SHARES_CACHED: Final = 1024
"""Topics, each with a set of nodes, whose shares are kept: each change of the nodes asks for them again."""


class NodeState(StrEnum):
    """State of a node. LEAVING: it still leads, and hands over. GONE: also a node that was never seen."""

    ALIVE = "alive"
    LEAVING = "leaving"
    GONE = "gone"


class NodeEvent(StrEnum):
    """An event that changes the state of a node.

    STARTED: its process has the lock of its directory, and opens its logs next.
    DRAINED: an operator asks it to hand over all that it leads. RESUMED: the opposite.
    STOPPED: it has closed its logs after a clean stop. It keeps its partitions, as it mostly starts again.
    LOST:    another process has the lock of its directory: other nodes take over the partitions that it still leads.
    """

    STARTED = "started"
    DRAINED = "drained"
    RESUMED = "resumed"
    STOPPED = "stopped"
    LOST = "lost"


NODE_TRANSITIONS: Final[Mapping[tuple[NodeState, NodeEvent], NodeState]] = {
    # A restart ends a drain: the operator's request was for the process that has ended.
    (NodeState.GONE, NodeEvent.STARTED): NodeState.ALIVE,
    (NodeState.GONE, NodeEvent.LOST): NodeState.GONE,
    (NodeState.ALIVE, NodeEvent.STARTED): NodeState.ALIVE,
    (NodeState.ALIVE, NodeEvent.DRAINED): NodeState.LEAVING,
    (NodeState.ALIVE, NodeEvent.RESUMED): NodeState.ALIVE,
    (NodeState.ALIVE, NodeEvent.STOPPED): NodeState.GONE,
    (NodeState.ALIVE, NodeEvent.LOST): NodeState.GONE,
    (NodeState.LEAVING, NodeEvent.STARTED): NodeState.ALIVE,
    (NodeState.LEAVING, NodeEvent.DRAINED): NodeState.LEAVING,
    (NodeState.LEAVING, NodeEvent.RESUMED): NodeState.ALIVE,
    (NodeState.LEAVING, NodeEvent.STOPPED): NodeState.GONE,
    (NodeState.LEAVING, NodeEvent.LOST): NodeState.GONE,
}
"""The state after an event; an event that is missing is refused."""


class Placed(NamedTuple):
    """A partition's leader and the epoch in which it leads. leader: None while no node can lead."""

    topic_partition: TopicPartition
    leader: NodeId | None
    epoch: int


class Move(NamedTuple):
    """A planned move of a partition of this topic from its leader, which leads in this epoch, to another node."""

    topic_partition: TopicPartition
    source: NodeId
    epoch: int
    target: NodeId
    topic_id: bytes


@dataclass(slots=True)
class PartitionLease:
    """Who leads a partition.

    is_created: whether its directory has certainly been created. From then on a directory that cannot be found is
                lost, and never the sign of a partition that is new.
    wanted:     the node that an operator has chosen; None: the one that `shares` gives it to.
    """

    topic_id: bytes
    leader: NodeId | None
    epoch: int = 0
    is_created: bool = False
    wanted: NodeId | None = None


@dataclass(slots=True)
class LeaseTable:
    """All nodes that were ever seen, and all partitions of all topics."""

    nodes: dict[NodeId, NodeState] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionLease] = field(default_factory=dict)

    def state(self, node_id: NodeId) -> NodeState:
        return self.nodes.get(node_id, NodeState.GONE)

    def nodes_in(self, state: NodeState) -> list[NodeId]:
        return sorted(node_id for node_id, each in self.nodes.items() if each is state)

    def led_by(self, node_id: NodeId) -> list[TopicPartition]:
        return [name for name, lease in self.partitions.items() if lease.leader == node_id]

    def partition_count(self, topic: str) -> int:
        """Number of a topic's partitions, which are numbered from 0 without a gap."""
        numbers = range(MOST_PARTITIONS)
        return bisect_left(numbers, True, key=lambda number: TopicPartition(topic, number) not in self.partitions)

    def partition_counts(self) -> Counter[str]:
        """Numbers of partitions of all topics: quicker than one by one, if most are needed."""
        return Counter(name.topic for name in self.partitions)


class NodeChange(NamedTuple):
    """A node's next state, and the partitions whose leader or epoch changes with it."""

    node_id: NodeId
    state: NodeState
    placed: tuple[Placed, ...]


def decide_event(table: LeaseTable, node_id: NodeId, event: NodeEvent) -> NodeChange | None:
    """Decide the changes that an event of a node causes; None if it is refused: the node is gone."""
    state = table.state(node_id)
    after = NODE_TRANSITIONS.get((state, event))
    if after is None:
        return None
    placed: list[Placed] = []
    counts = table.partition_counts()
    if event is NodeEvent.STARTED:
        candidates = sorted({*table.nodes_in(NodeState.ALIVE), node_id})
        for name, lease in table.partitions.items():
            if lease.leader is None:
                placed.append(Placed(name, preferred(name, lease, candidates, counts[name.topic]), lease.epoch + 1))
            elif lease.leader == node_id:
                # Requests that it sent before it stopped may still arrive; the epoch tells them from its new ones.
                placed.append(Placed(name, node_id, lease.epoch + 1))
    elif event is NodeEvent.LOST:
        candidates = heirs(table, node_id)
        for name in table.led_by(node_id):
            lease = table.partitions[name]
            placed.append(Placed(name, preferred(name, lease, candidates, counts[name.topic]), lease.epoch + 1))
    return NodeChange(node_id, after, tuple(placed))


def heirs(table: LeaseTable, node_id: NodeId) -> list[NodeId]:
    """The nodes that may take over a lost node's partitions. Nodes that leave count only if no other is alive."""
    for state in (NodeState.ALIVE, NodeState.LEAVING):
        found = [each for each in table.nodes_in(state) if each != node_id]
        if found:
            return found
    return []


def decide_creation(table: LeaseTable, topic_id: bytes, names: Iterable[TopicPartition]) -> list[Placed]:
    """Place partitions that are new: all of a topic, or those above the ones that it has."""
    candidates = table.nodes_in(NodeState.ALIVE) or table.nodes_in(NodeState.LEAVING)
    names = list(names)
    count = max((name.partition + 1 for name in names), default=0)
    return [Placed(name, preferred(name, PartitionLease(topic_id, None), candidates, count), 0) for name in names]


def all_due_moves(table: LeaseTable, node_id: NodeId, unsettled: Collection[NodeId] = ()) -> list[Move]:
    """The moves of all partitions that a node leads and another one should. unsettled: see `should_lead`."""
    moves = []
    alive, counts = table.nodes_in(NodeState.ALIVE), table.partition_counts()
    for name in sorted(table.led_by(node_id)):
        lease = table.partitions[name]
        target = _should_lead(name, lease, alive, unsettled, counts[name.topic])
        if target is not None and target != node_id:
            moves.append(Move(name, node_id, lease.epoch, target, lease.topic_id))
    return moves


def next_moves(due: Sequence[Move]) -> Sequence[Move]:
    """Those that a node carries out next: none of an internal topic before all others have moved, and few at a time."""
    of_users = [move for move in due if move.topic_partition.topic not in INTERNAL_TOPICS]
    return of_users[:MOVED_TOGETHER] or due[:INTERNAL_MOVED_TOGETHER]


def should_lead(
    table: LeaseTable, name: TopicPartition, lease: PartitionLease, unsettled: Collection[NodeId] = ()
) -> NodeId | None:
    """The node that should lead a partition now; None while no node is alive.

    unsettled: nodes that have just joined. They keep their partitions and get those chosen for them; the rest follows
               later: clients that have found a node gone may not try it again for 10 seconds (librdkafka's
               reconnect.backoff.max.ms).
    """
    return _should_lead(name, lease, table.nodes_in(NodeState.ALIVE), unsettled, table.partition_count(name.topic))


def _should_lead(
    name: TopicPartition, lease: PartitionLease, alive: Sequence[NodeId], unsettled: Collection[NodeId], count: int
) -> NodeId | None:
    if lease.wanted in alive:
        return lease.wanted
    if lease.leader in unsettled and lease.leader in alive:
        return lease.leader
    target = preferred(name, lease, alive, count)
    if target not in unsettled:
        return target
    if lease.leader in alive:
        return lease.leader
    return preferred(name, lease, [each for each in alive if each not in unsettled] or alive, count)


def decide_move(table: LeaseTable, move: Move) -> Placed | None:
    """Decide a move; None if it is out of date: led by another node or in another epoch, of a topic that was deleted
    and created again, or its target is not alive."""
    lease = table.partitions.get(move.topic_partition)
    if lease is None or (lease.topic_id, lease.leader, lease.epoch) != (move.topic_id, move.source, move.epoch):
        return None
    if table.state(move.target) is not NodeState.ALIVE:
        return None
    return Placed(move.topic_partition, move.target, lease.epoch + 1)


def preferred(name: TopicPartition, lease: PartitionLease, candidates: Sequence[NodeId], count: int) -> NodeId | None:
    """The node that should lead a partition: the one that was chosen for it, else the one that `shares` gives it to.

    count: partitions of the topic.
    """
    if lease.wanted in candidates:
        return lease.wanted
    if not candidates:
        return None
    return shares(lease.topic_id, count, tuple(candidates))[name.partition]


@lru_cache(SHARES_CACHED)
def shares(topic_id: bytes, count: int, candidates: tuple[NodeId, ...]) -> Sequence[NodeId]:
    """The node that should lead each partition of a topic, if no operator chooses: as many for each node, or one more.

    Rendezvous hashing with a bound for each node: the pair of a partition and a node with the highest score is
    settled first. So when a node joins, almost all partitions that move go to that node, and almost none move
    between the others.
    """
    pairs = [(_score(topic_id, number, node_id), number, node_id) for number in range(count) for node_id in candidates]
    room, larger_shares = divmod(count, len(candidates))
    taken = dict.fromkeys(candidates, 0)
    leaders: dict[int, NodeId] = {}
    for _, number, node_id in sorted(pairs, reverse=True):
        if number in leaders or taken[node_id] > room or (taken[node_id] == room and not larger_shares):
            continue
        if taken[node_id] == room:
            larger_shares -= 1
        leaders[number] = node_id
        taken[node_id] += 1
    return [leaders[number] for number in range(count)]


def _score(topic_id: bytes, number: int, node_id: NodeId) -> bytes:
    seed = topic_id + number.to_bytes(4, "big") + node_id.to_bytes(4, "big")
    return hashlib.blake2b(seed, digest_size=8).digest()


# Changing


def apply(table: LeaseTable, change: NodeChange) -> None:
    """Apply a node's event to the table."""
    table.nodes[change.node_id] = change.state
    for placed in change.placed:
        apply_placed(table, placed)


def apply_placed(table: LeaseTable, placed: Placed) -> None:
    """Apply the new leader of a partition that exists to the table."""
    lease = table.partitions[placed.topic_partition]
    lease.leader, lease.epoch = placed.leader, placed.epoch
