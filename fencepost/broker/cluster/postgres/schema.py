"""The tables of a cluster in PostgreSQL: the first node that starts creates them, and upgrades those of older versions.

All are in one schema per cluster; sessions find them through `search_path`. Which code writes which rows:

    cluster, nodes, fences, topics, deletions, partitions, documents   the metadata and the leases
    tail, tail_objects                                                 flushes of the node that holds the fence
    segments, garbage                                                  sealing, retention and the sweep
    changes                                                            triggers, for all nodes to follow

A transaction locks rows in one order: the schema's advisory lock (`PLACING`), nodes, fences, partitions, all others.
"""

from __future__ import annotations

import asyncio
from typing import Final

import asyncpg

from fencepost.broker.cluster.postgres.connections import Connection, PostgresAddress, translated
from fencepost.broker.cluster.postgres.history import record_history, require_history
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.random_ids import base64_uuid
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

FORMAT: Final = 4
IMPORTING: Final = 1_000_000
"""The format of tables while a data directory is being imported into them: brokers of all versions refuse it."""
OLDEST_READER: Final = FORMAT - 1
"""Brokers that read this format work on the tables, too: those of the release before."""
FIRST_WITH_HISTORY: Final = 3
"""The first format that records the location of its tables."""

COMPATIBILITY: Final = 1
"""The version of the formats and rules that brokers of one cluster share, beside Kafka's protocol. A release that
changes them raises it by one, and works beside brokers of the number before and after its own, as in an update."""
FIRST_COMPATIBILITY: Final = 1
"""Of brokers that do not record theirs."""

TOPICS, DOCUMENTS, PLACEMENT = "topics", "documents", "placement"
"""Kinds of changes: the rows of `changes`."""

PREPARING: Final = 1
PLACING: Final = 2
SWEEPING: Final = 3
IMPORT: Final = 4
"""Advisory locks of a schema: PREPARING while tables are created, PLACING while leaders are decided and stored, so that
no two nodes decide from the same state. SWEEPING is held by the session of the node that removes objects, IMPORT by
that of an import."""

_TABLES: Final = """
CREATE TABLE cluster (
    one int PRIMARY KEY CHECK (one = 1),
    cluster_id text NOT NULL,
    format int NOT NULL DEFAULT 0,
    place text,
    timeline int,
    oldest_reader int
);

-- Each node that was ever seen. Its lease is renewed every second: an update that touches no index.
CREATE TABLE nodes (
    node_id int PRIMARY KEY CHECK (node_id >= 0),
    incarnation uuid NOT NULL UNIQUE,
    state text NOT NULL CHECK (state IN ('alive', 'leaving', 'gone')),
    listeners jsonb NOT NULL,
    rack text,
    lease_until timestamptz NOT NULL,
    since timestamptz NOT NULL,
    version text,
    compatibility int
) WITH (fillfactor = 50);

-- A flush locks the row of its node FOR SHARE; a start or a take-over raises it, and refuses all older flushes. Apart
-- from nodes, so that renewing a lease never waits for a flush. named_from: the fence of the last incarnation whose
-- objects have its name; brokers that work on format 3 leave it.
CREATE TABLE fences (
    node_id int PRIMARY KEY,
    fence bigint NOT NULL CHECK (fence >= 0),
    named_from bigint
);

CREATE TABLE topics (
    name text PRIMARY KEY,
    topic_id uuid NOT NULL UNIQUE,
    partition_count int NOT NULL CHECK (partition_count > 0),
    configs jsonb NOT NULL
);

CREATE TABLE deletions (
    topic_id uuid PRIMARY KEY,
    name text NOT NULL,
    partition_count int NOT NULL,
    configs jsonb NOT NULL
);

-- One row for each partition of each topic. Its records are those of its segments, up to sealed_end, and of its tail.
CREATE TABLE partitions (
    topic_id uuid NOT NULL,
    partition int NOT NULL CHECK (partition >= 0),
    leader int REFERENCES nodes,
    leader_epoch int NOT NULL CHECK (leader_epoch >= 0),
    wanted int,
    log_start_offset bigint NOT NULL DEFAULT 0 CHECK (log_start_offset >= 0),
    sealed_end bigint NOT NULL DEFAULT 0 CHECK (sealed_end >= 0),
    epochs bytea NOT NULL DEFAULT '',
    cleaned_to bigint NOT NULL DEFAULT 0 CHECK (cleaned_to >= 0),
    PRIMARY KEY (topic_id, partition)
) WITH (fillfactor = 70);
CREATE INDEX partitions_of_leader ON partitions (leader);

CREATE TABLE segments (
    topic_id uuid NOT NULL,
    partition int NOT NULL,
    base_offset bigint NOT NULL,
    end_offset bigint NOT NULL,
    object uuid NOT NULL UNIQUE,
    size_bytes bigint NOT NULL,
    max_timestamp_ms bigint NOT NULL,
    has_aborted boolean NOT NULL,
    leader_epoch int NOT NULL,
    checksums bytea,
    stable_end bigint,
    block_checksums bytea,
    PRIMARY KEY (topic_id, partition, base_offset),
    CHECK (end_offset > base_offset)
);

-- What a flush has appended to one segment's file: the bytes, or where they are in an object. No foreign key: it would
-- cost a lock per row. Two leaders whose flushes both got through would collide on the key.
CREATE TABLE tail (
    topic_id uuid NOT NULL,
    partition int NOT NULL,
    segment_base bigint NOT NULL,
    position bigint NOT NULL,
    length int NOT NULL,
    base_offset bigint NOT NULL,
    end_offset bigint NOT NULL,
    leader_epoch int NOT NULL,
    node_id int NOT NULL,
    fence bigint NOT NULL,
    sequence bigint NOT NULL,
    object uuid,
    object_position int,
    content bytea,
    checksum bytea,
    PRIMARY KEY (topic_id, partition, base_offset),
    CHECK ((content IS NULL) <> (object IS NULL)),
    CHECK ((object IS NULL) = (object_position IS NULL)),
    CHECK (end_offset > base_offset)
) WITH (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.05,
    toast.autovacuum_vacuum_cost_delay = 0
);
-- Few rows are in objects; by this the sweep finds objects that none is in any more.
CREATE INDEX tail_of_object ON tail (object) WHERE object IS NOT NULL;
-- Batches are compressed by their producers, if at all.
ALTER TABLE tail ALTER COLUMN content SET STORAGE EXTERNAL;

CREATE TABLE tail_objects (
    object uuid PRIMARY KEY,
    node_id int NOT NULL,
    size_bytes bigint NOT NULL
);

-- Names of objects that no row names any more. They are removed when no fetch can be reading them.
CREATE TABLE garbage (
    name text PRIMARY KEY,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- written_by: of this write alone, so that its author recognises it when the answer was lost.
CREATE TABLE documents (
    key text PRIMARY KEY,
    value bytea NOT NULL,
    version bigint NOT NULL,
    written_by uuid NOT NULL
);

-- How often each kind of row has changed. A number that was seen is never seen with other content: the row is locked
-- until the change is committed.
CREATE TABLE changes (
    kind text PRIMARY KEY,
    count bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO changes VALUES ('topics', 0), ('documents', 0), ('placement', 0);
"""

_COUNTING: Final = """
CREATE FUNCTION count_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('UPDATE %I.changes SET count = count + 1 WHERE kind = $1', TG_TABLE_SCHEMA) USING TG_ARGV[0];
    PERFORM pg_notify(TG_TABLE_SCHEMA || '_changes', TG_ARGV[0]);
    RETURN NULL;
END
$$;
"""

_COUNTED: Final = {
    "topics": (TOPICS, "UPDATE"),
    "documents": (DOCUMENTS, "UPDATE"),
    # Not the lease itself, nor the columns that sealing and retention write.
    "nodes": (PLACEMENT, "UPDATE OF incarnation, state, listeners, rack"),
    "partitions": (PLACEMENT, "UPDATE OF leader, leader_epoch, wanted"),
}
"""Tables whose changes are counted: by kind, and which updates count. A trigger, so that no statement can forget to."""

_UPGRADES: Final[dict[int, str]] = {
    1: """
    ALTER TABLE segments ADD COLUMN checksums bytea;
    ALTER TABLE tail ADD COLUMN checksum bytea;
    """,
    2: """
    ALTER TABLE cluster ADD COLUMN place text;
    ALTER TABLE cluster ADD COLUMN timeline int;
    ALTER TABLE nodes ADD COLUMN version text;
    ALTER TABLE nodes ADD COLUMN compatibility int;
    """,
    3: """
    ALTER TABLE cluster ADD COLUMN oldest_reader int;
    ALTER TABLE segments ADD COLUMN stable_end bigint;
    ALTER TABLE segments ADD COLUMN block_checksums bytea;
    ALTER TABLE fences ADD COLUMN named_from bigint;
    """,
}
"""Statements that turn the tables of a format into the next, while brokers of the version before it work on them.

So a new column may be null, or has a default; none is renamed or removed before the format after the next.
"""
UPGRADE_LOCK_TIMEOUT: Final = "1s"
"""How long an upgrade waits for a table: flushes of all brokers wait behind it."""
UPGRADE_ATTEMPTS: Final = 60
UPGRADE_PAUSE_S: Final = 0.5


_USED_BY: Final = "FROM nodes WHERE state <> 'gone' AND lease_until > clock_timestamp()"


def _creation() -> str:
    triggers = "".join(
        f"CREATE TRIGGER {table}_changed AFTER INSERT OR DELETE OR {update} ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION count_change('{kind}');\n"
        for table, (kind, update) in _COUNTED.items()
    )
    return f"{_TABLES}{_COUNTING}{triggers}"


async def prepare(connection: Connection, address: PostgresAddress, *, is_restored: bool = False) -> None:
    """Create the tables if there are none, or upgrade them; refuse those of a later version, and those that were
    restored and not made safe.

    Several nodes may do this at the same time. is_restored: the caller makes them safe. Raises StorageError.
    """
    with translated(address):
        for attempt in range(1, UPGRADE_ATTEMPTS + 1):
            try:
                await _prepare(connection, address, is_restored=is_restored)
            except asyncpg.LockNotAvailableError:
                if attempt == UPGRADE_ATTEMPTS:
                    raise
                # A long query, such as that of a check or a dump, has a table.
                await asyncio.sleep(UPGRADE_PAUSE_S)
            else:
                return


async def _prepare(connection: Connection, address: PostgresAddress, *, is_restored: bool) -> None:
    async with connection.transaction():
        await lock(connection, PREPARING)
        found = await connection.fetchval("SELECT to_regclass('cluster')")
        if found is None:
            await create_tables(connection, address)
        else:
            await _upgrade(connection, address)
            if not is_restored:
                await require_history(connection, address)


async def lock(connection: Connection, which: int) -> None:
    """Wait for one of the schema's advisory locks; the transaction's end gives it back."""
    await connection.execute("SELECT pg_advisory_xact_lock(hashtext(current_setting('search_path')), $1)", which)


async def create_tables(connection: Connection, address: PostgresAddress) -> None:
    """Create the tables of a new cluster, in a transaction that holds PREPARING."""
    # A schema that an administrator has made needs no right to create one.
    if not await connection.fetchval("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", address.schema):
        await connection.execute(f"CREATE SCHEMA {address.schema}")
    await connection.execute(_creation())
    cluster_id = base64_uuid()
    await connection.execute("INSERT INTO cluster (one, cluster_id) VALUES (1, $1)", cluster_id)
    await write_format(connection)
    await record_history(connection)
    log.info("cluster_founded", at=address.shown, cluster_id=cluster_id)


async def _upgrade(connection: Connection, address: PostgresAddress) -> None:
    found = await connection.fetchval("SELECT format FROM cluster")
    if found is None:
        raise StorageError(
            f"the tables of PostgreSQL at {address.shown} hold no cluster id: they were restored in part; "
            "restore all of them"
        )
    if found == IMPORTING:
        raise StorageError(unfinished_import(address))
    if found > FORMAT:
        if await is_readable(connection, found):
            return  # the next release has upgraded them, and this one still works on them
        raise StorageError(
            f"the tables of PostgreSQL at {address.shown} have format {found}, this broker reads format {FORMAT}; "
            "start the version of the broker that wrote them"
        )
    if found < OLDEST_READER and await connection.fetchval(f"SELECT EXISTS (SELECT {_USED_BY})"):
        raise StorageError(
            f"brokers work on the tables of PostgreSQL at {address.shown}, which have format {found}; this broker "
            f"upgrades tables that are in use from format {OLDEST_READER} alone: stop all brokers first, or update to "
            "a version in between"
        )
    if found < FORMAT:
        await _require_neighbours(connection, address, found)
        await connection.execute(f"SET LOCAL lock_timeout = '{UPGRADE_LOCK_TIMEOUT}'")
    for version in range(found, FORMAT):
        await connection.execute(_UPGRADES[version])
        log.info("cluster_tables_upgraded", at=address.shown, format=version + 1)
    if found < FORMAT:
        await write_format(connection)
        await connection.execute("SET LOCAL lock_timeout = 0")
    if found < FIRST_WITH_HISTORY:
        await record_history(connection)


async def _require_neighbours(connection: Connection, address: PostgresAddress, found: int) -> None:
    """Refuse to upgrade tables under brokers beside which this one does not work. Raises StorageError."""
    if found < FIRST_WITH_HISTORY:
        return  # they do not record their versions
    far = await connection.fetchrow(
        f"SELECT node_id, version {_USED_BY} AND abs(coalesce(compatibility, $1) - $2) > 1 LIMIT 1",
        FIRST_COMPATIBILITY,
        COMPATIBILITY,
    )
    if far is not None:
        raise StorageError(
            f"node {far['node_id']} works on the tables of PostgreSQL at {address.shown} with version "
            f"{far['version'] or 'unknown'}, beside which this broker cannot work: update to a version in between "
            "first, or stop all brokers, then start all with one version"
        )


async def write_format(connection: Connection) -> None:
    """Write that the tables have this version's format."""
    await connection.execute("UPDATE cluster SET format = $1, oldest_reader = $2", FORMAT, OLDEST_READER)


async def is_readable(connection: Connection, found: int) -> bool:
    """Whether this version works on tables of a format: its own, or the next one."""
    if found <= FORMAT:
        return found == FORMAT
    has_oldest = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'cluster'::regclass AND attname = 'oldest_reader')"
    )
    oldest = await connection.fetchval("SELECT oldest_reader FROM cluster") if has_oldest else None
    return oldest is not None and oldest <= FORMAT


def unfinished_import(address: PostgresAddress) -> str:
    """The reason why tables of the format IMPORTING are used by nothing but an import."""
    return (
        f"an import of a data directory into PostgreSQL at {address.shown} is not complete: run "
        "`fencepost cluster import` again, with the same directory"
    )
