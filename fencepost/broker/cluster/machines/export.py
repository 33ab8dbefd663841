"""Export of a cluster, or of some of its topics, as a data directory that a broker of one machine opens, and Kafka's
tools read.

The directory holds all as of one moment. Sealed segments are their objects, byte for byte; the tail is
made from the bytes of the flushes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from fencepost.broker.cluster.objects.flush_objects import FlushUploads
from fencepost.broker.cluster.objects.names import SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX
from fencepost.broker.cluster.objects.store import ObjectStore
from fencepost.broker.cluster.postgres.connections import Connection
from fencepost.broker.cluster.postgres.import_rows import KEY as IMPORT_KEY
from fencepost.broker.cluster.postgres.segment_rows import read_rows
from fencepost.broker.cluster.remote.segment_objects import SegmentObjects
from fencepost.broker.cluster.remote.segment_rows import RemoteLogRows
from fencepost.broker.cluster.tail.tail_store import PartitionKey
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.directory_files import CLEANER_FILE, EXPORT_DIRECTORY, RECOVERY_POINT_FILE
from fencepost.broker.log.files.checkpoints import (
    EpochStart,
    decode_epochs,
    encode_epochs,
    encode_offsets,
    encode_partition_metadata,
)
from fencepost.broker.log.files.file_names import file_name
from fencepost.broker.log.files.offset_checkpoint import LOG_START_FILE
from fencepost.broker.log.files.partition_files import LEADER_EPOCH_FILE, METADATA_FILE
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore, insert_topic
from fencepost.broker.storage.disk import storage_error
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.checked_json import parse_object

PARTITIONS_AT_ONCE: Final = 8
SEGMENTS_AT_ONCE: Final = 8
TAIL_COLUMNS: Final = (
    "segment_base, position, base_offset, end_offset, leader_epoch, length, object, object_position, checksum"
)
_TAIL: Final = f"""
SELECT {TAIL_COLUMNS}, content FROM tail WHERE topic_id = $1 AND partition = $2 ORDER BY base_offset
"""
_LEADER_EPOCHS: Final = "SELECT topic_id, partition, leader_epoch FROM partitions"


class ExportError(Exception):
    """A topic cannot be exported. The text names the reason and the remedy."""


class ExportedPartition(NamedTuple):
    """One exported partition. segments: sealed ones. tail_bytes: size of the rest."""

    topic: str
    partition: int
    log_start_offset: int
    end_offset: int
    segments: int
    sealed_bytes: int
    tail_bytes: int


class _TailRow(NamedTuple):
    """A row of the tail, without its bytes: they are in its segment's file, unless they are in an object."""

    segment_base: int
    position: int
    base_offset: int
    end_offset: int
    leader_epoch: int
    length_bytes: int
    object_id: UUID | None
    object_position: int | None
    checksum: bytes | None


class _Moment(NamedTuple):
    """The rows of one moment. documents: values by key; empty if single topics are exported."""

    topics: Sequence[TopicMetadata]
    keys: Mapping[TopicPartition, PartitionKey]
    rows: Mapping[PartitionKey, RemoteLogRows]
    leader_epochs: Mapping[PartitionKey, int]
    tails: Mapping[TopicPartition, Sequence[_TailRow]]
    documents: Mapping[str, bytes]


async def export_topics(
    connection: Connection, store: ObjectStore, cluster_id: str, topics: Sequence[str] | None, directory: str
) -> list[ExportedPartition]:
    """Write topics into a directory, which does not exist, is empty, or has the rest of an interrupted export.

    topics: None for all, internal ones too, with the documents: then a broker of one machine continues as the cluster.
    Raises ExportError; StorageError and StoreUnavailableError if objects or files cannot be read or written. The
    files written by then stay, and no broker opens them: the metadata come last.
    """
    _make_empty(directory)
    moment = await _read_moment(connection, topics, directory)
    exporter = _Exporter(store, cluster_id, directory)
    turns = asyncio.Semaphore(PARTITIONS_AT_ONCE)

    async def export(name: TopicPartition, key: PartitionKey) -> ExportedPartition:
        rows, tail = moment.rows[key], moment.tails[name]
        async with turns:
            one = await exporter.export(name, key, rows, tail)
        epochs = _epochs(rows, tail, moment.leader_epochs[key] + 1, one.end_offset)
        _write(f"{directory}/{name}/{LEADER_EPOCH_FILE}", encode_epochs(epochs))
        return one

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(export(name, key)) for name, key in moment.keys.items()]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    exported = [task.result() for task in tasks]
    all_rows = {name: moment.rows[key] for name, key in moment.keys.items()}
    for file, offsets in (
        (LOG_START_FILE, {name: rows.log_start_offset for name, rows in all_rows.items()}),
        (CLEANER_FILE, {name: rows.cleaned_to for name, rows in all_rows.items()}),
        # The sealed segments are whole, by their checksums: a start reads the tails alone.
        (RECOVERY_POINT_FILE, {name: _tail_start(rows, moment.tails[name]) for name, rows in all_rows.items()}),
    ):
        _write(f"{directory}/{file}", encode_offsets({name: offset for name, offset in offsets.items() if offset}))
    founded_as = None if topics is not None else cluster_id
    await _write_metadata(f"{directory}/{EXPORT_DIRECTORY}", moment, founded_as)
    await asyncio.to_thread(_put_in_place, directory)
    return exported


async def _read_moment(connection: Connection, topics: Sequence[str] | None, directory: str) -> _Moment:
    """Read all rows; the bytes of tails go into files at once, as they may be many."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        found = await _topics(connection, topics)
        keys = {
            TopicPartition(topic.name, partition): PartitionKey(topic.topic_id, partition)
            for topic in found
            for partition in range(topic.partition_count)
        }
        rows = await read_rows(connection, list(keys.values()))
        leader_epochs = {
            PartitionKey(topic_id.bytes, partition): epoch
            for topic_id, partition, epoch in await connection.fetch(_LEADER_EPOCHS)
        }
        tails = {}
        for name, key in keys.items():
            if key not in rows:
                raise ExportError(f"{name} has no row: its topic is just being deleted")
            tails[name] = await _read_tail(connection, name, key, directory)
        documents = (
            {}
            if topics is not None
            else dict(await connection.fetch("SELECT key, value FROM documents WHERE key <> $1", IMPORT_KEY))
        )
    return _Moment(found, keys, rows, leader_epochs, tails, documents)


async def _read_tail(connection: Connection, name: TopicPartition, key: PartitionKey, directory: str) -> list[_TailRow]:
    """Read a tail, and write the bytes of its rows to their positions in its files."""
    log_directory = f"{directory}/{name}"
    os.mkdir(log_directory)
    _write(f"{log_directory}/{METADATA_FILE}", encode_partition_metadata(key.topic_id))
    tail: list[_TailRow] = []
    sizes: dict[int, int] = {}
    async for *columns, content in connection.cursor(_TAIL, UUID(bytes=key.topic_id), key.partition):
        row = _TailRow(*columns)
        size_bytes = sizes.get(row.segment_base, 0)
        if row.position != size_bytes:
            raise ExportError(
                f"{name}: the tail goes on at byte {row.position} of segment {row.segment_base}, which has "
                f"{size_bytes}: records are missing. `fencepost cluster check` shows all gaps"
            )
        sizes[row.segment_base] = size_bytes + row.length_bytes
        if content is not None:
            _write(f"{log_directory}/{file_name(row.segment_base, '.log')}", content, row.position)
        tail.append(row)
    return tail


def _tail_start(rows: RemoteLogRows, tail: Sequence[_TailRow]) -> int:
    """The first offset of the tail. Whole segments may have been deleted before they were sealed."""
    return max(rows.sealed_end, tail[0].segment_base) if tail else rows.sealed_end


def _epochs(rows: RemoteLogRows, tail: Sequence[_TailRow], next_epoch: int, end_offset: int) -> list[EpochStart]:
    """The leader epochs of a log. The broker that opens it leads in the next one: clients may know the last."""
    epochs = decode_epochs(rows.epochs) if rows.epochs else []
    for row in tail:
        if not epochs or row.leader_epoch > epochs[-1].leader_epoch:
            epochs.append(EpochStart(row.leader_epoch, row.base_offset))
    return [*epochs, EpochStart(max(next_epoch, epochs[-1].leader_epoch + 1 if epochs else 0), end_offset)]


class _Exporter:
    def __init__(self, store: ObjectStore, cluster_id: str, directory: str) -> None:
        self._segments = SegmentObjects(store, cluster_id, LocalDisk())
        self._flushes = FlushUploads(store, cluster_id)
        self._directory = directory
        self._turns = asyncio.Semaphore(SEGMENTS_AT_ONCE)

    async def export(
        self, name: TopicPartition, key: PartitionKey, rows: RemoteLogRows, tail: Sequence[_TailRow]
    ) -> ExportedPartition:
        directory = f"{self._directory}/{name}"
        needed = [one for one in rows.segments if one.end_offset > rows.log_start_offset]
        suffixes: Sequence[str] = SEGMENT_SUFFIXES
        if not needed and rows.segments:
            needed = [rows.segments[-1]]  # it has the producers' state
            if _tail_start(rows, tail) > rows.sealed_end:
                suffixes = (SNAPSHOT_SUFFIX,)

        async def bring(slot: int) -> None:
            async with self._turns:
                (await self._segments.download(key, needed[slot], directory, suffixes)).put_in_place()

        await asyncio.gather(*(bring(slot) for slot in range(len(needed))))
        if not tail:
            # The producers' state is that of the sealed end, so a start reads the records behind it again.
            _write(f"{directory}/{file_name(rows.sealed_end, '.log')}", b"")
        for row in tail:
            if row.object_id is not None:
                assert row.object_position is not None
                content = await self._flushes.get(row.object_id, row.object_position, row.length_bytes, row.checksum)
                _write(f"{directory}/{file_name(row.segment_base, '.log')}", content, row.position)
        end_offset = tail[-1].end_offset if tail else rows.sealed_end
        return ExportedPartition(
            name.topic,
            name.partition,
            rows.log_start_offset,
            end_offset,
            len(needed),
            sum(one.size_bytes for one in needed),
            sum(row.length_bytes for row in tail),
        )


async def _write_metadata(directory: str, moment: _Moment, cluster_id: str | None) -> None:
    """Write the metadata into a directory of their own. cluster_id: None for a new one."""

    def fill(database: sqlite3.Connection) -> None:
        for topic in moment.topics:
            insert_topic(database, topic)
        database.executemany("INSERT INTO versioned_values VALUES (?, ?, 1)", moment.documents.items())
        if cluster_id is not None:
            database.execute("UPDATE cluster SET cluster_id = ?", (cluster_id,))

    metadata = SqliteMetadataStore(f"{directory}/{FILE_NAME}")
    await metadata.open()
    try:
        await metadata.transaction(fill)
    finally:
        await metadata.close()


def _put_in_place(directory: str) -> None:
    """Sync all files, and put the metadata where a broker finds them, in one step."""
    exporting = f"{directory}/{EXPORT_DIRECTORY}"
    try:
        for path, _, names in os.walk(directory, topdown=False):
            for one in (*(f"{path}/{name}" for name in names), path):
                _sync(one)
        os.rename(f"{exporting}/{FILE_NAME}", f"{directory}/{FILE_NAME}")
        _sync(directory)
        shutil.rmtree(exporting)
    except OSError as error:
        raise storage_error("put in place", directory, error) from error


async def _topics(connection: Connection, names: Sequence[str] | None) -> list[TopicMetadata]:
    rows = await connection.fetch(
        "SELECT name, topic_id, partition_count, configs FROM topics WHERE $1::text[] IS NULL OR name = ANY($1) "
        "ORDER BY name",
        None if names is None else list(names),
    )
    found = {
        name: TopicMetadata(name, topic_id.bytes, partition_count, _configs(configs))
        for name, topic_id, partition_count, configs in rows
    }
    missing = [name for name in names or () if name not in found]
    if missing:
        raise ExportError(f"the cluster has no topic {', '.join(missing)}; `fencepost topics list` shows all")
    return list(found.values())


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _configs(stored: str | Mapping[str, str]) -> Mapping[str, str]:
    return parse_object(stored).texts_by_name() if isinstance(stored, str) else stored


def _make_empty(directory: str) -> None:
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        found = os.listdir(directory)
        if EXPORT_DIRECTORY in found and FILE_NAME not in found:
            # An export was interrupted, which had found the directory empty. Its mark goes last.
            for name in sorted(found, key=lambda one: one == EXPORT_DIRECTORY):
                path = f"{directory}/{name}"
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        elif found:
            raise ExportError(f"{directory} is not empty; name a directory that is, or that does not exist")
        os.mkdir(f"{directory}/{EXPORT_DIRECTORY}")
    except OSError as error:
        raise ExportError(f"{directory} cannot be made: {error.strerror}") from error


def _write(path: str, content: bytes, position: int = 0) -> None:
    try:
        with open(path, "r+b" if os.path.exists(path) else "wb") as file:
            file.seek(position)
            file.write(content)
    except OSError as error:
        raise storage_error("write", path, error) from error
