"""Metadata store in one SQLite file that the processes of one broker share, on one machine.

Each process has its own `SharedSqliteMetadataStore`. `prepare_shared` makes the file ready while no process uses it:
it founds, checks, restores and upgrades it, which needs the file alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.metadata.copy import COPY_SUFFIX
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.sqlite import (
    OWNER_ONLY,
    SCHEMA_VERSION,
    SHARED_SCHEMA_VERSION,
    SqliteMetadataStore,
    collides,
    insert_topic,
    remove_topic,
    resize_topic,
    transaction,
)
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

POLLING = Place("poll for changes of the metadata", Policy.RETRY)

NO_VERSION = 0  # below all of SQLite's
POLL_INTERVAL_S = 0.05
"""Longest delay until a process detects a change. A poll reads one number from shared memory."""
SHARED_LOCK_TIMEOUT_S = 15.0
"""Longest wait of a change for those of other processes: longer than a hung process is left alive."""
COPY_LOCK_SUFFIX = ".lock"

TOPICS, DOCUMENTS, PLACEMENT = "topics", "documents", "placement"
"""Kinds of changes."""

T = TypeVar("T")
InTransaction = Callable[[sqlite3.Connection, str], None]

_COUNTED = {"topics": TOPICS, "versioned_values": DOCUMENTS, "nodes": PLACEMENT, "partitions": PLACEMENT}

_SCHEMA = """
CREATE TABLE nodes (
    node_id INTEGER PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('alive', 'leaving', 'gone')),
    since_ms INTEGER NOT NULL,
    listeners TEXT NOT NULL
);
CREATE TABLE partitions (
    topic_id BLOB NOT NULL CHECK (length(topic_id) = 16),
    partition INTEGER NOT NULL CHECK (partition >= 0),
    leader INTEGER,
    leader_epoch INTEGER NOT NULL CHECK (leader_epoch >= 0),
    is_created INTEGER NOT NULL DEFAULT 0 CHECK (is_created IN (0, 1)),
    wanted INTEGER,
    recovery_point INTEGER NOT NULL DEFAULT 0,
    log_start_offset INTEGER NOT NULL DEFAULT 0,
    was_closed INTEGER NOT NULL DEFAULT 0 CHECK (was_closed IN (0, 1)),
    PRIMARY KEY (topic_id, partition)
) WITHOUT ROWID;
CREATE TABLE changes (kind TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
"""


def _schema() -> str:
    """The tables of sharing; triggers count each kind of change, so that no statement can forget to."""
    kinds = sorted(set(_COUNTED.values()))
    rows = "".join(f"INSERT INTO changes VALUES ('{kind}', 0);" for kind in kinds)
    triggers = "".join(
        f"CREATE TRIGGER {table}_{event.lower()} AFTER {event} ON {table} BEGIN "
        f"UPDATE changes SET count = count + 1 WHERE kind = '{kind}'; END;"
        for table, kind in _COUNTED.items()
        for event in ("INSERT", "UPDATE", "DELETE")
    )
    return f"{_SCHEMA}{rows}{triggers}"


class SharedSqliteMetadataStore(SqliteMetadataStore):
    """The store of one of several processes. It detects changes of the others within POLL_INTERVAL_S.

    on_placement_changed: awaited when another process may have changed rows of nodes or partitions, and when this one
                          has created or grown a topic: the leader of a partition must be known before the partition is.
    in_creation, in_growth: called on the store's thread, in the transaction that creates or grows the topic of that
                          name, after the change; in_deletion: before the topic becomes a deletion.
    """

    schema_version = SHARED_SCHEMA_VERSION
    is_alone = False
    locking_mode = "NORMAL"
    lock_timeout_s = SHARED_LOCK_TIMEOUT_S

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.on_placement_changed: list[Callable[[], Awaitable[None]]] = []
        self.in_creation: list[InTransaction] = []
        self.in_growth: list[InTransaction] = []
        self.in_deletion: list[InTransaction] = []
        self._known_version = NO_VERSION
        self._known_counts: Mapping[str, int] = {}
        self._polling: asyncio.Task[None] | None = None
        self._following = asyncio.Lock()

    async def open(self) -> None:
        await super().open()
        await self._run(self._changed_kinds)
        self._polling = POLLING.start_retrying(self._poll)

    async def close(self) -> None:
        await self._stop_polling()
        await super().close()

    async def crash(self) -> None:
        await self._stop_polling()
        await super().crash()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run queries on the store's thread, all on one state of the file. Raises StorageError."""

        def run(database: sqlite3.Connection) -> T:
            with transaction(database, "BEGIN"):
                return work(database)

        return await self._query(run)

    async def create_topic(self, topic: TopicMetadata) -> bool:
        # Another process may have created the topic, and this one not have read it yet.
        return await self._change_topic(
            topic.name,
            lambda database: not collides(database, topic.name) and insert_topic(database, topic),
            after=self.in_creation,
        )

    async def set_partition_count(self, name: str, partition_count: int, *, topic_id: bytes, before: int) -> bool:
        return await self._change_topic(
            name, lambda database: resize_topic(database, topic_id, partition_count, before), after=self.in_growth
        )

    async def delete_topic(self, name: str, topic_id: bytes) -> bool:
        def delete(database: sqlite3.Connection) -> bool:
            is_there = database.execute("SELECT 1 FROM topics WHERE name = ? AND topic_id = ?", (name, topic_id))
            if is_there.fetchone() is None:
                return False
            for hook in self.in_deletion:
                hook(database, name)
            return remove_topic(database, name, topic_id)

        return await self.transaction(delete, may_use_reserve=True)

    async def _change_topic(
        self, name: str, change: Callable[[sqlite3.Connection], bool], *, after: list[InTransaction]
    ) -> bool:
        def run(database: sqlite3.Connection) -> bool:
            is_changed = change(database)
            if is_changed:
                for hook in after:
                    hook(database, name)
            return is_changed

        is_changed = await self.transaction(run)
        if is_changed:
            await self._placement_changed()
        return is_changed

    async def _placement_changed(self) -> None:
        for hook in list(self.on_placement_changed):
            await hook()

    # Changes of other processes

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_INTERVAL_S)
            try:
                await self.follow()
            except StorageError as error:
                log.error("metadata_not_polled", reason=str(error))  # noqa: TRY400  # the reason says it all

    async def follow(self) -> None:
        async with self._following:  # so that it ends after the hooks for changes that another call has found
            kinds = await self._run(self._changed_kinds)
            if PLACEMENT in kinds:
                try:
                    await self._placement_changed()
                except BaseException:
                    self._known_version, self._known_counts = NO_VERSION, {}  # the next poll reads all kinds again
                    raise
            for kind, hooks in (
                (TOPICS, self.on_topics_changed),
                (DOCUMENTS, self.on_documents_changed),
            ):
                if kind in kinds:
                    for hook in list(hooks):
                        hook()

    def _changed_kinds(self) -> set[str]:
        """The kinds of changes since the last call, at least those of other processes. On the store's thread."""
        if self._database is None:
            raise StorageError(f"{self.path} is not open")
        try:
            # SQLite raises it with each change by another connection.
            version = self._database.execute("PRAGMA data_version").fetchone()[0]
            if version == self._known_version:
                return set()
            counts: dict[str, int] = dict(self._database.execute("SELECT kind, count FROM changes").fetchall())
        except sqlite3.Error as error:
            raise self._storage_error(error) from error
        changed = {kind for kind, count in counts.items() if self._known_counts.get(kind) != count}
        self._known_version, self._known_counts = version, counts
        return changed

    async def _stop_polling(self) -> None:
        await end_tasks(self._polling)
        self._polling = None

    # Work that needs the file without other processes

    def _restore(self, reason: str) -> bool:
        return False  # other processes may be using it: `prepare_shared` restores

    def _check_founding(self) -> None:
        raise StorageError(f"{self.path} is missing or empty; start the whole broker, not one of its processes")

    async def _copy(self) -> None:
        """One process at a time writes the copy; one that finds another at it tries again with its next round."""
        with contextlib.ExitStack() as cleanup:
            try:
                descriptor = os.open(
                    self.path + COPY_SUFFIX + COPY_LOCK_SUFFIX, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY
                )
                cleanup.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            except OSError as error:
                log.warning("metadata_copy_not_written", path=self.path + COPY_SUFFIX, reason=str(error))
                return
            await super()._copy()

    def _storage_error(self, error: sqlite3.Error) -> StorageError:
        if getattr(error, "sqlite_errorname", "") in ("SQLITE_BUSY", "SQLITE_LOCKED"):
            return StorageError(
                f"{self.path} was locked by another process for {self.lock_timeout_s:.0f} s; "
                "if no process of this broker hangs, stop what else uses the file"
            )
        return super()._storage_error(error)


class _Preparation(SqliteMetadataStore):
    """The file, used alone, to make it one that processes share."""

    schema_version = SHARED_SCHEMA_VERSION

    def _found(self, database: sqlite3.Connection) -> None:
        super()._found(database)
        _upgrade(database)

    def _check(self, database: sqlite3.Connection) -> None:
        if database.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION:
            self._check_kind(database)
            _upgrade(database)
            self._is_copy_old = True
        super()._check(database)

    def _advance_restored(self, database: sqlite3.Connection) -> None:
        # The logs may have been led in higher epochs than the copy knows.
        database.execute(f"UPDATE partitions SET leader_epoch = leader_epoch + {SKIPPED_EPOCHS}")
        super()._advance_restored(database)


SKIPPED_EPOCHS = 1_000_000


def _upgrade(database: sqlite3.Connection) -> None:
    database.executescript(f"BEGIN IMMEDIATE;{_schema()}PRAGMA user_version = {SHARED_SCHEMA_VERSION};COMMIT;")


def leave_to_one(database: sqlite3.Connection) -> None:
    """Make a file one of a single process: nodes and partitions are forgotten. For copies, which nobody serves from."""
    query = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND sql LIKE '%UPDATE changes %'"
    counting = "".join(f"DROP TRIGGER {name};" for (name,) in database.execute(query).fetchall())
    database.executescript(
        f"BEGIN IMMEDIATE;{counting}DROP TABLE nodes;DROP TABLE partitions;DROP TABLE changes;"
        f"PRAGMA user_version = {SCHEMA_VERSION};COMMIT;"
    )


async def prepare_shared(
    path: str,
    *,
    before_founding: Callable[[], None] | None = None,
    on_restoring: Mapping[str, Callable[[bytes], bytes]] | None = None,
    work: Callable[[sqlite3.Connection], None] | None = None,
) -> None:
    """Make a file ready that processes share, while none of them runs. Raises StorageError.

    before_founding, on_restoring: see `SqliteMetadataStore`. work: run in one transaction before processes use it.
    A file that one process has used so far is upgraded; versions without this class refuse it from then on.
    """
    preparation = _Preparation(path, before_founding=before_founding, on_restoring=on_restoring)
    await preparation.open()
    try:
        if work is not None:
            await preparation.transaction(work)
    finally:
        await preparation.close()
