"""The topics of a data directory, from a copy of `metadata.sqlite`: SQLite writes beside a file that it only reads."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator

from broker.disk import StorageError
from broker.metadata.sqlite import FILE_NAME, OWNER_ONLY, SqliteMetadataStore

COPIED_SUFFIXES = ("", "-wal")


@contextlib.asynccontextmanager
async def opened_copy(data_directory: str) -> AsyncIterator[SqliteMetadataStore]:
    """The store of a directory whose broker is stopped, to be read and, without effect, written.

    Raises StorageError when there is none, or it is damaged.
    """
    path = os.path.join(data_directory, FILE_NAME)
    with tempfile.TemporaryDirectory(prefix="fencepost-") as copies:
        copy = os.path.join(copies, FILE_NAME)
        _copy(path, copy)
        store = SqliteMetadataStore(copy)
        try:
            await store.open()
            await store.load_topics()
        except StorageError as error:
            await store.close()
            raise StorageError(str(error).replace(copies, data_directory)) from error
        try:
            yield store
        finally:
            await store.close()


def _copy(path: str, copy: str) -> None:
    for suffix in COPIED_SUFFIXES:
        try:
            shutil.copyfile(path + suffix, copy + suffix)
            os.chmod(copy + suffix, OWNER_ONLY)
        except FileNotFoundError:
            if not suffix:
                raise StorageError(f"{path} is missing: it says which topics there are") from None
        except OSError as error:
            raise StorageError(f"cannot read {path + suffix}: {error.strerror}") from error
    if not os.path.getsize(copy):
        raise StorageError(f"{path} is empty: it says which topics there are")
