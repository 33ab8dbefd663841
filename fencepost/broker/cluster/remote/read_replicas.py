"""Read replicas: the sealed part of partitions that other nodes lead, for consumers in the rack of this node.

Sealed segments are in the store that all nodes share, so any node can serve them. A replica ends at the sealed end; at
most some seconds old, it is asked for again before it says that it has no more. Consumers read on at the leader.
Source: KIP-392; Kafka's RackAwareReplicaSelector and ReplicaManager.fetchMessages.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from fencepost.broker.cluster.objects.names import TRANSACTION_INDEX_SUFFIX
from fencepost.broker.cluster.remote.remote_fetch import RemoteFetch
from fencepost.broker.cluster.remote.remote_log_state import RemoteLogStates
from fencepost.broker.cluster.remote.segment_objects import SegmentObjects
from fencepost.broker.cluster.remote.segment_rows import RemoteLogMetadata, RemoteLogRows
from fencepost.broker.cluster.tail.scratch import READ_REPLICAS_DIRECTORY
from fencepost.broker.cluster.tail.tail_store import PartitionKey, StoreUnavailableError
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.durability.waiters import Watchers
from fencepost.broker.log.files.checkpoints import CorruptCheckpointError, decode_epochs
from fencepost.broker.log.files.leader_epochs import LeaderEpochs
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.log_reports import LogReports
from fencepost.broker.log.log_types import READ_COMMITTED, EpochEndOffset, Isolation, LogRead
from fencepost.broker.log.reads import reading
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.remote_segment import RemoteSegment, RemoteSegmentMetadata
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.log.segment.segment_batches import NO_RECORDS
from fencepost.broker.storage.disk import Disk, StorageError

log = get_logger(__name__)

REFRESHING: Final = Place("refresh of a read replica", Policy.REPORT)
KEEPING: Final = Place("upkeep of read replicas", Policy.RETRY)

FRESH_S: Final = 1.0
"""A replica read this recently says that it has no more without being read again."""
FAILED_REST_S: Final = 5.0
"""How long a replica that could not be read refuses consumers, who read at the leader meanwhile."""
INTERVAL_S: Final = 10.0
"""Time after which a replica in use has learnt of deleted records and of compaction."""
ROOM_PASSES: Final = 10
"""How often, meanwhile, the bound of their local segments is kept."""
UNUSED_S: Final = 5 * 60.0
"""A replica that nobody reads is removed after this time."""
MADE_TOGETHER_COUNT: Final = 200
"""Segments that are made in one step of the event loop."""


class ReadReplica:
    """The sealed part of one partition, for `reading.read` and Fetch.

    is_read:  whether its rows have been read. Until then it has no bounds, and watchers are called when it has.
    stored:   its segments whose files are here, with their rows.
    Its offsets are those of the rows: nothing is appended.
    """

    is_replica = True
    config: Final = LogConfig()
    failed_fetches_count = 0
    fetches_count = 0
    fetched_bytes = 0

    def __init__(self, topic_partition: TopicPartition, topic_id: bytes, disk: Disk, directory: str) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.key = PartitionKey(topic_id, topic_partition.partition)
        self.files = PartitionFiles(disk, directory)
        self.reports = LogReports(topic_partition, directory)
        self.watchers = Watchers()
        self.epochs = LeaderEpochs()
        self.log_start_offset = -1
        self.high_watermark = self.log_end_offset = -1
        self.last_stable_offset = -1
        self.offline_reason: str | None = None
        self.is_read = False
        self.is_deleted = False
        self.rows: tuple[RemoteSegmentMetadata, ...] = ()
        self.stored: dict[Segment, RemoteSegmentMetadata] = {}
        self.used_s = 0.0
        self.read_s = 0.0
        self.refresh: asyncio.Task[None] | None = None
        self.segments: LogSegments

    # As `reading.read` and Fetch see a log

    @property
    def leader_epoch(self) -> int:
        """Of its last records."""
        return self.epochs.latest

    bound = reading.bound_of

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation,
        minimum_one_batch: bool = True,
        is_lazy: bool = False,
    ) -> LogRead:
        """Read as `PartitionLog.read` does. After any error the consumer has to read at the leader."""
        if not self.is_read or (self.refresh is not None and not self.has(offset, isolation)):
            found = LogRead(NO_RECORDS, self.high_watermark, self.last_stable_offset, self.log_start_offset)
            if isolation is READ_COMMITTED:
                found.aborted_transactions = []
            return found
        return reading.read(
            self, offset, max_bytes, isolation=isolation, minimum_one_batch=minimum_one_batch, is_lazy=is_lazy
        )

    def has(self, offset: int, isolation: Isolation) -> bool:
        """Whether there are records to read at an offset, by its rows."""
        return self.log_start_offset <= offset < self.bound(isolation)

    def end_offset_for_leader_epoch(self, epoch: int) -> EpochEndOffset:
        return self.epochs.end_offset_for(epoch, self.leader_epoch, self.log_end_offset)

    def require_online(self) -> None:
        if self.offline_reason is not None:
            raise StorageError(f"the read replica of {self.topic_partition} is offline: {self.offline_reason}")

    def give_up(self, error: StorageError) -> None:
        """Serve nobody any more: the next consumer gets a new replica."""
        if self.offline_reason is None:
            self.offline_reason = str(error)
            log.warning("read_replica_given_up", **self._named, reason=str(error))
            self.watchers.notify()

    def exchange(self, old: Segment, new: Segment) -> None:
        """See `PartitionLog.exchange`."""
        self.segments.replace([old], new)
        self.watchers.notify()

    def add_watcher(self, callback: Callable[[], None]) -> None:
        self.watchers.add(callback)

    def remove_watcher(self, callback: Callable[[], None]) -> None:
        self.watchers.remove(callback)

    # As `RemoteFetch` sees a log and its part in the store

    @property
    def log(self) -> ReadReplica:
        return self

    @property
    def is_led(self) -> bool:
        return not self.is_deleted and self.offline_reason is None

    def forget_departed(self) -> None:
        present = set(self.segments)
        for segment in [one for one in self.stored if one not in present]:
            del self.stored[segment]

    # Its rows

    def take(self, rows: RemoteLogRows, segments: Sequence[Segment]) -> None:
        """Take over the rows, in one step, with one segment for each of `rows.segments`; then call the watchers."""
        try:
            self.epochs = LeaderEpochs(decode_epochs(rows.epochs)) if rows.epochs else LeaderEpochs()
        except CorruptCheckpointError as error:
            raise StorageError(f"the leader epochs of {self.topic_partition} cannot be read: {error}") from error
        self.rows = rows.segments
        self.segments = LogSegments(segments)
        self.forget_departed()
        for segment in segments:
            segment.batches.known_epochs = self.epochs
        stable_end = rows.segments[-1].stable_end
        self.log_start_offset = rows.log_start_offset
        self.high_watermark = self.log_end_offset = rows.sealed_end
        self.last_stable_offset = 0 if stable_end is None else stable_end
        self.is_read = True
        self.watchers.notify()

    def delete(self) -> None:
        """Remove its files, and call the watchers: their fetches look for another replica."""
        self.is_deleted = True
        if self.is_read:
            for segment in self.segments:
                segment.close()
        self.files.disk.delete(self.files.directory)
        self.watchers.notify()

    @property
    def _named(self) -> dict[str, str | int]:
        return {"topic": self.topic_partition.topic, "partition": self.topic_partition.partition}


class ReadReplicas:
    """The read replicas of one node, which come into being when a consumer asks for one.

    path:          directory for their files. led: the partitions that this node leads.
    scratch_bytes: bound of the local segments of all replicas together.
    """

    def __init__(
        self,
        path: str,
        disk: Disk,
        *,
        objects: SegmentObjects,
        table: RemoteLogMetadata,
        led: RemoteLogStates,
        scratch_bytes: int,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = f"{path}/{READ_REPLICAS_DIRECTORY}"
        self._disk = disk
        self._objects = objects
        self._table = table
        self._led = led
        self._monotonic_s = monotonic_s
        self._replicas: dict[TopicPartition, ReadReplica] = {}
        self._refused_until_s: dict[TopicPartition, float] = {}
        self._numbers = itertools.count(1)
        self._task: asyncio.Task[None] | None = None
        self._removed_read_bytes = 0
        # The leader may have segments that this node cannot get.
        self.fetches = RemoteFetch(self, self, objects, scratch_bytes=scratch_bytes, waits_for_store=False)

    @property
    def read_bytes(self) -> int:
        """Bytes of records that consumers got, while requests are observed."""
        return self._removed_read_bytes + sum(one.fetched_bytes for one in self._replicas.values())

    def __len__(self) -> int:
        return len(self._replicas)

    def start(self) -> None:
        """Begin to refresh replicas in use and to remove others, in the background."""
        self._task = KEEPING.start_retrying(self._run)

    async def close(self) -> None:
        """Stop, and remove all replicas."""
        await end_tasks(self._task)
        self._task = None
        await self.fetches.close()
        for replica in list(self._replicas.values()):
            await self._remove(replica)

    # For Fetch

    def sealed_bound(self, topic_partition: TopicPartition, isolation: Isolation) -> int:
        """The offset up to which a replica of a partition that this node leads can be read; 0 of others."""
        kept = self._led.get(topic_partition)
        if kept is None or not kept.sealed_end:
            return 0
        if isolation is not READ_COMMITTED:
            return kept.sealed_end
        return kept.stable_end or 0

    def find(
        self, topic_partition: TopicPartition, topic_id: bytes, offset: int, isolation: Isolation
    ) -> ReadReplica | None:
        """The replica of a partition, to be read at an offset; None if the consumer has to read at the leader.

        A replica that has just been made, or has to be read again, may have nothing yet; it calls its watchers.
        """
        now_s = self._monotonic_s()
        if self._refused_until_s.get(topic_partition, 0.0) > now_s:
            return None
        replica = self._replicas.get(topic_partition)
        if replica is None or replica.topic_id != topic_id or not replica.is_led:
            if replica is not None:
                self._delete(replica)
            replica = self._make(topic_partition, topic_id)
        replica.used_s = now_s
        if replica.refresh is None and not replica.has(offset, isolation):
            if replica.is_read and now_s - replica.read_s < FRESH_S:
                return None
            replica.refresh = REFRESHING.start(self._refresh(replica), concerns=topic_partition)
        return replica

    # For `RemoteFetch`

    def get(self, topic_partition: TopicPartition) -> ReadReplica | None:
        """The replica of a partition, if it can be read."""
        replica = self._replicas.get(topic_partition)
        return replica if replica is not None and replica.is_led else None

    async def each(self) -> AsyncIterator[ReadReplica]:
        """Iterate over the replicas that can be read."""
        for replica in list(self._replicas.values()):
            if replica.is_led and replica.is_read:
                yield replica

    # Life of a replica

    def _make(self, topic_partition: TopicPartition, topic_id: bytes) -> ReadReplica:
        directory = f"{self._path}/{next(self._numbers)}"
        self._disk.make_directory(directory)
        replica = ReadReplica(topic_partition, topic_id, self._disk, directory)
        self._replicas[topic_partition] = replica
        return replica

    async def _refresh(self, replica: ReadReplica) -> None:
        """Read the rows of a replica again; one that cannot be read refuses consumers for a while."""
        try:
            rows = (await self._table.read([replica.key])).get(replica.key)
            await self._take(replica, rows)
        except (StoreUnavailableError, StorageError) as error:
            log.warning("read_replica_waits", **replica._named, reason=str(error))  # noqa: SLF001
            self._refuse(replica)
        finally:
            replica.refresh = None

    async def _take(self, replica: ReadReplica, rows: RemoteLogRows | None) -> None:
        """Raises StoreUnavailableError, StorageError."""
        if replica.is_deleted:
            return
        if rows is None or not rows.segments:  # deleted, or nothing is sealed
            self._refuse(replica)
            return
        known = {segment.base_offset: segment for segment in replica.segments} if replica.is_read else {}
        before = {one.object_id for one in replica.rows}
        if any(one.object_id not in before and one.base_offset < replica.high_watermark for one in rows.segments):
            # Compacted or merged: files of both would have the same names. The next consumer gets a new replica.
            self._delete(replica)
            return
        added = [one for one in rows.segments if one.object_id not in before]
        await asyncio.gather(*(self._download_index(replica, one) for one in added if one.has_aborted))
        segments = []
        for count, one in enumerate(rows.segments, 1):
            segment = known.get(one.base_offset) if one.object_id in before else None
            segments.append(segment or self._segment(replica, one))
            if not count % MADE_TOGETHER_COUNT:
                await asyncio.sleep(0)
        if not replica.is_led:
            return
        # Evictions and fetches may have exchanged segments meanwhile.
        now = {segment.base_offset: segment for segment in replica.segments} if replica.is_read else {}
        segments = [now.get(segment.base_offset, segment) for segment in segments]
        departed = set(now.values()).difference(segments)
        replica.refresh, replica.read_s = None, self._monotonic_s()  # before the watchers look again
        replica.take(rows, segments)
        for segment in departed:
            segment.delete()

    async def _download_index(self, replica: ReadReplica, sealed: RemoteSegmentMetadata) -> None:
        suffixes = (TRANSACTION_INDEX_SUFFIX,)
        downloaded = await self._objects.download(replica.key, sealed, replica.files.directory, suffixes)
        if replica.is_deleted:
            downloaded.discard()
        else:
            downloaded.put_in_place()

    def _segment(self, replica: ReadReplica, sealed: RemoteSegmentMetadata) -> RemoteSegment:
        interval_bytes = replica.config.index_interval_bytes
        return RemoteSegment(replica.files, replica.topic_partition, sealed, self.fetches, interval_bytes)

    def _refuse(self, replica: ReadReplica) -> None:
        """Let consumers read at the leader for a while."""
        if self._replicas.get(replica.topic_partition) is replica:
            self._refused_until_s[replica.topic_partition] = self._monotonic_s() + FAILED_REST_S
        self._delete(replica)

    def _delete(self, replica: ReadReplica) -> None:
        if self._replicas.get(replica.topic_partition) is replica:
            del self._replicas[replica.topic_partition]
            self._removed_read_bytes += replica.fetched_bytes
        if not replica.is_deleted:
            replica.delete()

    async def _remove(self, replica: ReadReplica) -> None:
        await end_tasks(replica.refresh)
        self._delete(replica)

    async def _run(self) -> None:
        while True:
            for _ in range(ROOM_PASSES):
                await asyncio.sleep(INTERVAL_S / ROOM_PASSES)
                await self.fetches.make_room()
            await self.keep_up()

    async def keep_up(self) -> None:
        """Make one pass: remove replicas that nobody reads, and refresh the others."""
        now_s = self._monotonic_s()
        self._refused_until_s = {name: until for name, until in self._refused_until_s.items() if until > now_s}
        for replica in list(self._replicas.values()):
            if now_s - replica.used_s > UNUSED_S:
                await self._remove(replica)
            elif replica.is_read and replica.refresh is None:
                refresh = replica.refresh = REFRESHING.start(self._refresh(replica), concerns=replica.topic_partition)
                await asyncio.wait((refresh,))
