"""The data directory of a broker of several processes, made ready before the first of them starts.

Each node has a directory of its own below it. A directory that a single process has used so far is divided: its
logs go to the first node, which hands over the partitions that the others should lead.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from fencepost.broker.cluster.leases.lease_store import place_all, read_leases, store_event
from fencepost.broker.cluster.leases.lease_table import NodeEvent, NodeId
from fencepost.broker.cluster.processes.node_directories import checkpointed, node_directory, node_ids
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.log.directory.directory_files import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    RECOVERY_POINT_FILE,
    partition_directories,
    require_no_partitions,
)
from fencepost.broker.log.files.offset_checkpoint import LOG_START_FILE
from fencepost.broker.metadata.shared_sqlite import prepare_shared
from fencepost.broker.metadata.sqlite import FILE_NAME
from fencepost.broker.storage.disk import Disk

log = get_logger(__name__)

_DELETED = re.compile(r".+\.[0-9a-f]{32}-delete")
_FILES: Final = (RECOVERY_POINT_FILE, LOG_START_FILE, CLEANER_FILE, CLEAN_SHUTDOWN_FILE)
"""Files of a log directory beside the partitions; the mark of a clean stop last, as it speaks for the others."""


async def prepare_data_directory(
    path: str,
    nodes: Sequence[NodeId],
    *,
    disk: Disk,
    now_ms: int,
    on_restoring: Mapping[str, Callable[[bytes], bytes]],
    prepare: Callable[..., Awaitable[None]] = prepare_shared,
) -> None:
    """Make a data directory ready for these nodes; the caller has locked it, and no node runs. Raises StorageError.

    now_ms: wall time. on_restoring: see `SqliteMetadataStore`. prepare: makes the metadata store ready. Nodes that are
    not among these any more are lost: the others lead their partitions.
    """
    for node_id in nodes:
        disk.make_directory(node_directory(path, node_id))
    found = _partitions(disk, path)
    await prepare(
        f"{path}/{FILE_NAME}",
        before_founding=lambda: require_no_partitions(disk, path, f"{path}/{FILE_NAME}", found),
        on_restoring=on_restoring,
        work=lambda database: _place(database, disk, path, nodes, now_ms),
    )
    # From here on a broker of one process refuses the directory. The next start continues an interrupted division.
    await _divide(disk, path, node_directory(path, nodes[0]))


def _partitions(disk: Disk, path: str) -> list[str]:
    """The directories of partitions, in the data directory and in those of the nodes. Raises StorageError."""
    directories = [path, *(node_directory(path, node_id) for node_id in node_ids(disk, path))]
    return [f"{each}/{name}" for each in directories for name in partition_directories(disk.list(each))]


def _place(database: sqlite3.Connection, disk: Disk, path: str, nodes: Sequence[NodeId], now_ms: int) -> None:
    """Give every partition a row and every node its state, and delete the rows of completed deletions."""
    known = read_leases(database).table.partitions
    place_all(database)
    for name, lease in read_leases(database).table.partitions.items():
        if name not in known and disk.exists(f"{path}/{name}"):
            database.execute(
                "UPDATE partitions SET leader = ?, is_created = 1 WHERE topic_id = ? AND partition = ?",
                (nodes[0], lease.topic_id, name.partition),
            )
    leases = read_leases(database).table
    for node_id in leases.nodes:
        if node_id not in nodes:
            last_state = checkpointed(disk, node_directory(path, node_id), leases.partitions)
            store_event(database, node_id, NodeEvent.LOST, now_ms=now_ms, last_state=last_state)
    there = {str(os.path.basename(each)) for each in _partitions(disk, path)}
    for topic_id, name, count in database.execute("SELECT topic_id, name, partition_count FROM deletions").fetchall():
        if not any(f"{name}-{partition}" in there for partition in range(count)):
            database.execute("DELETE FROM deletions WHERE topic_id = ?", (topic_id,))


async def _divide(disk: Disk, path: str, first: str) -> None:
    """Move the partitions of a single process to the first node. Raises StorageError."""
    names = disk.list(path)
    moved = [*map(str, partition_directories(names)), *filter(_DELETED.fullmatch, names)]
    files = [name for name in _FILES if name in names]
    if not moved and not files:
        return
    for name in [*files, *moved]:
        disk.rename(f"{path}/{name}", f"{first}/{name}")
    await disk.sync((), (first, path))
    log.info("data_directory_divided", path=path, partitions=len(moved), moved_to=first)
