"""Restore of logs at a take-over: their tails, and files for their sealed segments, are written into the scratch.

All partitions that a node begins to lead together are restored together: one read of the tails, in order. Only the tail
is replayed when the log is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fencepost.broker.cluster.tail.tail_store import (
    FlushObjects,
    PartitionKey,
    PartitionToRestore,
    RemoteLogSource,
    RestoredRemoteLog,
    StoreUnavailableError,
    TailRow,
    TailStore,
    Tenure,
)
from fencepost.broker.hosting.arrivals import Arrival, Found
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SLICE_S, Slices
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.log.directory.log_directory import NO_LAST_STATES
from fencepost.broker.log.files.file_names import file_name
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.storage.disk import Disk, LogFile, StorageError

log = get_logger(__name__)

WRITTEN_TOGETHER_COUNT: Final = 16
"""Rows whose objects are fetched side by side."""
WRITTEN_TOGETHER_BYTES: Final = 4 * 1024 * 1024
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
REPORT_INTERVAL_S: Final = 5.0


class TailRestore:
    """Restores logs into a scratch directory, for `Arrivals`.

    topic_id_of: the topic id of a partition, by the placement; None if it is not known any more.
    objects:     objects of large flushes; None if the tails have none.
    """

    def __init__(
        self,
        directory: str,
        disk: Disk,
        *,
        store: TailStore,
        sealed: RemoteLogSource,
        tenure: Tenure,
        topic_id_of: Callable[[TopicPartition], bytes | None],
        objects: FlushObjects | None = None,
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._store = store
        self._sealed = sealed
        self._tenure = tenure
        self._topic_id_of = topic_id_of
        self._objects = objects

    async def prepare(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, Arrival]:
        """Restore logs. Retries until the database answers, or until the node has resigned.

        A log whose objects cannot be read now has not arrived; the caller retries, and others do not wait for it.
        """
        fence = self._tenure.fence
        loop = asyncio.get_running_loop()
        report_at_s = began_s = loop.time()
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                arrivals = await self._prepare(names)
            except StoreUnavailableError as error:
                if self._tenure.fence != fence:
                    reason = StorageError("this node has resigned while the log was restored")
                    return {name: Arrival(Found.MISSING, error=reason) for name in names}
                if loop.time() >= report_at_s:
                    report_at_s = loop.time() + REPORT_INTERVAL_S
                    log.warning("restoring_waits", partitions=len(names), reason=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                log.info("logs_restored", partitions=len(names), took_s=round(loop.time() - began_s, 3))
                return arrivals

    async def created(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        """Do nothing: the rows of partitions are created with their topic."""

    def all_last_states(self) -> Mapping[TopicPartition, LastLeaderState]:
        """Nothing: the scratch is empty when the node starts."""
        return NO_LAST_STATES

    async def _prepare(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, Arrival]:
        """Raises StoreUnavailableError."""
        arrivals: dict[TopicPartition, Arrival] = {}
        wanted: dict[TopicPartition, PartitionToRestore] = {}
        slices = Slices(SLICE_S)
        for name in names:
            await slices.turn()
            topic_id = self._topic_id_of(name)
            if topic_id is None:
                arrivals[name] = _unknown(name)
                continue
            directory = f"{self._directory}/{name}"
            try:
                self._begin(directory, topic_id)
            except StorageError as error:
                arrivals[name] = Arrival(Found.MISSING, error=error)
            else:
                wanted[name] = PartitionToRestore(PartitionKey(topic_id, name.partition), directory)
        if not wanted:
            return arrivals
        parts = await self._remote_logs(wanted, arrivals)
        tails = {wanted[name].key: _TailFiles(self._disk, wanted[name].directory, part) for name, part in parts.items()}
        try:
            await self._write_tails(tails)
        finally:
            for tail in tails.values():
                tail.close()
        slices.begin()
        for name, part in parts.items():
            await slices.turn()
            arrivals[name] = self._arrival(tails[wanted[name].key], part)
        return arrivals

    def _begin(self, directory: str, topic_id: bytes) -> None:
        """Recreate the directory of a partition: its files are from an earlier leadership of this node. Raises
        StorageError."""
        self._disk.delete(directory)
        self._disk.make_directory(directory)
        files = PartitionFiles(self._disk, directory)
        files.write_topic_id(topic_id).close()
        files.checksums.add({}).close()  # records whose directory it is

    async def _remote_logs(
        self, wanted: Mapping[TopicPartition, PartitionToRestore], arrivals: dict[TopicPartition, Arrival]
    ) -> dict[TopicPartition, RestoredRemoteLog]:
        """Restore sealed parts; adds an error to `arrivals` for each failure. Raises StoreUnavailableError."""
        found = await self._sealed.restore(wanted)
        parts = {}
        for name in wanted:
            part = found.get(name)
            if isinstance(part, RestoredRemoteLog):
                parts[name] = part
            else:
                arrivals[name] = _unknown(name) if part is None else Arrival(Found.MISSING, error=part)
        return parts

    async def _write_tails(self, tails: Mapping[PartitionKey, _TailFiles]) -> None:
        """Raises StoreUnavailableError."""
        together: list[TailRow] = []
        together_bytes = 0
        async for row in self._store.read(list(tails)):
            together.append(row)
            together_bytes += row.length_bytes
            if len(together) >= WRITTEN_TOGETHER_COUNT or together_bytes >= WRITTEN_TOGETHER_BYTES:
                await self._write_rows(tails, together)
                together, together_bytes = [], 0
        await self._write_rows(tails, together)

    async def _write_rows(self, tails: Mapping[PartitionKey, _TailFiles], rows: Sequence[TailRow]) -> None:
        contents = await asyncio.gather(*(self._content(tails[row.key], row) for row in rows))
        slices = Slices(SLICE_S)
        for row, content in zip(rows, contents, strict=True):
            await slices.turn()
            if content is not None:
                tails[row.key].write(row, content)

    async def _content(self, tail: _TailFiles, row: TailRow) -> bytes | memoryview | None:
        """The bytes of a row; None if the tail has failed."""
        if tail.error is not None:
            return None
        if row.content is not None:
            return row.content
        assert row.object_id is not None
        try:
            if self._objects is None:
                raise StorageError(f"the tail is in the object {row.object_id}, and no object store is configured")
            return await self._objects.get(row.object_id, row.object_position, row.length_bytes, row.checksum)
        except StorageError as error:
            tail.fail(error)
            return None

    def _arrival(self, tail: _TailFiles, part: RestoredRemoteLog) -> Arrival:
        try:
            tail.finish()
        except StorageError as error:
            tail.fail(error)
        if tail.error is not None:
            return Arrival(Found.MISSING, error=tail.error)
        last_state = LastLeaderState(tail.start_offset, part.log_start_offset)
        return Arrival(Found.HERE, last_state, sealed=part.segments, durable_end=tail.end_offset)


class _TailFiles:
    """The log files of one tail while they are written.

    start_offset: first offset of the tail. end_offset: offset after it.
    error:        reason why the log cannot be restored.
    """

    def __init__(self, disk: Disk, directory: str, part: RestoredRemoteLog) -> None:
        self.start_offset = part.sealed_end
        self.error: StorageError | None = None
        self._disk = disk
        self._directory = directory
        self._log_start_offset = part.log_start_offset
        self.end_offset = part.sealed_end
        self._file: LogFile | None = None
        self._segment_base = -1

    def write(self, row: TailRow, content: bytes | memoryview) -> None:
        """Append a row's bytes to its segment's file; a row that does not follow the one before fails the tail."""
        if self.error is not None:
            return
        if self._segment_base < 0 and self.end_offset < row.segment_base <= self._log_start_offset:
            # Whole segments were deleted before they were sealed.
            self.start_offset = self.end_offset = row.segment_base
        try:
            if row.segment_base != self._segment_base:
                self.close()
                self._segment_base = row.segment_base
                self._file = self._disk.open(f"{self._directory}/{file_name(row.segment_base, '.log')}")
            assert self._file is not None
            if (row.base_offset, row.position, len(content)) != (
                self.end_offset,
                self._file.size_bytes,
                row.length_bytes,
            ):
                raise StorageError(
                    f"{self._directory}: the tail ends at offset {self.end_offset}, byte {self._file.size_bytes} of "
                    f"segment {row.segment_base}, and goes on at offset {row.base_offset}, byte {row.position}; "
                    "acknowledged records between them are missing. Restore the database and the objects together"
                )
            self._file.append(content)
            self.end_offset = row.end_offset
        except StorageError as error:
            self.fail(error)

    def finish(self) -> None:
        """Make the active segment if the tail has none: the log may be deleted or sealed up to its end. Raises
        StorageError."""
        if self._segment_base < 0:
            self._disk.open(f"{self._directory}/{file_name(self.start_offset, '.log')}").close()

    def fail(self, error: StorageError) -> None:
        self.error = self.error or error

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _unknown(name: TopicPartition) -> Arrival:
    return Arrival(Found.MISSING, error=StorageError(f"{name} is not placed any more: its topic has been deleted"))
