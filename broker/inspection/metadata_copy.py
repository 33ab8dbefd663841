"""Temporary copy of a data directory's metadata: SQLite writes beside a file even when it only reads it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from typing import NamedTuple

from fencepost.broker.cluster.node_directories import is_node_directory
from fencepost.broker.inspection.trial_start import collected_events
from fencepost.broker.metadata.copy import COPY_SUFFIX
from fencepost.broker.metadata.shared_sqlite import leave_to_one
from fencepost.broker.metadata.sqlite import FILE_NAME, OWNER_ONLY, SHARED_SCHEMA_VERSION, SqliteMetadataStore
from fencepost.broker.storage.disk import StorageError

COPIED_SUFFIXES = ("", "-wal", COPY_SUFFIX)


class CopiedMetadata(NamedTuple):
    """A store on the copy: it may be read and, without effect, written.

    restored: why, and from a copy of which time, the next start restores the file; None where it does not.
    """

    store: SqliteMetadataStore
    restored: str | None


class _Copy(SqliteMetadataStore):
    """The metadata for one directory: also where they are those of several processes."""

    def _check(self, database: sqlite3.Connection) -> None:
        if database.execute("PRAGMA user_version").fetchone()[0] == SHARED_SCHEMA_VERSION:
            leave_to_one(database)
        super()._check(database)


@contextlib.asynccontextmanager
async def opened_copy(data_directory: str) -> AsyncIterator[CopiedMetadata]:
    """Open the metadata of a stopped broker's directory, or of one of its nodes, as the next start opens them.

    Raises StorageError when they are missing or damaged, and there is no good copy beside them either.
    """
    place = os.path.dirname(data_directory) if is_node_directory(data_directory) else data_directory
    path = os.path.join(place, FILE_NAME)

    def require_metadata() -> None:
        state = "empty" if os.path.exists(path) else "missing"
        raise StorageError(f"{path} is {state}: it lists the topics")

    with tempfile.TemporaryDirectory(prefix="fencepost-") as copies:
        copy = os.path.join(copies, FILE_NAME)
        _copy(path, copy)
        store = _Copy(copy, before_founding=require_metadata)
        try:
            with collected_events() as events:
                await store.open()
                await store.load_topics()
        except StorageError as error:
            await store.close()
            raise StorageError(str(error).replace(copies, place)) from error
        restored = next((event for event in events if event["event"] == "metadata_restored_from_copy"), None)
        reason = None if restored is None else f"{restored['reason']}; its copy is of {restored['copied_at']}"
        try:
            yield CopiedMetadata(store, None if reason is None else reason.replace(copies, place))
        finally:
            await store.close()


def _copy(path: str, copy: str) -> None:
    """Copy with the file's times: the time of the copy is the age of its topics."""
    for suffix in COPIED_SUFFIXES:
        try:
            shutil.copy2(path + suffix, copy + suffix)
            os.chmod(copy + suffix, OWNER_ONLY)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(f"cannot read {path + suffix}: {error.strerror}") from error
