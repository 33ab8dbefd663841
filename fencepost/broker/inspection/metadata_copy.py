"""Temporary copy of a data directory's metadata: SQLite writes beside a file even when it only reads it.

And their repair, which does the same as the next start.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from fencepost.broker.cluster.processes.node_directories import is_node_directory
from fencepost.broker.inspection.trial_start import collected_events
from fencepost.broker.metadata.change_count import COUNT_SUFFIX, read_recorded
from fencepost.broker.metadata.copy import COPY_SUFFIX, read_copy
from fencepost.broker.metadata.shared_sqlite import leave_to_one, prepare_shared
from fencepost.broker.metadata.sqlite import FILE_NAME, OWNER_ONLY, SHARED_SCHEMA_VERSION, SqliteMetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.transaction.producer_ids import BLOCK_KEY, above_reserved_blocks

COPIED_SUFFIXES = ("", "-wal", COPY_SUFFIX, COUNT_SUFFIX)
_NEEDLESS = (COPY_SUFFIX, COUNT_SUFFIX)
"""Of files without which a start has the metadata all the same."""


class CopiedMetadata(NamedTuple):
    """A store on the copy: it may be read and, without effect, written.

    restored:  reason for which the next start restores the file, and time of the copy; None if it does not.
    went_back: reason for which the file is older than it was, with no newer copy; None if it is not.
    unusable:  the paths of the copy and the count, if they are there and cannot be used.
    """

    store: SqliteMetadataStore
    restored: str | None
    went_back: str | None = None
    unusable: tuple[str, ...] = ()


class _Copy(SqliteMetadataStore):
    """The metadata for one directory: also if they are those of several processes."""

    def _check(self, database: sqlite3.Connection) -> None:
        if database.execute("PRAGMA user_version").fetchone()[0] == SHARED_SCHEMA_VERSION:
            leave_to_one(database)
        super()._check(database)


@contextlib.asynccontextmanager
async def opened_copy(data_directory: str) -> AsyncIterator[CopiedMetadata]:
    """Open the metadata of a stopped broker's directory, or of one of its nodes, as the next start opens them.

    Raises StorageError when they are missing or damaged, and there is no good copy beside them either.
    """
    path = metadata_path(data_directory)
    place = os.path.dirname(path)

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
        found = {str(event["event"]): event for event in events}
        restored, went_back = found.get("metadata_restored_from_copy"), found.get("metadata_went_back")
        reason = None
        if restored is not None:
            reason = f"{restored['reason']}; its copy is of {restored['copied_at']}".replace(copies, place)
            if "lost_changes" in restored:
                reason += f", and lacks the last {restored['lost_changes']} changes"
        try:
            yield CopiedMetadata(
                store,
                reason,
                None if went_back is None else str(went_back["reason"]).replace(copies, place),
                tuple(_unusable(path)),
            )
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
            if suffix not in _NEEDLESS:
                raise StorageError(f"cannot read {path + suffix}: {error.strerror}") from error


def _unusable(path: str) -> Iterator[str]:
    for suffix, read in ((COPY_SUFFIX, read_copy), (COUNT_SUFFIX, read_recorded)):
        if os.path.exists(path + suffix) and read(path + suffix) is None:
            yield path + suffix


def metadata_path(data_directory: str) -> str:
    """The path of the metadata of a data directory, or of the broker that one of its nodes belongs to."""
    place = os.path.dirname(data_directory) if is_node_directory(data_directory) else data_directory
    return os.path.join(place, FILE_NAME)


async def repair_metadata(data_directory: str) -> None:
    """Put the newest state in place, and write its copy and count anew, as the next start does. Raises StorageError."""
    path = metadata_path(data_directory)
    on_restoring = {BLOCK_KEY: above_reserved_blocks}
    with collected_events():
        if any(is_node_directory(name) for name in os.listdir(os.path.dirname(path))):
            await prepare_shared(path, on_restoring=on_restoring)
            return
        store = SqliteMetadataStore(path, on_restoring=on_restoring)
        await store.open()
        await store.close()
