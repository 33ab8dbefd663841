from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.broker.storage.sync_threads import SYNC_THREAD_COUNT, SyncJob, SyncPart, SyncThreads

PATIENCE_S = 60.0


@pytest.fixture
def threads() -> Iterator[SyncThreads]:
    threads = SyncThreads()
    yield threads
    threads.close()


def part_of(path: Path) -> SyncPart:
    path.touch()
    return SyncPart((SyncJob(str(path)),))


def ended() -> None:
    pass


async def test_a_part_does_not_wait_behind_a_slow_one_while_a_thread_is_idle(
    threads: SyncThreads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [part_of(tmp_path / str(number)) for number in range(SYNC_THREAD_COUNT)]
    await threads.sync(files, [], ended)
    may_end = threading.Event()
    real = os.fdatasync

    def slow(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("slow"):
            assert may_end.wait(PATIENCE_S)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", slow)
    slow_sync = threads.sync([part_of(tmp_path / "slow")], [], ended)
    for _ in range(2 * SYNC_THREAD_COUNT):
        await asyncio.wait_for(threads.sync(files[:1], [], ended), PATIENCE_S)
    assert not slow_sync.done()
    may_end.set()
    await asyncio.wait_for(slow_sync, PATIENCE_S)


async def test_one_part_wakes_one_thread(threads: SyncThreads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [part_of(tmp_path / str(number)) for number in range(SYNC_THREAD_COUNT)]
    await threads.sync(files, [], ended)
    syncing: set[str] = set()
    real = os.fdatasync

    def noted(descriptor: int) -> None:
        syncing.add(threading.current_thread().name)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", noted)
    for _ in range(20):
        await threads.sync(files[:1], [], ended)
    assert syncing == {"sync-0"}


async def test_after_the_end_of_the_threads_all_that_was_asked_for_is_done(tmp_path: Path) -> None:
    threads = SyncThreads()
    syncs = [threads.sync([part_of(tmp_path / str(number))], [], ended) for number in range(3 * SYNC_THREAD_COUNT)]
    threads.close()
    await asyncio.wait_for(asyncio.gather(*syncs), PATIENCE_S)
