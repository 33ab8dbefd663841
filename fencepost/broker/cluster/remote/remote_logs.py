"""The remote part of all logs of a node, for its log directory and for its restore.

Source: KIP-405's RemoteLogManager.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from fencepost.broker.cluster.objects.abandoned import AbandonedObjects
from fencepost.broker.cluster.objects.store import ObjectStore
from fencepost.broker.cluster.remote.read_replicas import ReadReplicas
from fencepost.broker.cluster.remote.remote_fetch import SCRATCH_BYTES, RemoteFetch, RemoteLogRestore
from fencepost.broker.cluster.remote.remote_log_state import RemoteLogStates
from fencepost.broker.cluster.remote.remote_merge import RemoteMerge
from fencepost.broker.cluster.remote.segment_objects import SegmentObjects
from fencepost.broker.cluster.remote.segment_rows import RemoteLogMetadata
from fencepost.broker.cluster.remote.upload import SegmentUpload
from fencepost.broker.cluster.remote.upload_plan import RowsCount, UploadLimits, no_rows_count
from fencepost.broker.cluster.tail.scratch import Leftovers
from fencepost.broker.cluster.tail.tail_store import PartitionToRestore, RestoredRemoteLog, Tenure
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.segment.remote_segment import RemoteSegment, RemoteSegmentMetadata
from fencepost.broker.storage.disk import Disk, StorageError


class Scratch(NamedTuple):
    """Bounds of the local segments: of the logs that a node leads, and of its read replicas; 0 if it has none."""

    of_led_bytes: int = SCRATCH_BYTES
    of_replicas_bytes: int = 0


class RemoteLogs:
    """Uploads, fetches and merges of a node's remote segments: the `RemoteLogStore` of its log directory, and the
    `RemoteLogSource` of its restore.

    leader_epoch_of: the epoch in which this node leads a partition, by the placement; None if it does not.
    limits:          bounds at which segments are rolled and sealed.
    scratch:         bounds of the local segments; see `RemoteFetch`.
    monotonic_s:     a clock that nobody sets, in seconds.
    abandoned:       names of objects of the node that no row will have.
    """

    def __init__(
        self,
        store: ObjectStore,
        table: RemoteLogMetadata,
        *,
        cluster_id: str,
        disk: Disk,
        clock: Clock,
        tenure: Tenure,
        leader_epoch_of: Callable[[TopicPartition], int | None],
        limits: UploadLimits = UploadLimits(),  # noqa: B008  # it is immutable
        scratch: Scratch = Scratch(),  # noqa: B008  # it is immutable
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.abandoned = AbandonedObjects()
        self._objects = SegmentObjects(store, cluster_id, disk, self.abandoned, block_bytes=limits.block_bytes)
        self._table = table
        self._clock = clock
        self._tenure = tenure
        self._leader_epoch_of = leader_epoch_of
        self._limits = limits
        self._scratch = scratch
        self._monotonic_s = monotonic_s
        self._restore = RemoteLogRestore(self._objects, table, disk)
        self._kept: RemoteLogStates
        self.fetches: RemoteFetch
        self.uploads: SegmentUpload
        self.merges: RemoteMerge
        self.leftovers: Leftovers
        self.replicas: ReadReplicas | None = None
        self._disk = disk

    def attach(self, logs: LogDirectory, rows_count: RowsCount = no_rows_count) -> None:
        """Take care of the logs of a directory, which was made with this as its store. Called before it is opened.

        rows_count: the flushes in a segment of a tail: see `PostgresTail`.
        """
        kept = RemoteLogStates(logs, self._table, self._tenure, self._leader_epoch_of)
        self._kept = kept
        self.fetches = RemoteFetch(logs, kept, self._objects, scratch_bytes=self._scratch.of_led_bytes)
        self.uploads = SegmentUpload(
            kept,
            self._objects,
            self._table,
            self._clock,
            limits=self._limits,
            monotonic_s=self._monotonic_s,
            rows_count=rows_count,
            after_each_pass=self.fetches.make_room,
        )
        self.merges = RemoteMerge(kept, limits=self._limits, scratch_bytes=self._scratch.of_led_bytes)
        self.leftovers = Leftovers(logs.path, self._disk, logs, lambda name: self._leader_epoch_of(name) is not None)
        if self._scratch.of_replicas_bytes:
            self.replicas = ReadReplicas(
                logs.path,
                self._disk,
                objects=self._objects,
                table=self._table,
                led=kept,
                scratch_bytes=self._scratch.of_replicas_bytes,
                monotonic_s=self._monotonic_s,
            )

    def start(self) -> None:
        """Begin to upload, to merge, and to remove leftovers."""
        self.uploads.start()
        self.merges.start()
        self.leftovers.start()
        if self.replicas is not None:
            self.replicas.start()

    async def close(self) -> None:
        """Stop; called before the log directory is closed."""
        if self.replicas is not None:
            await self.replicas.close()
        await self.leftovers.close()
        await self.merges.close()
        await self.uploads.close()
        await self.fetches.close()

    def fetch(self, topic_partition: TopicPartition, sealed: RemoteSegmentMetadata) -> Awaitable[None]:
        return self.fetches.fetch(topic_partition, sealed)

    def fetch_part(self, topic_partition: TopicPartition, segment: RemoteSegment, part: int) -> Awaitable[None]:
        return self.fetches.fetch_part(topic_partition, segment, part)

    def note_read(self, topic_partition: TopicPartition, segment: RemoteSegment, position: int, end: int) -> None:
        self.fetches.note_read(topic_partition, segment, position, end)

    async def store_log_starts(self, log_starts: dict[TopicPartition, int]) -> None:
        await self._kept.store_log_starts(log_starts)

    async def restore(
        self, wanted: Mapping[TopicPartition, PartitionToRestore]
    ) -> Mapping[TopicPartition, RestoredRemoteLog | StorageError]:
        return await self._restore.restore(wanted)
