"""Fetches of remote segments by the node that leads their log, and their removal when scratch space is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Mapping
from typing import Any, Final, NamedTuple

from fencepost.broker.cluster.objects.names import SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX
from fencepost.broker.cluster.remote.remote_log_state import RemoteLogState, RemoteLogStates
from fencepost.broker.cluster.remote.segment_objects import READ_SUFFIXES, SegmentObjects
from fencepost.broker.cluster.remote.segment_rows import SealedRows, SealedTable
from fencepost.broker.cluster.tail.tail_store import (
    PartitionKey,
    SealedPart,
    SealedPartition,
    StoreUnavailableError,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.files.partition_files import LEADER_EPOCH_FILE
from fencepost.broker.log.segment.remote_segment import AwaySegment, SealedSegment, open_brought
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.storage.disk import Disk, StorageError

log = get_logger(__name__)

FETCHING = Place("bringing of a segment", Policy.REPORT)

SCRATCH_BYTES: Final = 10 * 1024**3
"""Of sealed segments that are kept here for readers; tails are always here."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
REPORT_INTERVAL_S: Final = 10.0
FAILED_REST_S: Final = 5.0
"""How long a segment that cannot be brought is not tried again: readers come many times a second."""


class _Failure(NamedTuple):
    """Why a segment could not be brought, and until when it is not tried again."""

    error: StorageError
    until_s: float


class RemoteFetch:
    """The sealed segments of the logs that this node leads, for `SealedStore`.

    scratch_bytes: of those that are here, at most; more are sent away, those that were not read for the longest first.
    brought_count: segments that were brought since the start. brought_bytes: of their log files.
    """

    def __init__(
        self,
        logs: LogDirectory,
        kept: RemoteLogStates,
        objects: SegmentObjects,
        table: SealedTable,
        *,
        scratch_bytes: int = SCRATCH_BYTES,
    ) -> None:
        self.scratch_bytes = scratch_bytes
        self.brought_count = 0
        self.brought_bytes = 0
        self._logs = logs
        self._kept = kept
        self._objects = objects
        self._table = table
        self._coming: dict[SealedSegment, asyncio.Task[None]] = {}
        self._unread_passes: dict[Segment, int] = {}
        self._failures: dict[SealedSegment, _Failure] = {}

    async def close(self) -> None:
        """Give up what is on its way."""
        tasks = list(self._coming.values())
        await end_tasks(*tasks)

    # Fetches

    def bring(self, topic_partition: TopicPartition, sealed: SealedSegment) -> Awaitable[None]:
        failure = self._failures.get(sealed)
        if failure is not None:
            if asyncio.get_running_loop().time() < failure.until_s:
                raise failure.error
            del self._failures[sealed]
        task = self._coming.get(sealed)
        if task is None:
            task = FETCHING.start(
                self._bring(topic_partition, sealed), concerns=topic_partition, expected=(StorageError,)
            )
            self._coming[sealed] = task
            task.add_done_callback(lambda _: self._coming.pop(sealed, None))
        return _End(task)

    async def _bring(self, name: TopicPartition, sealed: SealedSegment) -> None:
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
                brought = await self._objects.download(key, sealed, files.directory)
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
        stand_in = next(
            (one for one in partition_log.segments if isinstance(one, AwaySegment) and one.sealed == sealed), None
        )
        if partition_log.is_deleted or stand_in is None:  # retention has deleted it, or the log has moved
            brought.discard()
            return
        brought.put_in_place()
        segment = open_brought(files, sealed, partition_log.config.index_interval_bytes)
        partition_log.exchange(stand_in, segment)
        kept = self._kept.get(name)
        if kept is not None:
            kept.stored[segment] = sealed
        self.brought_count += 1
        self.brought_bytes += sealed.size_bytes

    async def store_log_starts(self, log_starts: dict[TopicPartition, int]) -> None:
        try:
            await self._kept.refresh()
            starts = {}
            for name in log_starts:
                kept = self._kept.get(name)
                start = None if kept is None else self._kept.log_start(kept)
                if kept is None:
                    raise StorageError(f"{name} is not led here any more")
                if start is not None:
                    starts[kept.key] = (kept, start)
            done = await self._table.raise_log_starts({key: start for key, (_, start) in starts.items()})
        except StoreUnavailableError as error:
            raise StorageError(f"the new starts of logs cannot be stored: {error}") from error
        for key, (kept, start) in starts.items():
            if key not in done:
                raise StorageError(f"{kept.log.topic_partition} is not led here any more")
            kept.started(start)

    # Sending away

    async def make_room(self) -> None:
        """Send segments away until the others fit into the scratch. Called regularly: what was not read since the last
        call counts as unread."""
        here = [
            (kept, one) async for kept in self._kept.each() for one in kept.stored if not isinstance(one, AwaySegment)
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
                self._send_away(kept, segment)

    def _send_away(self, kept: RemoteLogState, segment: Segment) -> None:
        partition_log = kept.log
        sealed = kept.stored.pop(segment)
        try:
            stand_in = AwaySegment(
                partition_log.files,
                partition_log.topic_partition,
                sealed,
                self,
                partition_log.config.index_interval_bytes,
            )
            partition_log.exchange(segment, stand_in)
            kept.stored[stand_in] = sealed
            segment.close()
            for suffix in READ_SUFFIXES:
                if suffix != TRANSACTION_INDEX_SUFFIX:
                    segment.files.delete(suffix)
        except StorageError as error:
            partition_log.give_up(error)


class SealedRestore:
    """Restores what opening logs takes of their sealed segments, for `SealedParts`."""

    def __init__(self, objects: SegmentObjects, table: SealedTable, disk: Disk) -> None:
        self._objects = objects
        self._table = table
        self._disk = disk

    async def restore(
        self, wanted: Mapping[TopicPartition, SealedPartition]
    ) -> Mapping[TopicPartition, SealedPart | StorageError]:
        """Write the state of producers at the sealed end, the transaction indexes and the leader epochs; for a
        coordinator's log, which is read as a whole, all of its segments. See `SealedParts`."""
        found = await self._table.read([one.key for one in wanted.values()])
        names = [name for name, one in wanted.items() if one.key in found]
        parts = await asyncio.gather(*(self._try_to_restore(name, wanted[name], found) for name in names))
        return dict(zip(names, parts, strict=True))

    async def _try_to_restore(
        self, name: TopicPartition, wanted: SealedPartition, found: Mapping[PartitionKey, SealedRows]
    ) -> SealedPart | StorageError:
        try:
            return await self._restore(name, wanted, found[wanted.key])
        except StoreUnavailableError as error:
            return StorageError(f"an object of its sealed segments cannot be had now: {error}")
        except StorageError as error:
            return error

    async def _restore(self, name: TopicPartition, wanted: SealedPartition, rows: SealedRows) -> SealedPart:
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
            return SealedPart(rows.sealed_end, rows.log_start_offset)
        await asyncio.gather(
            *(self._download(key, one, directory, (TRANSACTION_INDEX_SUFFIX,)) for one in needed if one.has_aborted)
        )
        return SealedPart(rows.sealed_end, rows.log_start_offset, needed)

    async def _download(
        self, key: PartitionKey, sealed: SealedSegment, directory: str, suffixes: tuple[str, ...]
    ) -> None:
        (await self._objects.download(key, sealed, directory, suffixes)).put_in_place()


class _End:
    """The end of a task, for any number of those that wait for it, or for none."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.shield(self._task).__await__()
