"""Export of topics of a cluster as a data directory that a broker of one machine opens, and Kafka's tools read.

The directory holds the topics as of one moment. Sealed segments are their objects, byte for byte; the tail is
made from the bytes of the flushes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from fencepost.broker.cluster.objects.flush_objects import FlushUploads
from fencepost.broker.cluster.objects.names import SEGMENT_SUFFIXES
from fencepost.broker.cluster.objects.store import ObjectStore
from fencepost.broker.cluster.postgres.connections import Connection
from fencepost.broker.cluster.postgres.segment_rows import read_rows
from fencepost.broker.cluster.remote.segment_objects import SegmentObjects
from fencepost.broker.cluster.remote.segment_rows import RemoteLogRows
from fencepost.broker.cluster.tail.tail_store import PartitionKey
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.files.checkpoints import encode_offsets, encode_partition_metadata
from fencepost.broker.log.files.file_names import file_name
from fencepost.broker.log.files.offset_checkpoint import LOG_START_FILE
from fencepost.broker.log.files.partition_files import LEADER_EPOCH_FILE, METADATA_FILE
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.checked_json import parse_object

SEGMENTS_AT_ONCE: Final = 4
_TAIL: Final = """
SELECT segment_base, position, base_offset, end_offset, length, content, object, object_position, checksum
FROM tail
WHERE topic_id = $1 AND partition = $2 ORDER BY base_offset
"""


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
    segment_base: int
    position: int
    base_offset: int
    end_offset: int
    length_bytes: int
    content: bytes | None
    object_id: UUID | None
    object_position: int | None
    checksum: bytes | None


async def export_topics(
    connection: Connection, store: ObjectStore, cluster_id: str, topics: Sequence[str], directory: str
) -> list[ExportedPartition]:
    """Write topics into a directory, which does not exist or is empty.

    Raises ExportError; StorageError and StoreUnavailableError if objects or files cannot be read or written. The
    files written by then stay, and are no data directory: the metadata come last.
    """
    _make_empty(directory)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        found = await _topics(connection, topics)
        keys = {
            TopicPartition(topic.name, partition): PartitionKey(topic.topic_id, partition)
            for topic in found
            for partition in range(topic.partition_count)
        }
        rows = await read_rows(connection, list(keys.values()))
        tails = {
            name: [_TailRow(*row) for row in await connection.fetch(_TAIL, UUID(bytes=key.topic_id), key.partition)]
            for name, key in keys.items()
        }
    exporter = _Exporter(store, cluster_id, directory)
    exported = []
    for name, key in keys.items():
        if key not in rows:
            raise ExportError(f"{name} has no row: its topic is just being deleted")
        exported.append(await exporter.export(name, key, rows[key], tails[name]))
    log_starts = {TopicPartition(one.topic, one.partition): one.log_start_offset for one in exported}
    _write(f"{directory}/{LOG_START_FILE}", encode_offsets({name: at for name, at in log_starts.items() if at}))
    metadata = SqliteMetadataStore(f"{directory}/{FILE_NAME}")
    await metadata.open()
    try:
        for topic in found:
            await metadata.create_topic(topic)
    finally:
        await metadata.close()
    return exported


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
        os.mkdir(directory)
        _write(f"{directory}/{METADATA_FILE}", encode_partition_metadata(key.topic_id))
        if rows.epochs:
            _write(f"{directory}/{LEADER_EPOCH_FILE}", rows.epochs)
        needed = [one for one in rows.segments if one.end_offset > rows.log_start_offset or one is rows.segments[-1]]

        async def bring(slot: int) -> None:
            async with self._turns:
                (await self._segments.download(key, needed[slot], directory, SEGMENT_SUFFIXES)).put_in_place()

        await asyncio.gather(*(bring(slot) for slot in range(len(needed))))
        tail_bytes = await self._write_tail(name, directory, tail)
        end_offset = tail[-1].end_offset if tail else rows.sealed_end
        return ExportedPartition(
            name.topic,
            name.partition,
            rows.log_start_offset,
            end_offset,
            len(needed),
            sum(one.size_bytes for one in needed),
            tail_bytes,
        )

    async def _write_tail(self, name: TopicPartition, directory: str, tail: Sequence[_TailRow]) -> int:
        """Put the tail's segments together; return their size."""
        sizes: dict[int, int] = {}
        for row in tail:
            content = row.content
            if content is None:
                assert row.object_id is not None
                assert row.object_position is not None
                content = await self._flushes.get(row.object_id, row.object_position, row.length_bytes, row.checksum)
            size_bytes = sizes.get(row.segment_base, 0)
            if row.position != size_bytes:
                raise ExportError(
                    f"{name}: the tail goes on at byte {row.position} of segment {row.segment_base}, which has "
                    f"{size_bytes}: records are missing. `fencepost cluster check` shows all gaps"
                )
            _append(f"{directory}/{file_name(row.segment_base, '.log')}", content)
            sizes[row.segment_base] = size_bytes + len(content)
        return sum(sizes.values())


async def _topics(connection: Connection, names: Sequence[str]) -> list[TopicMetadata]:
    rows = await connection.fetch(
        "SELECT name, topic_id, partition_count, configs FROM topics WHERE name = ANY($1) ORDER BY name", list(names)
    )
    found = {
        name: TopicMetadata(name, topic_id.bytes, partition_count, _configs(configs))
        for name, topic_id, partition_count, configs in rows
    }
    missing = [name for name in names if name not in found]
    if missing:
        raise ExportError(f"the cluster has no topic {', '.join(missing)}; `fencepost topics list` shows all")
    return list(found.values())


def _configs(stored: str | Mapping[str, str]) -> Mapping[str, str]:
    return parse_object(stored).texts_by_name() if isinstance(stored, str) else stored


def _make_empty(directory: str) -> None:
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if os.listdir(directory):
            raise ExportError(f"{directory} is not empty; name a directory that is, or that does not exist")
    except OSError as error:
        raise ExportError(f"{directory} cannot be made: {error.strerror}") from error


def _write(path: str, content: bytes) -> None:
    try:
        with open(path, "wb") as file:
            file.write(content)
    except OSError as error:
        raise StorageError(error.errno, f"cannot write {path}: {error.strerror}", path) from error


def _append(path: str, content: bytes) -> None:
    try:
        with open(path, "ab") as file:
            file.write(content)
    except OSError as error:
        raise StorageError(error.errno, f"cannot write {path}: {error.strerror}", path) from error
