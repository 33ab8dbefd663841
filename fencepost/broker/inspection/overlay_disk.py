"""Overlay disk: reads the real files and keeps all changes in memory, so that a start can be tried without a write.

Opens files for reading only, so that a read-only file system can be inspected as well.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Awaitable, Sequence

from fencepost.broker.storage.disk import LogFile, StorageError, Volume, storage_error

OPEN_FILES_LIMIT = 64


class ReadOnlyFiles:
    """The machine's files, of which a bounded number is open."""

    def __init__(self) -> None:
        self._descriptors: OrderedDict[str, int] = OrderedDict()

    def read(self, path: str, position: int, length_bytes: int) -> bytes:
        """Read bytes of a file. Raises StorageError."""
        try:
            return os.pread(self._descriptor(path), length_bytes, position)
        except OSError as error:
            raise storage_error("read", path, error) from error

    def _descriptor(self, path: str) -> int:
        descriptor = self._descriptors.pop(path, None)
        if descriptor is None:
            if len(self._descriptors) >= OPEN_FILES_LIMIT:
                os.close(self._descriptors.popitem(last=False)[1])
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._descriptors[path] = descriptor
        return descriptor

    def file_size(self, path: str) -> int | None:
        """Return the size of a file; None if it is missing. Raises StorageError, also for any path but a file's."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise storage_error("open", path, error) from error
        if not stat.S_ISREG(found.st_mode):
            wrong = OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            raise storage_error("open", path, wrong)
        return found.st_size

    def last_write_ms(self, path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise storage_error("get the time of", path, error) from error

    def is_there(self, path: str) -> bool:
        return os.path.exists(path)

    def names(self, path: str) -> list[str]:
        try:
            return os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise storage_error("list", path, error) from error

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()


class _Content:
    """A file's content: the first `kept_bytes` of a file on the disk, then `tail`."""

    __slots__ = ("kept_bytes", "last_write_ms", "source", "tail")

    def __init__(self, source: str | None, kept_bytes: int, tail: bytes = b"") -> None:
        self.source = source
        self.kept_bytes = kept_bytes
        self.tail = bytearray(tail)
        self.last_write_ms: int | None = None  # None: that of the file on the disk

    @property
    def size_bytes(self) -> int:
        return self.kept_bytes + len(self.tail)

    def read(self, files: ReadOnlyFiles, position: int, length_bytes: int) -> bytes:
        end = min(position + length_bytes, self.size_bytes)
        if end <= position:
            return b""
        found = b""
        if position < self.kept_bytes:
            assert self.source is not None
            found = files.read(self.source, position, min(end, self.kept_bytes) - position)
        if end > self.kept_bytes:
            found += self.tail[max(position - self.kept_bytes, 0) : end - self.kept_bytes]
        return found

    def truncate(self, size_bytes: int) -> None:
        if size_bytes < self.kept_bytes:
            self.kept_bytes = size_bytes
            self.tail.clear()
        else:
            del self.tail[size_bytes - self.kept_bytes :]


class OverlayFile:
    """A file of an `OverlayDisk`."""

    __slots__ = ("_content", "_files", "_path")

    def __init__(self, path: str, content: _Content, files: ReadOnlyFiles) -> None:
        self._path = path
        self._content = content
        self._files = files

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return self._content.size_bytes

    def append(self, *buffers: bytes | bytearray | memoryview) -> None:
        for buffer in buffers:
            self._content.tail += buffer

    def read(self, position: int, length_bytes: int) -> memoryview:
        return memoryview(self._content.read(self._files, position, length_bytes))

    read_to_send = read

    def send(self, descriptor: int, position: int, length_bytes: int) -> int:
        return os.write(descriptor, self.read(position, length_bytes))

    def truncate(self, size_bytes: int) -> None:
        self._content.truncate(size_bytes)

    def last_write_ms(self) -> int:
        set_ms, source = self._content.last_write_ms, self._content.source
        if set_ms is not None:
            return set_ms
        return 0 if source is None else self._files.last_write_ms(source)

    def set_last_write_ms(self, time_ms: int) -> None:
        self._content.last_write_ms = time_ms

    def release_room(self) -> None:
        """Nothing was reserved."""

    def close(self) -> None:
        """The disk keeps the changes."""


class OverlayDisk:
    """`Disk` over the machine's file system as it was found; writes, renames and deletions exist only in memory."""

    def __init__(self) -> None:
        self._files = ReadOnlyFiles()
        self._changed: dict[str, dict[str, _Content | None]] = {}  # by directory and name; None: deleted
        self._directories: set[str] = set()  # created here
        self._removed: set[str] = set()  # directories that were removed, with all that they held on the disk

    def open(self, path: str) -> LogFile:
        content = self._find(path)
        if content is None:
            content = _Content(None, 0)
        self._change(path, content)
        return OverlayFile(path, content, self._files)

    def read_file(self, path: str) -> bytes | None:
        content = self._find(path)
        return None if content is None else content.read(self._files, 0, content.size_bytes)

    def write_file(self, path: str, content: bytes, *, durable: bool) -> None:
        self._change(path, _Content(None, 0, content))

    def exists(self, path: str) -> bool:
        if path in self._directories:
            return True
        directory, name = os.path.split(path)
        changes = self._changed.get(directory)
        if changes is not None and name in changes:
            return changes[name] is not None
        return not self._is_removed(path) and self._files.is_there(path)

    def list(self, path: str) -> Sequence[str]:
        names: set[str] = set()
        if path not in self._removed and not self._is_removed(path):
            names.update(self._files.names(path))
        for name, content in self._changed.get(path, {}).items():
            (names.discard if content is None else names.add)(name)
        names.difference_update(os.path.basename(one) for one in self._removed if os.path.dirname(one) == path)
        names.update(os.path.basename(one) for one in self._directories if os.path.dirname(one) == path)
        return sorted(names)

    def size_bytes(self, path: str) -> int:
        content = self._find(path)
        return 0 if content is None else content.size_bytes

    def make_directory(self, path: str) -> None:
        if not self.exists(path):
            self._directories.add(path)

    def rename(self, source: str, target: str) -> None:
        content = self._find(source) if not self._is_directory(source) else None
        if content is not None:
            self._change(target, content)
            self._change(source, None)
            return
        if not self.exists(source):
            raise StorageError(errno.ENOENT, f"cannot rename to {target} the file {source}: there is none", source)
        moved = {name: self._find(f"{source}/{name}") for name in self.list(source)}
        self.delete(source)
        self._directories.add(target)
        self._changed[target] = moved

    def delete(self, path: str) -> None:
        if self._is_directory(path):
            self._removed.add(path)
            self._directories.discard(path)
            self._changed.pop(path, None)
        elif self.exists(path):
            self._change(path, None)

    def volume(self, path: str) -> Volume:
        found = os.statvfs(path)
        return Volume(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def lock(self, path: str) -> bool:
        """Locks nothing: the command itself holds the lock; see `broker.inspection.directory_lock`."""
        return True

    def unlock(self, path: str) -> None:
        """Nothing is held."""

    def sync(self, files: Sequence[LogFile], directories: Sequence[str] = ()) -> Awaitable[None]:
        return _nothing()

    def write_back(self, path: str) -> Awaitable[None]:
        return _nothing()

    def close(self) -> None:
        self._files.close()

    def _change(self, path: str, content: _Content | None) -> None:
        directory, name = os.path.split(path)
        self._changed.setdefault(directory, {})[name] = content

    def _find(self, path: str) -> _Content | None:
        directory, name = os.path.split(path)
        changes = self._changed.get(directory)
        if changes is not None and name in changes:
            return changes[name]
        if self._is_removed(path):
            return None
        size_bytes = self._files.file_size(path)
        return None if size_bytes is None else _Content(path, size_bytes)

    def _is_removed(self, path: str) -> bool:
        return path in self._removed or os.path.dirname(path) in self._removed

    def _is_directory(self, path: str) -> bool:
        if path in self._directories:
            return True
        return not self._is_removed(path) and os.path.isdir(path)


async def _nothing() -> None:
    pass
