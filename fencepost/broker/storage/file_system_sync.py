"""Sync of many files by one `syncfs` call, if its result can be trusted and the file system has little else to write.

syncfs writes all dirty memory of a file system, other programs' too, in one pass and one commit of the journal. For
thirty files it takes a quarter of the time, and a sixth of the processor time, of one sync each. Its result counts as
the files' own syncs would under two conditions: the system reports every failed write, and the file system waits for
its journal and the device. Otherwise files are synced one by one.

Source: syncfs(2); Linux's `sync_filesystem` and `ext4_sync_fs`.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable
from typing import Final

from fencepost.broker.kernel.c_library import c_function

SMALLEST_FILE_COUNT: Final = 2
MOST_UNWRITTEN_BYTES_PER_FILE: Final = 128 * 1024
"""Bound on the machine's unwritten memory, for each file to sync: about as much as a disk writes while one sync is
handed to a thread and back. With more, of any program, waiting for all of it would take longer than it saves."""

REFUSED_BEFORE_WRITE_BACK: Final = 100
"""Syncs of several files that were done file by file because other programs had much to write."""

FIRST_RELIABLE_LINUX: Final = (6, 1)
"""syncfs reports files that failed since Linux 5.8, the file system's own failures since 5.17. This is the first later
version that is maintained for years."""
RELIABLE_TYPES: Final = frozenset({"ext4"})
"""File systems known to wait for the commit of their journal, and to flush the device's cache."""

MEMORY_PATH = "/proc/meminfo"
MOUNTS_PATH = "/proc/self/mountinfo"
_MEMORY_BYTES = 4_096  # bytes that are read; the lines looked for are in the first thousand
_UNWRITTEN_KIB = re.compile(rb"^(?:Dirty|Writeback): *(\d+) kB$", re.MULTILINE)


class FileSystem:
    """A file system whose syncs can be trusted. It sees failures from its creation on: create it before its files are
    written.

    is_trusted: true until a sync fails. The system reports a failure once, maybe of a file that is synced later;
        from then on each file is synced by itself.
    """

    def __init__(self, directory: int, memory: int, sync: Callable[[int], int]) -> None:
        """Takes over two descriptors: of a directory on the file system, and of the system's memory statistics."""
        self.is_trusted = True
        self._directory = directory
        self._memory = memory
        self._sync = sync
        self._lock = threading.Lock()
        self._refused_count = 0
        self._is_writing_back = False

    @property
    def path(self) -> str:
        """A path that opens the file system again, even if the directory is gone."""
        return f"/proc/self/fd/{self._directory}"

    def can_sync_cheaply(self, file_count: int) -> bool:
        """Whether one sync is less work than `file_count` syncs, with the dirty memory of other programs."""
        try:
            statistics = os.pread(self._memory, _MEMORY_BYTES, 0)
        except OSError:
            return False
        kib = _UNWRITTEN_KIB.findall(statistics)
        return len(kib) == 2 and (int(kib[0]) + int(kib[1])) * 1024 <= file_count * MOST_UNWRITTEN_BYTES_PER_FILE

    def is_to_be_written_back(self) -> bool:
        """Whether to write back all dirty memory now; for a caller that syncs files one by one as there is too much to
        write. It pays for many syncs: after it there is little to write.

        True at most once until `written_back`.
        """
        self._refused_count += 1
        if self._is_writing_back or self._refused_count % REFUSED_BEFORE_WRITE_BACK:
            return False
        self._is_writing_back = True
        return True

    def written_back(self) -> None:
        self._is_writing_back = False

    def sync(self) -> bool:
        """Sync; return whether all earlier writes are durable. May take long: call it on a thread.

        False if anything failed, also another program's file: the files' own syncs find out which.
        """
        with self._lock:  # the system reports a failure to one of two callers only
            if self.is_trusted:
                self.is_trusted = self._sync(self._directory) == 0
            return self.is_trusted

    def close(self) -> None:
        os.close(self._directory)
        os.close(self._memory)


def reliable_file_system(path: str, device: int) -> FileSystem | None:
    """The file system of a directory on a device (`st_dev`); None if its syncs miss failures that the files' own
    report, or if the directory is on another device."""
    sync = c_function("syncfs")
    if sync is None or not _is_reliable_linux(os.uname().release):
        return None
    with contextlib.suppress(OSError), contextlib.ExitStack() as opened:  # without the descriptors it is not trusted
        directory = _open(path, os.O_DIRECTORY, opened)
        if os.fstat(directory).st_dev == device and _type_of_device(device) in RELIABLE_TYPES:
            found = FileSystem(directory, _open(MEMORY_PATH, 0, opened), sync)
            opened.pop_all()
            return found
    return None


def _open(path: str, flags: int, opened: contextlib.ExitStack) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    opened.callback(os.close, descriptor)
    return descriptor


def write_back(path: str) -> None:
    """Write the dirty memory of a directory's file system, in one pass and one commit of its journal.

    Works for any file system. Does not report failures: the next sync of each file does.
    """
    sync = c_function("syncfs")
    if sync is None:
        return
    with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
        sync(_open(path, os.O_DIRECTORY, opened))


def _is_reliable_linux(release: str) -> bool:
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is not None and (int(found[1]), int(found[2])) >= FIRST_RELIABLE_LINUX


def _type_of_device(device: int) -> str | None:
    """The type of the file system that is mounted from a device; None if none is mounted. Raises OSError.

    Source: proc_pid_mountinfo(5).
    """
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open(MOUNTS_PATH, encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            mount, _, source = line.partition(" - ")
            if mount.split(" ", 3)[2] == wanted:
                return source.split(" ", 1)[0]
    return None
