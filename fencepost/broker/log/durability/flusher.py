"""Group commit: one sync makes the appends of many partitions durable; later ones go with the next.

An idle flusher starts at the end of the current turn of the event loop: requests that arrived together share a sync,
and a single one waits only for the disk. At most one sync of the disk runs at a time; a shared log may ask for another
flush while some are under way, and ends them in order. An append that no reply waits for starts none: it goes with the
next sync of its log, or with its own after a delay. A flush to a shared log takes all such appends along, as another
log costs it a row, and not a file to sync.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.durability.shared_log import AppendedBytes, SharedLog
from fencepost.broker.storage.disk import Disk, LogFile, StorageError, UnexpectedFailureError

SYNC = Place("sync of logs", Policy.FAIL_PARTITION)
UNAWAITED_SYNC_TIMER = Place("timer of syncs that no reply waits for", Policy.RETRY)

MAX_UNAWAITED_DELAY_S = 0.02
LOGS_PER_SYNC = 64  # so that one busy turn does not make all waiters wait for hundreds of files


class FilesToSync(NamedTuple):
    """The files of one log that must reach the disk, and the work to do after that.

    target:          the offset that the sync reaches.
    side_files:      those of the files that are closed then.
    discarded_count: number of segments, of all that the log has ever discarded, that may be deleted then.
    """

    files: Sequence[LogFile]
    directories: Sequence[str]
    target: int = 0
    side_files: Sequence[LogFile] = ()
    discarded_count: int = 0


class Syncable(Protocol):
    """The part of a log that the flusher uses."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    def begin_sync(self) -> FilesToSync:
        """Return the files that are not durable yet; appends after this call belong to the next sync."""
        ...

    def take_appended(self) -> Sequence[AppendedBytes]:
        """Return the bytes that the shared log does not have yet. Called only with one, in the step of `begin_sync`."""
        ...

    def end_sync(self, work: FilesToSync, error: StorageError | None) -> None:
        """Report that the files of a `begin_sync` are durable, or the error; in the order in which they began."""
        ...

    def give_up(self, error: StorageError) -> None:
        """Go offline: the end of the log's durable part is unknown."""
        ...


class SyncObserver(Protocol):
    """Sees when syncs begin and end, in order, for metrics. Its methods raise nothing."""

    def sync_began(self, logs: Sequence[Syncable]) -> None: ...

    def sync_ended(self, *, is_failed: bool) -> None: ...


class _Sync:
    """A sync that is under way. is_done: it has ended, perhaps before one that began earlier; error: how."""

    __slots__ = ("error", "is_done", "logs")

    def __init__(self) -> None:
        self.logs: list[tuple[Syncable, FilesToSync]] = []
        self.is_done = False
        self.error: StorageError | None = None


class Flusher:
    """Syncs the logs of one log directory.

    shared_log: engine that commits appends, in place of syncs of the disk.
    observer:   None unless metrics are served.
    """

    observer: SyncObserver | None = None

    def __init__(self, disk: Disk, shared_log: SharedLog | None = None) -> None:
        self._disk = disk
        self.shared_log = shared_log
        self._logs_per_sync = LOGS_PER_SYNC
        if shared_log is not None:
            self._logs_per_sync = shared_log.logs_per_flush
            shared_log.begin_another = self._begin_another
        self._dirty: dict[Syncable, None] = {}
        self._unawaited: dict[Syncable, None] = {}
        self._unawaited_timer: asyncio.TimerHandle | None = None
        self._under_way: deque[_Sync] = deque()
        self._is_running = False  # or about to
        self._idle_waiters: list[asyncio.Future[None]] = []
        self.sync_count = 0

    def request(self, log_to_sync: Syncable) -> None:
        """Sync a log: with the others of this turn if no sync runs, else after the running one."""
        self._dirty[log_to_sync] = None
        if not self._is_running:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._start)

    def request_unawaited(self, log_to_sync: Syncable) -> None:
        """Sync a log that no reply waits for, within `MAX_UNAWAITED_DELAY_S`."""
        self._unawaited[log_to_sync] = None
        if self._unawaited_timer is None:
            self._unawaited_timer = asyncio.get_running_loop().call_later(MAX_UNAWAITED_DELAY_S, self._end_pause)

    @UNAWAITED_SYNC_TIMER.catches_itself
    def _end_pause(self) -> None:
        try:
            if self._unawaited_timer is not None:
                self._unawaited_timer.cancel()
                self._unawaited_timer = None
            for log_to_sync in self._unawaited:
                self.request(log_to_sync)
            self._unawaited = {}
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            UNAWAITED_SYNC_TIMER.failed(error, on_failure=lambda _: self._wait_again())

    def _wait_again(self) -> None:
        self._unawaited_timer = asyncio.get_running_loop().call_later(MAX_UNAWAITED_DELAY_S, self._end_pause)

    async def drain(self) -> None:
        """Wait until nothing is left to sync."""
        self._end_pause()
        while self._is_running:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            await waiter

    def _begin_another(self) -> None:
        """Begin a flush beside those that are under way, if there is something to flush."""
        if self._dirty and self._under_way:
            self._start()

    @SYNC.catches_itself
    def _start(self) -> None:
        """Start a sync. A log that fails to take part goes offline; the others are synced."""
        begun = _Sync()
        self._under_way.append(begun)
        files: list[LogFile] = []
        directories: dict[str, None] = {}
        dirty = self._dirty
        if len(dirty) <= self._logs_per_sync:
            self._dirty = {}
        else:
            # The logs that have waited longest go first.
            dirty = dict.fromkeys(list(dirty)[: self._logs_per_sync])
            for log_to_sync in dirty:
                del self._dirty[log_to_sync]
        if self.shared_log is not None and self._unawaited:
            dirty |= dict.fromkeys(list(self._unawaited)[: self._logs_per_sync - len(dirty)])
        for log_to_sync in dirty:
            self._unawaited.pop(log_to_sync, None)
            try:
                to_sync = log_to_sync.begin_sync()
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                _fail(log_to_sync, error)
                continue
            begun.logs.append((log_to_sync, to_sync))
            files.extend(to_sync.files)
            directories.update(dict.fromkeys(to_sync.directories))
        self.sync_count += 1
        if self.observer is not None:
            self.observer.sync_began([log_to_sync for log_to_sync, _ in begun.logs])
        try:
            if self.shared_log is None:
                work = self._disk.sync(files, tuple(directories))
            else:
                work = self.shared_log.commit(_take_appended(begun))
            sync = asyncio.ensure_future(work)
            sync.add_done_callback(partial(self._ended, begun))
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            SYNC.failed(error)
            asyncio.get_running_loop().call_soon(self._end, begun, UnexpectedFailureError("the sync", error))

    @SYNC.catches_itself
    def _ended(self, begun: _Sync, sync: asyncio.Future[None]) -> None:
        self._end(begun, _error_of(sync))

    @SYNC.catches_itself
    def _end(self, ended: _Sync, error: StorageError | None) -> None:
        """Report the result of syncs to their logs, in the order in which they began; then start the next sync."""
        ended.is_done, ended.error = True, error
        while self._under_way and self._under_way[0].is_done:
            self._report(self._under_way.popleft())
        if self._under_way:
            return
        if self._dirty:
            self._start()
            return
        self._is_running = False
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _report(self, ended: _Sync) -> None:
        """Report the result of a sync to each of its logs, also when one of them raises."""
        error = ended.error
        if self.observer is not None:
            self.observer.sync_ended(is_failed=error is not None)
        for log_to_sync, work in ended.logs:
            try:
                log_to_sync.end_sync(work, error if error is not None and _concerns(error, work) else None)
            except BaseException as unforeseen:  # noqa: BLE001  # passed on or logged by `failed`
                _fail(log_to_sync, unforeseen)


def _take_appended(begun: _Sync) -> list[AppendedBytes]:
    """Take the bytes that the logs of a sync that begins have appended. A log that fails goes offline."""
    appended: list[AppendedBytes] = []
    for log_to_sync, _ in begun.logs:
        try:
            appended += log_to_sync.take_appended()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            _fail(log_to_sync, error)
    return appended


def _fail(log_to_sync: Syncable, error: BaseException) -> None:
    SYNC.failed(
        error,
        concerns=log_to_sync.topic_partition,
        on_failure=lambda _: log_to_sync.give_up(UnexpectedFailureError("its sync", error)),
    )


def _error_of(sync: asyncio.Future[None]) -> StorageError | None:
    if sync.cancelled():
        return StorageError("the sync was cancelled")
    error = sync.exception()
    if error is None or isinstance(error, StorageError):
        return error
    SYNC.failed(error)
    return UnexpectedFailureError("the sync", error)


def _concerns(error: StorageError, work: FilesToSync) -> bool:
    if not error.paths:
        return True
    return any(file.path in error.paths for file in work.files) or any(path in error.paths for path in work.directories)
