"""Compaction: the newest record of every key stays, and nothing that a consumer or a producer still needs goes."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.broker.log.compaction.cleaner import LogCleaning, dirty_range
from fencepost.broker.log.compaction.rewriting import RewritingAbandonedError
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import Isolation, PartitionLog
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk, LocalFile
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import (
    Record,
    RecordBatch,
    build_batch,
    iterate_batches,
    read_header,
    read_records,
    sealed_header,
)
from tests.support.log_world import NOW_MS, LogWorld
from tests.support.longest_step import steps_until_done

COMPACTED = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=600,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
    flush_interval_messages=2**63 - 1,
)


def batches(log: PartitionLog, offset: int | None = None) -> Iterator[RecordBatch]:
    offset = log.log_start_offset if offset is None else offset
    while (read := log.read(offset, 1 << 20, isolation=Isolation.LOG_END)).records:
        for batch in iterate_batches(read.records):
            offset = batch.header.last_offset + 1
            yield batch


def records(log: PartitionLog) -> list[Record]:
    return [record for batch in batches(log) if not batch.header.is_control for record in read_records(batch)]


def committed(log: PartitionLog) -> list[tuple[bytes | None, bytes | None]]:
    """What a read_committed consumer takes from the log, one small fetch after the other."""
    result: list[tuple[bytes | None, bytes | None]] = []
    offset = log.log_start_offset
    while (read := log.read(offset, 300, isolation=Isolation.READ_COMMITTED)).records:
        assert read.aborted_transactions is not None
        waiting = sorted(read.aborted_transactions, key=lambda aborted: aborted.first_offset)
        active: set[int] = set()
        for batch in iterate_batches(read.records):
            header = batch.header
            start, offset = offset, header.last_offset + 1
            while waiting and waiting[0].first_offset <= header.last_offset:
                active.add(waiting.pop(0).producer_id)
            if header.is_control:
                active.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in active):
                result += [(record.key, record.value) for record in read_records(batch) if record.offset >= start]
    return result


def newest(pairs: list[tuple[bytes | None, bytes | None]]) -> dict[bytes | None, bytes | None]:
    return {key: value for key, value in dict(pairs).items() if value is not None}


class Fault:
    """Lets the Nth of the wrapped calls fail, and all after it."""

    def __init__(self, failed_step: int) -> None:
        self._steps_left = failed_step
        self.has_fired = False

    def wrap(self, original: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self._steps_left -= 1
            if self._steps_left <= 0:
                self.has_fired = True
                raise StorageError("the disk is gone")
            return original(*arguments, **options)

        return call


async def clean(world: LogWorld, cleaned_offset: int = 0, **options: Any) -> int:
    now_ms = world.clock.now_ms()
    dirty = dirty_range(world.orders, cleaned_offset, now_ms)
    return await LogCleaning(world.orders, dirty, now_ms=now_ms, **options).run()


async def test_only_the_newest_record_of_every_key_is_left_in_sealed_segments(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    for number in range(60):
        world.append(b"%d" % number * 20, key=b"k%d" % (number % 5))
    active = log.segments.active.base_offset
    size_bytes = log.size_bytes
    assert await clean(world) == active
    assert log.size_bytes < size_bytes / 4
    sealed = [record.offset for record in records(log) if record.offset < active]
    assert sealed == list(range(active - 5, active))
    assert [record.offset for record in records(log) if record.offset >= active] == list(range(active, 60))
    # Every offset still leads to the next record there is.
    for offset in range(60):
        expected = max(offset, active - 5)
        first = next(batches(log, offset))
        assert first.header.last_offset >= offset
        assert next(r.offset for b in batches(log, offset) for r in read_records(b) if r.offset >= offset) == expected


async def test_a_cleaned_log_is_the_same_after_a_restart_and_after_a_crash(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    for number in range(60):
        world.append(b"v" * 40, key=b"k%d" % (number % 7))
    await clean(world)
    before = records(log)
    assert records(await world.restart()) == before
    assert records(await world.restart(crash=True)) == before
    assert world.append(b"v", key=b"k").base_offset == 60


async def test_a_second_pass_merges_what_the_first_has_left(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    for number in range(100):
        world.append(b"v" * 40, key=b"k%d" % (number % 3))
    first = await clean(world)
    for number in range(60):
        world.append(b"v" * 40, key=b"k%d" % (number % 3))
    assert dirty_range(log, first, 0).ratio > 0.5
    assert await clean(world, first) == log.segments.active.base_offset
    assert sum(segment.base_offset < first for segment in log.segments) <= 3
    assert len({record.key for record in records(log)}) == 3


async def test_nothing_at_or_above_the_last_stable_offset_is_touched(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    for _ in range(12):
        world.append(b"v" * 40, key=b"k")
    world.append(b"open", key=b"k", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    for _ in range(30):
        world.append(b"v" * 40, key=b"k")
    cleaned = await clean(world)
    assert cleaned <= 12 == log.last_stable_offset
    assert [record.offset for record in records(log) if record.offset >= cleaned] == list(range(cleaned, 43))


async def test_records_of_aborted_transactions_go_whatever_their_keys_and_the_result_stays(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    world.append(b"good", key=b"a")
    world.append(b"bad", key=b"a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.append(b"only bad", key=b"b", producer_id=1, producer_epoch=0, base_sequence=1, is_transactional=True)
    world.append(b"later", key=b"c", producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(1, 1, committed=False)
    world.end_transaction(2, 1, committed=True)
    for _ in range(20):
        world.append(b"v" * 40, key=b"filler")
    before = newest(committed(log))
    await clean(world)
    assert newest(committed(log)) == before
    values = {record.value for record in records(log)}
    assert b"good" in values
    assert b"bad" not in values
    assert b"only bad" not in values
    log = await world.restart(crash=True)
    assert newest(committed(log)) == before
    assert log.last_stable_offset == log.log_end_offset


async def test_a_marker_stays_until_its_records_are_gone_and_its_time_is_over(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    world.append(b"v", key=b"k", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(1, 1, committed=True)
    # Another epoch, so that neither batch is where the producer's state comes from.
    world.append(b"v", key=b"k2", producer_id=1, producer_epoch=2, base_sequence=0, is_transactional=True)
    world.end_transaction(1, 3, committed=True)
    for _ in range(20):
        world.append(b"v" * 40, key=b"k")

    def markers() -> list[bool]:
        headers = [batch.header for batch in batches(log)]
        return [header.has_delete_horizon for header in headers if header.is_control and header.producer_epoch == 1]

    await clean(world)
    assert markers() == [False]
    for _ in range(10):
        world.append(b"v" * 40, key=b"k")
    await clean(world)
    assert markers() == [True]
    world.clock.time_ms += 999
    for _ in range(10):
        world.append(b"v" * 40, key=b"k")
    await clean(world)
    assert markers() == [True]
    world.clock.time_ms += 1
    for _ in range(10):
        world.append(b"v" * 40, key=b"k")
    await clean(world)
    assert markers() == []


async def test_a_tombstone_stays_as_long_as_consumers_may_need_to_see_it(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    world.append(b"v", key=b"gone")
    tombstone = Record(0, world.clock.now_ms(), b"gone", None)
    world.append_records(tombstone)
    for _ in range(20):
        world.append(b"v" * 40, key=b"k")
    await clean(world)
    assert [record.value for record in records(log) if record.key == b"gone"] == [None]
    assert next(record.timestamp_ms for record in records(log) if record.key == b"gone") == tombstone.timestamp_ms
    world.clock.time_ms += 1000
    for _ in range(10):
        world.append(b"v" * 40, key=b"k")
    await clean(world)
    assert [record.value for record in records(log) if record.key == b"gone"] == []


async def test_a_producer_goes_on_with_its_sequence_after_its_records_were_compacted(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    for sequence in range(3):
        world.append(b"v", key=b"k", producer_id=1, producer_epoch=0, base_sequence=sequence)
    for _ in range(20):
        world.append(b"v" * 40, key=b"k")
    await clean(world)
    emptied = [batch.header for batch in batches(log) if batch.header.producer_id == 1]
    assert [(header.last_sequence, header.records_count) for header in emptied] == [(2, 0)]
    for offset in list(log.files.snapshot_offsets):
        log.files.delete_snapshot(offset)
    log = await world.restart(crash=True)
    assert world.append(b"v", key=b"k", producer_id=1, producer_epoch=0, base_sequence=2).is_duplicate
    assert world.append(b"v", key=b"k", producer_id=1, producer_epoch=0, base_sequence=3).error is ErrorCode.NONE


async def test_what_had_to_stay_empty_goes_once_it_ends_no_segment_any_more(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    cleaned_offset, left_counts = 0, []
    for _ in range(12):
        for _ in range(10):
            world.append(b"v" * 100, key=b"k")
        cleaned_offset = await clean(world, cleaned_offset)
        sealed_end = log.segments.active.base_offset
        left_counts.append(sum(batch.header.last_offset < sealed_end for batch in batches(log)))
    assert max(left_counts[6:]) <= max(left_counts[:6])


async def test_an_emptied_batch_goes_once_its_producer_has_expired(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    world.append(b"v", key=b"k", producer_id=1, producer_epoch=0, base_sequence=0)
    for _ in range(20):
        world.append(b"v" * 40, key=b"k")
    cleaned_offset = await clean(world)
    assert [batch.header.records_count for batch in batches(log) if batch.header.producer_id == 1] == [0]
    world.clock.time_ms += log.config.producer_id_expiration_ms + 1
    log.sweep(world.clock.now_ms())
    for _ in range(20):
        world.append(b"v" * 40, key=b"k")
    await clean(world, cleaned_offset)
    assert not [batch for batch in batches(log) if batch.header.producer_id == 1]


async def test_young_records_are_left_alone(world: LogWorld) -> None:
    log = world.create(LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=600, min_compaction_lag_ms=1000))
    log.configure(
        LogConfig(
            cleanup_policy=frozenset({"compact"}),
            segment_bytes=600,
            min_compaction_lag_ms=1000,
            flush_interval_messages=2,
        )
    )
    for _ in range(20):
        world.append(b"v" * 40, key=b"k")
    assert not dirty_range(log, 0, world.clock.now_ms()).is_due
    assert dirty_range(log, 0, world.clock.now_ms() + 1001).is_due


async def test_old_dirt_is_cleaned_however_little_it_is(world: LogWorld) -> None:
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}), segment_bytes=600, max_compaction_lag_ms=1000, flush_interval_messages=2
    )
    log = world.create(config)
    for _ in range(100):
        world.append(b"v" * 40, key=b"k")
    last_sealed = log.segments.sealed[-1].base_offset
    assert not dirty_range(log, last_sealed, world.clock.now_ms()).is_due
    assert dirty_range(log, last_sealed, world.clock.now_ms() + 1001).is_due


async def test_with_little_memory_a_log_is_cleaned_in_several_passes(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    for number in range(100):
        world.append(b"v" * 40, key=b"k%d" % (number % 20))
    cleaned = 0
    passes = 0
    while (following := await clean(world, cleaned, map_bytes=1000)) > cleaned:
        cleaned = following
        passes += 1
        if cleaned == log.segments.active.base_offset:
            break
    assert passes > 5
    assert cleaned == log.segments.active.base_offset
    assert len(records(log)) <= 20 + 100 - cleaned


async def test_the_log_takes_appends_and_retention_while_it_is_cleaned(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    for number in range(500):
        world.append(b"v" * 40, key=b"k%d" % (number % 50))
    cleaning = asyncio.create_task(clean(world))
    for number in range(200):
        await asyncio.sleep(0)
        world.append(b"w" * 40, key=b"k%d" % (number % 50))
    await cleaning
    assert newest([(r.key, r.value) for r in records(log)]) == {b"k%d" % number: b"w" * 40 for number in range(50)}

    cleaning = asyncio.create_task(clean(world))
    await asyncio.sleep(0)
    log.move_log_start(-1)
    log.sweep(world.clock.now_ms())
    with pytest.raises(RewritingAbandonedError):
        await cleaning
    assert not any(name.endswith(".cleaned") for name in world.disk.list(log.files.directory))


async def test_a_pass_keeps_when_records_without_a_time_were_written(world: LogWorld) -> None:
    both = frozenset({"compact", "delete"})
    log = world.create(dataclasses.replace(COMPACTED, cleanup_policy=both, retention_ms=1000))
    for _ in range(40):
        world.append(b"v" * 40, key=b"k", timestamp_ms=-1)
    for segment in log.segments:
        segment.batches.log.set_last_write_ms(NOW_MS)
    await clean(world)
    assert log.segments.first.batches.log.last_write_ms() == NOW_MS
    log.sweep(NOW_MS + 1000)
    assert log.log_start_offset == 0
    log.sweep(NOW_MS + 1001)
    assert log.log_start_offset == log.log_end_offset


async def test_records_without_a_time_are_cleaned_when_their_last_write_is_old_enough(world: LogWorld) -> None:
    config = dataclasses.replace(
        COMPACTED, min_cleanable_dirty_ratio=1.0, min_compaction_lag_ms=1000, max_compaction_lag_ms=5000
    )
    log = world.create(config)
    for _ in range(40):
        world.append(b"v" * 40, key=b"k", timestamp_ms=-1)
    for segment in log.segments:
        segment.batches.log.set_last_write_ms(NOW_MS)
    assert dirty_range(log, 0, NOW_MS + 999).end_offset == 0
    assert dirty_range(log, 0, NOW_MS + 1000).end_offset > 0
    assert not dirty_range(log, 0, NOW_MS + 5000).is_due
    assert dirty_range(log, 0, NOW_MS + 5001).is_due


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
async def test_a_large_batch_is_cleaned_while_others_have_their_turns(world: LogWorld, codec: Codec) -> None:
    log = world.create(dataclasses.replace(COMPACTED, segment_bytes=10_000_000, max_message_bytes=10_000_000))
    count = 12_000
    large = build_batch(
        [Record(offset, NOW_MS, b"k%d" % (offset // 2), b"v%d" % offset) for offset in range(count)], codec=codec
    )
    assert log.append(memoryview(large), now_ms=NOW_MS).error is ErrorCode.NONE
    log.roll(NOW_MS)
    world.append(b"w", key=b"k0")
    log.roll(NOW_MS)
    cleaning = asyncio.create_task(clean(world))
    steps = await steps_until_done(cleaning)
    await cleaning
    assert steps.longest_s < 0.05
    assert steps.turns_count > 5
    expected = [(b"k%d" % (offset // 2), b"v%d" % offset) for offset in range(3, count, 2)]
    assert [(r.key, r.value) for r in records(log)] == [*expected, (b"k0", b"w")]
    await log.flushed()


async def test_records_that_cannot_be_read_keep_a_log_from_being_cleaned_and_are_named(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    for _ in range(3):
        world.append(b"v" * 40, key=b"k")
    content = b"garbage" * 30
    header = read_header(build_batch([Record(0, NOW_MS, b"k", b"v")]))._replace(attributes=int(Codec.ZSTD))
    offset = log.log_end_offset
    garbage = sealed_header(header._replace(base_offset=offset, partition_leader_epoch=0), content) + content
    log.segments.active.append((garbage,), len(garbage), offset, NOW_MS, log.append_rules().segment_limits)
    log.log_end_offset = offset + 1
    log.roll(NOW_MS)
    world.append(b"v" * 40, key=b"k")
    await log.flushed()
    size_bytes = log.size_bytes
    with pytest.raises(RewritingAbandonedError, match=r"holds records at position [0-9]+ that cannot be read"):
        await clean(world)
    assert log.size_bytes == size_bytes
    await log.flushed()


async def test_a_damaged_segment_is_not_cleaned(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    for _ in range(40):
        world.append(b"v" * 40, key=b"k")
    with open(log.segments.first.files.path(".log"), "r+b") as file:  # noqa: ASYNC230  # a test may wait
        file.seek(70)
        file.write(b"!")
    size_bytes = log.size_bytes
    with pytest.raises(RewritingAbandonedError, match="cannot be read from position 0"):
        await clean(world)
    assert log.size_bytes == size_bytes


async def test_dirty_logs_are_cleaned_after_a_sweep_and_only_once(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    for _ in range(40):
        world.append(b"v" * 40, key=b"k")
    world.logs.sweep(world.clock.now_ms())
    cleaning = world.logs._cleaner._task
    assert cleaning is not None
    await cleaning
    assert len(records(log)) < 10
    checkpoint = world.disk.read_file(f"{world.path}/cleaner-offset-checkpoint")
    assert checkpoint == b"0\n1\norders 0 %d\n" % log.segments.active.base_offset
    await world.restart()
    assert not dirty_range(world.orders, world.orders.segments.active.base_offset, 0).is_due


async def test_a_crash_at_any_step_of_a_pass_leaves_the_same_result(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Nth operation on the disk fails and the process dies with it, for every N until none fails any more."""
    log = world.create(COMPACTED)
    generator = random.Random(7)
    sequences = dict.fromkeys(range(1, 5), 0)
    epochs = dict.fromkeys(range(1, 5), 0)
    for _ in range(30):
        producer = generator.randrange(1, 5)
        for _ in range(generator.randrange(1, 4)):
            world.append(
                b"%d" % generator.randrange(1000),
                key=b"k%d" % generator.randrange(8),
                producer_id=producer,
                producer_epoch=epochs[producer],
                base_sequence=sequences[producer],
                is_transactional=True,
            )
            sequences[producer] += 1
        if generator.random() < 0.6:
            epochs[producer] += 1
            sequences[producer] = 0
            world.end_transaction(producer, epochs[producer], committed=generator.random() < 0.5)
    for producer in epochs:
        world.end_transaction(producer, epochs[producer] + 1, committed=True)
    for _ in range(10):
        world.append(b"v" * 40, key=b"filler")
    log = await world.restart()
    expected = newest(committed(log))
    end_offset = log.log_end_offset
    failed_step = 0
    while True:
        failed_step += 1
        fault = Fault(failed_step)
        with monkeypatch.context() as patch:
            for name in ("rename", "delete", "write_file"):
                patch.setattr(LocalDisk, name, fault.wrap(getattr(LocalDisk, name)))
            patch.setattr(LocalFile, "append", fault.wrap(LocalFile.append))
            try:
                await clean(world)
            except StorageError:
                pass
        log = await world.restart(crash=True)
        assert not log.is_offline
        assert newest(committed(log)) == expected
        assert (log.log_end_offset, log.last_stable_offset) == (end_offset, end_offset)
        leftovers = [n for n in world.disk.list(log.files.directory) if n.endswith((".swap", ".cleaned"))]
        assert leftovers == []
        if not fault.has_fired:
            break
    assert failed_step > 20
