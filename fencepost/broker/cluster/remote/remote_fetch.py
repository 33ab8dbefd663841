"""Fetches of remote segments, whole or in parts, and their removal when scratch space is needed."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from fencepost.broker.cluster.objects.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from fencepost.broker.cluster.remote.download_turns import DownloadTurns
from fencepost.broker.cluster.remote.local_parts import LocalParts
from fencepost.broker.cluster.remote.remote_log_state import FetchedLog, FetchedLogs, FetchedLogState, FetchedLogStates
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
from fencepost.broker.log.files.partition_files import LEADER_EPOCH_FILE
from fencepost.broker.log.segment.block_file import LocalBlock
from fencepost.broker.log.segment.remote_segment import (
    INDEXES,
    RemoteSegment,
    RemoteSegmentMetadata,
    SegmentNotLocalError,
    open_fetched,
)
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.storage.disk import Disk, LogFile, StorageError

T = TypeVar("T")

log = get_logger(__name__)

FETCHING = Place("fetch of a remote segment", Policy.REPORT)

SCRATCH_BYTES: Final = 10 * 1024**3
"""Of sealed segments that are kept here for readers; tails are always here."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
REPORT_INTERVAL_S: Final = 10.0
FAILED_REST_S: Final = 5.0
"""How long a fetch that failed is not retried: readers come many times a second."""
DOWNLOADS_AT_ONCE: Final = 8
"""Downloads of parts under way: blocks of 4 MB are in memory until they are checked. Uploads have requests left."""
LEAST_SHARE_OF_PARTS: Final = 0.5
"""Of the scratch, for parts: they may take it even if local segments fill the rest."""
IDLE_S: Final = 60.0
"""Parts that nobody has read for this long go before local segments, which a consumer may be about to read."""
WRITTEN_BYTES: Final = 1024 * 1024
"""Written in one step of the event loop."""


class _Failure(NamedTuple):
    """Why a segment could not be fetched, and until when that is not retried."""

    error: StorageError
    until_s: float


class _Wanted(NamedTuple):
    """The aim of a fetch. part: None for a whole segment."""

    sealed: RemoteSegmentMetadata
    part: int | None


class RemoteFetch:
    """The sealed segments of open logs, for `RemoteLogStore`.

    scratch_bytes: bound of the local segments and parts together; beyond it, the longest unread are evicted first.
    waits_for_store: whether readers wait for a store that does not answer; else they get an error.
    fetched_count: segments of which something was fetched. fetched_bytes: of their log files.
    parts:         indexes and blocks that are here, and counts of their reads.
    """

    def __init__(
        self,
        logs: FetchedLogs,
        kept: FetchedLogStates,
        objects: SegmentObjects,
        *,
        scratch_bytes: int = SCRATCH_BYTES,
        waits_for_store: bool = True,
    ) -> None:
        self.scratch_bytes = scratch_bytes
        self.fetched_count = 0
        self.fetched_bytes = 0
        self._logs = logs
        self._kept = kept
        self._objects = objects
        self._coming: dict[_Wanted, asyncio.Task[None]] = {}
        self._unread_passes: dict[Segment, int] = {}
        self._failures: dict[_Wanted, _Failure] = {}
        self._turns = DownloadTurns(DOWNLOADS_AT_ONCE)
        self.parts = LocalParts(lambda: asyncio.get_running_loop().time())
        self._waits_for_store = waits_for_store
        self._coming_bytes = 0  # of blocks
        self._segment_bytes = 0  # of local segments, as of the last pass

    async def close(self) -> None:
        """Cancel the fetches that are under way."""
        tasks = list(self._coming.values())
        await end_tasks(*tasks)

    # Fetches

    def fetch(self, topic_partition: TopicPartition, sealed: RemoteSegmentMetadata) -> Awaitable[None]:
        return self._begin(topic_partition, _Wanted(sealed, None), lambda: self._fetch(topic_partition, sealed))

    def fetch_part(
        self, topic_partition: TopicPartition, segment: RemoteSegment, part: int, *, is_asked_for: bool = True
    ) -> Awaitable[None]:
        whole = self._coming.get(_Wanted(segment.sealed, None))
        if whole is not None:
            return _End(whole)
        if segment.comes_whole:
            return self.fetch(topic_partition, segment.sealed)
        if is_asked_for:
            self.parts.keep(segment, part)

        async def fetch() -> None:
            if part == INDEXES:
                await self._fetch_indexes(topic_partition, segment)
            else:
                await self._fetch_block(topic_partition, segment, part, is_asked_for=is_asked_for)

        return self._begin(topic_partition, _Wanted(segment.sealed, part), fetch)

    def _begin(
        self, concerns: TopicPartition, wanted: _Wanted, fetch: Callable[[], Coroutine[Any, Any, None]]
    ) -> Awaitable[None]:
        """Begin a fetch, unless it is under way. Raises StorageError if it has just failed."""
        failure = self._failures.get(wanted)
        if failure is not None:
            if asyncio.get_running_loop().time() < failure.until_s:
                raise failure.error
            del self._failures[wanted]
        task = self._coming.get(wanted)
        if task is None:
            task = FETCHING.start(fetch(), concerns=concerns, expected=(StorageError,))
            self._coming[wanted] = task
            task.add_done_callback(lambda _: self._coming.pop(wanted, None))
        return _End(task)

    async def _fetch(self, name: TopicPartition, sealed: RemoteSegmentMetadata) -> None:
        partition_log = self._open_log(name)
        files = partition_log.files
        key = PartitionKey(partition_log.topic_id, name.partition)
        fetched = await self._download(
            partition_log, _Wanted(sealed, None), lambda: self._objects.download(key, sealed, files.directory)
        )
        remote_segment = _remote_segment(partition_log, sealed)
        if remote_segment is None:
            fetched.discard()
            return
        fetched.put_in_place()
        segment = open_fetched(files, sealed, partition_log.config.index_interval_bytes)
        self.parts.let_go(remote_segment)
        partition_log.exchange(remote_segment, segment)
        kept = self._kept.get(name)
        if kept is not None:
            kept.stored[segment] = sealed
        self.fetched_count += 1
        self.fetched_bytes += sealed.size_bytes

    async def _fetch_indexes(self, name: TopicPartition, segment: RemoteSegment) -> None:
        partition_log, sealed = self._open_log(name), segment.sealed
        directory, disk = partition_log.files.directory, partition_log.files.disk
        suffixes = [INDEX_SUFFIX, TIME_INDEX_SUFFIX]
        if sealed.has_aborted and not disk.exists(segment.files.path(TRANSACTION_INDEX_SUFFIX)):
            suffixes.append(TRANSACTION_INDEX_SUFFIX)
        key = PartitionKey(partition_log.topic_id, name.partition)
        fetched = await self._download(
            partition_log,
            _Wanted(sealed, INDEXES),
            lambda: self._in_turn(name, lambda: self._objects.download(key, sealed, directory, suffixes)),
        )
        if _remote_segment(partition_log, sealed) is not segment or segment.has(INDEXES):
            fetched.discard()
            return
        fetched.put_in_place()
        size_bytes = sum(disk.size_bytes(segment.files.path(suffix)) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX))
        with contextlib.suppress(SegmentNotLocalError):  # they are no indexes: the reader has the whole fetched
            segment.add_indexes()
            self.parts.add(segment, INDEXES, size_bytes, is_asked_for=True)
        self.fetched_count += 1
        partition_log.watchers.notify()

    async def _fetch_block(
        self, name: TopicPartition, segment: RemoteSegment, block: int, *, is_asked_for: bool
    ) -> None:
        partition_log, sealed, layout = self._open_log(name), segment.sealed, segment.log_blocks.layout
        assert layout is not None, "a segment with blocks"
        key = PartitionKey(partition_log.topic_id, name.partition)
        disk, length_bytes = partition_log.files.disk, layout.length(block)
        # Never a path that was used before: it may be open still, or be about to be removed.
        path = f"{segment.files.path(LOG_SUFFIX)}.{block:04d}.{uuid.uuid4().hex}"

        async def download() -> LogFile:
            content = await self._in_turn(name, lambda: self._objects.download_block(key, sealed, block))
            self._make_room_for(length_bytes)
            return await _written(disk, path, content)

        self._coming_bytes += length_bytes
        try:
            file = await self._download(partition_log, _Wanted(sealed, block), download)
        finally:
            self._coming_bytes -= length_bytes
        if _remote_segment(partition_log, sealed) is not segment or segment.has(block):
            file.close()
            disk.delete(path)
            return
        segment.log_blocks.blocks[block] = LocalBlock(file)
        self.parts.add(segment, block, length_bytes, is_asked_for=is_asked_for)
        self.fetched_bytes += length_bytes
        partition_log.watchers.notify()

    def _open_log(self, name: TopicPartition) -> FetchedLog:
        """Raises StorageError."""
        partition_log = self._logs.get(name)
        if partition_log is None:
            raise StorageError(f"{name} is not open")
        return partition_log

    async def _in_turn(self, name: TopicPartition, download: Callable[[], Awaitable[T]]) -> T:
        async with self._turns.turn(name):
            return await download()

    async def _download(self, partition_log: FetchedLog, wanted: _Wanted, download: Callable[[], Awaitable[T]]) -> T:
        """Run a download; again while the store does not answer. Raises StorageError."""
        name = partition_log.topic_partition
        loop = asyncio.get_running_loop()
        report_at_s = loop.time()
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await download()
            except StoreUnavailableError as error:
                if loop.time() >= report_at_s:
                    report_at_s = loop.time() + REPORT_INTERVAL_S
                    log.warning("segment_waits", topic=name.topic, partition=name.partition, reason=str(error))
                if not self._waits_for_store:
                    failure = StorageError(f"the object store does not answer: {error}")
                    self._failures[wanted] = _Failure(failure, loop.time() + FAILED_REST_S)
                    raise failure from error
            except StorageError as error:
                if not partition_log.is_deleted:
                    log.error(  # noqa: TRY400  # the reason says it all
                        "segment_not_brought", topic=name.topic, partition=name.partition, reason=str(error)
                    )
                    self._failures[wanted] = _Failure(error, loop.time() + FAILED_REST_S)
                raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if partition_log.is_deleted:
                raise StorageError(f"{name} is not open any more")

    # Reads

    def note_read(self, topic_partition: TopicPartition, segment: RemoteSegment, position: int, end: int) -> None:
        self.parts.note_read(segment, position, end)
        layout = segment.log_blocks.layout
        if layout is None:
            return
        block = layout.at(end - 1)
        is_sequential = end - layout.start(block) >= layout.length(block) // 2 or self.parts.is_passed(
            segment, block - 1
        )
        if not is_sequential:
            return
        if block + 1 < layout.blocks_count:
            self._fetch_ahead(topic_partition, segment, block + 1)
            return
        partition_log = self._logs.get(topic_partition)
        following = None if partition_log is None else partition_log.segments.after(segment)
        if isinstance(following, RemoteSegment) and not following.comes_whole:
            self._fetch_ahead(topic_partition, following, INDEXES)
            self._fetch_ahead(topic_partition, following, 0)

    def _fetch_ahead(self, topic_partition: TopicPartition, segment: RemoteSegment, part: int) -> None:
        """Fetch a part that a reader will soon ask for, if nobody waits for anything else and there is room."""
        wanted = _Wanted(segment.sealed, part)
        layout = segment.log_blocks.layout
        if segment.has(part) or wanted in self._coming or not self._turns.are_free or layout is None:
            return
        needed_bytes = self.parts.total_bytes - self.parts.passed_bytes + self._coming_bytes
        if needed_bytes + layout.block_bytes <= self._room_of_parts():
            with contextlib.suppress(StorageError):  # it has just failed: the reader will get the error
                self.fetch_part(topic_partition, segment, part, is_asked_for=False)

    def _room_of_parts(self) -> int:
        """The bytes that parts may take."""
        return max(int(self.scratch_bytes * LEAST_SHARE_OF_PARTS), self.scratch_bytes - self._segment_bytes)

    def _make_room_for(self, added_bytes: int) -> None:
        excess_bytes = self.parts.total_bytes + added_bytes - self._room_of_parts()
        if excess_bytes > 0:
            self.parts.evict(excess_bytes)

    # Eviction

    async def make_room(self) -> None:
        """Evict segments and parts until the others fit into the scratch. Called regularly: a segment without a read
        since the last call counts as unread."""
        here = [
            (kept, one) async for kept in self._kept.each() for one in kept.stored if not isinstance(one, RemoteSegment)
        ]
        unread = self._unread_passes
        self._unread_passes = {
            segment: 0 if segment.indexes.are_in_memory else unread.get(segment, 0) + 1 for _, segment in here
        }
        self._segment_bytes = sum(segment.size_bytes for _, segment in here)
        excess_bytes = self._segment_bytes + self.parts.total_bytes - self.scratch_bytes
        excess_bytes -= self.parts.evict_idle(IDLE_S, excess_bytes)
        self._make_room_for(0)
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


async def _written(disk: Disk, path: str, content: bytes) -> LogFile:
    """Write a file in steps. Raises StorageError, and leaves nothing then."""
    file = disk.open(path)
    try:
        for start in range(0, len(content), WRITTEN_BYTES):
            file.append(memoryview(content)[start : start + WRITTEN_BYTES])
            await asyncio.sleep(0)
        file.release_room()
    except BaseException:
        file.close()
        with contextlib.suppress(StorageError):
            disk.delete(path)
        raise
    return file


def _remote_segment(partition_log: FetchedLog, sealed: RemoteSegmentMetadata) -> RemoteSegment | None:
    """A remote segment of a log; None if it is not there any more: retention has deleted it, or the log has moved."""
    if partition_log.is_deleted:
        return None
    remote = (one for one in partition_log.segments if isinstance(one, RemoteSegment))
    return next((one for one in remote if one.sealed == sealed), None)


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
