"""Metadata store in SQLite: one file in the data directory, used from one thread of its own.

Beside it are a copy with a checksum, which a start uses if the file is damaged, missing or older than the copy; the
count of changes, which decides that; and a reserve of disk space, with which topics can be deleted and configs changed
while the disk is full.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TypeVar

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.random_ids import base64_uuid
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.metadata.change_count import (
    COUNT_SUFFIX,
    NOT_COUNTED,
    Counted,
    RecordedCount,
    begin_counting,
    counted_state,
    have_same_rows,
    raise_count,
    read_recorded,
)
from fencepost.broker.metadata.copy import COPY_SUFFIX, read_copy, write_copy, write_durably
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.write_ahead_log import DroppedTail, dropped_tail
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.checked_json import INT32_MAX, JsonError, parse_object, shown, text_of, whole_of

log = get_logger(__name__)

COPYING = Place("copy of the metadata", Policy.RETRY)

FILE_NAME = "metadata.sqlite"
TOPIC_ID_BYTES = 16
SCHEMA_VERSION = 1
SHARED_SCHEMA_VERSION = 2
"""Of a file that several processes share: `broker.metadata.shared_sqlite`."""
LOCK_TIMEOUT_S = 0.5  # no other process uses this file; waiting would only delay the message
APPLICATION_ID = 0x46504D44  # "FPMD": distinguishes this file from other SQLite files

OWNER_ONLY = 0o600
"""The file holds users' keys."""

COPY_AFTER_S = 1.0
"""Changes within this time are copied together."""

RESERVE_SUFFIX = ".reserve"
RESERVE_BYTES = 1024 * 1024
_NO_ROOM = frozenset({"SQLITE_FULL", "SQLITE_IOERR_WRITE"})  # the second for a quota

DAMAGED_SUFFIX = ".damaged"
_FILE_SUFFIXES = ("", "-wal", "-shm")

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
    """A store in which each change is one transaction, synced before the call returns (write-ahead log, `synchronous =
    FULL`).

    Only this process uses the file, so no other node changes anything.
    schema_version: the version of the files that it opens; others are refused.
    is_alone: no other process changes the file during `open`, so that its age can be judged.
    """

    schema_version = SCHEMA_VERSION
    is_alone = True
    locking_mode = "EXCLUSIVE"
    lock_timeout_s = LOCK_TIMEOUT_S

    def __init__(
        self,
        path: str,
        *,
        before_founding: Callable[[], None] | None = None,
        on_restoring: Mapping[str, Callable[[bytes], bytes]] | None = None,
    ) -> None:
        """before_founding: called before a new store is created; raises StorageError to forbid it.
        on_restoring: per key of a versioned value: advances a value from a copy that may be old, so that it is safe to
            use.
        """
        self.on_topics_changed: list[Callable[[], None]] = []
        self.on_documents_changed: list[Callable[[], None]] = []
        self.path = path
        self._before_founding = before_founding
        self._executor: ThreadPoolExecutor | None = None
        self._database: sqlite3.Connection | None = None
        self._on_restoring = on_restoring or {}
        self._copying: asyncio.Task[None] | None = None
        self._is_copy_old = False
        self._cluster_id = ""
        self._recorded: RecordedCount | None = None
        self._has_count_failed = False

    async def open(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="metadata-store")
        try:
            await self._run(self._open)
        except BaseException:
            await self.close()
            raise
        if self._is_copy_old:
            self._copy_later()

    async def close(self) -> None:
        if self._executor is None:
            return
        await end_tasks(self._copying)
        self._copying = None
        if self._is_copy_old:
            await self._copy()
        await self._release(self._executor)

    async def crash(self) -> None:
        """Release the file as the end of the process would, without a last copy."""
        if self._executor is None:
            return
        if self._copying is not None:
            self._copying.cancel()
            self._copying = None
        await self._release(self._executor)

    async def _release(self, executor: ThreadPoolExecutor) -> None:
        """Close the file on its thread, and end the thread."""
        await asyncio.get_running_loop().run_in_executor(executor, self._close)
        executor.shutdown()
        self._executor = None

    async def transaction(self, work: Callable[[sqlite3.Connection], T], *, may_use_reserve: bool = False) -> T:
        """Run work on the store's thread in one transaction, which is undone if it raises. Raises StorageError.

        It may run again if the disk is full: work changes nothing but the database.
        """

        def run(database: sqlite3.Connection) -> T:
            with transaction(database):
                return work(database)

        return await self._query(run, changes=True, may_use_reserve=may_use_reserve)

    async def cluster_id(self) -> str:
        def read(database: sqlite3.Connection) -> str:
            row = database.execute("SELECT cluster_id FROM cluster").fetchone()
            return str(row[0])

        return await self._query(read)

    async def follow(self) -> None:
        """No other process uses the file."""

    async def load_topics(self) -> list[TopicMetadata]:
        return await self._query(lambda database: _read_topics(database, "topics"))

    async def load_deletions(self) -> list[TopicMetadata]:
        return await self._query(lambda database: _read_topics(database, "deletions"))

    async def create_topic(self, topic: TopicMetadata) -> bool:
        return await self._query(lambda database: insert_topic(database, topic), changes=True)

    async def delete_topic(self, name: str, topic_id: bytes) -> bool:
        return await self.transaction(lambda database: remove_topic(database, name, topic_id), may_use_reserve=True)

    async def finish_deletion(self, topic_id: bytes) -> None:
        await self._change("DELETE FROM deletions WHERE topic_id = ?", (topic_id,), may_use_reserve=True)

    async def set_partition_count(self, name: str, partition_count: int, *, topic_id: bytes, before: int) -> bool:
        return await self._query(
            lambda database: resize_topic(database, topic_id, partition_count, before), changes=True
        )

    async def set_topic_configs(
        self, name: str, configs: Mapping[str, str], *, topic_id: bytes, before: Mapping[str, str]
    ) -> bool:
        def replace(database: sqlite3.Connection) -> bool:
            row = database.execute("SELECT configs FROM topics WHERE topic_id = ?", (topic_id,)).fetchone()
            if row is None or _read_configs(row[0]) != before:
                return False
            statement = "UPDATE topics SET configs = ? WHERE topic_id = ?"
            return _has_changed(database, statement, (json.dumps(dict(configs)), topic_id))

        return await self.transaction(replace, may_use_reserve=True)

    async def read_versioned(self, key: str) -> tuple[bytes | None, int]:
        def read(database: sqlite3.Connection) -> tuple[bytes | None, int]:
            row = database.execute("SELECT value, version FROM versioned_values WHERE key = ?", (key,)).fetchone()
            return (None, 0) if row is None else (bytes(row[0]), int(row[1]))

        return await self._query(read)

    async def compare_and_set(
        self, key: str, value: bytes, expected_version: int, *, may_use_reserve: bool = False
    ) -> bool:
        if expected_version == 0:
            return await self._change(
                "INSERT INTO versioned_values (key, value, version) VALUES (?, ?, 1) ON CONFLICT (key) DO NOTHING",
                (key, value),
                may_use_reserve=may_use_reserve,
            )
        return await self._change(
            "UPDATE versioned_values SET value = ?, version = version + 1 WHERE key = ? AND version = ?",
            (value, key, expected_version),
            may_use_reserve=may_use_reserve,
        )

    # On the store's thread

    def _open(self) -> None:
        try:
            try:
                self._open_file()
            except sqlite3.OperationalError:
                raise  # in use, or a disk failure: the file may be undamaged
            except (sqlite3.DatabaseError, _ForeignDatabaseError) as error:
                self._close()
                if not self._restore(str(error)):
                    raise
                self._open_file()
        except sqlite3.DatabaseError as error:
            raise self._storage_error(error) from error
        self._take_reserve()

    def _open_file(self) -> None:
        """Raises sqlite3.Error, StorageError."""
        is_new = not os.path.exists(self.path) or not os.path.getsize(self.path)
        if is_new and self._restore("it is missing or empty"):
            is_new = False
        if is_new:
            self._check_founding()
            with contextlib.suppress(OSError):  # SQLite reports the reason
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY))
        self._let_only_the_owner_in()
        dropped = self._dropped_tail() if self.is_alone else DroppedTail()
        # The connection is opened and closed on the store's only thread, but it may be collected on another.
        self._database = database = sqlite3.connect(
            self.path, timeout=self.lock_timeout_s, isolation_level=None, check_same_thread=False
        )
        database.execute(f"PRAGMA locking_mode = {self.locking_mode}")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            if not is_new and os.path.exists(self.path + COPY_SUFFIX):
                raise sqlite3.DatabaseError("it holds nothing")
            self._found(database)
        self._check(database)
        if self.is_alone:
            self._compare_with_copy(database, dropped)
            begin_counting(database)
            if dropped != DroppedTail():
                # SQLite continues behind the last valid transaction, and leaves the rest there, to be found once more.
                with contextlib.suppress(sqlite3.OperationalError):  # the disk is full: it is
                    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._cluster_id = counted_state(database).cluster_id
        self._record_count(database)

    # Which state is the newest

    def _dropped_tail(self) -> DroppedTail:
        """Return the part of the write-ahead log that SQLite is about to drop."""
        try:
            with open(f"{self.path}-wal", "rb") as file:
                return dropped_tail(file.read())
        except OSError:  # missing after a clean stop; SQLite reports one that cannot be read
            return DroppedTail()

    def _compare_with_copy(self, database: sqlite3.Connection, dropped: DroppedTail) -> None:
        """Raises sqlite3.DatabaseError if the copy is newer than the file, or as new and the file is damaged.

        A file that went back, with no newer copy, is used: an error says so, and no producer id is allocated twice.
        """
        opened = counted_state(database)
        recorded = self._recorded_count(opened.cluster_id)
        with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            copied = self._load_copy(copy, opened.cluster_id)
            if copied > opened.change:
                raise sqlite3.DatabaseError(f"it is older than its copy: it has change {opened.change}, not {copied}")
            if copied != NOT_COUNTED and copied == opened.change:
                if dropped.lost_commits:
                    raise sqlite3.DatabaseError(f"{self.path}-wal is damaged; the copy has change {copied}, too")
                self._check(copy)
                if not have_same_rows(database, copy):
                    raise sqlite3.DatabaseError(f"it is not what its copy of the same change {copied} says")
        self._is_copy_old = self._is_copy_old or copied == NOT_COUNTED or copied < opened.change
        lost_count = max(recorded - opened.change, dropped.lost_commits)
        if lost_count > 0:
            self._went_back(database, opened.change, lost_count)
        elif dropped.is_torn:
            log.warning(
                "metadata_tail_dropped",
                path=f"{self.path}-wal",
                change=opened.change,
                reason="its last change is not whole: the power failed while it was written, or the file is damaged",
            )

    def _recorded_count(self, cluster_id: str) -> int:
        recorded = read_recorded(self.path + COUNT_SUFFIX)
        return recorded.change if recorded is not None and recorded.cluster_id == cluster_id else NOT_COUNTED

    def _load_copy(self, copy: sqlite3.Connection, cluster_id: str) -> int:
        """Load the copy, and return its count; NOT_COUNTED if it is another cluster's."""
        image = read_copy(self.path + COPY_SUFFIX)
        if image is None:
            return NOT_COUNTED
        try:
            copy.deserialize(image)
            copied = counted_state(copy)
        except sqlite3.Error:
            return NOT_COUNTED  # its checksum is right, so another program has made it
        if copied.cluster_id == cluster_id:
            return copied.change
        log.warning(
            "metadata_copy_ignored",
            path=self.path + COPY_SUFFIX,
            reason=f"it is of cluster {copied.cluster_id}, and {self.path} is of cluster {cluster_id}",
        )
        return NOT_COUNTED

    def _went_back(self, database: sqlite3.Connection, count: int, lost_count: int) -> None:
        aside = self._keep_aside_copies()
        begin_counting(database)
        with transaction(database):
            self._advance(database, count + lost_count)
        self._is_copy_old = True
        log.error(
            "metadata_went_back",
            path=self.path,
            change=count,
            lost_changes=lost_count,
            kept_aside=aside,
            reason=f"the file has change {count}, and at least {lost_count} later ones had been acknowledged; its copy "
            "is not newer",
            remedy="what was created, changed or deleted last is as it was before: compare topics, users and ACLs with "
            "what you expect, or restore a backup of the whole data directory",
        )

    def _keep_aside_copies(self) -> str:
        """Copy the file and its write-ahead log, before SQLite writes into them; return the copy's path."""
        aside = self.path + DAMAGED_SUFFIX
        for suffix in ("", "-wal"):
            with contextlib.suppress(OSError):  # missing, or the disk is full
                with open(self.path + suffix, "rb") as file:
                    content = file.read()
                write_durably(aside + suffix, content)
        return aside

    def _advance(self, database: sqlite3.Connection, known_count: int) -> None:
        """Make an earlier state, of which later ones have been used, safe to use. known_count: of the latest known."""
        # A topic of that name may have been created since.
        database.execute("DELETE FROM deletions")
        self._advance_restored(database)
        raise_count(database, known_count + 1)

    def _record_count(self, database: sqlite3.Connection) -> None:
        """Write the count beside the file, after a commit. Raises sqlite3.Error."""
        path = self.path + COUNT_SUFFIX
        try:
            if self._recorded is None:
                self._recorded = RecordedCount(path, mode=OWNER_ONLY)
            change = database.execute("SELECT count FROM change_count").fetchone()[0]
            self._recorded.write(Counted(self._cluster_id, change))
            self._has_count_failed = False
        except OSError as error:
            if not self._has_count_failed:
                self._has_count_failed = True
                log.warning("metadata_count_not_written", path=path, reason=str(error))

    def _let_only_the_owner_in(self) -> None:
        """Restrict the permissions to the owner; files that SQLite creates beside this one get them, too."""
        for suffix in (*_FILE_SUFFIXES, COPY_SUFFIX):
            path = self.path + suffix
            with contextlib.suppress(OSError):  # missing, or owned by another user
                mode = stat.S_IMODE(os.stat(path).st_mode)
                if mode & 0o077:
                    os.chmod(path, OWNER_ONLY)
                    log.warning("metadata_file_permissions_restricted", path=path, mode=f"{mode:o}")

    def _restore(self, reason: str) -> bool:
        """Replace the file by the copy and keep the damaged one; False if there is no good copy.

        An old copy deletes nothing: topics that it does not know are strays, which the start reports.
        """
        copy_path = self.path + COPY_SUFFIX
        image = read_copy(copy_path)
        if image is None:
            return False
        with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            database.deserialize(image)
            try:
                self._check(database)
            except StorageError as error:
                raise StorageError(str(error).replace(self.path, copy_path)) from error
            begin_counting(database)
            copied = counted_state(database)
            recorded = self._recorded_count(copied.cluster_id)
            self._advance(database, max(copied.change, recorded))
            image = database.serialize()
        copied_at = dt.datetime.fromtimestamp(os.stat(copy_path).st_mtime, dt.UTC).isoformat()
        for suffix in reversed(_FILE_SUFFIXES):  # the file itself last: without it, a start repeats this
            with contextlib.suppress(FileNotFoundError):
                os.replace(self.path + suffix, self.path + DAMAGED_SUFFIX + suffix)
        write_durably(self.path, image)
        self._is_copy_old = True
        log.error(
            "metadata_restored_from_copy",
            path=self.path,
            reason=reason,
            copied_at=copied_at,
            change=copied.change,
            **({"lost_changes": recorded - copied.change} if recorded > copied.change else {}),
            kept_aside=self.path + DAMAGED_SUFFIX,
            remedy="look for stray_partition_found: topics created since the copy are not known any more; what was "
            "changed or deleted since is as it was before",
        )
        return True

    def _advance_restored(self, database: sqlite3.Connection) -> None:
        """Advance the values that were certainly used since the copy: its age is unknown."""
        for key, advance in self._on_restoring.items():
            for (value,) in database.execute("SELECT value FROM versioned_values WHERE key = ?", (key,)).fetchall():
                database.execute(
                    "UPDATE versioned_values SET value = ?, version = version + 1 WHERE key = ?",
                    (advance(bytes(value)), key),
                )

    def _check_founding(self) -> None:
        if self._before_founding is not None:
            self._before_founding()
        recorded = read_recorded(self.path + COUNT_SUFFIX)
        if recorded is not None:
            raise StorageError(
                f"{self.path} is missing or empty, and there is no good copy, but {self.path}{COUNT_SUFFIX} knows of "
                f"{recorded.change} changes of cluster {recorded.cluster_id}. Restore the file from a backup; to begin "
                "anew, without its topics, users and ACLs, remove that one"
            )

    def _found(self, database: sqlite3.Connection) -> None:
        self._check_founding()
        database.executescript(
            f"BEGIN IMMEDIATE;{_SCHEMA}"
            f"INSERT INTO cluster VALUES (1, '{base64_uuid()}');"
            f"PRAGMA application_id = {APPLICATION_ID};PRAGMA user_version = {SCHEMA_VERSION};COMMIT;"
        )
        # The file's own directory entry; SQLite syncs it for its journals only.
        descriptor = os.open(os.path.dirname(os.path.abspath(self.path)), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _check_kind(self, database: sqlite3.Connection) -> None:
        if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise _ForeignDatabaseError(
                f"{self.path} is not a metadata file of this broker; move it out of the data directory"
            )

    def _check(self, database: sqlite3.Connection) -> None:
        self._check_kind(database)
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version == SHARED_SCHEMA_VERSION != self.schema_version:
            raise StorageError(
                f"{self.path} belongs to a broker of several processes, whose directories are below it; "
                "start it as one, with --processes N: 1 is a number, too"
            )
        if version != self.schema_version:
            raise StorageError(
                f"{self.path} has format {version}, this broker reads format {self.schema_version}; "
                "start the version of the broker that wrote it"
            )
        # Compares tables with their indexes, too.
        verdict = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        if not database.execute("SELECT count(*) FROM cluster").fetchone()[0]:
            raise sqlite3.DatabaseError("it has no cluster id")

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._recorded is not None:
            self._recorded.close()
            self._recorded = None

    def _take_reserve(self) -> None:
        """Reserve disk space, if enough is free."""
        path = self.path + RESERVE_SUFFIX
        try:
            if os.path.exists(path) and os.path.getsize(path) >= RESERVE_BYTES:
                return
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
            try:
                os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
            except OSError:
                os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)
        except (OSError, AttributeError):
            pass  # tried again after the next change, and at the next start; some systems have no such call

    def _release_reserve(self) -> bool:
        """Release the reserve; return whether there was any."""
        path = self.path + RESERVE_SUFFIX
        try:
            if not os.path.getsize(path):
                return False
            os.truncate(path, 0)
        except OSError:
            return False
        log.warning("metadata_reserve_used", path=path, reason="the disk is full")
        return True

    def _storage_error(self, error: sqlite3.Error) -> StorageError:
        code = getattr(error, "sqlite_errorname", "")
        if code in ("SQLITE_BUSY", "SQLITE_LOCKED"):
            return StorageError(
                f"{os.path.dirname(self.path)} is in use by another broker: it holds a lock on {self.path}. "
                "Stop that one, or give this one a directory of its own"
            )
        if isinstance(error, sqlite3.OperationalError):
            advice = ""
            if code.startswith("SQLITE_IOERR_READ") and read_copy(self.path + COPY_SUFFIX) is not None:
                advice = f". {self.path}{COPY_SUFFIX} is good: the start uses it if {self.path} is moved away"
            return StorageError(
                f"{self.path} cannot be used: {error}; check the disk and the permissions of its directory{advice}"
            )
        return StorageError(
            f"{self.path} is damaged ({error}); the partitions' logs are not affected. "
            "Restore the file from a backup; without one, start with another data directory and keep this one"
        )

    # From the event loop

    async def _run(self, work: Callable[[], T]) -> T:
        """Run work on the store's thread. A cancelled caller continues only when the work is done: the thread completes
        it all the same, and the caller must hold its locks until then."""
        running = self._submit(work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.gather(running, return_exceptions=True)
            raise

    def _submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        if self._executor is None:
            raise StorageError(f"{self.path} is not open")
        return asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _query(
        self, work: Callable[[sqlite3.Connection], T], *, changes: bool = False, may_use_reserve: bool = False
    ) -> T:
        """Run work on the store's thread. may_use_reserve: for changes that free space on a full disk."""

        def guarded() -> T:
            if self._database is None:
                raise StorageError(f"{self.path} is not open")
            try:
                try:
                    outcome = work(self._database)
                except sqlite3.OperationalError as error:
                    has_no_room = getattr(error, "sqlite_errorname", "") in _NO_ROOM
                    if not (has_no_room and may_use_reserve and self._release_reserve()):
                        raise
                    outcome = work(self._database)
                if changes:
                    self._record_count(self._database)
            except sqlite3.Error as error:
                raise self._storage_error(error) from error
            return outcome

        outcome = await self._run(guarded)
        if changes:
            self._copy_later()
        return outcome

    async def _change(self, statement: str, parameters: tuple[object, ...], *, may_use_reserve: bool = False) -> bool:
        """Run one statement as a transaction; return whether it changed a row."""
        return await self._query(
            lambda database: _has_changed(database, statement, parameters),
            changes=True,
            may_use_reserve=may_use_reserve,
        )

    # The copy

    def _copy_later(self) -> None:
        self._is_copy_old = True
        if self._copying is None or self._copying.done():
            self._copying = COPYING.start_retrying(self._copy_changes)

    async def _copy_changes(self) -> None:
        while self._is_copy_old:
            await asyncio.sleep(COPY_AFTER_S)
            await self._copy()

    async def _copy(self) -> None:
        """Write the copy on its own thread: no query waits for its sync. After a failure the next change writes it
        again."""
        self._is_copy_old = False
        try:
            image = await self._query(lambda database: database.serialize())
            with ThreadPoolExecutor(1, thread_name_prefix="metadata-copy") as executor:
                await asyncio.get_running_loop().run_in_executor(executor, write_copy, self.path + COPY_SUFFIX, image)
            await self._run(self._take_reserve)
        except OSError as error:
            log.warning("metadata_copy_not_written", path=self.path + COPY_SUFFIX, reason=str(error))
        except BaseException:
            self._is_copy_old = True
            raise


class _ForeignDatabaseError(StorageError):
    """The file belongs to another program, or its first page is damaged."""


@contextlib.contextmanager
def transaction(database: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Run a block as one transaction, which is undone if the block raises. begin: the statement that opens it."""
    database.execute(begin)
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:  # some errors have ended it already
            database.execute("ROLLBACK")
        raise


def insert_topic(database: sqlite3.Connection, topic: TopicMetadata) -> bool:
    """Add a topic; return False when the name is taken."""
    return _has_changed(
        database,
        "INSERT INTO topics (name, topic_id, partition_count, configs) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (name) DO NOTHING",
        (topic.name, topic.topic_id, topic.partition_count, json.dumps(dict(topic.configs))),
    )


def collides(database: sqlite3.Connection, name: str) -> bool:
    """Whether there is another topic whose name collides with this one."""
    found = database.execute(
        "SELECT 1 FROM topics WHERE name != ?1 AND replace(name, '.', '_') = replace(?1, '.', '_')", (name,)
    )
    return found.fetchone() is not None


def resize_topic(database: sqlite3.Connection, topic_id: bytes, partition_count: int, before: int) -> bool:
    """Set the number of a topic's partitions; return False when that is not its number before."""
    statement = "UPDATE topics SET partition_count = ? WHERE topic_id = ? AND partition_count = ?"
    return _has_changed(database, statement, (partition_count, topic_id, before))


def remove_topic(database: sqlite3.Connection, name: str, topic_id: bytes) -> bool:
    """Turn a topic into a deletion, in a transaction; return False when there is no topic with this name and id."""
    database.execute(
        "INSERT INTO deletions (topic_id, name, partition_count, configs) "
        "SELECT topic_id, name, partition_count, configs FROM topics WHERE name = ? AND topic_id = ?",
        (name, topic_id),
    )
    return _has_changed(database, "DELETE FROM topics WHERE name = ? AND topic_id = ?", (name, topic_id))


def _has_changed(database: sqlite3.Connection, statement: str, parameters: tuple[object, ...]) -> bool:
    """Run a statement; return whether it changed a row."""
    return database.execute(statement, parameters).rowcount > 0


def _read_topics(database: sqlite3.Connection, table: str) -> list[TopicMetadata]:
    rows = database.execute(f"SELECT name, topic_id, partition_count, configs FROM {table}")
    return [_read_topic(*row) for row in rows]


def _read_topic(name: object, topic_id: object, partition_count: object, configs: object) -> TopicMetadata:
    """A row, whose values may be of any type: SQLite does not check them."""
    try:
        if not isinstance(topic_id, bytes) or len(topic_id) != TOPIC_ID_BYTES:
            raise JsonError(f"the topic id must be {TOPIC_ID_BYTES} bytes; it is {shown(topic_id)}")
        return TopicMetadata(
            text_of(name, "the name"),
            topic_id,
            whole_of(partition_count, "the number of partitions", 1, INT32_MAX),
            MappingProxyType(_read_configs(text_of(configs, "the configs"))),
        )
    except JsonError as error:
        raise sqlite3.DatabaseError(f"the row of the topic {shown(name)} cannot be read: {error}") from None


def _read_configs(text: str) -> dict[str, str]:
    try:
        return parse_object(text).texts_by_name()
    except ValueError as error:
        raise sqlite3.DatabaseError(f"configs of a topic cannot be read: {error}") from error
