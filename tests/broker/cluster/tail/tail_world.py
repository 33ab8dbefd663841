"""The logs of a cluster's nodes, without brokers: a scratch directory, a shared log over an engine, a take-over."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from fencepost.broker.cluster.objects.object_ids import ObjectIds, Uploader
from fencepost.broker.cluster.tail.restore import TailRestore
from fencepost.broker.cluster.tail.scratch import ScratchDisk, empty_scratch
from fencepost.broker.cluster.tail.tail_log import TailLog
from fencepost.broker.cluster.tail.tail_store import FlushObjects, PartitionKey, RemoteLogSource, TailStore
from fencepost.broker.hosting.arrivals import Found
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import ArrivingLog
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.partition_log import PartitionLog
from tests.support.log_world import ORDERS, TOPIC_ID, LogWorld


class HeldTenure:
    """A node's fence; the node has resigned once there is a reason."""

    def __init__(self, node_id: int, fence: int) -> None:
        self.node_id = node_id
        self.fence = fence
        self.reason: str | None = None
        self.world: TailWorld | None = None

    def is_held(self) -> bool:
        return self.reason is None

    def resign(self, reason: str) -> None:
        self.reason = reason
        if self.world is not None:
            for log in list(self.world.logs.logs()):
                self.world.logs.release(log.topic_partition)

    def resign_from(self, keys: Collection[PartitionKey]) -> None:
        if self.world is not None:
            for log in list(self.world.logs.logs()):
                if (log.topic_id, log.topic_partition.partition) in keys:
                    self.world.logs.release(log.topic_partition)


class KeptObjects:
    """Objects of large flushes, in memory. abandoned: those that no row will name, in order."""

    def __init__(self) -> None:
        self.objects: dict[UUID, bytes] = {}
        self.abandoned: list[UUID] = []
        self._ids = ObjectIds()

    async def put(self, uploader: Uploader, contents: Sequence[bytes | memoryview]) -> UUID:
        object_id = self._ids.new(uploader)
        self.objects[object_id] = b"".join(contents)
        return object_id

    def abandon(self, object_ids: Iterable[UUID]) -> None:
        self.abandoned += object_ids

    async def get(self, object_id: UUID, position: int, length_bytes: int, checksum: bytes | None) -> bytes:
        return self.objects[object_id][position : position + length_bytes]


class TailWorld(LogWorld):
    """One node's logs. tenure: what it may do."""

    def __init__(
        self,
        path: str,
        store: TailStore,
        sealed: RemoteLogSource,
        tenure: HeldTenure,
        *,
        objects: FlushObjects | None = None,
        inline_max_bytes: int = 256 * 1024,
    ) -> None:
        super().__init__(path)
        self.disk.close()
        self.disk = ScratchDisk()
        self.tenure = tenure
        tenure.world = self
        self.shared = TailLog(store, tenure, objects=objects, inline_max_bytes=inline_max_bytes)
        self.logs = LogDirectory(path, disk=self.disk, clock=self.clock, files_move=True, shared_log=self.shared)
        self.restoring = TailRestore(
            path,
            self.disk,
            store=store,
            sealed=sealed,
            tenure=tenure,
            topic_id_of=lambda _: TOPIC_ID,
            objects=objects,
        )

    async def start(self) -> None:
        empty_scratch(self.disk, self.path, "a-cluster")
        await super().start()

    async def take_over(self, name: TopicPartition = ORDERS, *, leader_epoch: int = 1) -> PartitionLog:
        """Restore a partition and lead it."""
        arrival = (await self.restoring.prepare([name]))[name]
        if arrival.error is not None:
            raise arrival.error
        assert arrival.found is Found.HERE
        errors = await self.logs.serve(
            [ArrivingLog(name, self.config, leader_epoch, arrival.last_state, durable_end=arrival.durable_end)]
        )
        assert errors == {}
        found = self.logs.get(name)
        assert found is not None
        return found
