"""The logs of a cluster's nodes, without brokers: rows and tails in PostgreSQL, objects, and a scratch of each node."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from uuid import UUID

from fencepost.broker.cluster.machines.check import check_cluster
from fencepost.broker.cluster.objects.flush_objects import FlushUploads
from fencepost.broker.cluster.objects.store import ObjectStore
from fencepost.broker.cluster.postgres.connections import Connection, PostgresAddress, connect
from fencepost.broker.cluster.postgres.schema import prepare
from fencepost.broker.cluster.postgres.segment_rows import PostgresGarbage, PostgresRemoteLogMetadata
from fencepost.broker.cluster.postgres.tail import PostgresTail
from fencepost.broker.cluster.remote.object_sweep import ObjectSweep
from fencepost.broker.cluster.remote.remote_logs import RemoteLogs, Scratch
from fencepost.broker.cluster.remote.upload_plan import UploadLimits
from fencepost.broker.cluster.tail.restore import TailRestore
from fencepost.broker.cluster.tail.scratch import ScratchDisk, empty_scratch
from fencepost.broker.cluster.tail.tail_log import TailLog
from fencepost.broker.cluster.tail.tail_store import PartitionKey
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import ArrivingLog
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.segment.block_layout import BLOCK_BYTES
from fencepost.broker.log.segment.remote_segment import RemoteSegment
from fencepost.protocol.record_batch import iterate_batches, read_records
from tests.support.log_world import ORDERS, TOPIC_ID, LogWorld

CLUSTER_ID = "a-cluster"
SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)


class RemoteCluster:
    """The rows and objects that all nodes share. leader_epoch: of the only topic's partitions."""

    def __init__(self, address: PostgresAddress, database: Connection, store: ObjectStore, path: str) -> None:
        self.address = address
        self.database = database
        self.store = store
        self.path = path
        self.leader_epoch = 0
        self.limits = UploadLimits(segment_bytes=10**9, tail_budget_bytes=10**9)
        self.scratch_bytes = 10**9
        self.block_bytes = BLOCK_BYTES
        self.inline_max_bytes = 256 * 1024
        self.with_replicas = False
        self._nodes: list[RemoteWorld] = []

    @classmethod
    async def found(
        cls, address: PostgresAddress, store: ObjectStore, path: str, *, partitions: int = 1
    ) -> RemoteCluster:
        """Make a cluster whose partitions nobody leads."""
        database = await connect(address, application_name="test")
        await prepare(database, address)
        await database.execute("UPDATE cluster SET cluster_id = $1", CLUSTER_ID)
        await database.execute("INSERT INTO topics VALUES ('orders', $1, $2, '{}')", UUID(bytes=TOPIC_ID), partitions)
        await database.execute(
            "INSERT INTO partitions (topic_id, partition, leader_epoch) "
            "SELECT $1, partition, 0 FROM generate_series(0, $2::int - 1) AS partition",
            UUID(bytes=TOPIC_ID),
            partitions,
        )
        return cls(address, database, store, path)

    async def start(self, config: LogConfig = SMALL) -> RemoteWorld:
        """Start a node that leads nothing."""
        node_id = len(self._nodes) + 1
        await self.database.execute(
            "INSERT INTO nodes VALUES ($1, gen_random_uuid(), 'alive', '[]', NULL, now(), now())", node_id
        )
        await self.database.execute("INSERT INTO fences VALUES ($1, 1, 1)", node_id)
        world = RemoteWorld(self, node_id)
        world.config = config
        self._nodes.append(world)
        await world.start()
        return world

    async def close(self) -> None:
        for node in self._nodes:
            await node.end()
        await self.database.close()

    async def check(self) -> None:
        """Check that rows cover the log, that each names an object, and that none of these is garbage."""
        report = await check_cluster(self.database, self.store, CLUSTER_ID)
        assert not report.problems, "\n".join(report.problems)


class RemoteWorld(LogWorld):
    """One node's logs, which are scratch; and its fence, for `Tenure`."""

    def __init__(self, cluster: RemoteCluster, node_id: int) -> None:
        super().__init__(f"{cluster.path}/node-{node_id}")
        self.disk.close()
        self.disk = ScratchDisk()
        self.cluster = cluster
        self.node_id = node_id
        self.fence = 1
        self.leads_in: int | None = None
        self.rows = PostgresRemoteLogMetadata(cluster.address, CLUSTER_ID, lambda: f"node {node_id} sealed")
        self.garbage = PostgresGarbage(cluster.address, CLUSTER_ID, lambda: f"node {node_id} garbage")
        self.tails = PostgresTail(cluster.address, lambda: f"node {node_id} tail")
        self.sealed = RemoteLogs(
            cluster.store,
            self.rows,
            cluster_id=CLUSTER_ID,
            disk=self.disk,
            clock=self.clock,
            tenure=self,
            leader_epoch_of=lambda _: self.leads_in,
            limits=cluster.limits._replace(block_bytes=cluster.block_bytes),
            scratch=Scratch(cluster.scratch_bytes, cluster.scratch_bytes if cluster.with_replicas else 0),
        )
        self.uploads = FlushUploads(cluster.store, CLUSTER_ID, self.sealed.abandoned)
        self.shared = TailLog(self.tails, self, objects=self.uploads, inline_max_bytes=cluster.inline_max_bytes)
        self.logs = LogDirectory(
            self.path,
            disk=self.disk,
            clock=self.clock,
            files_move=True,
            shared_log=self.shared,
            remote_store=self.sealed,
        )
        self.sealed.attach(self.logs, self.tails.rows_count)
        self.sweep = ObjectSweep(cluster.store, self.garbage, CLUSTER_ID, self.sealed.abandoned, grace_s=0)
        self.restoring = TailRestore(
            self.path,
            self.disk,
            store=self.tails,
            sealed=self.sealed,
            tenure=self,
            topic_id_of=lambda _: TOPIC_ID,
            objects=self.uploads,
        )

    def is_held(self) -> bool:
        return self.leads_in is not None

    def resign(self, reason: str) -> None:
        self.leads_in = None
        for log in list(self.logs.logs()):
            self.logs.release(log.topic_partition)

    def resign_from(self, keys: Collection[PartitionKey]) -> None:
        raise AssertionError("no topic is deleted")

    async def start(self) -> None:
        empty_scratch(self.disk, self.path, CLUSTER_ID)
        await self.logs.open(lambda _: self.config, lambda _: None)

    async def take_over(self, *names: TopicPartition) -> PartitionLog:
        """Fence all other nodes, and lead partitions, ORDERS by default, from what the cluster has of them."""
        cluster = self.cluster
        cluster.leader_epoch += 1
        async with cluster.database.transaction():
            await cluster.database.execute("UPDATE fences SET fence = fence + 1 WHERE node_id <> $1", self.node_id)
            await cluster.database.execute(
                "UPDATE partitions SET leader = $1, leader_epoch = $2", self.node_id, cluster.leader_epoch
            )
        self.leads_in = cluster.leader_epoch
        self.fence = await cluster.database.fetchval("SELECT fence FROM fences WHERE node_id = $1", self.node_id)
        arriving = []
        for name, arrival in (await self.restoring.prepare(names or [ORDERS])).items():
            if arrival.error is not None:
                raise arrival.error
            arriving.append(ArrivingLog(name, self.config, self.leads_in, arrival.last_state, arrival.sealed))
        assert await self.logs.serve(arriving) == {}
        found = self.logs.get((names or [ORDERS])[0])
        assert found is not None
        return found

    async def write(self, count: int, *, size_bytes: int = 100, keys: int = 3) -> None:
        """Append batches of one record, each of which is committed."""
        log = self.orders
        for number in range(count):
            self.append(b"%d" % number * (size_bytes // len(b"%d" % number)), key=b"%d" % (number % keys))
        await log.flushed()

    async def seal_all(self) -> None:
        """Seal until nothing is left to seal."""
        while await self.sealed.uploads.upload_once():
            pass

    @property
    def remote_offsets(self) -> list[int]:
        return [segment.base_offset for segment in self.orders.segments if isinstance(segment, RemoteSegment)]

    async def end(self) -> None:
        """End as a process does that is killed: nothing is flushed."""
        self.resign("it has ended")
        await self.sealed.close()
        await self.logs.close()  # first: a flush under way would connect again
        await self.rows.close()
        await self.garbage.close()
        await self.tails.close()
        self.disk.close()


async def content(log: PartitionLog, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> list[tuple[int, bytes]]:
    """All records that a client reads, with their offsets: it asks again while segments come."""
    found: list[tuple[int, bytes]] = []
    offset = log.log_start_offset
    while offset < log.bound(isolation):
        read = log.read(offset, 100_000, isolation=isolation)
        assert not read.error, read.error
        for batch in iterate_batches(read.records):
            offset = batch.header.last_offset + 1
            found += [
                (record.offset, bytes(record.value or b""))
                for record in read_records(batch)
                if not batch.header.is_control
            ]
        if not read.records:
            await asyncio.sleep(0.001)
    return found
