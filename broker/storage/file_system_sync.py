"""Many files made durable by one call: `syncfs`, where its word can be trusted and it has little else to write.

It writes all that is in memory of a file system, whoever wrote it there, in one pass and one commit of the journal.
Thirty files take it a quarter of the time, and a sixth of the processor time, of a sync for each. What it says counts
as the files' own syncs would where two things hold: the system tells of whatever failed to be written, and the file
system waits for its journal and the device. Everywhere else files are synced one by one.

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
"""In memory of the machine, for each file that is to be synced: about what a disk writes while one sync is handed to a
thread and back. With more, be it the files' own or others', waiting for all of it would take longer than it saves."""

REFUSED_BEFORE_WRITE_BACK: Final = 100
"""Syncs of several files that were done file by file as others had written much."""

FIRST_RELIABLE_LINUX: Final = (6, 1)
"""syncfs tells of files that failed since Linux 5.8, of the file system's own failures since 5.17. This is the first
version after both that is maintained for years."""
RELIABLE_TYPES: Final = frozenset({"ext4"})
"""File systems known to wait for the commit of their journal, and to have the device write what it keeps in memory."""

MEMORY_PATH = "/proc/meminfo"
MOUNTS_PATH = "/proc/self/mountinfo"
_MEMORY_BYTES = 4_096  # that are read; what is looked for is in the first thousand
_UNWRITTEN_KIB = re.compile(rb"^(?:Dirty|Writeback): *(\d+) kB$", re.MULTILINE)


class FileSystem:
    """One whose syncs can be trusted. It knows of what fails once it was made: make it before its files are written.

    is_trusted: until a sync fails. What failed is told once, and may have been written for a file that is synced later;
        so from then on each file's own syncs have to tell.
    """

    def __init__(self, directory: int, memory: int, sync: Callable[[int], int]) -> None:
        """Takes over two descriptors: of a directory on it, and of what the system says about its memory."""
        self.is_trusted = True
        self._directory = directory
        self._memory = memory
        self._sync = sync
        self._lock = threading.Lock()
        self._refused_count = 0
        self._is_writing_back = False

    @property
    def path(self) -> str:
        """To open it once more, whatever has become of the directory."""
        return f"/proc/self/fd/{self._directory}"

    def can_sync_cheaply(self, file_count: int) -> bool:
        """Whether one sync is less work than those of so many files, with all that others have written to it."""
        try:
            told = os.pread(self._memory, _MEMORY_BYTES, 0)
        except OSError:
            return False
        kib = _UNWRITTEN_KIB.findall(told)
        return len(kib) == 2 and (int(kib[0]) + int(kib[1])) * 1024 <= file_count * MOST_UNWRITTEN_BYTES_PER_FILE

    def is_to_be_written_back(self) -> bool:
        """To be asked where files are synced one by one, as it has too much to write: whether all of that is to be
        written now. Where there are many syncs, it is worth it: there is little from then on.

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
        """Whether all that was written before is durable now; may take long, so it is for a thread.

        False where anything failed, be it a file of somebody else's: the files' own syncs will tell which.
        """
        with self._lock:  # of two at a time, only one would be told
            if self.is_trusted:
                self.is_trusted = self._sync(self._directory) == 0
            return self.is_trusted

    def close(self) -> None:
        os.close(self._directory)
        os.close(self._memory)


def reliable_file_system(path: str, device: int) -> FileSystem | None:
    """The file system of a directory on a device (`st_dev`); None where its syncs do not tell all that those of files
    do, or the directory is elsewhere."""
    sync = c_function("syncfs")
    if sync is None or not _is_reliable_linux(os.uname().release):
        return None
    with contextlib.suppress(OSError), contextlib.ExitStack() as opened:  # what cannot be had is not trusted
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
    """Write all that is in memory of the file system that a directory is on, in one pass and one commit of its journal.

    For any file system, so what fails is not told here: everybody else's next sync will.
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
    """The type of the file system that is mounted from a device; None where none is. Raises OSError.

    Source: proc_pid_mountinfo(5).
    """
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open(MOUNTS_PATH, encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            mount, _, source = line.partition(" - ")
            if mount.split(" ", 3)[2] == wanted:
                return source.split(" ", 1)[0]
    return None
