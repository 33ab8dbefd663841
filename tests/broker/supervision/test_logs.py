"""Logs meet what nobody foresaw: one goes offline, or waits for its next turn, and all others are served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.broker.coordination.shard import CoordinatorRecord
from fencepost.broker.kernel import portions
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log import partition_log
from fencepost.broker.log.compaction import cleaner
from fencepost.broker.log.compaction.cleaner import LogCleaning
from fencepost.broker.log.directory import log_directory, log_sweep
from fencepost.broker.log.directory.directory_files import RECOVERY_POINT_FILE
from fencepost.broker.log.durability import flusher, waiters
from fencepost.broker.log.files.offset_checkpoint import OffsetCheckpoint
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.producers import producer_work
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import Record, build_batch
from tests.broker.supervision.planting import Unforeseen, logged, plants, raising, unforeseen, until
from tests.support.log_world import NOW_MS, ORDERS, TOPIC_ID, LogWorld

OTHER = TopicPartition("other", 3)
DURABLE = LogConfig(flush_interval_messages=1)


def pair(world: LogWorld, config: LogConfig = DURABLE) -> tuple[PartitionLog, PartitionLog]:
    return world.create(config), world.logs.create(OTHER, TOPIC_ID, config)


def append(log: PartitionLog, value: bytes = b"v", key: bytes | None = b"k") -> None:
    batch = build_batch([Record(0, NOW_MS, key, value)])
    assert log.append(memoryview(batch), now_ms=NOW_MS).error is ErrorCode.NONE


async def is_served(log: PartitionLog) -> None:
    """It takes a record, makes it durable and gives it to a reader, within bounded time."""
    append(log)
    async with asyncio.timeout(60):
        await log.flushed()
    assert log.high_watermark == log.log_end_offset
    assert log.read(log.log_start_offset, 1_000, isolation=Isolation.READ_UNCOMMITTED).records


async def is_offline(log: PartitionLog) -> None:
    """It is marked offline: writers and waiters are refused, and readers get the error."""
    assert log.is_offline
    with pytest.raises(StorageError):
        log.append(memoryview(build_batch([Record(0, NOW_MS, None, b"v")])), now_ms=NOW_MS)
    assert log.read(0, 1_000, isolation=Isolation.READ_UNCOMMITTED).error is ErrorCode.KAFKA_STORAGE_ERROR


async def only_the_broken_one_goes_offline(broken: PartitionLog, sound: PartitionLog) -> None:
    """Nothing is acknowledged whose sync failed; its log is offline then, and the other one is served."""
    with logged(flusher.SYNC):
        append(broken)
        async with asyncio.timeout(60):
            with pytest.raises(StorageError):
                await broken.flushed()
    await is_offline(broken)
    await is_served(sound)


@plants(flusher.SYNC)
@unforeseen
@pytest.mark.parametrize("step", ["begin_sync", "end_sync"])
async def test_a_log_that_cannot_take_part_in_a_sync_goes_offline_and_the_others_are_synced(
    world: LogWorld, step: str, error: BaseException
) -> None:
    broken, sound = pair(world)
    setattr(broken, step, raising(error, times=1, then=getattr(broken, step)))
    with logged(flusher.SYNC, ORDERS):
        append(broken)
        append(sound)
        waiting = [asyncio.ensure_future(log.flushed()) for log in (broken, sound)]
        async with asyncio.timeout(60):
            await waiting[1]
            with pytest.raises(StorageError, match="offline"):
                await waiting[0]
    await is_offline(broken)
    await is_served(sound)


@plants(flusher.SYNC)
@unforeseen
async def test_a_sync_that_cannot_be_begun_takes_its_logs_offline_and_is_not_the_last(
    world: LogWorld, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = pair(world)
    monkeypatch.setattr(world.disk, "sync", raising(error, times=1, then=world.disk.sync))
    await only_the_broken_one_goes_offline(broken, sound)


@plants(flusher.SYNC)
async def test_a_sync_that_ends_in_something_unforeseen_counts_as_failed(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = pair(world)
    sync = world.disk.sync

    async def fail(*_: Any) -> None:
        monkeypatch.setattr(world.disk, "sync", sync)
        raise Unforeseen("planted")

    monkeypatch.setattr(world.disk, "sync", fail)
    await only_the_broken_one_goes_offline(broken, sound)


@plants(flusher.UNAWAITED_SYNC_TIMER)
@unforeseen
async def test_a_timer_of_syncs_that_fails_comes_again(
    world: LogWorld, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = pair(world)
    syncs = world.logs._flusher
    monkeypatch.setattr(syncs, "request", raising(error, times=1, then=syncs.request))
    with logged(flusher.UNAWAITED_SYNC_TIMER):
        log.append_records([CoordinatorRecord(b"k", b"v")], now_ms=NOW_MS, is_awaited=False)
        await until(lambda: log.high_watermark == 1)


@plants(waiters.WATCHER)
@unforeseen
async def test_a_watcher_that_fails_harms_neither_the_log_nor_the_others(world: LogWorld, error: BaseException) -> None:
    log = world.create()
    notified: list[str] = []
    log.add_watcher(raising(error))
    log.add_watcher(lambda: notified.append("moved"))
    with logged(waiters.WATCHER):
        append(log)
        await log.flushed()
    assert notified == ["moved"]
    assert not log.is_offline


async def test_each_that_waits_for_a_log_gets_an_exception_of_its_own(world: LogWorld) -> None:
    log, _ = pair(world)
    append(log)
    first, second = (asyncio.ensure_future(log.flushed()) for _ in range(2))
    log.give_up(StorageError("gone"))
    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["orders-0 is offline: gone"] * 2
    assert outcomes[0] is not outcomes[1]


def client(log: PartitionLog) -> None:
    append(log)


def records(log: PartitionLog) -> None:
    log.append_records([CoordinatorRecord(b"k", b"v")], now_ms=NOW_MS)


def marker(log: PartitionLog) -> None:
    log.append_marker(7, 0, True, 0, 2, NOW_MS)


@plants(partition_log.APPEND)
@unforeseen
@pytest.mark.parametrize("write", [client, records, marker])
async def test_records_written_and_not_applied_are_never_served(
    world: LogWorld,
    error: BaseException,
    write: Callable[[PartitionLog], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken, sound = pair(world, LogConfig())
    request = raising(error)
    monkeypatch.setattr(broken, "flusher", SimpleNamespace(request=request, request_unawaited=request))
    with logged(partition_log.APPEND, ORDERS), pytest.raises(StorageError, match="unexpectedly"):
        write(broken)
    await is_offline(broken)
    await is_served(sound)


@plants(partition_log.APPEND)
@unforeseen
async def test_half_a_roll_is_no_log_to_go_on_with(
    world: LogWorld, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.create()
    append(log)
    monkeypatch.setattr(partition_log, "new_segment", raising(error))
    world.config = LogConfig(segment_ms=1)
    log.configure(world.config)
    world.clock.time_ms += 10_000
    with logged(partition_log.APPEND, ORDERS):
        log.sweep(world.clock.now_ms())
    await is_offline(log)


@plants(producer_work.PRODUCER_WORK)
@unforeseen
async def test_a_log_whose_state_cannot_be_written_later_goes_offline(
    world: LogWorld, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = pair(world)
    append(broken)
    monkeypatch.setattr(producer_work, "FEW_PRODUCERS_COUNT", -1)
    monkeypatch.setattr(PartitionFiles, "write_encoded_snapshot", raising(error))
    with logged(producer_work.PRODUCER_WORK, ORDERS):
        broken.roll(NOW_MS)
        await until(lambda: broken.is_offline)
    await is_offline(broken)
    await is_served(sound)


@plants(log_sweep.SWEEP)
@unforeseen
async def test_a_log_that_cannot_be_swept_is_passed_over(world: LogWorld, error: BaseException) -> None:
    broken, sound = pair(world, LogConfig())
    swept: list[int] = []
    broken.sweep = raising(error, times=2, then=lambda *_: swept.append(1))  # type: ignore[method-assign]
    sound.sweep = lambda *_: swept.append(1)  # type: ignore[method-assign]
    for _ in range(3):
        world.logs.sweep(world.clock.now_ms())
    assert len(swept) == 4


@plants(portions.PORTION)
@unforeseen
async def test_a_portion_of_a_sweep_that_fails_leaves_the_rest_to_the_next_sweep(
    world: LogWorld, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.create()
    unswept = world.logs._sweep._unswept
    monkeypatch.setattr(unswept, "per_turn_count", 0)  # nothing in the first turn, so another follows
    with logged(portions.PORTION, "sweep of the logs"):
        world.logs.sweep(world.clock.now_ms())
        unswept.per_turn_count = 1
        unswept.items = BrokenList(error)
        await asyncio.sleep(0.01)
    unswept.items = []
    swept: list[int] = []
    log.sweep = lambda *_: swept.append(1)  # type: ignore[method-assign]
    world.logs.sweep(world.clock.now_ms())
    assert swept


class BrokenList(list[PartitionLog]):
    def __init__(self, error: BaseException) -> None:
        super().__init__([])
        self.error = error

    def __len__(self) -> int:
        raise type(self.error)(*self.error.args)


@plants(log_sweep.HOUSEKEEPING)
@unforeseen
async def test_a_deleted_log_that_cannot_be_removed_does_not_stop_the_sweep(
    world: LogWorld, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sound = pair(world, LogConfig())
    world.logs.delete(ORDERS)
    monkeypatch.setattr(world.disk, "delete", raising(error))
    swept: list[int] = []
    sound.sweep = lambda *_: swept.append(1)  # type: ignore[method-assign]
    with logged(log_sweep.HOUSEKEEPING):
        world.logs.sweep(world.clock.now_ms())
    assert swept


@plants(log_directory.CHECKPOINT)
@unforeseen
async def test_a_checkpoint_that_fails_is_written_a_minute_later(
    world: LogWorld, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create()
    monkeypatch.setattr(OffsetCheckpoint, "write", raising(error, times=1, then=OffsetCheckpoint.write))
    with logged(log_directory.CHECKPOINT):
        world.logs.sweep(NOW_MS + log_directory.CHECKPOINT_INTERVAL_MS)
        with pytest.raises(type(error)):
            await world.checkpointed()
    world.logs.sweep(NOW_MS + 2 * log_directory.CHECKPOINT_INTERVAL_MS)
    await world.checkpointed()
    assert world.disk.exists(f"{world.path}/{RECOVERY_POINT_FILE}")


COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0, segment_bytes=200)


def fill(log: PartitionLog) -> None:
    for _ in range(8):
        append(log, b"x" * 100, key=b"k")


@plants(cleaner.CLEANING)
@unforeseen
@pytest.mark.parametrize("place", ["dirty_range", "run"])
async def test_a_log_that_cannot_be_cleaned_does_not_keep_the_others_from_it(
    world: LogWorld, error: BaseException, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = pair(world, COMPACTED)
    for log in (broken, sound):
        fill(log)
        await log.flushed()
    size_bytes = sound.size_bytes
    original: Any = cleaner.dirty_range if place == "dirty_range" else LogCleaning.run

    def choose(subject: Any, *arguments: Any) -> Any:
        log = subject if place == "dirty_range" else subject._log
        return raising(error)() if log is broken else original(subject, *arguments)

    owner: Any = cleaner if place == "dirty_range" else LogCleaning
    monkeypatch.setattr(owner, place, choose)
    with logged(cleaner.CLEANING, ORDERS):
        world.logs.sweep(world.clock.now_ms())
        await until(lambda: sound.size_bytes < size_bytes)
    await is_served(sound)
    await is_served(broken)


@plants(cleaner.CLEANER)
@unforeseen
async def test_a_cleaner_that_fails_is_started_again(
    world: LogWorld, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.create(COMPACTED)
    fill(log)
    await log.flushed()
    size_bytes = log.size_bytes
    dirtiest = world.logs._cleaner._dirtiest
    calls: list[int] = []

    def fail_in_the_task(logs: list[PartitionLog]) -> Any:
        calls.append(1)
        return raising(error)() if len(calls) == 2 else dirtiest(logs)

    monkeypatch.setattr(world.logs._cleaner, "_dirtiest", fail_in_the_task)
    with logged(cleaner.CLEANER):
        world.logs.sweep(world.clock.now_ms())
        await asyncio.sleep(0.02)
    world.logs.sweep(world.clock.now_ms())
    await until(lambda: log.size_bytes < size_bytes)


@plants(log_directory.CHECKPOINT)
@unforeseen
async def test_recovery_points_are_written_after_a_checkpoint_that_failed(
    world: LogWorld, error: BaseException
) -> None:
    log = world.create()
    append(log)
    await log.flushed()
    written: list[int] = []

    async def checkpoint() -> None:
        written.append(1)

    logs: Any = world.logs
    logs.checkpoints.write_now_and_then = raising_later(error, checkpoint)
    with logged(log_directory.CHECKPOINT):
        for _ in range(2):
            world.clock.time_ms += log_directory.CHECKPOINT_INTERVAL_MS
            world.logs.sweep(world.clock.now_ms())
            await asyncio.sleep(0.01)
    assert written == [1]


def raising_later(error: BaseException, then: Callable[[], Any]) -> Callable[[], Any]:
    """A coroutine function that raises the first time it runs."""
    first = raising(error, times=1)

    async def function() -> None:
        if first() is None:
            await then()

    return function
