"""Exclusive use of a data directory: a running broker holds its lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from fencepost.broker.log.directory.directory_files import LOCK_FILE
from fencepost.broker.storage.disk import StorageError, storage_error


@contextlib.contextmanager
def exclusive_use(data_directory: str, *, may_create: bool) -> Iterator[None]:
    """Hold the broker's lock on a directory.

    may_create: create the lock's file if it is missing; else nothing is written, and a missing file counts as unlocked.
    Raises StorageError when a broker runs on the directory, or it cannot be read.
    """
    path = os.path.join(data_directory, LOCK_FILE)
    flags = os.O_RDWR | os.O_CREAT if may_create else os.O_RDONLY
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        if may_create:
            raise StorageError(f"there is no directory {data_directory}") from None
        yield
        return
    except OSError as error:
        raise storage_error("open", path, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(
                f"{data_directory} is in use by a broker: it holds a lock on {path}. Stop the broker first"
            ) from None
        except OSError as error:
            raise storage_error("lock", path, error) from error
        yield
    finally:
        os.close(descriptor)
