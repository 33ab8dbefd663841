"""Durable replacement of small files while clients are served: the sync threads wait for the device."""

from __future__ import annotations

import contextlib

from fencepost.broker.storage.disk import Disk, StorageError


async def replace_durably(disk: Disk, path: str, content: bytes) -> None:
    """Replace a file as a whole; when this returns, its content and its name are on the disk.

    After a crash the file is either the old one or the new one. One call at a time for each file. Raises StorageError.
    """
    temporary = f"{path}.tmp"
    disk.write_file(temporary, content, durable=False)
    try:
        file = disk.open(temporary)
        try:
            await disk.sync([file])
        finally:
            file.close()
        disk.rename(temporary, path)
    except StorageError:
        with contextlib.suppress(StorageError):
            disk.delete(temporary)  # on a full disk it would take space from everything else
        raise
    await disk.sync([], [path.rpartition("/")[0]])
