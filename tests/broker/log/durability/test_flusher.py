"""Group commit: waiters that share a sync, those that wait for the next, and those that get its failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import cast

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.durability.flusher import LOGS_PER_SYNC, FilesToSync, Flusher
from fencepost.broker.log.durability.shared_log import AppendedBytes
from fencepost.broker.storage.disk import Disk, LogFile, StorageError


class NamedFile:
    def __init__(self, path: str) -> None:
        self.path = path


class SteppedDisk:
    """Syncs end when the test says so."""

    def __init__(self) -> None:
        self.syncs: list[tuple[list[str], list[str], asyncio.Future[None]]] = []

    def sync(self, files: Sequence[LogFile], directories: Sequence[str] = ()) -> Awaitable[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.syncs.append(([file.path for file in files], list(directories), future))
        return future


class DirtyLog:
    def __init__(self, name: str) -> None:
        self.topic_partition = TopicPartition(name, 0)
        self.file = cast("LogFile", NamedFile(name))
        self.ended: list[StorageError | None] = []
        self.offline_reason: str | None = None

    def give_up(self, error: StorageError) -> None:
        self.offline_reason = str(error)

    def begin_sync(self) -> FilesToSync:
        return FilesToSync([self.file], ["directory"])

    def take_appended(self) -> Sequence[AppendedBytes]:
        raise AssertionError("there is no shared log")

    def end_sync(self, work: FilesToSync, error: StorageError | None) -> None:
        self.ended.append(error)


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_logs_that_became_dirty_in_one_turn_share_a_sync() -> None:
    disk = SteppedDisk()
    flusher = Flusher(cast("Disk", disk))
    first, second = DirtyLog("first"), DirtyLog("second")
    flusher.request(first)
    flusher.request(second)
    flusher.request(first)
    assert disk.syncs == []
    await turn()
    ((files, directories, future),) = disk.syncs
    assert files == ["first", "second"]
    assert directories == ["directory"]
    future.set_result(None)
    await flusher.drain()
    assert first.ended == second.ended == [None]


async def test_records_appended_during_a_sync_wait_for_the_next_one() -> None:
    disk = SteppedDisk()
    flusher = Flusher(cast("Disk", disk))
    first, second = DirtyLog("first"), DirtyLog("second")
    flusher.request(first)
    await turn()
    flusher.request(second)
    flusher.request(first)
    await turn()
    assert len(disk.syncs) == 1
    disk.syncs[0][2].set_result(None)
    await turn()
    assert first.ended == [None]
    assert disk.syncs[1][0] == ["second", "first"]
    disk.syncs[1][2].set_result(None)
    await flusher.drain()
    assert flusher.sync_count == 2
    assert first.ended == [None, None]


async def test_a_failed_file_concerns_only_its_own_log() -> None:
    disk = SteppedDisk()
    flusher = Flusher(cast("Disk", disk))
    good, bad = DirtyLog("good"), DirtyLog("bad")
    flusher.request(good)
    flusher.request(bad)
    await turn()
    error = StorageError("broken", paths=["bad"])
    disk.syncs[0][2].set_exception(error)
    await flusher.drain()
    assert good.ended == [None]
    assert bad.ended == [error]


async def test_a_failure_that_names_no_file_concerns_everybody() -> None:
    disk = SteppedDisk()
    flusher = Flusher(cast("Disk", disk))
    logs = [DirtyLog("first"), DirtyLog("second")]
    for dirty in logs:
        flusher.request(dirty)
    await turn()
    disk.syncs[0][2].set_exception(StorageError("gone"))
    await flusher.drain()
    assert all(isinstance(dirty.ended[0], StorageError) for dirty in logs)


async def test_many_logs_are_synced_in_shares_the_longest_waiting_first() -> None:
    disk = SteppedDisk()
    flusher = Flusher(cast("Disk", disk))
    logs = [DirtyLog(str(number)) for number in range(LOGS_PER_SYNC + 5)]
    for dirty in logs:
        flusher.request(dirty)
    await turn()
    assert disk.syncs[0][0] == [str(number) for number in range(LOGS_PER_SYNC)]
    disk.syncs[0][2].set_result(None)
    await turn()
    assert disk.syncs[1][0] == [str(number) for number in range(LOGS_PER_SYNC, LOGS_PER_SYNC + 5)]
    disk.syncs[1][2].set_result(None)
    await flusher.drain()
    assert all(dirty.ended == [None] for dirty in logs)


async def test_unawaited_records_go_with_the_next_sync_of_their_own_log() -> None:
    disk = SteppedDisk()
    flusher = Flusher(cast("Disk", disk))
    patient, other = DirtyLog("patient"), DirtyLog("other")
    flusher.request_unawaited(patient)
    await turn()
    assert disk.syncs == []
    flusher.request(other)
    await turn()
    assert [files for files, _, _ in disk.syncs] == [["other"]]
    disk.syncs[-1][2].set_result(None)
    await turn()
    flusher.request(patient)
    await turn()
    assert [files for files, _, _ in disk.syncs] == [["other"], ["patient"]]
    disk.syncs[-1][2].set_result(None)
    await flusher.drain()
    assert len(disk.syncs) == 2


async def test_unawaited_records_are_synced_after_a_pause() -> None:
    disk = SteppedDisk()
    flusher = Flusher(cast("Disk", disk))
    patient = DirtyLog("patient")
    flusher.request_unawaited(patient)
    while not disk.syncs:  # noqa: ASYNC110  # nothing tells of the sync but the disk
        await asyncio.sleep(0.001)
    disk.syncs[-1][2].set_result(None)
    await flusher.drain()
    assert patient.ended == [None]


async def test_draining_syncs_unawaited_records() -> None:
    disk = SteppedDisk()
    flusher = Flusher(cast("Disk", disk))
    patient = DirtyLog("patient")
    flusher.request_unawaited(patient)
    drained = asyncio.ensure_future(flusher.drain())
    await turn()
    assert [files for files, _, _ in disk.syncs] == [["patient"]]
    disk.syncs[-1][2].set_result(None)
    await drained
    assert patient.ended == [None]


async def test_an_idle_flusher_is_drained_at_once() -> None:
    await asyncio.wait_for(Flusher(cast("Disk", SteppedDisk())).drain(), 1)
