"""Scratch: the local files of a node whose logs an engine keeps. They serve reads, and nothing in them is believed.

A start empties them; every log that the node leads is then restored into them. Files of logs that others lead by now
are removed soon: they would never be read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SLICE_S, Slices
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.directory_files import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    RECOVERY_POINT_FILE,
    RESERVE_FILE,
    partition_directories,
)
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.files.offset_checkpoint import LOG_START_FILE
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.metadata.sqlite import FILE_NAME as METADATA_FILE
from fencepost.broker.storage.disk import Disk, LogFile, StorageError
from fencepost.broker.storage.local_disk import LocalDisk

log = get_logger(__name__)

LEFTOVERS: Final = Place("removal of what was led", Policy.RETRY)

LEFT_INTERVAL_S: Final = 60.0
"""A partition that moved to another node may return within moments, and is being restored then."""

MARK_FILE: Final = ".scratch"
"""Marks a directory as scratch; its content names the cluster."""
READ_REPLICAS_DIRECTORY: Final = "read-replicas"
"""Has the files of partitions that other nodes lead."""
_CHECKPOINTS: Final = (CLEAN_SHUTDOWN_FILE, CLEANER_FILE, RECOVERY_POINT_FILE, RESERVE_FILE, LOG_START_FILE)


class ScratchDisk(LocalDisk):
    """The machine's file system, without syncs: the database and the object store have the durable copies."""

    def sync(self, files: Sequence[LogFile], directories: Sequence[str] = ()) -> Awaitable[None]:
        return asyncio.sleep(0)

    def write_back(self, path: str) -> Awaitable[None]:
        return asyncio.sleep(0)

    def write_file(self, path: str, content: bytes, *, durable: bool) -> None:
        super().write_file(path, content, durable=False)


def empty_scratch(disk: Disk, directory: str, cluster_id: str) -> None:
    """Remove all logs of a former run, and mark the directory as scratch of this cluster.

    Raises StorageError, also if the directory holds logs and is not marked: they are those of a broker that keeps
    its logs there, and would be lost.
    """
    disk.make_directory(directory)
    names = disk.list(directory)
    found = partition_directories(names)
    mark = f"{directory}/{MARK_FILE}"
    if not disk.exists(mark) and (found or METADATA_FILE in names):
        raise StorageError(
            f"{directory} holds the data of a broker that is not part of a cluster; a node of a cluster would remove "
            "it. Name an empty directory"
        )
    disk.write_file(mark, f"{cluster_id}\n".encode(), durable=False)
    for partition in found:
        disk.delete(f"{directory}/{partition}")
    for name in names:
        if name in (*_CHECKPOINTS, READ_REPLICAS_DIRECTORY) or name.endswith("-delete"):
            disk.delete(f"{directory}/{name}")
    if found:
        log.info("scratch_emptied", path=directory, partitions=len(found))


class Leftovers:
    """Removes the files of logs that this node has led and leads no more.

    leads: whether this node leads a partition, by the placement. removed_count: partitions whose files were removed.
    """

    def __init__(self, directory: str, disk: Disk, logs: LogDirectory, leads: Callable[[TopicPartition], bool]) -> None:
        self.removed_count = 0
        self._directory = directory
        self._disk = disk
        self._logs = logs
        self._leads = leads
        self._left: set[TopicPartition] = set()  # as of the last pass
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to remove, in the background."""
        self._task = LEFTOVERS.start_retrying(self._run)

    async def close(self) -> None:
        """Stop."""
        await end_tasks(self._task)
        self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LEFT_INTERVAL_S)
            try:
                await self.remove()
            except StorageError as error:
                log.warning("scratch_not_removed", reason=str(error))

    async def remove(self) -> int:
        """Remove the leftovers that the last pass found, too; return the number of partitions. Raises StorageError.

        The sweep of the log directory deletes the files, as those of deleted topics.
        """
        found = [name for name in partition_directories(self._disk.list(self._directory)) if self._is_left(name)]
        before, self._left = self._left, set(found)
        removed_count = 0
        slices = Slices(SLICE_S)
        for name in before.intersection(found):
            await slices.turn()
            if self._is_left(name):
                topic_id = PartitionFiles(self._disk, f"{self._directory}/{name}").read_topic_id()
                removed_count += self._logs.delete_renamed_directories(name, topic_id)
        if removed_count:
            self.removed_count += removed_count
            log.info("scratch_left_over_removed", partitions=removed_count)
        return removed_count

    def _is_left(self, name: TopicPartition) -> bool:
        return self._logs.get(name) is None and not self._leads(name)
