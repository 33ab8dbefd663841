"""Import of a data directory of one broker, or of several processes, into a new cluster of several machines.

The directory is opened as a broker opens it, so a log is recovered after an unclean stop, and a damaged one is refused.
It stays as it is but for a new, empty segment at the end of each log.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from fencepost.broker.cluster.machines.log_import import LogImport
from fencepost.broker.cluster.objects.store import ObjectStore
from fencepost.broker.cluster.postgres.connections import Connection, PostgresAddress
from fencepost.broker.cluster.postgres.import_rows import ImportedPartition, ImportRows
from fencepost.broker.cluster.remote.segment_objects import SegmentObjects
from fencepost.broker.config import Settings
from fencepost.broker.inspection.stopped_directory import StoppedDirectory, open_stopped
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.storage.disk import Disk

LOGS_AT_ONCE: Final = 8


class ImportedCluster(NamedTuple):
    """An import, by its counts.

    segments:       number in all logs.
    uploaded:       number of segments that this run has stored; an interrupted one may have stored others.
    uploaded_bytes: size of their log files.
    is_repeated:    whether an earlier run had completed it, so that this one has done nothing.
    """

    cluster_id: str
    topics: int
    partitions: int
    segments: int
    uploaded: int
    uploaded_bytes: int
    is_repeated: bool = False


async def import_directory(
    data_directory: str,
    disk: Disk,
    settings: Settings,
    clock: Clock,
    *,
    connection: Connection,
    address: PostgresAddress,
    store: ObjectStore,
) -> ImportedCluster:
    """Import a data directory into tables that do not exist yet, or into those of an interrupted import of it.

    Raises StorageError, also while a broker runs on the directory; ObjectStoreError. Then a repeated call continues.
    """
    async with open_stopped(data_directory, disk, settings, clock, purpose="import again") as opened:
        rows = ImportRows(connection, address, await opened.store.cluster_id())
        done = await rows.find_complete()
        if done is not None:
            return ImportedCluster(*done, uploaded=0, uploaded_bytes=0, is_repeated=True)
        stored = await rows.begin()
        importing = LogImport(SegmentObjects(store, rows.cluster_id, disk), rows, disk, stored, now_ms=clock.now_ms())
        partitions = await _import_logs(opened, importing)
        await importing.discard_others()
        documents = await opened.store.transaction(
            lambda database: {
                str(key): bytes(value) for key, value in database.execute("SELECT key, value FROM versioned_values")
            }
        )
        await opened.close_logs()
        await rows.complete(opened.topics.values(), partitions, documents)
    return ImportedCluster(
        rows.cluster_id,
        len(opened.topics),
        len(partitions),
        sum(len(one.segments) for one in partitions),
        importing.uploaded_count,
        importing.uploaded_bytes,
    )


async def _import_logs(opened: StoppedDirectory, importing: LogImport) -> list[ImportedPartition]:
    turns = asyncio.Semaphore(LOGS_AT_ONCE)

    async def add(log: PartitionLog) -> ImportedPartition:
        async with turns:
            name = log.topic_partition
            return await importing.add(log, opened.topics[name.topic].topic_id, cleaned_to=opened.cleaned_offset(name))

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(add(log)) for log in opened.logs()]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
