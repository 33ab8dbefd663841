"""Scratch: the local files of a node whose logs an engine keeps. They serve reads, and nothing in them is believed.

A start empties them; every log that the node leads is then restored into them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.log.log_directory import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    RECOVERY_POINT_FILE,
    RESERVE_FILE,
    partition_directories,
)
from fencepost.broker.log.offset_checkpoint import LOG_START_FILE
from fencepost.broker.metadata.sqlite import FILE_NAME as METADATA_FILE
from fencepost.broker.storage.disk import Disk, LogFile, StorageError
from fencepost.broker.storage.local_disk import LocalDisk

log = get_logger(__name__)

MARK_FILE: Final = ".scratch"
"""Says that a directory is scratch; its content names the cluster."""
_CHECKPOINTS: Final = (CLEAN_SHUTDOWN_FILE, CLEANER_FILE, RECOVERY_POINT_FILE, RESERVE_FILE, LOG_START_FILE)


class ScratchDisk(LocalDisk):
    """The machine's file system, without syncs: what matters is committed elsewhere."""

    def sync(self, files: Sequence[LogFile], directories: Sequence[str] = ()) -> Awaitable[None]:
        return asyncio.sleep(0)

    def write_back(self, path: str) -> Awaitable[None]:
        return asyncio.sleep(0)

    def write_file(self, path: str, content: bytes, *, durable: bool) -> None:
        super().write_file(path, content, durable=False)


def empty_scratch(disk: Disk, directory: str, cluster_id: str) -> None:
    """Remove all logs of a former run, and mark the directory as scratch of this cluster.

    Raises StorageError, also where the directory holds logs and is not marked: they are those of a broker that keeps
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
        if name in _CHECKPOINTS or name.endswith("-delete"):
            disk.delete(f"{directory}/{name}")
    if found:
        log.info("scratch_emptied", path=directory, partitions=len(found))
