"""Merging of small segments: fewer files with the same batches, and nothing else that a client could notice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fencepost.broker.log.compaction import rewriting
from fencepost.broker.log.compaction.cleaner import LogCleaning, dirty_range
from fencepost.broker.log.compaction.rewriting import RewritingAbandonedError
from fencepost.broker.log.compaction.segment_merge import merge_segments
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.reads.time_search import searched_at_once
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import iterate_batches
from tests.support.log_world import NOW_MS, LogWorld, overwrite

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100, flush_interval_messages=2**63 - 1)


def written(world: LogWorld) -> PartitionLog:
    """A log of many small segments, with records of producers and of transactions that begin and end anywhere."""
    log = world.create(SMALL)
    for number in range(12):
        world.append(b"early" * 10, timestamp_ms=NOW_MS + number)
    epochs, sequences = {1: 0, 2: 0}, {1: 0, 2: 0}
    for number in range(60):
        producer = 1 + number % 2
        world.append(
            b"%d" % number * 20,
            producer_id=producer,
            producer_epoch=epochs[producer],
            base_sequence=sequences[producer],
            is_transactional=True,
            timestamp_ms=NOW_MS + 1_000 * number,
        )
        sequences[producer] += 1
        if number % 5 == 4:
            epochs[producer], sequences[producer] = epochs[producer] + 1, 0
            ended = world.end_transaction(producer, epochs[producer], committed=number % 3 == 0)
            assert ended is ErrorCode.NONE
    assert len(log.segments) > 10
    return log


def batches(log: PartitionLog, isolation: Isolation) -> Iterator[tuple[int, bytes, list[tuple[int, int]]]]:
    """The batches that fetches find, a small one after the other, with the aborted transactions of each fetch."""
    offset = 0
    while (read := log.read(offset, 300, isolation=isolation)).records:
        assert read.error is ErrorCode.NONE
        for batch in iterate_batches(read.records):
            if batch.header.last_offset >= offset:
                offset = batch.header.last_offset + 1
                aborted = [
                    (one.producer_id, one.first_offset)
                    for one in read.aborted_transactions or ()
                    if one.first_offset <= batch.header.last_offset
                ]
                yield batch.header.base_offset, bytes(batch.buffer), sorted(aborted)


def seen(log: PartitionLog) -> object:
    """All that clients and coordinators can ask a log."""
    times = range(NOW_MS - 1, NOW_MS + 61_000, 500)
    return (
        [list(one) for one in batches(log, Isolation.LOG_END)],
        {(base, content) for base, content, _ in batches(log, Isolation.READ_COMMITTED)},
        [searched_at_once(log.offset_for_timestamp(one, isolation=Isolation.READ_COMMITTED)) for one in times],
        (log.log_start_offset, log.log_end_offset, log.last_stable_offset, log.size_bytes),
        log.producers.snapshot(),
        log.producers.open_transactions(),
    )


async def test_a_merged_log_answers_as_before_also_after_a_restart_and_after_a_crash(world: LogWorld) -> None:
    log = written(world)
    before = seen(log)
    segments = log.segments.sealed
    merged = await merge_segments(log, segments[1].base_offset, segments[-2].base_offset)
    assert merged is not None
    assert [one.base_offset for one in log.segments] == [
        one.base_offset for one in (segments[0], merged, *segments[-2:], log.segments.active)
    ]
    assert seen(log) == before
    assert seen(await world.restart()) == before
    assert seen(await world.restart(crash=True)) == before


async def test_one_segment_alone_and_none_are_left_as_they_are(world: LogWorld) -> None:
    log = written(world)
    first = log.segments.first
    assert await merge_segments(log, 0, log.segments.sealed[1].base_offset) is None
    assert await merge_segments(log, 10**6, 10**7) is None
    assert log.segments.first is first


async def test_reads_and_appends_go_on_while_segments_are_merged(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "RECORDS_PER_SLICE", 1)
    log = written(world)
    end = log.log_end_offset
    before = [content for _, content, _ in batches(log, Isolation.LOG_END)]
    merge = asyncio.create_task(merge_segments(log, 0, log.segments.active.base_offset))
    rounds = 0
    while not merge.done():
        await asyncio.sleep(0)
        world.append(b"later")
        assert [content for base, content, _ in batches(log, Isolation.LOG_END) if base < end] == before
        rounds += 1
    assert rounds > 10
    assert (await merge) is log.segments.first
    assert [content for base, content, _ in batches(log, Isolation.LOG_END) if base < end] == before


async def test_a_merge_gives_up_where_retention_has_cut_the_log(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "RECORDS_PER_SLICE", 1)
    log = written(world)
    merge = asyncio.create_task(merge_segments(log, 0, log.segments.active.base_offset))
    await asyncio.sleep(0)
    assert log.move_log_start(40) is ErrorCode.NONE
    log.sweep(world.clock.now_ms())
    with pytest.raises(RewritingAbandonedError, match="cut from its start"):
        await merge
    assert not log.is_offline
    assert not log.is_being_rewritten
    assert not [name for name in world.disk.list(log.files.directory) if "cleaned" in name]
    assert await merge_segments(log, 0, log.segments.active.base_offset) is log.segments.first


async def test_a_log_is_rewritten_by_one_at_a_time(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "RECORDS_PER_SLICE", 1)
    log = written(world)
    before = seen(log)
    merge = asyncio.create_task(merge_segments(log, 0, log.segments.active.base_offset))
    await asyncio.sleep(0)
    with pytest.raises(RewritingAbandonedError, match="is being rewritten already"):
        await merge_segments(log, 0, log.segments.active.base_offset)
    with pytest.raises(RewritingAbandonedError, match="is being rewritten already"):
        await LogCleaning(log, dirty_range(log, 0, world.clock.now_ms()), now_ms=world.clock.now_ms()).run()
    assert await merge
    assert seen(log) == before


async def test_damage_is_not_copied(world: LogWorld) -> None:
    log = written(world)
    segment = log.segments.sealed[2]
    overwrite(segment.files.path(".log"), 70, b"damage")
    with pytest.raises(RewritingAbandonedError, match="cannot be read from position 0"):
        await merge_segments(log, 0, log.segments.active.base_offset)
    assert segment in set(log.segments)


async def test_a_disk_that_fails_leaves_the_old_segments(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written(world)
    before = seen(log)

    async def fail(*_: object) -> None:
        raise StorageError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(world.disk, "sync", fail)
        with pytest.raises(StorageError, match="the disk is gone"):
            await merge_segments(log, 0, log.segments.active.base_offset)
    assert not log.is_being_rewritten
    assert seen(log) == before
