"""Several processes of one broker, on one machine: `ProcessMember`, `LeaseStore` and `NodeDirectories` as they are,
over a disk and a metadata file that all processes share, and a parent that starts processes again.

A process that ends leaves its lock, and the others take over what it led. One that hangs keeps its lock, until the
parent kills it after LONGEST_SILENCE_S. A power loss, and the end of the parent, end all processes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from fencepost.broker.cluster.processes.node_directories import node_directory
from fencepost.broker.cluster.processes.process_member import ProcessMember
from fencepost.broker.cluster.processes.shared_directory import prepare_data_directory
from fencepost.broker.hosting.broker_configs import BROKER_CONFIGS_KEY
from fencepost.broker.hosting.features import FEATURES_KEY
from fencepost.broker.hosting.membership import Cluster
from fencepost.broker.kernel.topic_partition import TopicPartition
from tests.simulation.broker import DATA_DIRECTORY, SimulatedBroker
from tests.simulation.disk import Operation, SimulatedDisk
from tests.simulation.shared_database import SharedDatabase, SimulatedLeaseStore, as_operator

if TYPE_CHECKING:
    from tests.simulation.world import World

LONGEST_SILENCE_S: Final = 10.0
_MOVED: Final = re.compile(rf"{DATA_DIRECTORY}/node\.(?P<node>\d+)/(?P<topic>[^/]+)-(?P<partition>\d+)")


class ProcessCluster:
    """The machine. database: the metadata that all processes share."""

    def __init__(self, world: World) -> None:
        self.brokers: dict[int, SimulatedBroker] = {}
        self.database = SharedDatabase(world.chance_of("metadata"))
        self._world = world
        self._disk = SimulatedDisk(world.chance_of("disk"))
        self._disk.make_directory(DATA_DIRECTORY)
        self._disk.keep("/")
        self._changes = itertools.count(1)
        self._configs: dict[str, dict[str, str]] = {}
        self._preparing = asyncio.Lock()
        self._is_prepared = False
        self._leases = self.database.leases()
        self.database.on_committed.append(self._committed)
        world.processes = self
        world.disk_observers.append(self._disk_changed)

    def add_broker(self, node_id: int, settings: Mapping[str, str]) -> SimulatedBroker:
        """A process of the broker, not started yet."""
        broker = self.brokers[node_id] = self._world.add_broker(
            node_id,
            settings,
            disk=self._disk.beside(None, self._world.chance_of(f"disk of {node_id}")),
            data_directory=node_directory(DATA_DIRECTORY, node_id),
            shares=lambda disk: self._shares(node_id, disk),
        )
        self._disk.keep(DATA_DIRECTORY)
        return broker

    def _shares(self, node_id: int, disk: SimulatedDisk) -> tuple[SimulatedLeaseStore, Cluster]:
        broker = self.brokers[node_id]
        store = SimulatedLeaseStore(self.database, broker.host, disk, broker.clock)
        member = ProcessMember(DATA_DIRECTORY, node_id, store, disk=disk)
        return store, Cluster(member, member.make_logs)

    # Questions

    def partitions(self) -> list[TopicPartition]:
        """Those of all topics that there are."""
        return [name for topic in self.database.topics() for name in topic.partitions()]

    def leader_id(self, topic_partition: TopicPartition) -> int | None:
        """Who leads a partition, by its row."""
        lease = self.database.leases().table.partitions.get(topic_partition)
        return None if lease is None else lease.leader

    def holder_id(self, topic_partition: TopicPartition) -> int:
        """The node in whose directory a partition is; the one that leads it, where it is in none."""
        for node_id, broker in self.brokers.items():
            if self._disk.exists_now(f"{broker.data_directory}/{topic_partition}"):
                return node_id
        return self.leader_id(topic_partition) or 1

    def unserved(self) -> list[TopicPartition]:
        """Partitions without a running process that has their log."""
        running = [broker for broker in self.brokers.values() if broker.is_running]
        return [
            name
            for name in self.partitions()
            if all(broker.node.services.topics.log(name) is None for broker in running)
        ]

    def documents(self) -> Mapping[str, int]:
        """The versions of all documents."""
        return self.database.documents()

    def documents_read_by(self, node_id: int) -> Mapping[str, int]:
        """The versions of documents that a process has read or written last."""
        store = self.brokers[node_id].store
        return store.read_versions if isinstance(store, SimulatedLeaseStore) else {}

    # The parent

    async def prepared(self) -> None:
        """Wait until the parent has made the directory ready, as it does before it starts the first process."""
        async with self._preparing:
            if self._is_prepared:
                return
            await prepare_data_directory(
                DATA_DIRECTORY,
                list(self.brokers),
                now_ms=self._world.clock.now_ms(),
                disk=self._disk,
                on_restoring={},
                prepare=self.database.prepare,
            )
            self._is_prepared = True

    def end_all(self, *, power_loss: bool) -> None:
        """The parent is killed, or the machine loses its power: all processes end at once."""
        self._is_prepared = False
        for broker in self.brokers.values():
            broker.crash()
        if power_loss:
            before = self._holders()
            self._disk.lose_power()
            for name, node_id in self._holders().items():
                was_with = before.get(name, node_id)
                if was_with != node_id:
                    self._moved(name, was_with, node_id)

    # What an operator asks for

    async def choose(self, topic_partition: TopicPartition, node_id: int | None) -> None:
        """Name the node that should lead a partition; None: the one by its hash."""
        await as_operator(
            self.database,
            lambda database: database.execute(
                "UPDATE partitions SET wanted = ? "
                "WHERE topic_id = (SELECT topic_id FROM topics WHERE name = ?) AND partition = ?",
                (node_id, topic_partition.topic, topic_partition.partition),
            ),
        )

    async def drain(self, node_id: int, *, is_drained: bool) -> None:
        """Have a node hand over what it leads, or come back."""
        self._configs[str(node_id)] = {"fencepost.drain": str(is_drained).lower()}
        await self._write_document(BROKER_CONFIGS_KEY, self._configs)

    async def change_document(self) -> None:
        """A document changes, as another process would change it."""
        await self._write_document(FEATURES_KEY, {"epoch": next(self._changes), "levels": {}})

    async def _write_document(self, key: str, content: object) -> None:
        await as_operator(
            self.database,
            lambda database: database.execute(
                "INSERT INTO versioned_values VALUES (?, ?, 1) "
                "ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = version + 1",
                (key, json.dumps(content).encode()),
            ),
        )

    def heal(self) -> None:
        """Nothing is refused any more."""
        self.database.refused.clear()
        self.database.unsure.clear()

    # What happens

    @property
    def placed(self) -> Collection[TopicPartition]:
        """The partitions of all topics that are there, as the rows are now."""
        return self._leases.table.partitions.keys()

    def _committed(self) -> None:
        before, self._leases = self._leases, self.database.leases()
        if self._leases != before:
            for observe in self._world.lease_observers:
                observe(before, self._leases)

    def _holders(self) -> dict[TopicPartition, int]:
        return {
            TopicPartition(found["topic"], int(found["partition"])): node_id
            for node_id, broker in self.brokers.items()
            for name in self._disk.list(broker.data_directory)
            if (found := _MOVED.fullmatch(f"{broker.data_directory}/{name}")) is not None
        }

    def _disk_changed(self, _: SimulatedBroker, operation: Operation) -> None:
        """A partition goes from one node to another with the rename of its directory."""
        if operation.kind != "rename":
            return
        source, target = _MOVED.fullmatch(operation.path), _MOVED.fullmatch(operation.target)
        if source is not None and target is not None and source["node"] != target["node"]:
            name = TopicPartition(source["topic"], int(source["partition"]))
            self._moved(name, int(source["node"]), int(target["node"]))

    def _moved(self, topic_partition: TopicPartition, source_id: int, target_id: int) -> None:
        for observe in self._world.placement_observers:
            observe(topic_partition, source_id, target_id)
