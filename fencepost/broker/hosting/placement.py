"""Placement of partitions: the leader of each. The seam for code that places partitions on a cluster's nodes.

A single node leads all partitions. `PlacementTable` places partitions over several nodes of one process, as
`InMemoryMetadataStore` keeps metadata for them: for simulation and tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from fencepost.broker.kernel.topic_partition import TopicPartition

NO_PORT = -1


class NodeAddress(NamedTuple):
    """A node's id and the address at which it accepts connections from other nodes.

    listeners: the advertised name, host and port of each listener for clients. Clients of one that is missing get the
               address above.
    rack:      its `broker.rack`.
    """

    node_id: int
    host: str
    port: int
    listeners: tuple[tuple[str, str, int], ...] = ()
    rack: str | None = None

    def at(self, listener: str) -> NodeAddress:
        """The address for clients of a listener."""
        for name, host, port in self.listeners:
            if name == listener:
                return NodeAddress(self.node_id, host, port, rack=self.rack)
        return self


class Placement(Protocol):
    """One node's view of the leaders of all partitions, in memory.

    It may lag behind: a fenced node can still take itself for the leader. So every change of a partition's leader
    raises its leader epoch, which is also the epoch of the coordinator of that partition: nodes that have seen a higher
    epoch refuse a lower one.

    on_changed: called with a partition whose leader or leader epoch changed here, in the same step, so that nothing is
                appended after it returns.
    """

    on_changed: list[Callable[[TopicPartition], None]]

    def is_local(self, topic_partition: TopicPartition) -> bool:
        """Whether this node leads the partition, known to exist or not."""
        ...

    def leader(self, topic_partition: TopicPartition) -> NodeAddress | None:
        """The node that leads the partition; None while no live node leads it.

        A partition without a leader may exist.
        """
        ...

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """The leader epoch; it never falls. After a crash a node leads in a higher one."""
        ...

    def topic_id(self, topic_partition: TopicPartition) -> bytes | None:
        """The id of the topic whose partition is placed; None if this node does not know it.

        A topic that was deleted and created again has another one, and its leader epochs begin anew. The id here may be
        older or newer than the metadata.
        """
        ...

    def was_deleted(self, topic_id: bytes) -> bool:
        """Whether the last change of the placement was the deletion of this topic, among others."""
        ...

    def other_nodes(self) -> Sequence[NodeAddress]:
        """The nodes that are alive, without this one, in order of their ids."""
        ...

    def recently_lost(self) -> Sequence[NodeAddress]:
        """The nodes that were alive moments ago, and may soon be again.

        A client deletes all its state of a node that is missing in the answer. That costs a second, or more: a producer
        of librdkafka 2.16 whose group coordinator vanishes and comes back may wait for ever (its issue 5511).
        """
        ...

    def address(self, node_id: int) -> NodeAddress | None:
        """The address of another node; None while it is not alive."""
        ...


class SingleNodePlacement:
    """Placement of a single node, which leads all partitions. Leader epochs are those of the logs."""

    def __init__(self, here: NodeAddress) -> None:
        self.on_changed: list[Callable[[TopicPartition], None]] = []
        self._here = here

    def is_local(self, topic_partition: TopicPartition) -> bool:
        return True

    def leader(self, topic_partition: TopicPartition) -> NodeAddress | None:
        return self._here

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        return 0

    def topic_id(self, topic_partition: TopicPartition) -> bytes | None:
        return None

    def was_deleted(self, topic_id: bytes) -> bool:
        return False

    def other_nodes(self) -> Sequence[NodeAddress]:
        return ()

    def recently_lost(self) -> Sequence[NodeAddress]:
        return ()

    def address(self, node_id: int) -> NodeAddress | None:
        return self._here if node_id == self._here.node_id else None


class PartitionLeader(NamedTuple):
    """The leader of a partition and its epoch. node_id: None while there is no leader."""

    node_id: int | None
    epoch: int


class PlacementTable:
    """Table of all leaders and of the nodes that are alive, shared by the nodes of one process.

    default_leader: the leader of a partition that was never placed, in epoch 0.
    alive:          the addresses of the nodes that can be reached, by id.
    """

    def __init__(self, default_leader: Callable[[TopicPartition], int | None]) -> None:
        self.alive: dict[int, NodeAddress] = {}
        self._default_leader = default_leader
        self._leaders: dict[TopicPartition, PartitionLeader] = {}
        self._views: list[PlacementView] = []

    def view(self, node_id: int) -> PlacementView:
        """Make the view that a node uses from its start to its stop; a restarted node takes a new one."""
        view = PlacementView(self, node_id, dict(self._leaders))
        self._views.append(view)
        return view

    def forget(self, view: PlacementView) -> None:
        """Stop updating the view of a node that has stopped or crashed."""
        if view in self._views:
            self._views.remove(view)

    def register(self, address: NodeAddress) -> None:
        """Record that a node is alive, and its address, which may be new."""
        self.alive[address.node_id] = address

    def unregister(self, node_id: int) -> None:
        """Record that a node is not alive any more. Its partitions have no leader until they are placed elsewhere."""
        self.alive.pop(node_id, None)

    def unplaced(self, topic_partition: TopicPartition) -> PartitionLeader:
        """The leader of a partition that was never placed."""
        return PartitionLeader(self._default_leader(topic_partition), 0)

    def leader(self, topic_partition: TopicPartition) -> PartitionLeader:
        return self._leaders.get(topic_partition) or self.unplaced(topic_partition)

    def place(self, topic_partition: TopicPartition, node_id: int | None) -> PartitionLeader:
        """Make a node the leader of a partition, or leave it without one, in an epoch above all before.

        The caller moves its directory: the partition has the records on the new leader's disk.
        """
        leader = PartitionLeader(node_id, self.leader(topic_partition).epoch + 1)
        self._leaders[topic_partition] = leader
        # The node that loses the partition is notified before the node that gets it.
        for view in sorted(self._views, key=lambda view: view.node_id == node_id):
            view.set_leader(topic_partition, leader)
        return leader


class PlacementView:
    """The placement as one node sees it, updated by the table."""

    def __init__(self, table: PlacementTable, node_id: int, leaders: dict[TopicPartition, PartitionLeader]) -> None:
        self.node_id = node_id
        self.on_changed: list[Callable[[TopicPartition], None]] = []
        self._table = table
        self._leaders = leaders
        self._pending: dict[TopicPartition, PartitionLeader] = {}
        self._is_lagging = False

    def is_local(self, topic_partition: TopicPartition) -> bool:
        return self._leader(topic_partition).node_id == self.node_id

    def leader(self, topic_partition: TopicPartition) -> NodeAddress | None:
        node_id = self._leader(topic_partition).node_id
        return None if node_id is None else self._table.alive.get(node_id)

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        return self._leader(topic_partition).epoch

    def topic_id(self, topic_partition: TopicPartition) -> bytes | None:
        return None

    def was_deleted(self, topic_id: bytes) -> bool:
        return False

    def other_nodes(self) -> Sequence[NodeAddress]:
        alive = self._table.alive
        return [alive[node_id] for node_id in sorted(alive) if node_id != self.node_id]

    def recently_lost(self) -> Sequence[NodeAddress]:
        return ()

    def address(self, node_id: int) -> NodeAddress | None:
        return self._table.alive.get(node_id)

    def _leader(self, topic_partition: TopicPartition) -> PartitionLeader:
        return self._leaders.get(topic_partition) or self._table.unplaced(topic_partition)

    # Updates from the table

    def pause_updates(self) -> None:
        """Hold back updates, as for a node that is cut off: it still leads its old partitions."""
        self._is_lagging = True

    def catch_up(self) -> None:
        """Apply the updates that were held back, and all later ones at once."""
        self._is_lagging = False
        pending, self._pending = self._pending, {}
        for topic_partition, leader in pending.items():
            self.set_leader(topic_partition, leader)

    def set_leader(self, topic_partition: TopicPartition, leader: PartitionLeader) -> None:
        """Record a partition's new leader, or its leader's new epoch."""
        if self._is_lagging:
            self._pending[topic_partition] = leader
            return
        self._leaders[topic_partition] = leader
        for callback in list(self.on_changed):
            callback(topic_partition)
