"""A cluster whose tables were restored to an earlier moment: made safe for clients and brokers of the lost history.

Clients may know offsets, leader epochs, producer ids and epochs of transactional ids that were given out after that
moment, and a broker may hold a fence. New numbers must differ from all of these, so they begin far above the restored
ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from uuid import uuid4

from fencepost.broker.cluster.postgres.connections import Connection, PostgresAddress, require_certain, translated
from fencepost.broker.cluster.postgres.history import record_history
from fencepost.broker.cluster.postgres.schema import PLACING, lock, prepare
from fencepost.broker.cluster.postgres.standbys import require_durability
from fencepost.broker.log.append.skipped_offsets import offsets_to_skip, skipped_spans
from fencepost.broker.storage.disk import StorageError

SKIPPED_EPOCHS: Final = 1_000_000
"""Of leaders: one each second for eleven days; 2,000 restores are possible."""
SKIPPED_FENCES: Final = 1_000_000_000

LONGEST_WAIT_S: Final = 61.0  # the longest lease there can be, and a second
WAIT_S: Final = 0.2
"""Between looks at leases that a restored moment still shows, until they are over."""

_RUNNING: Final = """
SELECT node_id, lease_until FROM nodes WHERE state <> 'gone' AND lease_until > clock_timestamp() ORDER BY node_id
"""
_LOST_TIME: Final = "SELECT extract(epoch FROM clock_timestamp() - max(lease_until))::float FROM nodes"
"""Brokers renew their leases until the restored moment; if they were stopped before it, this is longer."""
_ENDS: Final = """
SELECT topic_id, partition, leader_epoch, coalesce(last.end_offset, sealed_end) AS end_offset
FROM partitions LEFT JOIN LATERAL (
    SELECT max(end_offset) AS end_offset FROM tail
    WHERE tail.topic_id = partitions.topic_id AND tail.partition = partitions.partition
) AS last ON true
"""

_APPEND: Final = """
INSERT INTO tail (topic_id, partition, segment_base, position, length, base_offset, end_offset, leader_epoch, content,
                  node_id, fence, sequence)
VALUES ($1, $2, $3, 0, $4, $3, $5, $6, $7, -1, 0, 0)
"""
"""Of no node's flush; a row that begins a segment, at its first byte."""


class RestoredCluster(NamedTuple):
    """A restored cluster, by its counts. skipped_offsets: number of offsets that each log leaves out."""

    cluster_id: str
    topics: int
    partitions: int
    nodes: int
    skipped_offsets: int


async def after_restore(
    connection: Connection,
    address: PostgresAddress,
    values_after: Callable[[Mapping[str, bytes]], Mapping[str, bytes]],
    *,
    skipped_offsets: int | None = None,
    now_ms: int,
) -> RestoredCluster:
    """Raise all fences, leader epochs and next offsets, and write the documents that `values_after` makes from the
    present ones.

    skipped_offsets: number of offsets that each log leaves out; None: by the time since the restored moment.
    now_ms:          wall time, for the batches that take them.

    All nodes are in the state *gone* afterwards: those that still run are refused, and start as new ones. It may be run
    again. It waits until leases without renewals have ended. Raises StorageError; then no row is changed.
    """
    with translated(address):
        await require_durability(connection, address, asynchronous_accepted=True)  # as brokers decide
        if await connection.fetchval("SELECT to_regclass('cluster')") is None:
            raise StorageError(f"there are no tables of a cluster in PostgreSQL at {address.shown}; restore them first")
        await prepare(connection, address, is_restored=True)
        await _let_leases_end(connection)
        async with connection.transaction():
            await lock(connection, PLACING)
            running = await connection.fetch(_RUNNING)
            if running:
                ids = ", ".join(str(row["node_id"]) for row in running)
                raise StorageError(
                    f"brokers work on the tables in PostgreSQL at {address.shown}: nodes {ids}. Stop all brokers, "
                    "restore the tables again if brokers have run on them since, and run this once more"
                )
            if skipped_offsets is None:
                skipped_offsets = offsets_to_skip(await connection.fetchval(_LOST_TIME) or 0)
            await connection.execute(
                "UPDATE nodes SET incarnation = gen_random_uuid(), state = 'gone', lease_until = clock_timestamp()"
            )
            await record_history(connection)
            await connection.execute("UPDATE fences SET fence = fence + $1", SKIPPED_FENCES)
            await connection.execute("UPDATE partitions SET leader_epoch = leader_epoch + $1", SKIPPED_EPOCHS)
            await _skip_offsets(connection, skipped_offsets, now_ms)
            found = {
                row["key"]: bytes(row["value"]) for row in await connection.fetch("SELECT key, value FROM documents")
            }
            for key, value in values_after(found).items():
                await connection.execute(
                    "INSERT INTO documents AS one VALUES ($1, $2, 1, $3) ON CONFLICT (key) "
                    "DO UPDATE SET value = excluded.value, version = one.version + 1, written_by = excluded.written_by",
                    key,
                    value,
                    uuid4(),
                )
            row = await connection.fetchrow(
                "SELECT cluster_id, (SELECT count(*) FROM topics), (SELECT count(*) FROM partitions), "
                "(SELECT count(*) FROM nodes), $1::bigint FROM cluster",
                skipped_offsets,
            )
        require_certain(connection, address)
        return RestoredCluster(*row)


async def _skip_offsets(connection: Connection, offsets_count: int, now_ms: int) -> None:
    """End each log with rows that take offsets and hold no records, in the raised leader epoch."""
    rows: list[tuple[Any, ...]] = []
    for topic_id, partition, leader_epoch, end_offset in await connection.fetch(_ENDS):
        for span in skipped_spans(end_offset, offsets_count):
            batch = span.batch(leader_epoch, now_ms)
            rows.append((topic_id, partition, span.base_offset, len(batch), span.end_offset, leader_epoch, batch))
    await connection.executemany(_APPEND, rows)


async def _let_leases_end(connection: Connection) -> None:
    """Wait for leases that were held at the restored moment, seconds ago, unless a broker renews one."""
    deadline_s = asyncio.get_running_loop().time() + LONGEST_WAIT_S
    held = await connection.fetch(_RUNNING)
    while held and asyncio.get_running_loop().time() < deadline_s:
        await asyncio.sleep(WAIT_S)
        before = {row["node_id"]: row["lease_until"] for row in held}
        held = await connection.fetch(_RUNNING)
        if any(row["lease_until"] != before.get(row["node_id"]) for row in held):
            return  # it runs
