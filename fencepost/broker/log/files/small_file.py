"""Reading of the small files beside the logs, without which a log can be opened all the same.

One that the disk cannot read counts as damaged: it stops neither the start nor its partition.
"""

from __future__ import annotations

from fencepost.broker.log.files.checkpoints import CorruptCheckpointError
from fencepost.broker.storage.disk import OF_ALL_FILES, Disk, StorageError, remedy


def read_small(disk: Disk, path: str) -> bytes | None:
    """Read a file; None if there is none.

    Raises CorruptCheckpointError if the disk cannot read this file, StorageError if it could not read others either.
    """
    try:
        return disk.read_file(path)
    except StorageError as error:
        if error.errno in OF_ALL_FILES:
            raise
        raise CorruptCheckpointError(f"{error}; {remedy(error)}") from error
