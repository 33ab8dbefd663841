"""The disk of a broker for tests: files of the machine that are never synced.

A sync only records the size that it would have made durable, so a crash can drop the rest, as a loss of power does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from weakref import WeakSet

from fencepost.broker.storage.descriptors import Descriptors
from fencepost.broker.storage.disk import LogFile
from fencepost.broker.storage.file_system_sync import FileSystem
from fencepost.broker.storage.local_disk import LocalDisk, LocalFile


class UnsyncedFile(LocalFile):
    """A file with the size that syncs have reached. Its content at opening counts as durable."""

    __slots__ = ("__weakref__", "durable_bytes")

    def __init__(
        self, disk: LocalDisk, path: str, descriptor: int, size_bytes: int, file_system: FileSystem | None
    ) -> None:
        super().__init__(disk, path, descriptor, size_bytes, file_system)
        self.durable_bytes = size_bytes

    @property
    def has_unsynced(self) -> bool:
        return self.size_bytes > self.durable_bytes


class UnsyncedDisk(LocalDisk):
    """The machine's file system without the wait for the device.

    Names, and small files that are written as a whole, count as durable at once.

    before_sync: called with the files of a sync that have bytes for it; True ends the disk: the sync never ends.
    """

    def __init__(self, descriptors: Descriptors | None = None) -> None:
        super().__init__(descriptors)
        self.before_sync: Callable[[Sequence[LogFile]], bool] | None = None
        self._files: WeakSet[UnsyncedFile] = WeakSet()

    def lose_unsynced(self) -> None:
        """End the disk, as `crash` does, and drop all data that no sync has reached."""
        self.crash()
        for file in self._files:
            if file.has_unsynced and os.path.exists(file.path):
                os.truncate(file.path, file.durable_bytes)

    def sync(self, files: Sequence[LogFile], directories: Sequence[str] = ()) -> asyncio.Future[None]:
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        written = [file for file in files if isinstance(file, UnsyncedFile) and file.has_unsynced]
        if written and self.before_sync is not None and self.before_sync(written):
            return synced
        for file in written:
            file.durable_bytes = file.size_bytes
        synced.set_result(None)
        return synced

    def write_back(self, path: str) -> asyncio.Future[None]:
        return self.sync(())

    def write_file(self, path: str, content: bytes, *, durable: bool) -> None:
        super().write_file(path, content, durable=False)

    def _new_file(self, path: str, descriptor: int, size_bytes: int, device: int) -> LocalFile:
        file = UnsyncedFile(self, path, descriptor, size_bytes, None)
        self._files.add(file)
        return file
