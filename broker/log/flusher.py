"""Group commit: what many partitions have appended becomes durable in one sync, and what arrives meanwhile in the next.

An idle flusher starts at the end of the current turn of the event loop, so that requests that arrived together share
a sync and a single one waits for nothing but the disk. At most one sync runs at a time. Two kinds of work do not start
one at once: small records that many clients send all the time are gathered, so that each does not cost a sync; and what
nobody waits for goes with the next sync of its log, or after a pause with one of its own.
Source of gathering: Kafka's group.coordinator.append.linger.ms, which waits whether or not others come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

import structlog

from broker.disk import Disk, LogFile, StorageError

log = structlog.get_logger(__name__)

GATHERING_S = 0.005
LONGEST_PAUSE_S = 0.02
LOGS_PER_SYNC = 64  # so that one busy turn does not make everybody wait for hundreds of files


class Patience(Enum):
    """How long what was appended can wait before it is synced.

    NONE:      for the end of this turn of the event loop.
    GATHERING: until `GATHERING_S` after the last sync for its kind began: a single one does not wait at all.
    PAUSE:     for `LONGEST_PAUSE_S`, as nobody waits for it.
    """

    NONE = "none"
    GATHERING = "gathering"
    PAUSE = "pause"


class SyncWork(NamedTuple):
    """What must reach the disk for one log."""

    files: Sequence[LogFile]
    directories: Sequence[str]


class Syncable(Protocol):
    """A log, as the flusher sees it."""

    def begin_sync(self) -> SyncWork:
        """What is not durable yet; what is appended after this call belongs to the next sync."""
        ...

    def end_sync(self, error: StorageError | None) -> None:
        """What `begin_sync` returned is durable, or could not be made so."""
        ...


class Flusher:
    """Syncs the logs of one log directory."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._dirty: dict[Syncable, None] = {}
        self._gathered: dict[Syncable, None] = {}
        self._gathering: asyncio.TimerHandle | None = None
        self._gathered_until_s = 0.0
        self._unawaited: dict[Syncable, None] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._syncing: list[tuple[Syncable, SyncWork]] = []
        self._is_running = False
        self._idle_waiters: list[asyncio.Future[None]] = []
        self.sync_count = 0

    def request(self, log_to_sync: Syncable, patience: Patience = Patience.NONE) -> None:
        """Have a log synced: with the others of this turn if nothing is being synced, else after the sync that runs.

        With patience, a little later. Asking again with less of it counts.
        """
        if patience is Patience.NONE:
            self._request(log_to_sync)
        elif patience is Patience.GATHERING:
            self._gather(log_to_sync)
        else:
            self._unawaited[log_to_sync] = None
            if self._pause is None:
                self._pause = asyncio.get_running_loop().call_later(LONGEST_PAUSE_S, self._end_pause)

    def is_asked_to_sync(self, log_to_sync: Syncable) -> bool:
        """Whether a sync will begin for those who wait for what the log has now."""
        return log_to_sync in self._dirty or log_to_sync in self._gathered

    def _request(self, log_to_sync: Syncable) -> None:
        self._dirty[log_to_sync] = None
        if not self._is_running:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._start)

    def _gather(self, log_to_sync: Syncable) -> None:
        if log_to_sync in self._dirty:
            return
        self._gathered[log_to_sync] = None
        if self._gathering is not None:
            return
        loop = asyncio.get_running_loop()
        remaining_s = self._gathered_until_s - loop.time()
        if remaining_s <= 0:
            self._end_gathering()
        else:
            self._gathering = loop.call_later(remaining_s, self._end_gathering)

    def _end_gathering(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        self._gathered_until_s = asyncio.get_running_loop().time() + GATHERING_S
        gathered, self._gathered = self._gathered, {}
        for log_to_sync in gathered:
            self._request(log_to_sync)

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        unawaited, self._unawaited = self._unawaited, {}
        for log_to_sync in unawaited:
            self._request(log_to_sync)

    async def drain(self) -> None:
        """Return when nothing is left to sync."""
        self._end_gathering()
        self._end_pause()
        while self._is_running:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            await waiter

    def _start(self) -> None:
        files: list[LogFile] = []
        directories: dict[str, None] = {}
        dirty = self._dirty
        if len(dirty) <= LOGS_PER_SYNC:
            self._dirty = {}
        else:
            # The longest waiting go first.
            dirty = dict.fromkeys(list(dirty)[:LOGS_PER_SYNC])
            for log_to_sync in dirty:
                del self._dirty[log_to_sync]
        for log_to_sync in dirty:
            self._gathered.pop(log_to_sync, None)
            self._unawaited.pop(log_to_sync, None)
            work = log_to_sync.begin_sync()
            self._syncing.append((log_to_sync, work))
            files.extend(work.files)
            directories.update(dict.fromkeys(work.directories))
        self.sync_count += 1
        sync = asyncio.ensure_future(self._disk.sync(files, tuple(directories)))
        sync.add_done_callback(self._ended)

    def _ended(self, sync: asyncio.Future[None]) -> None:
        syncing, self._syncing = self._syncing, []
        error = self._error_of(sync)
        try:
            for log_to_sync, work in syncing:
                log_to_sync.end_sync(error if error is not None and _concerns(error, work) else None)
        finally:
            if self._dirty:
                self._start()
            else:
                self._is_running = False
                waiters, self._idle_waiters = self._idle_waiters, []
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_result(None)

    def _error_of(self, sync: asyncio.Future[None]) -> StorageError | None:
        if sync.cancelled():
            return StorageError("the sync was cancelled")
        error = sync.exception()
        if error is None or isinstance(error, StorageError):
            return error
        log.error("sync_failed", error=type(error).__name__, reason=str(error))
        return StorageError(f"the sync failed: {error}")


def _concerns(error: StorageError, work: SyncWork) -> bool:
    if not error.paths:
        return True
    return any(file.path in error.paths for file in work.files) or any(path in error.paths for path in work.directories)
