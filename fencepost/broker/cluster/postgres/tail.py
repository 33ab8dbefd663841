"""Tails of the logs in PostgreSQL: a flush as one statement, guarded by a lock of the fence's row, and bulk reads.

The guard has to lock. A statement that only reads the fence, also one that waits for an advisory lock first, has its
snapshot from before a take-over, and commits after it. `FOR SHARE` waits for a take-over that is under way, reads the
fence again, and makes a later one wait until the flush is committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

import asyncpg

from fencepost.broker.cluster.postgres.connections import (
    CONNECTION_LOST,
    Connection,
    PostgresAddress,
    connect,
    drop,
    require_certain,
    translated,
    wait_for_standby,
)
from fencepost.broker.cluster.postgres.session import Attempts
from fencepost.broker.cluster.tail.tail_store import (
    NO_OBJECTS,
    ConflictError,
    FlushId,
    NotLedError,
    PartitionKey,
    StoreUnavailableError,
    TailRow,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

FLUSH_TIMEOUT_S: Final = 2.0
"""The longest a flush runs at the server, and by a second more here: a take-over waits for one that hangs."""
READER_CHECK_S: Final = 1.0
"""How long a connection that has long been idle may take to answer; then another one is opened."""
ROWS_PER_FETCH: Final = 64
MOST_COUNTED: Final = 100_000
"""Partitions whose rows are counted."""

_COMMIT: Final = """
WITH held AS (SELECT 1 FROM fences WHERE node_id = $1 AND fence = $2 FOR SHARE),
     stored AS (INSERT INTO tail_objects SELECT one.object, $1, one.size_bytes
                FROM held, unnest($4::uuid[], $5::bigint[]) AS one (object, size_bytes))
INSERT INTO tail (topic_id, partition, segment_base, position, length, base_offset, end_offset, leader_epoch,
                  content, object, object_position, checksum, node_id, fence, sequence)
SELECT one.*, $1, $2, $3
FROM held, unnest($6::uuid[], $7::int[], $8::bigint[], $9::bigint[], $10::int[], $11::bigint[], $12::bigint[],
                  $13::int[], $14::bytea[], $15::uuid[], $16::int[], $17::bytea[]) AS one (topic_id, partition)
WHERE (SELECT leader FROM partitions AS led
       WHERE led.topic_id = one.topic_id AND led.partition = one.partition) = $1
"""
"""Leaves out rows of partitions that the node does not lead, such as those of a topic that was deleted, and perhaps
created again under its name. That row needs no lock: a flush sent before the deletion may be ordered before it."""

_NOT_LED: Final = """
SELECT EXISTS (SELECT FROM fences WHERE node_id = $1 AND fence = $2), array_agg(topic_id), array_agg(partition)
FROM unnest($3::uuid[], $4::int[]) AS one (topic_id, partition)
WHERE NOT EXISTS (SELECT FROM partitions AS led WHERE led.topic_id = one.topic_id AND led.partition = one.partition
                  AND leader = $1)
"""

_COMMITTED: Final = """
SELECT topic_id, partition
FROM tail JOIN unnest($4::uuid[], $5::int[], $6::bigint[]) AS one (topic_id, partition, base_offset)
          USING (topic_id, partition, base_offset)
WHERE node_id = $1 AND fence = $2 AND sequence = $3
"""

_IS_KEPT: Final = """
SELECT EXISTS (SELECT FROM tail WHERE topic_id = $1 AND partition = $2 AND base_offset = $3
               AND node_id = $4 AND fence = $5 AND sequence = $6)
    OR NOT EXISTS (SELECT FROM partitions WHERE topic_id = $1 AND partition = $2 AND leader = $4 AND sealed_end <= $3)
"""
"""Whether a committed row is still there, or was sealed, or is of a partition that the node leads no longer."""

JOINED_BYTES: Final = 512 * 1024
"""Rows of small flushes are read as one, of about this size: each by itself would take 10 microseconds."""
_COLUMNS: Final = """segment_base, position, length, base_offset, end_offset, leader_epoch, content, object,
coalesce(object_position, 0), checksum"""
_READ: Final = f"""
SELECT wanted.topic_id, wanted.partition, one.*
FROM unnest($1::uuid[], $2::int[]) AS wanted (topic_id, partition)
CROSS JOIN LATERAL (
    SELECT segment_base, min(position), sum(length)::bigint, min(base_offset), max(end_offset), max(leader_epoch),
           string_agg(content, NULL ORDER BY base_offset), (array_agg(object))[1],
           coalesce(min(object_position), 0), (array_agg(checksum))[1],
           count(*),
           count(*) = 1 OR (count(object) = 0 AND max(position + length) - min(position) = sum(length)
                            AND max(end_offset) - min(base_offset) = sum(end_offset - base_offset))
    FROM tail
    WHERE tail.topic_id = wanted.topic_id AND tail.partition = wanted.partition
    GROUP BY segment_base, position / {JOINED_BYTES}
    ORDER BY min(base_offset)
) AS one
"""
"""The last columns: the number of joined rows; whether they follow each other, and have their bytes in them."""
_READ_EACH: Final = f"""
SELECT {_COLUMNS} FROM tail
WHERE topic_id = $1 AND partition = $2 AND base_offset BETWEEN $3 AND $4 ORDER BY base_offset
"""


class PostgresTail:
    """The store of the tails, for `TailStore`.

    application_name: names the sessions of the node's present incarnation; the commit connection is reopened when it
                      changes, as another node ends the sessions of an incarnation by their name.
    attempts:         attempts to connect, for flushes and for restores.
    """

    def __init__(self, address: PostgresAddress, application_name: Callable[[], str]) -> None:
        self._address = address
        self._application_name = application_name
        self._committing: Connection | None = None
        self._committing_as = ""
        self._last: tuple[UUID, int, int, FlushId] | None = (
            None  # topic, partition, offset of the last flush's first row
        )
        self._continues = False  # whether the connection's server was seen to have the last flush
        self._reader: Connection | None = None  # of the last restore, while no restore has it
        self._reader_name = ""
        self._is_closed = False
        self.attempts = Attempts(), Attempts()
        self._rows: dict[PartitionKey, tuple[int, int]] = {}  # of the newest segment: its base, and their number

    async def open(self) -> None:
        """Connect, for flushes and for restores. Raises StorageError."""
        await self._connection()
        if self._reader is None or self._reader.is_closed():
            reader, name = await self._connect_reader(), self._application_name()
            if self._reader is not None and not self._reader.is_closed():  # a restore has ended meanwhile
                self._reader.terminate()
            self._reader, self._reader_name = reader, name

    async def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        self._drop()
        if self._reader is not None:
            self._reader.terminate()
            self._reader = None

    # Flushes

    async def commit(
        self, flush: FlushId, rows: Sequence[TailRow], *, object_sizes: Mapping[UUID, int] = NO_OBJECTS
    ) -> bool:
        uuids: dict[bytes, UUID] = {}
        topic_ids = []
        for (topic_id, _), *_rest in rows:
            uuid = uuids.get(topic_id)
            if uuid is None:
                uuid = uuids[topic_id] = UUID(bytes=topic_id)
            topic_ids.append(uuid)
        with self._answering():
            connection = await self._connection()
            if not await self._has_last(connection, flush):
                return False
            try:
                done = await connection.execute(
                    _COMMIT,
                    *flush,
                    list(object_sizes),
                    list(object_sizes.values()),
                    topic_ids,
                    [row.key.partition for row in rows],
                    [row.segment_base for row in rows],
                    [row.position for row in rows],
                    [row.length_bytes for row in rows],
                    [row.base_offset for row in rows],
                    [row.end_offset for row in rows],
                    [row.leader_epoch for row in rows],
                    [row.content for row in rows],
                    [row.object_id for row in rows],
                    [None if row.object_id is None else row.object_position for row in rows],
                    [row.checksum for row in rows],
                    timeout=FLUSH_TIMEOUT_S + 1,
                )
            except asyncpg.UniqueViolationError as error:
                if await self.is_committed(flush, rows):
                    return True
                raise ConflictError(error.detail or str(error)) from error
            require_certain(connection, self._address)
            inserted = int(done.rpartition(" ")[2])
            is_held, not_led = True, frozenset[PartitionKey]()
            if inserted < len(rows):
                is_held, not_led = await self._not_led(connection, flush, rows)
                if not inserted and not is_held:
                    return False
        last = next((row for row in rows if row.key not in not_led), None)
        if (last is None) != (inserted == 0) or (inserted < len(rows) and not not_led):
            raise StoreUnavailableError(f"a flush of {len(rows)} rows has inserted {inserted}")
        if last is not None:
            self._last = UUID(bytes=last.key.topic_id), last.key.partition, last.base_offset, flush
            self._continues = True
        for row in rows:
            if row.key not in not_led:
                self._count(row, 1)
        if not_led:
            raise NotLedError(not_led)
        return True

    def rows_count(self, key: PartitionKey, segment_base: int) -> int:
        """The number of rows of a tail's newest segment that this store has committed or read."""
        base, count = self._rows.get(key, (segment_base, 0))
        return count if base == segment_base else 0

    def _count(self, row: TailRow, count: int) -> None:
        base, before = self._rows.get(row.key, (row.segment_base, 0))
        if len(self._rows) >= MOST_COUNTED and row.key not in self._rows:
            self._rows.clear()  # most of them are led elsewhere, or deleted
        self._rows[row.key] = row.segment_base, count + before if base == row.segment_base else count

    async def _not_led(
        self, connection: Connection, flush: FlushId, rows: Sequence[TailRow]
    ) -> tuple[bool, frozenset[PartitionKey]]:
        """Whether the fence is the flush's, and the partitions that its node does not lead. They do not return."""
        keys = list({row.key for row in rows})
        is_held, topic_ids, numbers = await connection.fetchrow(
            _NOT_LED, flush.node_id, flush.fence, *_arrays(keys), timeout=FLUSH_TIMEOUT_S + 1
        )
        not_led = zip(topic_ids or (), numbers or (), strict=True)
        return is_held, frozenset(PartitionKey(topic_id.bytes, number) for topic_id, number in not_led)

    async def _has_last(self, connection: Connection, flush: FlushId) -> bool:
        """Whether the server has the flush before this one, after a reconnection.

        It has not if it was restored to an earlier moment, or if a standby took over that lacked commits: a flush at
        offsets beyond its end of the log would leave a hole.
        """
        if self._continues or self._last is None or self._last[3].fence != flush.fence:
            return True
        *row, last = self._last
        self._continues = await connection.fetchval(_IS_KEPT, *row, *last, timeout=FLUSH_TIMEOUT_S + 1)
        if not self._continues:
            log.error(
                "database_went_back",
                at=self._address.shown,
                reason="it lacks the last flush of this broker, which it had committed",
                remedy="if it was restored, stop all brokers and run `fencepost cluster restored`; after a fail-over, "
                "see that its standby is synchronous",
            )
        return self._continues

    async def is_committed(self, flush: FlushId, rows: Sequence[TailRow]) -> bool:
        with self._answering():
            connection = await self._connection()
            found = await connection.fetch(
                _COMMITTED,
                *flush,
                *_arrays([row.key for row in rows]),
                [row.base_offset for row in rows],
                timeout=FLUSH_TIMEOUT_S + 1,
            )
            if found:
                # The wait of its commit may have been ended, by the time-out above all: then one server alone has it.
                await wait_for_standby(connection, self._address)
        missing = {row.key for row in rows} - {PartitionKey(topic_id.bytes, number) for topic_id, number in found}
        if found and missing:
            raise NotLedError(missing)
        return bool(found)

    # TailRestore

    async def read(self, keys: Sequence[PartitionKey]) -> AsyncIterator[TailRow]:
        with self._translated():
            for key in keys:
                self._rows.pop(key, None)
            async with self._reading() as connection, connection.transaction(readonly=True):
                joined = connection.cursor(_READ, *_arrays(keys), prefetch=ROWS_PER_FETCH)
                async for topic_id, partition, *columns, count, is_whole in joined:
                    row = TailRow(PartitionKey(topic_id.bytes, partition), *columns)
                    self._count(row, count)
                    if is_whole:
                        yield row
                        continue
                    span = row.base_offset, row.end_offset - 1
                    for each in await connection.fetch(_READ_EACH, topic_id, partition, *span):
                        yield TailRow(row.key, *each)

    # Connections

    async def _connection(self) -> Connection:
        """The connection on which all flushes are committed."""
        name = self._application_name()
        if self._committing is not None and (self._committing.is_closed() or name != self._committing_as):
            self._drop()
        if self._committing is None:
            with self.attempts[0].one():
                self._committing = await connect(
                    self._address,
                    application_name=name,
                    statement_timeout_s=FLUSH_TIMEOUT_S,
                    answer_timeout_s=FLUSH_TIMEOUT_S + 1,
                )
            self._committing_as = name
        return self._committing

    @contextlib.asynccontextmanager
    async def _reading(self) -> AsyncIterator[Connection]:
        """A connection for one restore: flushes of other partitions go on meanwhile. It is kept for the next one, as to
        connect takes longer than to read a short tail."""
        connection = await self._kept_reader() or await self._connect_reader()
        try:
            yield connection
        except BaseException:
            connection.terminate()
            raise
        if self._reader is None and not self._is_closed:
            self._reader, self._reader_name = connection, self._application_name()
        else:  # another restore has ended meanwhile
            connection.terminate()

    async def _connect_reader(self) -> Connection:
        with self.attempts[1].one():
            return await connect(self._address, application_name=self._application_name())

    async def _kept_reader(self) -> Connection | None:
        """The connection of the last restore, if it still answers; the caller has it alone."""
        connection, self._reader = self._reader, None
        if connection is None:
            return None
        try:
            if self._reader_name == self._application_name():
                await connection.execute("SELECT", timeout=READER_CHECK_S)
                return connection
        except (asyncpg.PostgresError, *CONNECTION_LOST):  # a time-out is an OSError
            pass
        except BaseException:
            connection.terminate()
            raise
        connection.terminate()
        return None

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Drop the commit connection after an error: whether its statement still runs is unknown."""
        try:
            with self._translated():
                yield
        except BaseException:
            self._drop()
            raise

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            with translated(self._address):
                yield
        except StorageError as error:
            raise StoreUnavailableError(str(error)) from error

    def _drop(self) -> None:
        connection, self._committing = self._committing, None
        self._continues = False
        if connection is not None:
            drop(connection)


def _arrays(keys: Sequence[PartitionKey]) -> tuple[list[UUID], list[int]]:
    return [UUID(bytes=key.topic_id) for key in keys], [key.partition for key in keys]
