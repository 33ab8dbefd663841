"""Threads that wait for the device: they sync files and directories while the event loop runs."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import NamedTuple

from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.storage.disk import StorageError, UnexpectedFailureError, storage_error
from fencepost.broker.storage.file_system_sync import FileSystem, write_back

SYNC_THREAD = Place("sync on a thread", Policy.FAIL_PARTITION)
SYNC_END = Place("end of a sync", Policy.FAIL_PARTITION)

# Syncs that run together share one commit of the file system's journal: 32 files took 4.3 ms with 4 threads, 19 with 1.
SYNC_THREAD_COUNT = 4

LONGEST_WAIT_FOR_DESCRIPTOR_S = 10.0
PAUSE_FOR_DESCRIPTOR_S = 0.005
NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
"""The system's errors for no descriptor left, in the process or the machine."""


def _never() -> bool:
    return False


class SyncJob(NamedTuple):
    """A file or a directory to sync.

    descriptor:    the file's; negative for one that is not open and is opened for the sync.
    is_deleted:    whether the file may be missing; called on a sync thread.
    is_write_back: write all dirty memory of the directory's file system, without reporting whether it arrived.
    """

    path: str
    descriptor: int = -1
    is_deleted: Callable[[], bool] = _never
    is_directory: bool = False
    is_write_back: bool = False


class SyncPart(NamedTuple):
    """The work of one thread: jobs one after another, or one sync of the file system that all of them are on."""

    jobs: Sequence[SyncJob]
    file_system: FileSystem | None = None


class SyncThreads:
    """Threads for syncs, started on first use."""

    def __init__(self) -> None:
        self._threads: list[_SyncThread] = []

    def sync(
        self, parts: Sequence[SyncPart], errors: list[StorageError], on_end: Callable[[], None]
    ) -> asyncio.Future[None]:
        """Sync all parts, side by side.

        errors: failures from before the sync; they count as its own.
        on_end: called on the event loop when no part is running any more, before the future is done.
        The future raises one StorageError for all failures, with their paths.
        """
        sync = _RunningSync(asyncio.get_running_loop(), on_end, len(parts), errors)
        if not parts:
            sync.end()
            return sync.future
        while len(self._threads) < min(len(parts), SYNC_THREAD_COUNT):
            thread = _SyncThread(f"sync-{len(self._threads)}")
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads for this process
                if self._threads:
                    break
                raise
            self._threads.append(thread)
        for part in parts:
            idlest = self._threads[0]
            for thread in self._threads:
                if thread.put_count - thread.ended_count < idlest.put_count - idlest.ended_count:
                    idlest = thread
            idlest.put_count += 1
            idlest.parts.put((sync, part))
        return sync.future

    def close(self) -> None:
        """End the threads after their current work."""
        for thread in self._threads:
            thread.parts.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()


class _SyncThread(threading.Thread):
    """A thread with a queue of its own. put_count - ended_count: the parts that have not ended.

    With one queue for all, each part would wake two threads: a thread that takes a part from a SimpleQueue wakes the
    next one that waits, and that one takes the interpreter lock to find nothing.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.parts: SimpleQueue[tuple[_RunningSync, SyncPart] | None] = SimpleQueue()
        self.put_count = 0  # changed by the event loop alone
        self.ended_count = 0  # changed by this thread alone

    @SYNC_THREAD.catches_itself
    def run(self) -> None:
        """Run parts until a None. No exception of a part ends the thread: all later syncs would wait for ever."""
        take = self.parts.get
        while (taken := take()) is not None:
            sync, part = taken
            try:
                errors = _errors_of(part)
            except BaseException as error:  # noqa: BLE001  # nothing else may end a thread either
                SYNC_THREAD.failed(error, concerns=part.jobs[0].path)
                errors = [UnexpectedFailureError("the sync", error)]
            self.ended_count += 1
            sync.part_ended(errors)


def _errors_of(part: SyncPart) -> list[StorageError]:
    """Sync a part; return its failures."""
    if part.file_system is not None and part.file_system.sync():
        return []
    return [error for job in part.jobs if (error := _error_of(job)) is not None]


def _error_of(job: SyncJob) -> StorageError | None:
    """Sync one job; return its failure."""
    try:
        if job.descriptor >= 0:
            os.fdatasync(job.descriptor)
        elif job.is_write_back:
            write_back(job.path)
        else:
            _sync_path(job.path, is_directory=job.is_directory)
    except FileNotFoundError as reason:
        return None if job.is_deleted() else storage_error("sync", job.path, reason)
    except OSError as reason:
        return storage_error("sync", job.path, reason)
    return None


class _RunningSync:
    """One call of `SyncThreads.sync`: counts down its parts, and resolves its future when the last has ended."""

    __slots__ = ("_errors", "_lock", "_loop", "_missing_count", "_on_end", "future")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[], None],
        part_count: int,
        errors: list[StorageError],
    ) -> None:
        self.future: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._on_end = on_end
        self._missing_count = part_count
        self._errors = errors
        self._lock = threading.Lock()

    def part_ended(self, errors: Sequence[StorageError]) -> None:
        """Record the end of a part; called on a sync thread, once for each."""
        with self._lock:
            self._errors.extend(errors)
            self._missing_count -= 1
            if self._missing_count:
                return
        try:
            self._loop.call_soon_threadsafe(self.end)
        except RuntimeError:
            pass  # the loop is closed: no caller waits any more

    @SYNC_END.catches_itself
    def end(self) -> None:
        try:
            self._on_end()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            SYNC_END.failed(error)
            self._errors.append(UnexpectedFailureError("the end of the sync", error))
        if self.future.done():
            return
        if not self._errors:
            self.future.set_result(None)
        elif len(self._errors) == 1:
            self.future.set_exception(self._errors[0])
        else:
            paths = [path for error in self._errors for path in error.paths]
            reason = "; ".join(str(error.strerror) for error in self._errors)
            self.future.set_exception(StorageError(self._errors[0].errno, reason, paths=paths))


def _sync_path(path: str, *, is_directory: bool) -> None:
    """Open and sync a file; wait on this thread for a descriptor, which connections may hold for a moment. Raises
    OSError."""
    give_up_at_s = time.monotonic() + LONGEST_WAIT_FOR_DESCRIPTOR_S
    while True:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECTORY if is_directory else 0))
            break
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR or time.monotonic() >= give_up_at_s:
                raise
        time.sleep(PAUSE_FOR_DESCRIPTOR_S)
    sync_and_close(descriptor, is_directory=is_directory)


def sync_and_close(descriptor: int, *, is_directory: bool) -> None:
    """Sync a descriptor that was opened only for this, and close it. Raises OSError."""
    try:
        if is_directory:
            os.fsync(descriptor)
        else:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
