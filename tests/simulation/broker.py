"""A broker that can be killed: the real `Node` on a simulated machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.broker.config import Settings, load_settings
from fencepost.broker.hosting.membership import Cluster
from fencepost.broker.hosting.placement import NodeAddress, Placement
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.node import Node
from fencepost.broker.transaction.producer_ids import BLOCK_KEY
from tests.simulation.disk import Operation, SimulatedDisk
from tests.simulation.loop import Crash, Process, SimulatedClock

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")
PORT = 9092
DATA_DIRECTORY = "/data"

# As few partitions as still tell keys apart: every restart opens and loads all of them.
SETTINGS = {
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "auto.create.topics.enable": "false",
}

STARTS_BETWEEN_LOST_INDEXES = 4


class SimulatedStore(InMemoryMetadataStore):
    """A metadata store that outlives its broker; what changes it counts among the operations of the broker's disk.

    disk: of the process that uses the store now.
    """

    def __init__(self, cluster_id: str = "simulated-cluster") -> None:
        super().__init__(cluster_id)
        self.disk: SimulatedDisk | None = None

    def topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def topics(self) -> list[TopicMetadata]:
        return list(self._topics.values())

    async def create_topic(self, *args: Any, **options: Any) -> bool:
        return await self._changing("create_topic", super().create_topic(*args, **options))

    async def delete_topic(self, *args: Any, **options: Any) -> bool:
        return await self._changing("delete_topic", super().delete_topic(*args, **options))

    async def finish_deletion(self, *args: Any, **options: Any) -> None:
        await self._changing("finish_deletion", super().finish_deletion(*args, **options))

    async def set_partition_count(self, *args: Any, **options: Any) -> bool:
        return await self._changing("set_partition_count", super().set_partition_count(*args, **options))

    async def set_topic_configs(self, *args: Any, **options: Any) -> bool:
        return await self._changing("set_topic_configs", super().set_topic_configs(*args, **options))

    def take_producer_ids(self, last_id: int) -> None:
        """All ids up to this one belong to a broker that is not simulated."""
        block = {"version": 1, "broker": 99, "block_start": "0", "block_end": str(last_id)}
        _, version = self._versioned.get(BLOCK_KEY, (None, 0))
        self._versioned[BLOCK_KEY] = (json.dumps(block).encode(), version + 1)

    async def compare_and_set(self, key: str, *args: Any, **options: Any) -> bool:
        return await self._changing(f"compare_and_set {key}", super().compare_and_set(key, *args, **options))

    async def _changing(self, name: str, change: Coroutine[Any, Any, T]) -> T:
        if self.disk is None:
            return await change
        try:
            operation = self.disk.begin("metadata", name, 0)
            changed = await change
            self.disk.end(operation)
        finally:
            change.close()
        return changed


class SimulatedBroker:
    """A node's machine: its host name, disk and metadata stay, its process comes and goes.

    settings:  by Kafka's names, on top of `SETTINGS`.
    store:     for the nodes of a cluster a handle each, `for_another_node`; one of its own, unless given.
    placement: makes what the node knows of the cluster, anew for each start.
    disk:      of a machine that it shares with others; one of its own, unless given. data_directory: on that disk.
    shares:    makes, for one of several, its store and its cluster, anew for each start.
    before, after: see `SimulatedDisk`; they stay over restarts.
    fence:     called before each operation; raises StorageError for what this node may not change.
    crash_count, start_count: what has happened so far.
    sync_latency_s: how long a sync takes, chosen evenly between the two.
    """

    def __init__(
        self,
        world: World,
        node_id: int = 1,
        settings: Mapping[str, str] | None = None,
        *,
        store: SimulatedStore | None = None,
        placement: Callable[[], Placement] | None = None,
        disk: SimulatedDisk | None = None,
        data_directory: str = DATA_DIRECTORY,
        shares: Callable[[SimulatedDisk], tuple[Any, Cluster]] | None = None,
        clock_skew_ms: int = 0,
    ) -> None:
        self.node_id = node_id
        self.host = f"broker-{node_id}"
        self.port = PORT
        self.before: Callable[[Operation], None] | None = None
        self.after: Callable[[Operation], None] | None = None
        self.fence: Callable[[Operation], None] | None = None
        self.crash_count = 0
        self.start_count = 0
        self.data_directory = data_directory
        self.store: Any = SimulatedStore() if store is None else store  # a `SimulatedLeaseStore` where it is shared
        self.clock = SimulatedClock(world.loop, clock_skew_ms)
        self.settings = {**SETTINGS, **(settings or {})}
        self.process = Process(self.host)
        self.died = asyncio.Event()
        self.disk = disk or SimulatedDisk(world.chance_of(f"{self.host} disk"), process=self.process)
        self.disk.make_directory(data_directory)
        self.disk.keep("/")
        self._has_run = False
        self.world = world
        self._placement = placement
        self._shares = shares
        self._node: Node | None = None

    @property
    def address(self) -> NodeAddress:
        return NodeAddress(self.node_id, self.host, self.port)

    @property
    def is_running(self) -> bool:
        return self._node is not None

    @property
    def node(self) -> Node:
        """The node that runs now; tests look at its services."""
        assert self._node is not None, f"{self.host} is not running"
        return self._node

    @property
    def sync_latency_s(self) -> tuple[float, float]:
        return self.disk.sync_latency_s

    @sync_latency_s.setter
    def sync_latency_s(self, latency_s: tuple[float, float]) -> None:
        self.disk.sync_latency_s = latency_s

    async def start(self, *, power_loss: bool = False) -> bool:
        """Start the broker, on what the last one left; False when it died while it started.

        power_loss: the machine lost its power since the last process ran, see `SimulatedDisk`.
        Raises what Node.start raises.
        """
        assert not self.is_running, f"{self.host} is running"
        self.start_count += 1
        process = self.process = Process(f"{self.host} #{self.start_count}")
        self.died = asyncio.Event()
        process.at_death(self._has_died)
        self.disk = self.disk.restarted(process, power_loss=power_loss)
        if self.start_count % STARTS_BETWEEN_LOST_INDEXES == 0:
            self._lose_indexes()
        self.disk.before, self.disk.after = self._before, self._after
        with process.running():
            options = self._cluster_options()
            self.store.disk = self.disk
            node = Node(
                broker_settings(self),
                clock=self.clock,
                disk=self.disk,
                store=self.store,
                bind=self.world.network.bind(self.host),
                randomness=self.world.chance_of(f"{process.name} ids"),
                **options,
            )
            node.on_failed = process.kill
            starting = self.world.loop.create_task(node.start(), name=f"start-{process.name}")
        if not await self._ends(starting):
            return False
        self._node = node
        return True

    def _lose_indexes(self) -> None:
        """Empty all index files while nothing runs: they may be lost, as the log says the same."""
        for path in self.disk.paths(self.data_directory):
            if path.endswith(".index"):
                self.disk.replace_content(path, b"")

    async def stop(self, *, hands_over: bool = False) -> bool:
        """Stop as on SIGTERM; False when it died on the way.

        hands_over: what it leads, to other processes, as one does that stops alone.
        """
        node, self._node = self.node, None
        with self.process.running():
            work = _hand_over_and_stop(node) if hands_over else node.stop()
            stopping = self.world.loop.create_task(work, name=f"stop-{self.process.name}")
        if not await self._ends(stopping):
            return False
        self.died.set()
        self.process.kill()  # what it may have left running does not outlive it
        return True

    def crash(self) -> None:
        """Kill -9."""
        self.process.kill()

    async def restart(self, *, power_loss: bool = False) -> bool:
        """Crash, unless it is dead already, and start again."""
        self.crash()
        return await self.start(power_loss=power_loss)

    def _cluster_options(self) -> dict[str, Any]:
        if self._shares is not None:
            self.store, cluster = self._shares(self.disk)
            return {"cluster": cluster, "connect": self.world.network.connector(self.host)}
        if self._placement is None:
            return {}
        return {
            "placement": self._placement(),
            "connect": self.world.network.connector(self.host),
        }

    async def _ends(self, task: asyncio.Task[None]) -> bool:
        """Wait for a task of the process that runs now, or for the end of that process."""
        process = self.process
        death = self.world.loop.create_task(self.died.wait())
        try:
            await asyncio.wait((task, death), return_when=asyncio.FIRST_COMPLETED)
        finally:
            death.cancel()
        if process.is_dead:
            return False
        try:
            await task
        except Crash:
            return False
        return True

    def _has_died(self) -> None:
        if self._node is not None or not self.died.is_set():
            self.crash_count += 1
        self._node = None
        self.store.on_topics_changed.clear()  # no listener is left
        self.store.on_documents_changed.clear()
        self.died.set()

    def _before(self, operation: Operation) -> None:
        if self.fence is not None:
            self.fence(operation)
        if self.before is not None:
            self.before(operation)

    def _after(self, operation: Operation) -> None:
        for observer in self.world.disk_observers:
            observer(self, operation)
        if self.after is not None:
            self.after(operation)


def broker_settings(broker: SimulatedBroker) -> Settings:
    """The settings with which a broker starts."""
    settings = {
        "listeners": f"PLAINTEXT://{broker.host}:{broker.port}",
        **broker.settings,
        "node.id": str(broker.node_id),
        "log.dirs": broker.data_directory,
    }
    return load_settings(assignments=[f"{name}={value}" for name, value in settings.items()]).settings


async def _hand_over_and_stop(node: Node) -> None:
    await node.hand_all_over()
    await node.stop()
