"""Which node leads which partition: the seam to whatever places partitions on the nodes of a cluster.

A single node leads everything and asks nobody. `PlacementTable` places partitions over several nodes of one process, as
`InMemoryMetadataStore` keeps metadata for them: for simulation and tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from fencepost.broker.kernel.topic_partition import TopicPartition

NO_PORT = -1


class NodeAddress(NamedTuple):
    """A node and where it accepts connections, from clients as well as from other nodes."""

    node_id: int
    host: str
    port: int


class Placement(Protocol):
    """What one node knows of who leads what; looked up in memory.

    It may lag behind: a node that was deposed can still take itself for the leader. That is why every change of a
    partition's leader raises its leader epoch, which is also the epoch of the coordinator that lives in it: whoever
    has met a higher one refuses the lower.

    on_changed: called with a partition whose leader or leader epoch changed here, in the same step, so that nothing is
                appended any more by the time that it returns.
    """

    on_changed: list[Callable[[TopicPartition], None]]

    def is_local(self, topic_partition: TopicPartition) -> bool:
        """Whether this node leads the partition, be it known to exist or not."""
        ...

    def leader(self, topic_partition: TopicPartition) -> NodeAddress | None:
        """The node that leads the partition; None while there is none, or none that is alive.

        That a partition has no leader does not mean that it does not exist.
        """
        ...

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """The epoch that the leader leads in; it never falls. After a crash a node leads in a higher one."""
        ...

    def other_nodes(self) -> Sequence[NodeAddress]:
        """The nodes that are alive, without this one, in order of their ids."""
        ...

    def address(self, node_id: int) -> NodeAddress | None:
        """Where another node is reached; None while it is not alive."""
        ...


class SingleNodePlacement:
    """Everything is here, for ever. Leader epochs are those that the logs themselves have."""

    def __init__(self, here: NodeAddress) -> None:
        self.on_changed: list[Callable[[TopicPartition], None]] = []
        self._here = here

    def is_local(self, topic_partition: TopicPartition) -> bool:
        return True

    def leader(self, topic_partition: TopicPartition) -> NodeAddress | None:
        return self._here

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        return 0

    def other_nodes(self) -> Sequence[NodeAddress]:
        return ()

    def address(self, node_id: int) -> NodeAddress | None:
        return self._here if node_id == self._here.node_id else None


class PartitionLeader(NamedTuple):
    """Who leads a partition, and in which epoch. node_id: None while nobody does."""

    node_id: int | None
    epoch: int


class PlacementTable:
    """The one truth about who leads what and who is alive, shared by the nodes of one process.

    default_leader: who leads a partition that was never placed, in epoch 0.
    alive:          the nodes that can be reached, by id.
    """

    def __init__(self, default_leader: Callable[[TopicPartition], int | None]) -> None:
        self.alive: dict[int, NodeAddress] = {}
        self._default_leader = default_leader
        self._leaders: dict[TopicPartition, PartitionLeader] = {}
        self._views: list[PlacementView] = []

    def view(self, node_id: int) -> PlacementView:
        """What a node works with from its start to its stop; a restarted node takes a new one."""
        view = PlacementView(self, node_id, dict(self._leaders))
        self._views.append(view)
        return view

    def forget(self, view: PlacementView) -> None:
        """A node has stopped or crashed: its view hears of nothing any more."""
        if view in self._views:
            self._views.remove(view)

    def register(self, address: NodeAddress) -> None:
        """A node is alive, there; it may have been elsewhere before."""
        self.alive[address.node_id] = address

    def unregister(self, node_id: int) -> None:
        """A node is not alive any more. What it leads is without a leader until it is placed elsewhere."""
        self.alive.pop(node_id, None)

    def unplaced(self, topic_partition: TopicPartition) -> PartitionLeader:
        """Who leads a partition that was never placed."""
        return PartitionLeader(self._default_leader(topic_partition), 0)

    def leader(self, topic_partition: TopicPartition) -> PartitionLeader:
        return self._leaders.get(topic_partition) or self.unplaced(topic_partition)

    def place(self, topic_partition: TopicPartition, node_id: int | None) -> PartitionLeader:
        """Have a node lead the partition from now on, or nobody, in an epoch above all before.

        Its directory is the caller's business: what the new leader has on its disk is what the partition holds.
        """
        leader = PartitionLeader(node_id, self.leader(topic_partition).epoch + 1)
        self._leaders[topic_partition] = leader
        # Who loses the partition hears of it before who gets it.
        for view in sorted(self._views, key=lambda view: view.node_id == node_id):
            view.tell(topic_partition, leader)
        return leader


class PlacementView:
    """The placement as one node sees it: what the table told it."""

    def __init__(self, table: PlacementTable, node_id: int, leaders: dict[TopicPartition, PartitionLeader]) -> None:
        self.node_id = node_id
        self.on_changed: list[Callable[[TopicPartition], None]] = []
        self._table = table
        self._leaders = leaders
        self._untold: dict[TopicPartition, PartitionLeader] = {}
        self._is_lagging = False

    def is_local(self, topic_partition: TopicPartition) -> bool:
        return self._leader(topic_partition).node_id == self.node_id

    def leader(self, topic_partition: TopicPartition) -> NodeAddress | None:
        node_id = self._leader(topic_partition).node_id
        return None if node_id is None else self._table.alive.get(node_id)

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        return self._leader(topic_partition).epoch

    def other_nodes(self) -> Sequence[NodeAddress]:
        alive = self._table.alive
        return [alive[node_id] for node_id in sorted(alive) if node_id != self.node_id]

    def address(self, node_id: int) -> NodeAddress | None:
        return self._table.alive.get(node_id)

    def _leader(self, topic_partition: TopicPartition) -> PartitionLeader:
        return self._leaders.get(topic_partition) or self._table.unplaced(topic_partition)

    # What the table tells

    def lag(self) -> None:
        """Hear of nothing from now on, as a node that is cut off: it goes on leading what it led."""
        self._is_lagging = True

    def catch_up(self) -> None:
        """Hear of everything that changed meanwhile, and again of every change."""
        self._is_lagging = False
        untold, self._untold = self._untold, {}
        for topic_partition, leader in untold.items():
            self.tell(topic_partition, leader)

    def tell(self, topic_partition: TopicPartition, leader: PartitionLeader) -> None:
        """A partition has a new leader, or its leader a new epoch."""
        if self._is_lagging:
            self._untold[topic_partition] = leader
            return
        self._leaders[topic_partition] = leader
        for callback in list(self.on_changed):
            callback(topic_partition)
