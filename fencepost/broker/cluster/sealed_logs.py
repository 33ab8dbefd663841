"""The sealed part of all logs of a node, put together for its log directory and for restoring."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

from fencepost.broker.cluster.bringing import SCRATCH_BYTES, Bringing, SealedRestore
from fencepost.broker.cluster.kept_logs import KeptLogs
from fencepost.broker.cluster.merging import Merging
from fencepost.broker.cluster.objects.segments import SegmentObjects
from fencepost.broker.cluster.objects.store import ObjectStore
from fencepost.broker.cluster.scratch import Leftovers
from fencepost.broker.cluster.seal_plan import SealLimits
from fencepost.broker.cluster.sealed_rows import SealedTable
from fencepost.broker.cluster.sealing import Sealing
from fencepost.broker.cluster.tail_store import SealedPart, SealedPartition, Tenure
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.segment.remote_segment import SealedSegment
from fencepost.broker.storage.disk import Disk, StorageError


class SealedLogs:
    """What a node does with sealed segments: it is the `SealedStore` of its log directory, and the `SealedParts` of its
    restoring.

    leader_epoch_of: the epoch in which this node leads a partition, by the placement; None if it does not.
    limits:          when segments are rolled and sealed. scratch_bytes: see `Bringing`.
    monotonic_s:     a clock that nobody sets, in seconds.
    """

    def __init__(
        self,
        store: ObjectStore,
        table: SealedTable,
        *,
        cluster_id: str,
        disk: Disk,
        clock: Clock,
        tenure: Tenure,
        leader_epoch_of: Callable[[TopicPartition], int | None],
        limits: SealLimits = SealLimits(),  # noqa: B008  # it is immutable
        scratch_bytes: int = SCRATCH_BYTES,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._objects = SegmentObjects(store, cluster_id, disk)
        self._table = table
        self._clock = clock
        self._tenure = tenure
        self._leader_epoch_of = leader_epoch_of
        self._limits = limits
        self._scratch_bytes = scratch_bytes
        self._monotonic_s = monotonic_s
        self._restore = SealedRestore(self._objects, table, disk)
        self.bringing: Bringing
        self.sealing: Sealing
        self.merging: Merging
        self.leftovers: Leftovers
        self._disk = disk

    def attach(self, logs: LogDirectory) -> None:
        """Take care of the logs of a directory, which was made with this as its store. Called before it is opened."""
        kept = KeptLogs(logs, self._table, self._tenure, self._leader_epoch_of)
        self.bringing = Bringing(logs, kept, self._objects, self._table, scratch_bytes=self._scratch_bytes)
        self.sealing = Sealing(
            kept,
            self._objects,
            self._table,
            self._clock,
            limits=self._limits,
            monotonic_s=self._monotonic_s,
            after_each_pass=self.bringing.make_room,
        )
        self.merging = Merging(kept, limits=self._limits, scratch_bytes=self._scratch_bytes)
        self.leftovers = Leftovers(logs.path, self._disk, logs, lambda name: self._leader_epoch_of(name) is not None)

    def start(self) -> None:
        """Begin to seal, to merge, and to remove what is left over."""
        self.sealing.start()
        self.merging.start()
        self.leftovers.start()

    async def close(self) -> None:
        """Stop; called before the log directory is closed."""
        await self.leftovers.close()
        await self.merging.close()
        await self.sealing.close()
        await self.bringing.close()

    def bring(self, topic_partition: TopicPartition, sealed: SealedSegment) -> Awaitable[None]:
        return self.bringing.bring(topic_partition, sealed)

    async def store_log_starts(self, log_starts: dict[TopicPartition, int]) -> None:
        await self.bringing.store_log_starts(log_starts)

    async def restore(
        self, wanted: Mapping[TopicPartition, SealedPartition]
    ) -> Mapping[TopicPartition, SealedPart | StorageError]:
        return await self._restore.restore(wanted)
