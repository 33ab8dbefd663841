"""Fetches of remote segments, and their removal when scratch space is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Generator, Mapping
from typing import Any, Final, NamedTuple, Protocol

from fencepost.broker.cluster.objects.names import SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX
from fencepost.broker.cluster.remote.segment_objects import READ_SUFFIXES, SegmentObjects
from fencepost.broker.cluster.remote.segment_rows import RemoteLogMetadata, RemoteLogRows
from fencepost.broker.cluster.tail.tail_store import (
    PartitionKey,
    PartitionToRestore,
    RestoredRemoteLog,
    StoreUnavailableError,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from fencepost.broker.log.files.partition_files import LEADER_EPOCH_FILE, PartitionFiles
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.remote_segment import RemoteSegment, RemoteSegmentMetadata, open_fetched
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.storage.disk import Disk, StorageError

log = get_logger(__name__)

FETCHING = Place("fetch of a remote segment", Policy.REPORT)

SCRATCH_BYTES: Final = 10 * 1024**3
"""Of sealed segments that are kept here for readers; tails are always here."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
REPORT_INTERVAL_S: Final = 10.0
FAILED_REST_S: Final = 5.0
"""How long a fetch that failed is not retried: readers come many times a second."""


class _Failure(NamedTuple):
    """Why a segment could not be fetched, and until when that is not retried."""

    error: StorageError
    until_s: float


class FetchedLog(Protocol):
    """A log, as fetches of its segments see it: see `PartitionLog`."""

    topic_partition: TopicPartition
    topic_id: bytes
    is_deleted: bool
    segments: LogSegments
    files: PartitionFiles

    @property
    def config(self) -> LogConfig: ...

    def exchange(self, old: Segment, new: Segment) -> None: ...

    def give_up(self, error: StorageError) -> None: ...


class FetchedLogs(Protocol):
    """The open logs."""

    def get(self, topic_partition: TopicPartition) -> FetchedLog | None: ...


class FetchedLogState(Protocol):
    """The part of a log in the shared store: see `RemoteLogState`."""

    @property
    def log(self) -> FetchedLog: ...

    @property
    def stored(self) -> dict[Segment, RemoteSegmentMetadata]: ...

    @property
    def is_led(self) -> bool: ...

    def forget_departed(self) -> None: ...


class FetchedLogStates(Protocol):
    """These parts of all open logs."""

    def get(self, topic_partition: TopicPartition) -> FetchedLogState | None: ...

    def each(self) -> AsyncIterator[FetchedLogState]: ...


class RemoteFetch:
    """The sealed segments of open logs, for `RemoteLogStore`.

    scratch_bytes: bound of the local segments together; beyond it, the longest unread are evicted first.
    fetched_count: segments fetched since the start. fetched_bytes: of their log files.
    """

    def __init__(
        self,
        logs: FetchedLogs,
        kept: FetchedLogStates,
        objects: SegmentObjects,
        *,
        scratch_bytes: int = SCRATCH_BYTES,
    ) -> None:
        self.scratch_bytes = scratch_bytes
        self.fetched_count = 0
        self.fetched_bytes = 0
        self._logs = logs
        self._kept = kept
        self._objects = objects
        self._coming: dict[RemoteSegmentMetadata, asyncio.Task[None]] = {}
        self._unread_passes: dict[Segment, int] = {}
        self._failures: dict[RemoteSegmentMetadata, _Failure] = {}

    async def close(self) -> None:
        """Cancel the fetches that are under way."""
        tasks = list(self._coming.values())
        await end_tasks(*tasks)

    # Fetches

    def fetch(self, topic_partition: TopicPartition, sealed: RemoteSegmentMetadata) -> Awaitable[None]:
        failure = self._failures.get(sealed)
        if failure is not None:
            if asyncio.get_running_loop().time() < failure.until_s:
                raise failure.error
            del self._failures[sealed]
        task = self._coming.get(sealed)
        if task is None:
            task = FETCHING.start(
                self._fetch(topic_partition, sealed), concerns=topic_partition, expected=(StorageError,)
            )
            self._coming[sealed] = task
            task.add_done_callback(lambda _: self._coming.pop(sealed, None))
        return _End(task)

    async def _fetch(self, name: TopicPartition, sealed: RemoteSegmentMetadata) -> None:
        partition_log = self._logs.get(name)
        if partition_log is None:
            raise StorageError(f"{name} is not open")
        files = partition_log.files
        key = PartitionKey(partition_log.topic_id, name.partition)
        loop = asyncio.get_running_loop()
        report_at_s = loop.time()
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                fetched = await self._objects.download(key, sealed, files.directory)
            except StoreUnavailableError as error:
                if loop.time() >= report_at_s:
                    report_at_s = loop.time() + REPORT_INTERVAL_S
                    log.warning("segment_waits", topic=name.topic, partition=name.partition, reason=str(error))
            except StorageError as error:
                if not partition_log.is_deleted:
                    log.error(  # noqa: TRY400  # the reason says it all
                        "segment_not_brought", topic=name.topic, partition=name.partition, reason=str(error)
                    )
                    self._failures[sealed] = _Failure(error, loop.time() + FAILED_REST_S)
                raise
            else:
                break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if partition_log.is_deleted:
                raise StorageError(f"{name} is not open any more")
        remote_segment = next(
            (one for one in partition_log.segments if isinstance(one, RemoteSegment) and one.sealed == sealed), None
        )
        if partition_log.is_deleted or remote_segment is None:  # retention has deleted it, or the log has moved
            fetched.discard()
            return
        fetched.put_in_place()
        segment = open_fetched(files, sealed, partition_log.config.index_interval_bytes)
        partition_log.exchange(remote_segment, segment)
        kept = self._kept.get(name)
        if kept is not None:
            kept.stored[segment] = sealed
        self.fetched_count += 1
        self.fetched_bytes += sealed.size_bytes

    # Eviction

    async def make_room(self) -> None:
        """Evict segments until the others fit into the scratch. Called regularly: a segment without a read since
        the last call counts as unread."""
        here = [
            (kept, one) async for kept in self._kept.each() for one in kept.stored if not isinstance(one, RemoteSegment)
        ]
        unread = self._unread_passes
        self._unread_passes = {
            segment: 0 if segment.indexes.are_in_memory else unread.get(segment, 0) + 1 for _, segment in here
        }
        excess_bytes = sum(segment.size_bytes for _, segment in here) - self.scratch_bytes
        if excess_bytes <= 0:
            return
        # Coordinators read all of their logs when they load them.
        movable = [(kept, one) for kept, one in here if kept.log.topic_partition.topic not in INTERNAL_TOPICS]
        movable.sort(key=lambda pair: self._unread_passes[pair[1]], reverse=True)
        for kept, segment in movable:
            if excess_bytes <= 0:
                break
            excess_bytes -= segment.size_bytes
            await asyncio.sleep(0)  # deleting large files takes its time
            kept.forget_departed()  # retention and the cleaner do not wait
            if kept.is_led and segment in kept.stored:
                self._evict(kept, segment)

    def _evict(self, kept: FetchedLogState, segment: Segment) -> None:
        partition_log = kept.log
        sealed = kept.stored.pop(segment)
        try:
            remote_segment = RemoteSegment(
                partition_log.files,
                partition_log.topic_partition,
                sealed,
                self,
                partition_log.config.index_interval_bytes,
            )
            partition_log.exchange(segment, remote_segment)
            kept.stored[remote_segment] = sealed
            segment.close()
            for suffix in READ_SUFFIXES:
                if suffix != TRANSACTION_INDEX_SUFFIX:
                    segment.files.delete(suffix)
        except StorageError as error:
            partition_log.give_up(error)


class RemoteLogRestore:
    """Restores the files of sealed segments that opening logs needs, for `RemoteLogSource`."""

    def __init__(self, objects: SegmentObjects, table: RemoteLogMetadata, disk: Disk) -> None:
        self._objects = objects
        self._table = table
        self._disk = disk

    async def restore(
        self, wanted: Mapping[TopicPartition, PartitionToRestore]
    ) -> Mapping[TopicPartition, RestoredRemoteLog | StorageError]:
        """Write the state of producers at the sealed end, the transaction indexes and the leader epochs; for a
        coordinator's log, which is read as a whole, all of its segments. See `RemoteLogSource`."""
        found = await self._table.read([one.key for one in wanted.values()])
        names = [name for name, one in wanted.items() if one.key in found]
        parts = await asyncio.gather(*(self._try_to_restore(name, wanted[name], found) for name in names))
        return dict(zip(names, parts, strict=True))

    async def _try_to_restore(
        self, name: TopicPartition, wanted: PartitionToRestore, found: Mapping[PartitionKey, RemoteLogRows]
    ) -> RestoredRemoteLog | StorageError:
        try:
            return await self._restore(name, wanted, found[wanted.key])
        except StoreUnavailableError as error:
            return StorageError(f"an object of its sealed segments cannot be had now: {error}")
        except StorageError as error:
            return error

    async def _restore(
        self, name: TopicPartition, wanted: PartitionToRestore, rows: RemoteLogRows
    ) -> RestoredRemoteLog:
        key, directory = wanted
        if rows.epochs:
            self._disk.write_file(f"{directory}/{LEADER_EPOCH_FILE}", rows.epochs, durable=False)
        if rows.segments:
            last = rows.segments[-1]
            if last.end_offset != rows.sealed_end:
                raise StorageError(
                    f"{name} is sealed up to offset {rows.sealed_end}, and its last segment ends at {last.end_offset}"
                )
            await self._download(key, last, directory, (SNAPSHOT_SUFFIX,))
        elif rows.sealed_end:
            raise StorageError(f"{name} is sealed up to {rows.sealed_end}, and has no segments")
        needed = [one for one in rows.segments if one.end_offset > rows.log_start_offset]
        if name.topic in INTERNAL_TOPICS:
            for one in needed:
                await self._download(key, one, directory, READ_SUFFIXES)
            return RestoredRemoteLog(rows.sealed_end, rows.log_start_offset)
        await asyncio.gather(
            *(self._download(key, one, directory, (TRANSACTION_INDEX_SUFFIX,)) for one in needed if one.has_aborted)
        )
        return RestoredRemoteLog(rows.sealed_end, rows.log_start_offset, needed)

    async def _download(
        self, key: PartitionKey, sealed: RemoteSegmentMetadata, directory: str, suffixes: tuple[str, ...]
    ) -> None:
        (await self._objects.download(key, sealed, directory, suffixes)).put_in_place()


class _End:
    """The end of a task, for any number of those that wait for it, or for none."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.shield(self._task).__await__()
