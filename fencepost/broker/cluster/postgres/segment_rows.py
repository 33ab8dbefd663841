"""Rows of sealed segments and of garbage in PostgreSQL.

A transaction locks the node's fence FOR SHARE, then the partitions' rows, as every other of this schema does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from fencepost.broker.cluster.objects.names import SegmentName, flush_name, object_of
from fencepost.broker.cluster.postgres.connections import Connection, PostgresAddress, UnavailableError
from fencepost.broker.cluster.postgres.schema import SWEEPING
from fencepost.broker.cluster.postgres.session import Session
from fencepost.broker.cluster.remote.fenced_objects import Fence, is_given_up
from fencepost.broker.cluster.remote.segment_rows import Leadership, LogStart, RemoteLogRows
from fencepost.broker.cluster.tail.tail_store import PartitionKey, StoreUnavailableError
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

SEGMENT_COLUMNS: Final = (
    "base_offset, end_offset, size_bytes, max_timestamp_ms, has_aborted, leader_epoch, object, checksums, stable_end, "
    "block_checksums"
)
REPEAT_FOR_S: Final = 2.0
"""Time during which a transaction is repeated while PostgreSQL does not answer; callers retry later."""
SWEPT_ROWS: Final = 1000
"""The most rows that one statement of the sweep takes."""

_PARTITIONS: Final = """
SELECT topic_id, partition, sealed_end, log_start_offset, epochs, cleaned_to
FROM partitions JOIN unnest($1::uuid[], $2::int[]) AS wanted (topic_id, partition) USING (topic_id, partition)
"""
_SEGMENTS: Final = f"""
SELECT topic_id, partition, {SEGMENT_COLUMNS}
FROM segments JOIN unnest($1::uuid[], $2::int[]) AS wanted (topic_id, partition) USING (topic_id, partition)
ORDER BY topic_id, partition, base_offset
"""
_FENCES: Final = """
SELECT node_id, fence, named_from, coalesce(state <> 'gone', true) FROM fences LEFT JOIN nodes USING (node_id)
"""
_FORGET: Final = "DELETE FROM garbage WHERE name = ANY($1)"
_LOCK_FENCE: Final = "SELECT true FROM fences WHERE node_id = $1 AND fence = $2 FOR SHARE"
_LOCK_PARTITION: Final = """
SELECT sealed_end FROM partitions
WHERE topic_id = $1 AND partition = $2 AND leader = $3 AND leader_epoch = $4 FOR UPDATE
"""
_OF_SPAN: Final = "WHERE topic_id = $1 AND partition = $2 AND base_offset >= $3 AND base_offset < $4"
_UNREFERENCED_FLUSHES: Final = f"""
WITH unnamed AS (
    SELECT object FROM tail_objects
    WHERE NOT EXISTS (SELECT FROM tail WHERE tail.object = tail_objects.object) LIMIT {SWEPT_ROWS}
)
DELETE FROM tail_objects USING unnamed WHERE tail_objects.object = unnamed.object RETURNING unnamed.object
"""


class PostgresRemoteLogMetadata:
    """The rows of sealed segments, for `RemoteLogMetadata`.

    cluster_id:       is part of the names of objects.
    application_name: names the sessions of the node's present incarnation.
    """

    def __init__(self, address: PostgresAddress, cluster_id: str, application_name: Callable[[], str]) -> None:
        self._cluster_id = cluster_id
        self._session = Session(address, application_name)
        self.attempts = self._session.attempts

    async def open(self) -> None:
        """Connect. Raises StorageError."""
        await self._session.open()

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()

    async def read(self, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, RemoteLogRows]:
        async def work(connection: Connection) -> dict[PartitionKey, RemoteLogRows]:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await read_rows(connection, keys)

        with answering():
            return await self._session.run(work, repeat_for_s=REPEAT_FOR_S)

    async def replace(
        self,
        key: PartitionKey,
        leadership: Leadership,
        sealed: RemoteSegmentMetadata,
        *,
        names: Sequence[str],
        epochs: bytes,
    ) -> RemoteSegmentMetadata | None:
        async def work(connection: Connection) -> RemoteSegmentMetadata | None:
            topic_id, partition = UUID(bytes=key.topic_id), key.partition
            if not await _holds_fence(connection, leadership):
                return None
            sealed_end = await connection.fetchval(
                _LOCK_PARTITION, topic_id, partition, leadership.node_id, leadership.leader_epoch
            )
            if sealed_end is None:
                return None
            committed = await connection.fetchrow(
                f"SELECT {SEGMENT_COLUMNS} FROM segments WHERE object = $1", sealed.object_id
            )
            if committed is not None:
                return RemoteSegmentMetadata(
                    *committed
                )  # this transaction was committed before, and its answer was lost
            if await connection.fetchval("SELECT true FROM garbage WHERE name = ANY($1) LIMIT 1", list(names)):
                raise StorageError("its objects were taken for garbage")
            span = (topic_id, partition, sealed.base_offset, sealed.end_offset)
            compacted = await connection.fetch(f"DELETE FROM segments {_OF_SPAN} RETURNING {SEGMENT_COLUMNS}", *span)
            flushed = await connection.fetch(
                f"DELETE FROM tail {_OF_SPAN} RETURNING base_offset, end_offset, leader_epoch", *span
            )
            removed = sorted((row["base_offset"], row["end_offset"]) for row in (*compacted, *flushed))
            _require_cover(removed, sealed)
            stored = sealed._replace(leader_epoch=max(row["leader_epoch"] for row in (*compacted, *flushed)))
            await connection.execute(
                f"INSERT INTO segments (topic_id, partition, {SEGMENT_COLUMNS}) "
                "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
                topic_id,
                partition,
                *stored,
            )
            await connection.execute(
                "UPDATE partitions SET sealed_end = greatest(sealed_end, $3), epochs = $4 "
                "WHERE topic_id = $1 AND partition = $2",
                topic_id,
                partition,
                sealed.end_offset,
                epochs,
            )
            await _discard(connection, self._names(key, [RemoteSegmentMetadata(*row) for row in compacted]))
            return stored

        with answering():
            return await self._session.transaction(work, repeat_for_s=REPEAT_FOR_S)

    async def raise_log_starts(self, starts: Mapping[PartitionKey, LogStart]) -> set[PartitionKey]:
        async def work(connection: Connection) -> set[PartitionKey]:
            done: set[PartitionKey] = set()
            if not starts or not await _holds_fence(connection, next(iter(starts.values())).leadership):
                return done
            for key, start in sorted(starts.items()):
                if await self._raise_log_start(connection, key, start):
                    done.add(key)
            return done

        with answering():
            return await self._session.transaction(work, repeat_for_s=REPEAT_FOR_S)

    async def _raise_log_start(self, connection: Connection, key: PartitionKey, start: LogStart) -> bool:
        topic_id, partition = UUID(bytes=key.topic_id), key.partition
        sealed_end = await connection.fetchval(
            "UPDATE partitions SET log_start_offset = greatest(log_start_offset, $5), "
            "cleaned_to = greatest(cleaned_to, $6) "
            "WHERE topic_id = $1 AND partition = $2 AND leader = $3 AND leader_epoch = $4 RETURNING sealed_end",
            topic_id,
            partition,
            start.leadership.node_id,
            start.leadership.leader_epoch,
            start.log_start_offset,
            start.cleaned_to,
        )
        if sealed_end is None:
            return False
        # The last one has the producers' state at the sealed end.
        gone = await connection.fetch(
            "DELETE FROM segments WHERE topic_id = $1 AND partition = $2 AND end_offset <= $3 AND end_offset < $4 "
            f"RETURNING {SEGMENT_COLUMNS}",
            topic_id,
            partition,
            min(start.first_base, start.log_start_offset),
            sealed_end,
        )
        await _discard(connection, self._names(key, [RemoteSegmentMetadata(*row) for row in gone]))
        return True

    def _names(self, key: PartitionKey, segments: Sequence[RemoteSegmentMetadata]) -> list[str]:
        return [name for one in segments for name in _names(self._cluster_id, key, one)]


class PostgresGarbage:
    """The rows of garbage, for `GarbageTable`. The sweep of one node at a time holds the session's lock."""

    def __init__(self, address: PostgresAddress, cluster_id: str, application_name: Callable[[], str]) -> None:
        self._cluster_id = cluster_id
        self._emptied: set[UUID] = set()  # deleted topics of which the last pass found no rows
        self._session = Session(address, application_name)
        self.attempts = self._session.attempts

    async def open(self) -> None:
        """Connect. Raises StorageError."""
        await self._session.open()

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()

    async def holds_sweep(self) -> bool:
        async def work(connection: Connection) -> bool:
            is_held: bool = await connection.fetchval(
                "SELECT pg_try_advisory_lock(hashtext(current_setting('search_path')), $1)", SWEEPING
            )
            return is_held

        with answering():
            return await self._session.run(work, repeat_for_s=REPEAT_FOR_S)

    async def find(self) -> int:
        async def work(connection: Connection) -> int:
            flushes = await connection.fetch(_UNREFERENCED_FLUSHES)
            names = [flush_name(self._cluster_id, row["object"]) for row in flushes]
            deleted = [row["topic_id"] for row in await connection.fetch("SELECT topic_id FROM deletions")]
            empty = set()
            for topic_id in deleted:
                is_empty, of_topic = await self._remove_rows(connection, topic_id)
                names += of_topic
                if is_empty:
                    empty.add(topic_id)
            # By the second pass, every node that led the topic has been notified of it, or has lost its lease.
            await connection.execute("DELETE FROM deletions WHERE topic_id = ANY($1)", list(empty & self._emptied))
            self._emptied = empty
            await _discard(connection, names)
            return len(names)

        with answering():
            return await self._session.transaction(work, repeat_for_s=REPEAT_FOR_S)

    async def _remove_rows(self, connection: Connection, topic_id: UUID) -> tuple[bool, list[str]]:
        """Remove the rows of a deleted topic, also those of a flush that came after its deletion. Returns whether there
        were none, and the names of its sealed segments' objects."""
        flushed = await connection.execute("DELETE FROM tail WHERE topic_id = $1", topic_id)
        rows = await connection.fetch(
            f"DELETE FROM segments WHERE topic_id = $1 RETURNING partition, {SEGMENT_COLUMNS}", topic_id
        )
        names = [
            name
            for partition, *columns in rows
            for name in _names(
                self._cluster_id, PartitionKey(topic_id.bytes, partition), RemoteSegmentMetadata(*columns)
            )
        ]
        return not rows and flushed == "DELETE 0", names

    async def due(self, grace_s: float, limit: int) -> Sequence[str]:
        async def work(connection: Connection) -> Sequence[str]:
            rows = await connection.fetch(
                "SELECT name FROM garbage WHERE since < clock_timestamp() - make_interval(secs => $1) "
                "ORDER BY since LIMIT $2",
                grace_s,
                limit,
            )
            names = [row["name"] for row in rows]
            unnamed = await _without_rows(connection, names)
            if len(unnamed) < len(names):
                needed = sorted(set(names) - set(unnamed))
                log.error("garbage_is_needed", objects=len(needed), first=needed[0])
                await connection.execute(_FORGET, needed)
            return unnamed

        with answering():
            return await self._session.run(work, repeat_for_s=REPEAT_FOR_S)

    async def removed(self, names: Sequence[str]) -> None:
        with answering():
            await self._session.run(
                lambda connection: connection.execute(_FORGET, list(names)),
                repeat_for_s=REPEAT_FOR_S,
            )

    async def add_orphans(self, names: Sequence[str]) -> int:
        async def work(connection: Connection) -> int:
            # The fences first, in a statement of their own: those that are raised have let the last flush end, so the
            # next statement sees its rows.
            fences = [Fence(*row) for row in await connection.fetch(_FENCES)]
            return await _discard_unnamed(connection, [name for name in names if is_given_up(name, fences)])

        with answering():
            return await self._session.run(work, repeat_for_s=REPEAT_FOR_S)

    async def discard(self, names: Sequence[str]) -> int:
        with answering():
            return await self._session.run(
                lambda connection: _discard_unnamed(connection, names), repeat_for_s=REPEAT_FOR_S
            )


async def read_rows(connection: Connection, keys: Sequence[PartitionKey]) -> dict[PartitionKey, RemoteLogRows]:
    """Read the rows of partitions, in a transaction that sees one moment."""
    arrays = [UUID(bytes=key.topic_id) for key in keys], [key.partition for key in keys]
    segments: dict[PartitionKey, list[RemoteSegmentMetadata]] = {}
    for topic_id, partition, *columns in await connection.fetch(_SEGMENTS, *arrays):
        segments.setdefault(PartitionKey(topic_id.bytes, partition), []).append(RemoteSegmentMetadata(*columns))
    return {
        (key := PartitionKey(topic_id.bytes, partition)): RemoteLogRows(
            sealed_end, log_start_offset, epochs, tuple(segments.get(key, ())), cleaned_to
        )
        for topic_id, partition, sealed_end, log_start_offset, epochs, cleaned_to in await connection.fetch(
            _PARTITIONS, *arrays
        )
    }


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Raise UnavailableError as StoreUnavailableError."""
    try:
        yield
    except UnavailableError as error:
        raise StoreUnavailableError(str(error)) from error


async def _holds_fence(connection: Connection, leadership: Leadership) -> bool:
    return bool(await connection.fetchval(_LOCK_FENCE, leadership.node_id, leadership.fence))


async def _discard(connection: Connection, names: Sequence[str]) -> None:
    await connection.execute("INSERT INTO garbage (name) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING", list(names))


def _require_cover(removed: Sequence[tuple[int, int]], sealed: RemoteSegmentMetadata) -> None:
    """Require rows to follow each other from the base of a segment to its end. Raises StorageError."""
    offset = sealed.base_offset
    for base_offset, end_offset in removed:
        if base_offset != offset:
            break
        offset = end_offset
    if offset != sealed.end_offset:
        raise StorageError(
            f"the rows of offsets {sealed.base_offset} to {sealed.end_offset} end or break at offset {offset}"
        )


async def _discard_unnamed(connection: Connection, names: Sequence[str]) -> int:
    """Make objects garbage that no row names, unless they are; returns how many."""
    unnamed = await _without_rows(connection, names)
    known = await connection.fetch("SELECT name FROM garbage WHERE name = ANY($1)", unnamed)
    added = sorted(set(unnamed) - {row["name"] for row in known})
    await _discard(connection, added)
    return len(added)


async def _without_rows(connection: Connection, names: Sequence[str]) -> list[str]:
    """The objects that no row names, of those that a cluster stores."""
    objects = {name: object_id for name in names if (object_id := object_of(name)) is not None}
    named = await connection.fetch(
        "SELECT object FROM segments WHERE object = ANY($1) "
        "UNION ALL SELECT object FROM tail_objects WHERE object = ANY($1)",
        list(objects.values()),
    )
    has_row = {row["object"] for row in named}
    return [name for name, object_id in objects.items() if object_id not in has_row]


def _names(cluster_id: str, key: PartitionKey, sealed: RemoteSegmentMetadata) -> list[str]:
    name = SegmentName(cluster_id, key.topic_id, key.partition, sealed.base_offset, sealed.object_id)
    return name.files(sealed.end_offset, has_aborted=sealed.has_aborted)
