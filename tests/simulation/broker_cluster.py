"""Several brokers that share metadata and placement: the leader of each partition, and the disk that holds it.

A partition moves with all that its leader has written, synced or not, as if all brokers wrote to one storage. That
storage is fenced: a broker that was deposed, and has not heard of it yet, can change nothing in the partition's
directory any more. It may still answer what needs no write, and send what it had decided before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from fencepost.broker.hosting.placement import PlacementTable, PlacementView
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.storage.disk import StorageError
from tests.simulation.broker import DATA_DIRECTORY, SimulatedBroker, SimulatedStore
from tests.simulation.disk import Operation
from tests.simulation.situations import A_DEPOSED_BROKER_CANNOT_WRITE

if TYPE_CHECKING:
    from tests.simulation.world import World

_INSIDE_PARTITION: Final = re.compile(rf"{DATA_DIRECTORY}/(?P<topic>[^/]+)-(?P<partition>\d+)/.*")
_FENCED: Final = frozenset({"append", "truncate", "open", "write_file", "rename", "delete"})


class BrokerCluster:
    """default_leader: the node that leads a partition which was never moved.

    on_moved: called with a partition and the nodes that it went from and to, when its files are there.
    """

    def __init__(self, world: World, default_leader: Callable[[TopicPartition], int]) -> None:
        self.table = PlacementTable(default_leader)
        self.brokers: dict[int, SimulatedBroker] = {}
        self._world = world
        self._default_leader = default_leader
        self._store = SimulatedStore()
        self._views: dict[int, PlacementView] = {}
        self._holders: dict[TopicPartition, int] = {}

    def add_broker(self, node_id: int, settings: Mapping[str, str]) -> SimulatedBroker:
        """A broker of the cluster, not started yet."""
        broker = self.brokers[node_id] = self._world.add_broker(
            node_id,
            settings,
            store=self._store.for_another_node(),
            placement=lambda: self._new_view(node_id),
        )
        broker.fence = lambda operation: self._fence(node_id, operation)
        return broker

    # Questions

    def partitions(self) -> list[TopicPartition]:
        """Those of all topics that there are."""
        return [
            TopicPartition(topic.name, partition)
            for topic in self._store.topics()
            for partition in range(topic.partition_count)
        ]

    def leader_id(self, topic_partition: TopicPartition) -> int | None:
        """Who leads a partition; None while nobody does."""
        return self.table.leader(topic_partition).node_id

    def holder_id(self, topic_partition: TopicPartition) -> int:
        """The broker on whose disk a partition is, with or without a leader."""
        return self._holders.get(topic_partition) or self._default_leader(topic_partition)

    def view(self, node_id: int) -> PlacementView | None:
        """The leaders that a broker knows; None while it is down."""
        return self._views.get(node_id) if self.brokers[node_id].is_running else None

    # What happens to partitions

    def move(self, topic_partition: TopicPartition, node_id: int | None) -> None:
        """Have another broker lead a partition, with what is on the disk of the one before; None: nobody leads it."""
        self.forget_the_dead()
        self.table.place(topic_partition, None)
        if node_id is None:
            return
        source_id = self.holder_id(topic_partition)
        if node_id != source_id:
            self._copy(topic_partition, self.brokers[source_id], self.brokers[node_id])
            self._holders[topic_partition] = node_id
            for observe in self._world.placement_observers:
                observe(topic_partition, source_id, node_id)
        self.table.place(topic_partition, node_id)

    def heal(self) -> None:
        """Every broker hears of everything, and every partition has a leader again."""
        for view in self._views.values():
            view.catch_up()
        for topic_partition in self.partitions():
            if self.leader_id(topic_partition) is None:
                self.table.place(topic_partition, self.holder_id(topic_partition))

    def forget_the_dead(self) -> None:
        """The placement tells a process that is not running nothing any more."""
        for node_id, broker in self.brokers.items():
            if broker.process.is_dead:
                view = self._views.pop(node_id, None)
                if view is not None:
                    self.table.forget(view)

    def _copy(self, topic_partition: TopicPartition, source: SimulatedBroker, target: SimulatedBroker) -> None:
        directory = f"{DATA_DIRECTORY}/{topic_partition}"
        files = {path: source.disk.content(path) for path in source.disk.paths() if path.startswith(f"{directory}/")}
        if files:
            target.disk.put_directory(directory, files)

    def _new_view(self, node_id: int) -> PlacementView:
        """For a process that starts; after a crash it leads in higher epochs."""
        old = self._views.pop(node_id, None)
        if old is not None:
            self.table.forget(old)
        self.table.register(self.brokers[node_id].address)
        if self.brokers[node_id].start_count > 1:
            for topic_partition in self.partitions():
                if self.leader_id(topic_partition) == node_id:
                    self.table.place(topic_partition, node_id)
        view = self._views[node_id] = self.table.view(node_id)
        return view

    def _fence(self, node_id: int, operation: Operation) -> None:
        """Raises StorageError."""
        found = _INSIDE_PARTITION.fullmatch(operation.path) if operation.kind in _FENCED else None
        if found is not None and self.holder_id(TopicPartition(found["topic"], int(found["partition"]))) != node_id:
            self._world.reached[A_DEPOSED_BROKER_CANNOT_WRITE] += 1
            raise StorageError(None, "another node leads this partition", operation.path, paths=(operation.path,))
