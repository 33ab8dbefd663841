"""Two real nodes in one event loop whose logs are kept by the modelled engine: each has a scratch directory of its own,
and a take-over gives the other one nothing but what the engine has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.cluster.machines.engine_figures import EngineFigures
from fencepost.broker.cluster.tail.restore import TailRestore
from fencepost.broker.cluster.tail.scratch import ScratchDisk, empty_scratch
from fencepost.broker.cluster.tail.tail_log import TailLog
from fencepost.broker.cluster.tail.tail_store import PartitionKey
from fencepost.broker.config import Settings
from fencepost.broker.hosting.membership import Cluster as Membership
from fencepost.broker.hosting.membership import NodeLogs
from fencepost.broker.hosting.placement import NodeAddress, PlacementView
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.node import Node
from fencepost.broker.storage.disk import Disk
from tests.broker.supervision.planting import until
from tests.support.cluster import NODE_IDS, Cluster, WatchedPeers
from tests.support.simulated_engine import EngineSession, SimulatedEngine

if TYPE_CHECKING:
    from fencepost.broker.hosting.topics import Topics


class ModelledEngine(NamedTuple):
    """The engine of a node whose work in the background the test does."""

    shared_log: TailLog
    lease: Callable[[], bool]
    read_replicas: None = None

    def is_held(self) -> bool:
        return self.lease()

    async def begin(self) -> None:
        """The scratch directory is empty."""

    def keep(self) -> None:
        """Nothing is sealed."""

    async def rest(self) -> None:
        """As `keep`."""

    def figures(self) -> EngineFigures:
        raise AssertionError("there is no HTTP listener")


class EngineMember:
    """The membership of a node, for `Membership`, and its tenure. has_lease: whether it may answer as a leader."""

    def __init__(self, cluster: EngineCluster, view: PlacementView, session: EngineSession) -> None:
        self.node_id = view.node_id
        self.fence = 0
        self.placement = view
        self.session = session
        self.has_lease = True
        self.resigned_for: str | None = None
        self.shared_log = TailLog(session, self)
        self._cluster = cluster

    leader_choices = None

    def is_held(self) -> bool:
        return self.has_lease

    def resign(self, reason: str) -> None:
        if self.resigned_for is None:
            self.resigned_for = reason
            self.placement.catch_up()

    def resign_from(self, keys: Collection[PartitionKey]) -> None:
        """The view tells of no deletions: the logs of the flush go offline."""

    def make_logs(self, path: str, disk: Disk, clock: Clock) -> NodeLogs:
        directory = LogDirectory(path, disk=disk, clock=clock, files_move=True, shared_log=self.shared_log)
        restoring = TailRestore(
            self._cluster.scratch(self.node_id),
            disk,
            store=self.session,
            sealed=self.session,
            tenure=self,
            topic_id_of=self._cluster.topic_id_of,
        )
        return NodeLogs(directory, restoring, ModelledEngine(self.shared_log, self.is_held))

    async def join(
        self, endpoints: Mapping[str, tuple[str, int]], *, between_nodes: str, is_drained: Callable[[], bool]
    ) -> None:
        self.fence = self._cluster.engine.raise_fence(self.node_id)

    def keep(self, topics: Topics) -> None:
        """The test moves what is to be moved."""

    async def hand_all_over(self, *, within_s: float) -> None:
        """As `keep`."""

    async def rest(self) -> None:
        """As `keep`."""

    async def leave(self) -> None:
        """The lease is the test's."""


class EngineCluster(Cluster):
    """Node 1 coordinates transactions, node 2 leads all else, until a take-over."""

    def __init__(self, directory: Path, engine: SimulatedEngine) -> None:
        super().__init__(directory)
        self.engine = engine
        self.members: dict[int, EngineMember] = {}

    def scratch(self, node_id: int) -> str:
        return str(self.directory / str(node_id))

    def topic_id_of(self, name: TopicPartition) -> bytes | None:
        topic = self.store._topics.get(name.topic)
        return None if topic is None else topic.topic_id

    async def start(self, node_id: int, *, chosen: Mapping[str, Any] | None = None, **options: Any) -> Node:
        """chosen: settings in place of the usual ones. options: more arguments of the node."""
        view = self.views[node_id] = self.table.view(node_id)
        peers = self.peers[node_id] = WatchedPeers(node_id, view.address)
        member = self.members[node_id] = EngineMember(self, view, self.engine.session())
        settings: dict[str, Any] = {
            "node_id": node_id,
            "log_dirs": self.scratch(node_id),
            "listeners": ("PLAINTEXT://127.0.0.1:0",),
            "transaction_state_log_num_partitions": 2,
            "offsets_topic_num_partitions": 2,
            "group_initial_rebalance_delay_ms": 60_000,
            "fencepost_shutdown_drain_ms": 500,
            **(chosen or {}),
        }
        disk = ScratchDisk()
        empty_scratch(disk, self.scratch(node_id), "a-cluster")
        disk.close()
        node = Node(
            Settings(**settings),
            local_disk=ScratchDisk,
            store=self.store.for_another_node(),
            cluster=Membership(member, member.make_logs),
            peers=peers,
            **options,
        )
        await node.start()
        self.nodes[node_id] = node
        self.table.register(NodeAddress(node_id, node.address.host, node.address.port))
        return node

    def freeze(self, node_id: int) -> None:
        """Let a node hear nothing of the cluster any more: it still takes itself for the leader."""
        self.views[node_id].pause_updates()

    async def take_over(self, node_id: int, heir: int) -> None:
        """Take everything over that a node led, and wait until the heir leads it."""
        self.engine.raise_fence(node_id)
        names = [
            name
            for topic in list(self.store._topics.values())
            for name in topic.partitions()
            if self.table.leader(name).node_id == node_id
        ]
        for name in names:
            self.table.place(name, heir)
        topics = self.nodes[heir].services.topics
        await until(lambda: all(topics.log(name) is not None for name in names))


@asynccontextmanager
async def running_engine_cluster(directory: Path, engine: SimulatedEngine) -> AsyncIterator[EngineCluster]:
    cluster = EngineCluster(directory, engine)
    try:
        for node_id in NODE_IDS:
            await cluster.start(node_id)
        await cluster.create_topics()
        yield cluster
    finally:
        await cluster.client.close()
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
