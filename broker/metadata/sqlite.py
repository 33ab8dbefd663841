"""The embedded metadata store: one SQLite file in the data directory, used from one thread of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TypeVar

from broker.disk import StorageError
from broker.metadata.image import TopicMetadata
from broker.metadata.store import new_cluster_id

FILE_NAME = "metadata.sqlite"
SCHEMA_VERSION = 1
LOCK_TIMEOUT_S = 0.5  # nobody else has business in this file; waiting would only delay the message
APPLICATION_ID = 0x46504D44  # "FPMD": tells this file from any other SQLite file

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE cluster (one INTEGER PRIMARY KEY CHECK (one = 1), cluster_id TEXT NOT NULL);
CREATE TABLE topics (
    name TEXT PRIMARY KEY,
    topic_id BLOB NOT NULL UNIQUE CHECK (length(topic_id) = 16),
    partition_count INTEGER NOT NULL CHECK (partition_count > 0),
    configs TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE deletions (
    topic_id BLOB PRIMARY KEY,
    name TEXT NOT NULL,
    partition_count INTEGER NOT NULL,
    configs TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE versioned_values (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID;
"""


class SqliteMetadataStore:
    """Every change is one transaction, synced before the call returns (write-ahead log, `synchronous = FULL`).

    The file is one process's alone, so nobody else changes topics.
    """

    def __init__(self, path: str, *, before_founding: Callable[[], None] | None = None) -> None:
        """before_founding: called before a store is made where there is none; raises StorageError to forbid it."""
        self.on_topics_changed: list[Callable[[], None]] = []
        self.path = path
        self._before_founding = before_founding
        self._executor: ThreadPoolExecutor | None = None
        self._database: sqlite3.Connection | None = None

    async def open(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="metadata-store")
        try:
            await self._run(self._open)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._executor is None:
            return
        await asyncio.get_running_loop().run_in_executor(self._executor, self._close)
        self._executor.shutdown()
        self._executor = None

    async def cluster_id(self) -> str:
        def read(database: sqlite3.Connection) -> str:
            row = database.execute("SELECT cluster_id FROM cluster").fetchone()
            return str(row[0])

        return await self._query(read)

    async def load_topics(self) -> list[TopicMetadata]:
        return await self._query(lambda database: _read_topics(database, "topics"))

    async def load_deletions(self) -> list[TopicMetadata]:
        return await self._query(lambda database: _read_topics(database, "deletions"))

    async def create_topic(self, topic: TopicMetadata) -> bool:
        return await self._change(
            "INSERT INTO topics (name, topic_id, partition_count, configs) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name) DO NOTHING",
            (topic.name, topic.topic_id, topic.partition_count, json.dumps(dict(topic.configs))),
        )

    async def delete_topic(self, name: str) -> bool:
        def delete(database: sqlite3.Connection) -> bool:
            with database:
                database.execute("BEGIN IMMEDIATE")
                database.execute(
                    "INSERT INTO deletions (topic_id, name, partition_count, configs) "
                    "SELECT topic_id, name, partition_count, configs FROM topics WHERE name = ?",
                    (name,),
                )
                return database.execute("DELETE FROM topics WHERE name = ?", (name,)).rowcount > 0

        return await self._query(delete)

    async def finish_deletion(self, topic_id: bytes) -> None:
        await self._change("DELETE FROM deletions WHERE topic_id = ?", (topic_id,))

    async def set_partition_count(self, name: str, partition_count: int) -> bool:
        return await self._change("UPDATE topics SET partition_count = ? WHERE name = ?", (partition_count, name))

    async def set_topic_configs(self, name: str, configs: Mapping[str, str]) -> bool:
        return await self._change("UPDATE topics SET configs = ? WHERE name = ?", (json.dumps(dict(configs)), name))

    async def read_versioned(self, key: str) -> tuple[bytes | None, int]:
        def read(database: sqlite3.Connection) -> tuple[bytes | None, int]:
            row = database.execute("SELECT value, version FROM versioned_values WHERE key = ?", (key,)).fetchone()
            return (None, 0) if row is None else (bytes(row[0]), int(row[1]))

        return await self._query(read)

    async def compare_and_set(self, key: str, value: bytes, expected_version: int) -> bool:
        if expected_version == 0:
            return await self._change(
                "INSERT INTO versioned_values (key, value, version) VALUES (?, ?, 1) ON CONFLICT (key) DO NOTHING",
                (key, value),
            )
        return await self._change(
            "UPDATE versioned_values SET value = ?, version = version + 1 WHERE key = ? AND version = ?",
            (value, key, expected_version),
        )

    # On the store's thread

    def _open(self) -> None:
        try:
            is_new = not os.path.exists(self.path)
            if is_new:
                self._insist_that_founding_is_right()
            # The connection is opened and closed on the store's only thread, but it may be collected on another.
            self._database = database = sqlite3.connect(
                self.path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            if is_new or not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                self._found(database)
            self._check(database)
        except sqlite3.DatabaseError as error:
            raise self._storage_error(error) from error

    def _insist_that_founding_is_right(self) -> None:
        if self._before_founding is not None:
            self._before_founding()

    def _found(self, database: sqlite3.Connection) -> None:
        self._insist_that_founding_is_right()
        database.executescript(
            f"BEGIN IMMEDIATE;{_SCHEMA}"
            f"INSERT INTO cluster VALUES (1, '{new_cluster_id()}');"
            f"PRAGMA application_id = {APPLICATION_ID};PRAGMA user_version = {SCHEMA_VERSION};COMMIT;"
        )
        # The file's own directory entry; SQLite syncs it for its journals only.
        descriptor = os.open(os.path.dirname(os.path.abspath(self.path)), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _check(self, database: sqlite3.Connection) -> None:
        application_id = database.execute("PRAGMA application_id").fetchone()[0]
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if application_id != APPLICATION_ID:
            raise StorageError(f"{self.path} is not a metadata file of this broker; move it out of the data directory")
        if version != SCHEMA_VERSION:
            raise StorageError(
                f"{self.path} has format {version}, this broker reads format {SCHEMA_VERSION}; "
                "start the version of the broker that wrote it"
            )
        verdict = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _storage_error(self, error: sqlite3.Error) -> StorageError:
        code = getattr(error, "sqlite_errorname", "")
        if code in ("SQLITE_BUSY", "SQLITE_LOCKED"):
            return StorageError(
                f"{os.path.dirname(self.path)} is in use by another broker: it holds a lock on {self.path}. "
                "Stop that one, or give this one a directory of its own"
            )
        if isinstance(error, sqlite3.OperationalError):
            return StorageError(
                f"{self.path} cannot be used: {error}; check the disk and the permissions of its directory"
            )
        return StorageError(
            f"{self.path} is damaged ({error}); the partitions' logs are not affected. "
            "Restore the file from a backup; without one, start with another data directory and keep this one"
        )

    # From the event loop

    async def _run(self, work: Callable[[], T]) -> T:
        if self._executor is None:
            raise StorageError(f"{self.path} is not open")
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _query(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def guarded() -> T:
            if self._database is None:
                raise StorageError(f"{self.path} is not open")
            try:
                return work(self._database)
            except sqlite3.Error as error:
                raise self._storage_error(error) from error

        return await self._run(guarded)

    async def _change(self, statement: str, parameters: tuple[object, ...]) -> bool:
        """Run one statement, a transaction of its own; whether it changed a row."""
        return await self._query(lambda database: database.execute(statement, parameters).rowcount > 0)


def _read_topics(database: sqlite3.Connection, table: str) -> list[TopicMetadata]:
    rows = database.execute(f"SELECT name, topic_id, partition_count, configs FROM {table}")
    return [
        TopicMetadata(name, bytes(topic_id), partition_count, MappingProxyType(_read_configs(configs)))
        for name, topic_id, partition_count, configs in rows
    ]


def _read_configs(text: str) -> dict[str, str]:
    try:
        configs: dict[str, str] = json.loads(text)
    except ValueError as error:
        raise sqlite3.DatabaseError(f"configs of a topic cannot be read: {error}") from error
    return configs
