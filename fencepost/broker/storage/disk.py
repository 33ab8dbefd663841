"""The seam to the file system: the log reaches the disk only through `Disk` and `LogFile`.

Paths are absolute strings. All calls but `Disk.sync` are synchronous and touch only the page cache, so that an append
is one step of the event loop; `Disk.sync` is the only one that waits for the device. A simulation passes in a disk with
a stated fault model.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Iterable, Sequence
from typing import NamedTuple, Protocol


class StorageError(OSError):
    """A failure of the disk; the affected partition (or the node) goes offline.

    paths: the files and directories that failed, when one call covered several; empty when any of them may have.
    """

    def __init__(self, *args: object, paths: Iterable[str] = ()) -> None:
        super().__init__(*args)
        self.paths = frozenset(paths)

    def __str__(self) -> str:
        return str(self.strerror) if self.strerror else super().__str__()


class NoRoomError(StorageError):
    """The disk or the quota is full; the call has changed nothing, so it can be made again when there is room.

    After a sync that raises it, the unsynced writes may be lost.
    """


class UnexpectedFailureError(StorageError):
    """A bug of the broker, not a fault of the disk, during a write or sync of a log: the disk's content is unknown."""

    def __init__(self, doing: str, error: BaseException) -> None:
        super().__init__(f"{doing} failed unexpectedly: {type(error).__name__}: {error}")


def storage_error(action: str, path: str, error: OSError) -> StorageError:
    """Return a StorageError with the action, the path, and the system's reason; a NoRoomError for a full disk."""
    kind = NoRoomError if error.errno in _FULL else StorageError
    return kind(error.errno, f"cannot {action} {path}: {error.strerror or error}", path, paths=(path,))


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
OF_ALL_FILES = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""Errors that every other file of the disk would meet, too; so they do not concern one file, or one partition."""
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_WRONG_KIND = frozenset({errno.EISDIR, errno.ENOTDIR, errno.EEXIST})


def remedy(error: OSError) -> str:
    """Return the operator's remedy for a failure of the disk, before the next start of the broker."""
    if isinstance(error, UnexpectedFailureError):
        return "report the failure that is in the log, with its traceback"
    if error.errno in _NO_SPACE:
        return "free space on the disk, or raise the quota or the limit of file sizes"
    if error.errno in _NOT_ALLOWED:
        return "check owner, permissions and mount options"
    if error.errno in _WRONG_KIND:
        return "a file stands where a directory belongs, or the other way round: move it away"
    return "check the disk and the file"


class Volume(NamedTuple):
    """The file system of a directory. usable_bytes: the free bytes for a process without root's reserve."""

    total_bytes: int
    usable_bytes: int


class LogFile(Protocol):
    """One append-only file, open for reading and writing."""

    @property
    def path(self) -> str: ...

    @property
    def size_bytes(self) -> int:
        """Bytes appended so far; kept in memory, without a system call."""
        ...

    def append(self, *buffers: bytes | bytearray | memoryview) -> None:
        """Write all buffers, back to back, at the end of the file.

        Raises StorageError; the file is then cut back to its old size. NoRoomError only if that succeeded.
        """
        ...

    def read(self, position: int, length_bytes: int) -> memoryview:
        """Read up to `length_bytes` from `position`; fewer only at the end of the file."""
        ...

    def read_to_send(self, position: int, length_bytes: int) -> memoryview:
        """Read as `read` does, for bytes that are only handed to the system, to send: they may be the page cache's own
        memory. May return fewer bytes if they are copied, because every client that reads slowly would hold such a
        copy.

        Do not read the bytes otherwise. If a disk fails later, the system fails to send them; this process would die.
        """
        ...

    def send(self, descriptor: int, position: int, length_bytes: int) -> int:
        """Have the system send bytes of the file to a socket; return how many it took, 0 at the end of the file.

        Raises OSError: BlockingIOError if the socket is full; others for faults of the file or the socket.
        """
        ...

    def truncate(self, size_bytes: int) -> None:
        """Cut the file. Its last-write time stays that of the remaining content. Raises StorageError."""
        ...

    def last_write_ms(self) -> int:
        """The time of the last append, in ms since 1970 by the file system's clock. Raises StorageError."""
        ...

    def set_last_write_ms(self, time_ms: int) -> None:
        """Set the time of the last write, to that of the file that this one was made from. Raises StorageError."""
        ...

    def release_room(self) -> None:
        """End appending: free the space that was preallocated. Raises StorageError."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system."""

    def open(self, path: str) -> LogFile:
        """Open for append and read, creating the file when it is missing."""
        ...

    def read_file(self, path: str) -> bytes | None:
        """Read the whole of a small file; None when there is none."""
        ...

    def write_file(self, path: str, content: bytes, *, durable: bool) -> None:
        """Replace a small file as a whole (temporary file, then rename).

        durable: synced, with its directory, before this returns.
        """
        ...

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> Sequence[str]:
        """Names in a directory, sorted; empty when the directory is missing."""
        ...

    def size_bytes(self, path: str) -> int:
        """The size of a file; 0 when it is missing."""
        ...

    def make_directory(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def delete(self, path: str) -> None:
        """Remove a file, or a directory with all its content; a missing one is no error."""
        ...

    def volume(self, path: str) -> Volume:
        """The file system of a directory."""
        ...

    def lock(self, path: str) -> bool:
        """Take an exclusive lock on a file until `unlock` or the end of the process; False when another process has
        it."""
        ...

    def unlock(self, path: str) -> None: ...

    def sync(self, files: Sequence[LogFile], directories: Sequence[str] = ()) -> Awaitable[None]:
        """Make all bytes appended to `files` before this call, and the entries of `directories`, durable.

        Tries each of them. Raises one StorageError for those that failed; its `paths` names them, so that the others
        count as durable.
        """
        ...

    def write_back(self, path: str) -> Awaitable[None]:
        """Have the system start writing the dirty memory of a directory's file system to the disk.

        Syncs of thousands of files are many times as fast after it. It makes nothing durable, raises nothing, and does
        nothing if the system cannot do it.
        """
        ...
