"""Rows of an import: the tables of a new cluster are filled from a data directory, while no broker may use them.

From the first statement to the last, the tables have a format that no broker takes. Rows of segments are added as their
objects are stored, so an interrupted import knows which of them it need not store again; all other rows are written in
the last transaction, with the real format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

from fencepost.broker.cluster.objects.names import SegmentName
from fencepost.broker.cluster.postgres.connections import Connection, PostgresAddress, translated
from fencepost.broker.cluster.postgres.schema import (
    FORMAT,
    IMPORT,
    IMPORTING,
    PREPARING,
    create_tables,
    lock,
    unfinished_import,
    write_format,
)
from fencepost.broker.cluster.postgres.segment_rows import SEGMENT_COLUMNS
from fencepost.broker.cluster.postgres.standbys import require_durability
from fencepost.broker.cluster.tail.tail_store import PartitionKey
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.checked_json import JsonError, parse_object

KEY: Final = "import"
"""Of the document that tells which directory is being imported, and into which format."""

_SEGMENT_VALUES: Final = ", ".join(f"${number}" for number in range(1, 3 + len(SEGMENT_COLUMNS.split(","))))
_INSERT_SEGMENT: Final = f"INSERT INTO segments (topic_id, partition, {SEGMENT_COLUMNS}) VALUES ({_SEGMENT_VALUES})"
_INSERT_PARTITION: Final = """
INSERT INTO partitions (topic_id, partition, leader_epoch, log_start_offset, sealed_end, epochs, cleaned_to)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""


class ImportedPartition(NamedTuple):
    """The rows of one partition.

    leader_epoch: epoch of its last leader. epochs: content of its `leader-epoch-checkpoint`.
    segments:     rows that cover the log from its start to its end, in rising order.
    """

    key: PartitionKey
    leader_epoch: int
    log_start_offset: int
    epochs: bytes
    cleaned_to: int
    segments: Sequence[RemoteSegmentMetadata]

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset if self.segments else 0


class CompleteImport(NamedTuple):
    """A completed import: the cluster, as it is now, by its counts."""

    cluster_id: str
    topics: int
    partitions: int
    segments: int


class ImportRows:
    """The rows of one import. Its calls follow each other. All raise StorageError.

    source: identifies the data directory.
    """

    def __init__(self, connection: Connection, address: PostgresAddress, source: str) -> None:
        self._connection = connection
        self._address = address
        self._source = source
        self.cluster_id = ""

    async def find_complete(self) -> CompleteImport | None:
        """The import of this directory that has been completed before, perhaps without an answer; None without one."""
        with translated(self._address):
            if await self._connection.fetchval("SELECT to_regclass('cluster')") is None:
                return None
            if await self._connection.fetchval("SELECT format FROM cluster") == IMPORTING:
                return None
            source, _ = await self._read_document()
            if source != self._source:
                return None
            row = await self._connection.fetchrow(
                "SELECT cluster_id, (SELECT count(*) FROM topics), (SELECT count(*) FROM partitions), "
                "(SELECT count(*) FROM segments) FROM cluster"
            )
            return CompleteImport(*row)

    async def begin(self) -> dict[PartitionKey, list[RemoteSegmentMetadata]]:
        """Found the cluster, or continue an import that was interrupted; returns the segments that it has stored."""
        with translated(self._address):
            await require_durability(self._connection, self._address, asynchronous_accepted=True)  # as brokers decide
            if not await self._connection.fetchval(
                "SELECT pg_try_advisory_lock(hashtext(current_setting('search_path')), $1)", IMPORT
            ):
                raise StorageError(
                    f"another import into PostgreSQL at {self._address.shown} is running: let it end, or, if it was "
                    "killed, wait until PostgreSQL has noticed that"
                )
            async with self._connection.transaction():
                await lock(self._connection, PREPARING)
                if await self._connection.fetchval("SELECT to_regclass('cluster')") is None:
                    await self._found()
                else:
                    await self._require_own()
            self.cluster_id = await self._connection.fetchval("SELECT cluster_id FROM cluster")
            stored: dict[PartitionKey, list[RemoteSegmentMetadata]] = {}
            for topic_id, partition, *columns in await self._connection.fetch(
                f"SELECT topic_id, partition, {SEGMENT_COLUMNS} FROM segments ORDER BY base_offset"
            ):
                key = PartitionKey(topic_id.bytes, partition)
                stored.setdefault(key, []).append(RemoteSegmentMetadata(*columns))
            return stored

    async def _found(self) -> None:
        await create_tables(self._connection, self._address)
        await self._connection.execute("UPDATE cluster SET format = $1, oldest_reader = NULL", IMPORTING)
        await self._write_document(KEY, json.dumps({"source": self._source, "format": FORMAT}).encode())

    async def _require_own(self) -> None:
        if await self._connection.fetchval("SELECT format FROM cluster") != IMPORTING:
            raise StorageError(
                f"PostgreSQL at {self._address.shown} has the tables of a cluster already, and an import begins a new "
                "one: name another schema in the URL (?search_path=NAME), or, if that cluster is not needed, stop its "
                f"brokers and drop it: DROP SCHEMA {self._address.schema} CASCADE"
            )
        source, version = await self._read_document()
        again = f"or begin anew: DROP SCHEMA {self._address.schema} CASCADE"
        if source != self._source:
            raise StorageError(f"{unfinished_import(self._address)} (of cluster {source or 'unknown'}), {again}")
        if version != FORMAT:
            raise StorageError(
                f"{unfinished_import(self._address)} and the version of `fencepost` that began it (format {version}, "
                f"and this one is {FORMAT}), {again}"
            )

    async def _read_document(self) -> tuple[str, int]:
        """The directory that is imported, and the format; an empty text where they cannot be read."""
        value = await self._connection.fetchval("SELECT value FROM documents WHERE key = $1", KEY)
        try:
            begun = parse_object(bytes(value or b"").decode())
            return begun.text("source"), begun.whole("format")
        except (JsonError, UnicodeDecodeError):
            return "", 0

    async def add(self, key: PartitionKey, segment: RemoteSegmentMetadata) -> None:
        """Add a segment whose objects are stored."""
        with translated(self._address):
            await self._connection.execute(_INSERT_SEGMENT, UUID(bytes=key.topic_id), key.partition, *segment)

    async def discard(self, key: PartitionKey, segments: Iterable[RemoteSegmentMetadata]) -> None:
        """Remove segments that the directory does not have any more; their objects become garbage."""
        with translated(self._address):
            for one in segments:
                name = SegmentName(self.cluster_id, key.topic_id, key.partition, one.base_offset, one.object_id)
                async with self._connection.transaction():
                    await self._connection.execute("DELETE FROM segments WHERE object = $1", one.object_id)
                    await self._connection.execute(
                        "INSERT INTO garbage (name) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING",
                        name.files(one.end_offset, has_aborted=one.has_aborted),
                    )

    async def complete(
        self,
        topics: Iterable[TopicMetadata],
        partitions: Iterable[ImportedPartition],
        documents: Mapping[str, bytes],
    ) -> None:
        """Write all other rows, and let brokers use the tables."""
        with translated(self._address):
            async with self._connection.transaction():
                await lock(self._connection, PREPARING)
                await self._connection.executemany(
                    "INSERT INTO topics (name, topic_id, partition_count, configs) VALUES ($1, $2, $3, $4)",
                    [
                        (one.name, UUID(bytes=one.topic_id), one.partition_count, json.dumps(dict(one.configs)))
                        for one in topics
                    ],
                )
                await self._connection.executemany(_INSERT_PARTITION, [_columns(one) for one in partitions])
                # The one that names the directory stays: a repetition finds that all is done.
                await self._connection.execute("DELETE FROM documents WHERE key <> $1", KEY)
                for key, value in documents.items():
                    if key != KEY:
                        await self._write_document(key, value)
                await write_format(self._connection)

    async def _write_document(self, key: str, value: bytes) -> None:
        await self._connection.execute("INSERT INTO documents VALUES ($1, $2, 1, $3)", key, value, uuid4())


def _columns(one: ImportedPartition) -> tuple[Any, ...]:
    return (
        UUID(bytes=one.key.topic_id),
        one.key.partition,
        one.leader_epoch,
        one.log_start_offset,
        one.end_offset,
        one.epochs,
        one.cleaned_to,
    )
