"""A log with very many producers: others are served while their state is written, read and swept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.log.directory import log_opening
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.files.producer_snapshot import ProducerSnapshot, decode_snapshot
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.producers import producer_work
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.log.retention.log_retention import PRODUCER_SWEEP_INTERVAL_MS
from fencepost.protocol.record_batch import BatchHeader
from tests.support.log_world import NOW_MS, ORDERS, LogWorld, content_of
from tests.support.longest_step import SlicedWork, steps_until_done

COUNT = 30_000
KEPT = LogConfig(segment_bytes=100_000, flush_interval_messages=1)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[LogWorld]:
    opened = LogWorld(str(tmp_path))
    await opened.start()
    yield opened
    await opened.stop()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One producer is many."""
    monkeypatch.setattr(producer_work, "FEW_PRODUCERS_COUNT", 0)


def take_in(state: ProducerState, producer_id: int, sequence: int = 0, base_offset: int = 0) -> None:
    header = BatchHeader(base_offset, 100, 0, 2, 0, 0, 0, NOW_MS, NOW_MS, producer_id, 0, sequence, 1)
    state.apply_data_batch(header, base_offset=base_offset, max_timestamp_ms=NOW_MS, now_ms=NOW_MS)


def with_many_producers(world: LogWorld, *, batches_count: int = 5) -> PartitionLog:
    log = world.create(KEPT)
    world.append(b"a")
    for producer_id in range(COUNT):
        for sequence in range(batches_count):
            take_in(log.producers, producer_id, sequence)
    return log


def snapshots_of(log: PartitionLog) -> dict[int, list[ProducerSnapshot]]:
    """Those on the disk, by offset."""
    found = {}
    for offset in log.files.numbered().get(".snapshot", []):
        decoded = decode_snapshot(content_of(log.files.snapshot_path(offset)))
        assert isinstance(decoded, list)
        found[offset] = decoded
    return found


async def steps_of_work(log: PartitionLog) -> SlicedWork:
    assert log.producer_work._tasks
    return await steps_until_done(asyncio.gather(*log.producer_work._tasks))


async def test_no_step_is_long_while_the_state_of_many_producers_is_written(world: LogWorld) -> None:
    log = with_many_producers(world)
    expected = log.producers.snapshot()

    async def roll() -> None:
        log.roll(NOW_MS)

    rolling = await steps_until_done(asyncio.ensure_future(roll()))
    assert log.producer_work.has_unwritten_snapshot
    writing = await steps_of_work(log)
    assert max(rolling.longest_s, writing.longest_s) < 0.05
    await asyncio.sleep(0)
    assert log.producer_work._unwritten_snapshots == frozenset()
    assert snapshots_of(log) == {1: expected}


async def test_no_step_is_long_while_many_producers_are_loaded(world: LogWorld) -> None:
    log = with_many_producers(world)
    expected = log.producers.snapshot()
    stopping = await steps_until_done(asyncio.ensure_future(world.stop()))
    starting = asyncio.ensure_future(world.restart(crash=True))
    steps = await steps_until_done(starting)
    log = await starting
    assert log.producers.snapshot() == [
        producer._replace(recent_batches=producer.recent_batches[-5:]) for producer in expected
    ]
    assert max(stopping.longest_s, steps.longest_s) < 0.05


async def test_no_step_is_long_while_many_producers_are_forgotten(world: LogWorld) -> None:
    log = with_many_producers(world, batches_count=1)
    world.clock.time_ms += log.config.producer_id_expiration_ms + PRODUCER_SWEEP_INTERVAL_MS

    async def sweep() -> None:
        log.sweep(world.clock.time_ms, 10**12)

    sweeping = await steps_until_done(asyncio.ensure_future(sweep()))
    steps = await steps_of_work(log)
    assert log.producers.snapshot() == []
    assert max(sweeping.longest_s, steps.longest_s) < 0.02


@pytest.mark.usefixtures("few")
async def test_a_state_that_is_written_later_is_that_of_its_offset(world: LogWorld) -> None:
    """Whatever is appended meanwhile: by those that are known, by new ones, by one that was forgotten, and markers."""
    log = world.create(KEPT)
    for producer_id in (1, 2, 3):
        world.append(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    expected = log.producers.snapshot()
    log.roll(NOW_MS)
    world.append(b"b", producer_id=1, producer_epoch=0, base_sequence=1)
    world.append(b"b", producer_id=4, producer_epoch=0, base_sequence=0)
    log.producers.expire(NOW_MS + log.config.producer_id_expiration_ms, log.config.producer_id_expiration_ms)
    world.append(b"b", producer_id=2, producer_epoch=1, base_sequence=0)
    second = log.producers.snapshot()
    log.roll(NOW_MS)
    log.append_marker(3, 5, committed=True, coordinator_epoch=1, transaction_version=1, now_ms=NOW_MS)
    await steps_of_work(log)
    assert snapshots_of(log) == {3: expected, 6: second}
    assert log.producers._captures == []


@pytest.mark.usefixtures("few")
async def test_a_crash_before_the_state_is_written_loses_nothing(world: LogWorld) -> None:
    log = world.create(KEPT)
    for sequence in range(3):
        world.append(b"a", producer_id=1, producer_epoch=0, base_sequence=sequence)
        log.roll(NOW_MS)
        if sequence == 0:
            await steps_of_work(log)
    expected = log.producers.snapshot()
    log.producer_work.cancel()
    assert list(snapshots_of(log)) == [1]
    log = await world.restart(crash=True)
    assert log.producers.snapshot() == expected


@pytest.mark.usefixtures("few")
async def test_records_are_not_deleted_before_the_state_after_them_is_written(world: LogWorld) -> None:
    log = world.create(LogConfig(retention_ms=1000))
    world.append(b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    await log.flushed()
    expected = log.producers.snapshot()
    log.sweep(NOW_MS + 2000)
    assert (log.log_start_offset, len(log.segments)) == (0, 2)
    await steps_of_work(log)
    log.sweep(NOW_MS + 2001, 1_000_000)
    assert (log.log_start_offset, len(log.segments)) == (1, 1)
    assert snapshots_of(log) == {1: expected}


@pytest.mark.usefixtures("few")
async def test_a_stop_writes_the_state_of_the_end_whatever_else_is_unwritten(world: LogWorld) -> None:
    log = world.create(KEPT)
    world.append(b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    log.roll(NOW_MS)
    world.append(b"b", producer_id=1, producer_epoch=0, base_sequence=1)
    expected = log.producers.snapshot()
    log = await world.restart()
    assert log.producers.snapshot() == expected
    assert snapshots_of(log)[2] == expected


@pytest.mark.usefixtures("few")
async def test_a_state_of_a_deleted_log_is_not_written(world: LogWorld) -> None:
    log = world.create(KEPT)
    world.append(b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    log.roll(NOW_MS)
    log.mark_deleted()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (log.producer_work._tasks, log.producers._captures, snapshots_of(log)) == (set(), [], {})


async def test_a_log_with_many_producers_is_not_opened_in_the_requesting_step(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create(KEPT)
    world.append(b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    for largest_bytes, is_served_at_once in ((0, False), (10_000, True)):
        await world.stop()
        monkeypatch.setattr(log_opening, "READ_NOW_BYTES", largest_bytes)
        world.logs = LogDirectory(world.path, disk=world.disk, clock=world.clock)
        await world.logs.open(lambda _: KEPT, patience_s=0.0)
        assert ORDERS in world.logs.unopened
        assert world.logs.open_now(ORDERS) == is_served_at_once
        if not is_served_at_once:
            assert await world.logs.open_next() == [ORDERS]
        world.logs.unopened.discard(ORDERS)
        assert len(world.orders.producers.snapshot()) == 1
