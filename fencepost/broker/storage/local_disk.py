"""`Disk` over the machine's own file system.

Files are opened on first use and closed again when too many are open, so that ten thousand partitions fit into a normal
limit of descriptors. Reads are `pread`s into fresh memory, not memory maps: a bad sector behind a map kills the process
with SIGBUS, behind a read it is an error that takes one partition offline. Only bytes that are sent unchanged may be
mapped, or sent by the system: both report a bad sector, the map when its pages are loaded into memory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fencepost.broker.storage.descriptors import Descriptors, descriptor_limit
from fencepost.broker.storage.disk import LogFile, StorageError, Volume, storage_error
from fencepost.broker.storage.file_system_sync import SMALLEST_FILE_COUNT, FileSystem, reliable_file_system
from fencepost.broker.storage.preallocation import ROOM_BYTES, SMALLEST_WITH_ROOM_BYTES, preallocate
from fencepost.broker.storage.sync_threads import NO_DESCRIPTOR, SyncJob, SyncPart, SyncThreads, sync_and_close
from fencepost.protocol.lazy_import import lazy_module

if TYPE_CHECKING:
    import shutil
else:
    shutil = lazy_module("shutil")

FILE_MODE = 0o644
WRITE_VECTOR_LIMIT = os.sysconf("SC_IOV_MAX")

SMALLEST_MAPPED_BYTES = 512 * 1024
"""Shorter ranges are copied in less time than they are mapped."""

COPIED_BYTES = 128 * 1024
"""Bytes read at a time if a file cannot be mapped. Every client that does not read its reply holds as many."""

RELEASED_AT_ONCE = 16
"""Files closed together when no descriptor is left."""

_NS_PER_MS = 1_000_000

# From Linux's mman.h: load all pages into memory now, and fail if one cannot be loaded.
_MADV_POPULATE_READ = 22


class LocalFile:
    """A file of a `LocalDisk`; its descriptor comes and goes. Only the file itself sets its `size_bytes`."""

    __slots__ = (
        "_closed",
        "_descriptor",
        "_disk",
        "_file_system",
        "_path",
        "_room_position",
        "_syncs",
        "_was_there_before",
        "size_bytes",
        "used",
    )

    def __init__(
        self, disk: LocalDisk, path: str, descriptor: int, size_bytes: int, file_system: FileSystem | None
    ) -> None:
        """descriptor: the open one of a file just created; negative for a file that existed before."""
        self._disk = disk
        self._path = path
        self._descriptor = descriptor
        self.size_bytes = size_bytes
        self._file_system = file_system
        self._was_there_before = descriptor < 0
        # An append that ends behind it preallocates again.
        self._room_position = SMALLEST_WITH_ROOM_BYTES
        self._syncs = 0
        self._closed = False
        self.used = True  # second chance: cleared by the disk when it looks for descriptors to close

    @property
    def path(self) -> str:
        return self._path

    def append(self, *buffers: bytes | bytearray | memoryview) -> None:
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._reopen()
        self.used = True
        size_bytes = self.size_bytes
        try:
            if len(buffers) == 1:
                length_bytes = len(buffers[0])
                written_bytes = os.pwrite(descriptor, buffers[0], size_bytes)
            else:
                length_bytes = sum(map(len, buffers))
                written_bytes = os.pwritev(descriptor, buffers[:WRITE_VECTOR_LIMIT], size_bytes)
            if written_bytes != length_bytes:
                self._append_rest(descriptor, buffers, written_bytes, length_bytes)
        except OSError as error:
            raise self._append_failed(descriptor, size_bytes, error) from error
        self.size_bytes = size_bytes = size_bytes + length_bytes
        if size_bytes > self._room_position:
            self._take_room(descriptor, length_bytes)

    def _append_rest(
        self,
        descriptor: int,
        buffers: Sequence[bytes | bytearray | memoryview],
        written_bytes: int,
        length_bytes: int,
    ) -> None:
        """Write the rest of a short write. It means a full disk or a signal; the next write shows which."""
        rest = memoryview(b"".join(buffers))
        while written_bytes < length_bytes:
            step_bytes = os.pwrite(descriptor, rest[written_bytes:], self.size_bytes + written_bytes)
            if step_bytes == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written_bytes += step_bytes

    def _take_room(self, descriptor: int, length_bytes: int) -> None:
        """Preallocate for further appends of this length."""
        is_taken = preallocate(descriptor, self.size_bytes, ROOM_BYTES + length_bytes)
        # A file system without preallocation is not asked again.
        self._room_position = self.size_bytes + ROOM_BYTES if is_taken else sys.maxsize

    def _append_failed(self, descriptor: int, size_bytes: int, error: OSError) -> StorageError:
        """Cut the file back to its old size; return the exception for the append to raise."""
        self._room_position = SMALLEST_WITH_ROOM_BYTES
        failure = storage_error("append to", self._path, error)
        try:
            _cut(descriptor, size_bytes)
        except OSError as cut_error:
            # Recovery cuts the remaining bytes. Until then nothing may be appended, even if the error was a full disk.
            reason = f"{failure}; nor can it be cut back to {size_bytes} bytes: {cut_error.strerror or cut_error}"
            return StorageError(error.errno, reason, self._path, paths=(self._path,))
        return failure

    def read(self, position: int, length_bytes: int) -> memoryview:
        descriptor = self._descriptor
        if descriptor < 0:
            descriptor = self._reopen()
        self.used = True
        try:
            return memoryview(os.pread(descriptor, length_bytes, position))
        except OSError as error:
            raise storage_error("read", self._path, error) from error

    def read_to_send(self, position: int, length_bytes: int) -> memoryview:
        if length_bytes < SMALLEST_MAPPED_BYTES:
            return self.read(position, length_bytes)
        if not self._disk.may_map:
            return self.read(position, min(COPIED_BYTES, length_bytes))
        descriptor = self._descriptor if self._descriptor >= 0 else self._reopen()
        self.used = True
        skipped_bytes = position % mmap.ALLOCATIONGRANULARITY
        try:
            pages = mmap.mmap(
                descriptor, skipped_bytes + length_bytes, access=mmap.ACCESS_READ, offset=position - skipped_bytes
            )
            pages.madvise(_MADV_POPULATE_READ)
        except (OSError, ValueError):
            # The system has no such call or no memory for it, or the file is shorter or unreadable: `read` finds out.
            return self.read(position, min(COPIED_BYTES, length_bytes))
        return memoryview(pages)[skipped_bytes:]

    def send(self, descriptor: int, position: int, length_bytes: int) -> int:
        self.used = True
        return os.sendfile(
            descriptor, self._descriptor if self._descriptor >= 0 else self._reopen(), position, length_bytes
        )

    def truncate(self, size_bytes: int) -> None:
        descriptor = self._descriptor if self._descriptor >= 0 else self._reopen()
        try:
            _cut(descriptor, size_bytes)
        except OSError as error:
            raise storage_error("truncate", self._path, error) from error
        self.size_bytes = size_bytes
        self._room_position = SMALLEST_WITH_ROOM_BYTES

    def last_write_ms(self) -> int:
        try:
            found = os.stat(self._path if self._descriptor < 0 else self._descriptor)
        except OSError as error:
            raise storage_error("get the time of", self._path, error) from error
        return found.st_mtime_ns // _NS_PER_MS

    def set_last_write_ms(self, time_ms: int) -> None:
        time_ns = time_ms * _NS_PER_MS
        try:
            os.utime(self._path if self._descriptor < 0 else self._descriptor, ns=(time_ns, time_ns))
        except OSError as error:
            raise storage_error("set the time of", self._path, error) from error

    def release_room(self) -> None:
        if SMALLEST_WITH_ROOM_BYTES < self._room_position < sys.maxsize:
            self.truncate(self.size_bytes)

    def close(self) -> None:
        """Give the descriptor back, after a sync that uses it. A closed file may not be used again."""
        self._closed = True
        if self._syncs == 0:
            self.release()

    def _reopen(self) -> int:
        if self._closed:
            raise self._closed_error()
        self._descriptor = self._disk.open_descriptor(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._disk.opened(self)
        return self._descriptor

    def _closed_error(self) -> StorageError:
        return StorageError(errno.EBADF, f"cannot use {self._path}: it is closed", self._path, paths=(self._path,))

    # For the disk

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    @property
    def may_be_released(self) -> bool:
        return self._syncs == 0

    def is_closed(self) -> bool:
        """Whether the file is no longer used; a deleted file was closed before."""
        return self._closed

    def begin_sync(self, *, may_keep_open: bool) -> int:
        """Return the descriptor, kept open until `end_sync`; negative if it is not kept: then no `end_sync` follows.

        Raises StorageError for a closed file.
        """
        if self._descriptor < 0 and self._closed:
            raise self._closed_error()
        if not may_keep_open or self._descriptor < 0:
            return -1
        self._syncs += 1
        return self._descriptor

    def file_system_to_sync(self) -> FileSystem | None:
        """The file system whose sync replaces one of the file; call it once for each sync.

        The first sync of a file is its own: only that one reports writes that failed before the file was opened.
        """
        if self._was_there_before:
            self._was_there_before = False
            return None
        return self._file_system if self._file_system is not None and self._file_system.is_trusted else None

    def end_sync(self) -> None:
        self._syncs -= 1
        if self._closed and self._syncs == 0:
            self.release()

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _cut(descriptor: int, size_bytes: int) -> None:
    """Truncate a file and keep the time of its last write. Raises OSError."""
    before = os.fstat(descriptor)
    os.ftruncate(descriptor, size_bytes)
    with contextlib.suppress(OSError):  # a file system may refuse; retention then counts from now
        os.utime(descriptor, ns=(before.st_atime_ns, before.st_mtime_ns))


class LocalDisk:
    """The machine's file system.

    descriptors: bound on the files kept open; others are opened again on use.
    """

    def __init__(self, descriptors: Descriptors | None = None) -> None:
        self._descriptors = descriptors or Descriptors(descriptor_limit())
        self._descriptors.on_fewer_files = self._keep_within_limit
        self._open_files: deque[LocalFile] = deque()
        self._descriptors.open_file_count = self._open_files.__len__
        self._locks: dict[str, int] = {}
        self._sync_threads = SyncThreads()
        self._file_systems: dict[int, FileSystem | None] = {}
        self._syncing_count = 0  # files kept open for syncs
        self._syncs_count = 0  # syncs that are running
        self._is_crashed = False
        self._removed: set[str] = set()  # names removed since the first of them began

    # Files

    def open(self, path: str) -> LogFile:
        try:
            found = os.stat(path)
            descriptor = -1
        except FileNotFoundError:
            descriptor = self.open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            found = os.fstat(descriptor)
        except OSError as error:
            raise storage_error("open", path, error) from error
        file = self._new_file(path, descriptor, found.st_size, found.st_dev)
        if descriptor >= 0:
            self.opened(file)
        return file

    def _new_file(self, path: str, descriptor: int, size_bytes: int, device: int) -> LocalFile:
        return LocalFile(self, path, descriptor, size_bytes, self._file_system(device, path))

    def _file_system(self, device: int, path: str) -> FileSystem | None:
        """The file system of a file, if its syncs can be trusted."""
        if device not in self._file_systems:
            self._file_systems[device] = reliable_file_system(os.path.dirname(path), device)
        return self._file_systems[device]

    def open_descriptor(self, path: str, flags: int) -> int:
        try:
            return self._open(path, flags)
        except OSError as error:
            raise storage_error("open", path, error) from error

    def _open(self, path: str, flags: int) -> int:
        """Raises OSError."""
        self._require_open()
        try:
            return os.open(path, flags, FILE_MODE)
        except OSError as error:
            # Connections that are about to be refused may hold the last descriptors for a moment.
            if error.errno not in NO_DESCRIPTOR or not self._release_until(len(self._open_files) - RELEASED_AT_ONCE):
                raise
        return os.open(path, flags, FILE_MODE)

    def opened(self, file: LocalFile) -> None:
        """Note that a file holds a descriptor now; close those used least recently when there are too many."""
        self._open_files.append(file)
        self._keep_within_limit(file)

    @property
    def may_map(self) -> bool:
        """Whether there are descriptors for maps, each of which holds one while it is being sent."""
        return self._descriptors.has_room_for_each_connection

    def _keep_within_limit(self, new_file: LocalFile | None = None) -> None:
        self._release_until(self._descriptors.file_limit, new_file)

    def _release_until(self, open_file_count: int, new_file: LocalFile | None = None) -> bool:
        """Close files that were not used lately, until `open_file_count` are open; return whether any was closed."""
        files = self._open_files
        released_count = 0
        for _ in range(2 * len(files)):
            if len(files) <= open_file_count:
                break
            oldest = files.popleft()
            if not oldest.is_open:
                continue
            if oldest.used or not oldest.may_be_released or oldest is new_file:
                oldest.used = False
                files.append(oldest)
            else:
                oldest.release()
                released_count += 1
        return released_count > 0

    def read_file(self, path: str) -> bytes | None:
        try:
            with open(path, "rb", opener=self._open) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error("read", path, error) from error

    def write_file(self, path: str, content: bytes, *, durable: bool) -> None:
        temporary = path + ".tmp"
        try:
            with open(temporary, "wb", opener=self._open) as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
            if durable:
                self._sync_directory(os.path.dirname(path))
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # on a full disk a half-written file takes space that others need
            raise storage_error("write", path, error) from error

    def _sync_directory(self, path: str) -> None:
        sync_and_close(self._open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), is_directory=True)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> Sequence[str]:
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise storage_error("list", path, error) from error

    def size_bytes(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise storage_error("measure", path, error) from error

    def volume(self, path: str) -> Volume:
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise storage_error("measure the file system of", path, error) from error
        return Volume(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def make_directory(self, path: str) -> None:
        try:
            self._require_open()
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise storage_error("make the directory", path, error) from error

    def rename(self, source: str, target: str) -> None:
        self._note_removal(source)
        try:
            self._require_open()
            os.replace(source, target)
        except OSError as error:
            raise storage_error(f"rename to {target} the file", source, error) from error

    def delete(self, path: str) -> None:
        self._note_removal(path)
        try:
            self._require_open()
            if stat.S_ISDIR(os.lstat(path).st_mode):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise storage_error("delete", path, error) from error

    def lock(self, path: str) -> bool:
        descriptor = self.open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            os.close(descriptor)
            raise storage_error("lock", path, error) from error
        self._locks[path] = descriptor
        return True

    def unlock(self, path: str) -> None:
        descriptor = self._locks.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    # Syncs

    def sync(self, files: Sequence[LogFile], directories: Sequence[str] = ()) -> Awaitable[None]:
        kept_open: list[LocalFile] = []
        jobs: list[SyncJob] = []
        shared: dict[FileSystem, list[SyncJob]] = {}
        errors: list[StorageError] = []
        for file in files:
            assert isinstance(file, LocalFile)
            try:
                # Other files have to be opened meanwhile: not all may be kept open.
                descriptor = file.begin_sync(may_keep_open=self._syncing_count < self._descriptors.file_limit // 2)
            except StorageError as error:
                errors.append(error)
                continue
            job = SyncJob(file.path, descriptor, partial(self._is_deleted, file))
            if descriptor >= 0:
                kept_open.append(file)
                self._syncing_count += 1
            # The sync thread that opens one checks whether it still exists.
            file_system = file.file_system_to_sync() if descriptor >= 0 else None
            if file_system is None:
                jobs.append(job)
            else:
                shared.setdefault(file_system, []).append(job)
        jobs.extend(SyncJob(directory, is_directory=True) for directory in directories)

        self._syncs_count += 1

        def ended() -> None:
            self._syncs_count -= 1
            if not self._syncs_count:
                self._removed.clear()
            self._syncing_count -= len(kept_open)
            for file in kept_open:
                file.end_sync()

        return self._sync_threads.sync(self._parts(jobs, shared), errors, ended)

    def _parts(self, jobs: Iterable[SyncJob], shared: Mapping[FileSystem, Sequence[SyncJob]]) -> Sequence[SyncPart]:
        """The parts that run side by side: single jobs, or those of a file system together if that is less work."""
        parts = [SyncPart((job,)) for job in jobs]
        for file_system, files in shared.items():
            if len(files) >= SMALLEST_FILE_COUNT:
                if file_system.can_sync_cheaply(len(files)):
                    parts.append(SyncPart(files, file_system))
                    continue
                if file_system.is_to_be_written_back():
                    self._write_back(file_system.path, file_system.written_back)
            parts.extend(SyncPart((job,)) for job in files)
        return parts

    def write_back(self, path: str) -> Awaitable[None]:
        return self._write_back(path, _refuse_after_crash)

    def _write_back(self, path: str, ended: Callable[[], None]) -> Awaitable[None]:
        return self._sync_threads.sync([SyncPart((SyncJob(path, is_write_back=True),))], [], ended)

    def _note_removal(self, path: str) -> None:
        """Note that a file is renamed or removed: a sync that is about to open it will not find it."""
        if self._syncs_count:
            self._removed.add(path)

    def _is_deleted(self, file: LocalFile) -> bool:
        """Whether a file may be missing; called on sync threads. A file may be deleted while another part has it open:
        the indexes of a removed segment while they are being synced."""
        return file.is_closed() or file.path in self._removed

    def crash(self) -> None:
        """Stop all writes, as the end of the process would; files keep the bytes written so far."""
        self._is_crashed = True
        self.close()

    def _require_open(self) -> None:
        """Raises OSError after a crash."""
        if self._is_crashed:
            raise OSError(errno.EIO, "the broker has crashed")

    def close(self) -> None:
        """End the sync threads after their current work, close all files and release the locks."""
        self._sync_threads.close()
        for file in self._open_files:
            file.release()
        self._open_files.clear()
        for file_system in self._file_systems.values():
            if file_system is not None:
                file_system.close()
        self._file_systems.clear()
        for path in list(self._locks):
            self.unlock(path)


def _refuse_after_crash() -> None:
    """Every file was closed at the crash."""
