"""Syncs of a log: what it gives to the flusher, and what follows."""

from __future__ import annotations

import errno

import pytest

from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.storage.disk import StorageError
from tests.support.log_world import NOW_MS, LogWorld


async def test_what_is_appended_during_a_sync_waits_for_the_next(world: LogWorld) -> None:
    log = world.create()
    world.append(b"before")
    work = log.begin_sync()
    world.append(b"meanwhile")
    log.end_sync(work, None)
    assert (log.high_watermark, log.log_end_offset) == (1, 2)
    await log.flushed()
    assert log.high_watermark == 2


async def test_a_failed_sync_takes_the_log_offline(world: LogWorld) -> None:
    log = world.create()
    world.append(b"v")
    log.end_sync(log.begin_sync(), StorageError(errno.EIO, "a bad sector"))
    assert log.is_offline
    assert log.high_watermark == 0
    with pytest.raises(StorageError, match="offline"):
        await log.flushed()


async def test_a_deleted_log_has_nothing_to_sync(world: LogWorld) -> None:
    log = world.create()
    world.append(b"v")
    log.mark_deleted()
    assert log.begin_sync() == ((), (), 0, (), 0)
    assert log.take_appended() == []


async def test_records_that_only_the_page_cache_has_are_flushed_when_their_time_is_over(world: LogWorld) -> None:
    log = world.create(LogConfig(flush_interval_messages=1_000, flush_ms=60_000))
    world.append(b"v")
    log.flush_by_time(NOW_MS + 59_000)
    assert log.durability.recovery_point == 0
    log.flush_by_time(NOW_MS + 61_000)
    await world.logs._flusher.drain()
    assert log.durability.recovery_point == 1
