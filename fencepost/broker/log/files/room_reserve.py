"""Reserve of disk space: a file whose space is released on a full disk, for the writes that free more."""

from __future__ import annotations

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.storage.disk import Disk, StorageError

log = get_logger(__name__)

RESERVE_BYTES = 256 * 1024


class RoomReserve:
    """One reserve file."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def take(self) -> None:
        """Reserve space, if there is enough; otherwise the next call retries."""
        try:
            if self._disk.size_bytes(self._path) < RESERVE_BYTES:
                self._disk.write_file(self._path, bytes(RESERVE_BYTES), durable=False)
        except StorageError as error:
            log.debug("reserve_not_taken", path=self._path, reason=str(error))

    def release(self) -> bool:
        """Release the space for a write that found no room; return whether there was any."""
        try:
            if not self._disk.size_bytes(self._path):
                return False
            self._disk.delete(self._path)
        except StorageError:
            return False
        log.warning("log_start_reserve_used", path=self._path, reason="the disk is full")
        return True
