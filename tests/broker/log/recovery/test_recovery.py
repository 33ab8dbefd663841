"""Starting again: a clean stop is believed, after a crash the log is read again, and no loss goes unsaid."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

from fencepost.broker.log.files.checkpoints import encode_offsets
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import Isolation, PartitionLog
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import iterate_batches
from tests.support.captured_events import capture_logs
from tests.support.log_world import ORDERS, LogWorld, content_of, overwrite, replace

SMALL_SEGMENTS = LogConfig(segment_bytes=400)


def base_offsets(log: PartitionLog) -> list[int]:
    offsets: list[int] = []
    offset = log.log_start_offset
    while (read := log.read(offset, 1 << 20, isolation=Isolation.LOG_END)).records:
        for batch in iterate_batches(read.records):
            offsets.append(batch.header.base_offset)
            offset = batch.header.last_offset + 1
    return offsets


def active_path(world: LogWorld) -> str:
    return world.orders.segments.active.files.path(".log")


def events(logs: Sequence[Any]) -> list[str]:
    return [entry["event"] for entry in logs if entry["log_level"] in ("warning", "error")]


async def test_a_clean_stop_is_believed(world: LogWorld) -> None:
    log = world.create(SMALL_SEGMENTS)
    for sequence in range(10):
        world.append(b"v" * 100, producer_id=1, producer_epoch=0, base_sequence=sequence)
    await log.flushed()
    with capture_logs() as logs:
        log = await world.restart()
    assert events(logs) == []
    assert (log.log_end_offset, log.high_watermark, log.durability.recovery_point) == (10, 10, 10)
    assert base_offsets(log) == list(range(10))
    for sequence in range(5, 10):
        assert world.append(b"v" * 100, producer_id=1, producer_epoch=0, base_sequence=sequence).is_duplicate
    assert world.append(b"v", producer_id=1, producer_epoch=0, base_sequence=10).error is ErrorCode.NONE


async def test_a_clean_stop_reads_no_records_again(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create(SMALL_SEGMENTS)
    for _ in range(10):
        world.append(b"v" * 100)
    monkeypatch.setattr("fencepost.broker.log.recovery.recovery.checked_batches", None)
    monkeypatch.setattr("fencepost.broker.log.recovery.recovery.replay_batch", None)
    log = await world.restart()
    assert log.log_end_offset == 10


async def test_a_crash_in_page_cache_mode_loses_nothing_that_was_written(world: LogWorld) -> None:
    world.create(LogConfig(segment_bytes=400, flush_interval_messages=1000))
    for sequence in range(10):
        world.append(b"v" * 100, producer_id=1, producer_epoch=0, base_sequence=sequence)
    log = await world.restart(crash=True)
    assert base_offsets(log) == list(range(10))
    assert log.high_watermark == 10
    assert world.append(b"v" * 100, producer_id=1, producer_epoch=0, base_sequence=9).is_duplicate
    assert log.leader_epoch == 0


async def test_open_and_aborted_transactions_are_the_same_after_a_crash(world: LogWorld) -> None:
    log = world.create(SMALL_SEGMENTS)
    for producer_id in (1, 2, 3):
        world.append(b"v" * 100, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(2, 1, committed=False)
    for _ in range(6):
        world.append(b"v" * 100)
    world.end_transaction(1, 1, committed=False)
    await log.flushed()
    before = log.read(0, 1, isolation=Isolation.READ_COMMITTED), log.last_stable_offset, log.active_producers(0)
    indexes = {
        name: world.disk.read_file(log.files.path(name))
        for name in world.disk.list(log.files.directory)
        if name.endswith(".txnindex")
    }
    assert len(indexes) == 2
    log = await world.restart(crash=True)
    after = log.read(0, 1, isolation=Isolation.READ_COMMITTED), log.last_stable_offset, log.active_producers(0)
    assert after == before
    assert {name: world.disk.read_file(log.files.path(name)) for name in indexes} == indexes
    assert log.last_stable_offset == 2


@pytest.mark.parametrize("kept_bytes", [1, 60, 61, 100])
async def test_a_torn_last_batch_is_cut_and_said(world: LogWorld, kept_bytes: int) -> None:
    log = world.create()
    world.append(b"v" * 100)
    await log.flushed()
    whole_bytes = log.size_bytes
    world.append(b"w" * 100)
    await log.flushed()
    path = active_path(world)
    os.truncate(path, whole_bytes + kept_bytes)
    with capture_logs() as logs:
        log = await world.restart(crash=True)
    assert events(logs) == ["unclean_stop_found", "torn_tail_cut"]
    assert (logs[1]["offset"], logs[1]["lost_bytes"]) == (1, kept_bytes)
    assert len(content_of(path)) == whole_bytes
    assert base_offsets(log) == [0]
    assert log.leader_epoch == 1
    assert world.append(b"x").base_offset == 1


async def test_zeros_at_the_end_are_cut(world: LogWorld) -> None:
    log = world.create()
    world.append(b"v" * 100)
    await log.flushed()
    replace(active_path(world), content_of(active_path(world)) + bytes(10_000))
    with capture_logs() as logs:
        log = await world.restart(crash=True)
    assert events(logs) == ["unclean_stop_found", "torn_tail_cut"]
    assert (log.log_end_offset, logs[1]["lost_bytes"]) == (1, 10_000)


async def test_whole_batches_behind_a_bad_one_are_kept_aside_and_said_to_be_lost(world: LogWorld) -> None:
    log = world.create()
    for _ in range(5):
        world.append(b"v" * 100)
    await log.flushed()
    size_bytes = log.size_bytes
    batch_bytes = size_bytes // 5
    path = active_path(world)
    lost = content_of(path)[2 * batch_bytes :]
    overwrite(path, 2 * batch_bytes, bytes(batch_bytes))
    with capture_logs() as logs:
        log = await world.restart(crash=True)
    assert events(logs) == ["unclean_stop_found", "log_cut_before_valid_batches"]
    assert (logs[1]["offset"], logs[1]["lost_bytes"]) == (2, 3 * batch_bytes)
    assert base_offsets(log) == [0, 1]
    assert content_of(logs[1]["kept_as"]) == bytes(batch_bytes) + lost[batch_bytes:]
    # What was set aside does not disturb the next start.
    assert base_offsets(await world.restart(crash=True)) == [0, 1]


async def test_segments_behind_a_bad_batch_are_kept_aside_too(world: LogWorld) -> None:
    log = world.create(SMALL_SEGMENTS)
    for _ in range(8):
        world.append(b"v" * 100)
    await log.flushed()
    paths = [segment.files.path(".log") for segment in log.segments]
    overwrite(paths[1], 70, b"!")
    with capture_logs() as logs:
        log = await world.restart(crash=True)
    assert events(logs) == ["unclean_stop_found", "log_cut_before_valid_batches"]
    assert base_offsets(log) == [0, 1]
    assert not world.disk.exists(paths[2])
    assert content_of(paths[2] + ".lost-0")
    assert world.append(b"x").base_offset == 2


async def test_damage_below_the_recovery_point_takes_the_partition_offline(world: LogWorld) -> None:
    log = world.create()
    for _ in range(5):
        world.append(b"v" * 100)
    await log.flushed()
    path = active_path(world)
    await world.logs.checkpoints.write_recovery_points(durable=True)
    before = content_of(path)
    overwrite(path, 200, b"!")
    with capture_logs() as logs:
        log = await world.restart(crash=True)
    assert events(logs) == ["unclean_stop_found", "log_damaged"]
    assert logs[1]["offset"] == 1
    assert log.is_offline
    assert log.read(0, 100, isolation=Isolation.READ_UNCOMMITTED).error is ErrorCode.KAFKA_STORAGE_ERROR
    # Nothing is forgotten by stopping: it is refused again, until the file is right again.
    assert (await world.restart()).is_offline
    replace(path, before)
    log = await world.restart()
    assert not log.is_offline
    assert base_offsets(log) == [0, 1, 2, 3, 4]


async def test_a_shorter_log_than_was_known_to_be_on_the_disk_takes_the_partition_offline(world: LogWorld) -> None:
    log = world.create()
    for _ in range(5):
        world.append(b"v" * 100)
    await log.flushed()
    path = active_path(world)
    await world.logs.checkpoints.write_recovery_points(durable=True)
    os.truncate(path, log.size_bytes // 5 * 3)
    assert (await world.restart(crash=True)).is_offline


async def test_damaged_records_can_be_given_up_by_taking_them_out_of_the_checkpoint(world: LogWorld) -> None:
    log = world.create()
    for _ in range(5):
        world.append(b"v" * 100)
    await log.flushed()
    path = active_path(world)
    await world.logs.checkpoints.write_recovery_points(durable=True)
    overwrite(path, 200, b"!")
    assert (await world.restart(crash=True)).is_offline
    await world.stop()
    world.disk.write_file(f"{world.path}/recovery-point-offset-checkpoint", encode_offsets({}), durable=True)
    log = await world.restart()
    assert base_offsets(log) == [0]


async def test_segments_before_the_recovery_point_are_not_read_again(world: LogWorld) -> None:
    log = world.create(SMALL_SEGMENTS)
    for _ in range(8):
        world.append(b"v" * 100)
    await log.flushed()
    first_path = log.segments.first.files.path(".log")
    await world.logs.checkpoints.write_recovery_points(durable=True)
    overwrite(first_path, 70, b"!")
    log = await world.restart(crash=True)
    assert not log.is_offline
    assert log.log_end_offset == 8


async def test_a_corrupt_snapshot_is_replaced_by_the_one_before_it_and_the_log(world: LogWorld) -> None:
    log = world.create(SMALL_SEGMENTS)
    for sequence in range(9):
        world.append(b"v" * 100, producer_id=1, producer_epoch=0, base_sequence=sequence)
    await log.flushed()
    producers = log.active_producers(0)
    await world.stop()
    newest = max(name for name in world.disk.list(f"{world.path}/{ORDERS}") if name.endswith(".snapshot"))
    overwrite(f"{world.path}/{ORDERS}/{newest}", 10, b"\xff\xff")
    with capture_logs() as logs:
        log = await world.restart()
    assert events(logs) == ["producer_snapshot_corrupt"]
    assert log.active_producers(0) == producers
    assert world.append(b"v" * 100, producer_id=1, producer_epoch=0, base_sequence=9).error is ErrorCode.NONE


async def test_all_snapshots_and_indexes_may_be_missing(world: LogWorld) -> None:
    log = world.create(SMALL_SEGMENTS)
    for sequence in range(9):
        world.append(b"v" * 100, producer_id=1, producer_epoch=0, base_sequence=sequence)
    await log.flushed()
    await world.stop()
    directory = f"{world.path}/{ORDERS}"
    for name in world.disk.list(directory):
        if name.endswith((".snapshot", ".index", ".timeindex")):
            os.unlink(f"{directory}/{name}")
    log = await world.restart()
    assert base_offsets(log) == list(range(9))
    assert world.append(b"v" * 100, producer_id=1, producer_epoch=0, base_sequence=8).is_duplicate


async def test_a_clean_stop_that_does_not_fit_the_files_is_not_believed(world: LogWorld) -> None:
    log = world.create()
    for _ in range(3):
        world.append(b"v" * 100)
    await log.flushed()
    path = active_path(world)
    size_bytes = log.size_bytes
    await world.stop()
    replace(path, content_of(path) + b"half a batch")
    with capture_logs() as logs:
        log = await world.restart()
    assert events(logs) == ["clean_stop_contradicted", "torn_tail_cut"]
    assert (log.log_end_offset, log.size_bytes) == (3, size_bytes)


async def test_indexes_of_no_segment_are_removed(world: LogWorld) -> None:
    world.create()
    directory = f"{world.path}/{ORDERS}"
    stray = f"{directory}/00000000000000000007.index"
    replace(stray, b"")
    await world.restart()
    assert not world.disk.exists(stray)


async def test_every_prefix_of_the_log_file_recovers_to_its_whole_batches(world: LogWorld) -> None:
    log = world.create()
    for sequence in range(4):
        world.append(b"v" * sequence, producer_id=1, producer_epoch=0, base_sequence=sequence)
    await log.flushed()
    path = active_path(world)
    content = content_of(path)
    ends = [0]
    for batch in iterate_batches(content):
        ends.append(ends[-1] + batch.header.size_bytes)
    for size_bytes in range(0, len(content), 7):
        replace(path, content[:size_bytes])
        log = await world.restart(crash=True)
        whole_count = max(count for count, end in enumerate(ends) if end <= size_bytes)
        assert base_offsets(log) == list(range(whole_count))
        result = world.append(b"x", producer_id=1, producer_epoch=0, base_sequence=whole_count)
        assert result.error is ErrorCode.NONE
        await log.flushed()


async def test_the_epoch_after_a_cut_is_kept_though_nothing_was_written_in_it(world: LogWorld) -> None:
    log = world.create()
    for _ in range(3):
        world.append(b"v" * 100)
    await log.flushed()
    os.truncate(active_path(world), log.size_bytes - 10)
    assert (await world.restart(crash=True)).leader_epoch == 1
    log = await world.restart()
    assert log.leader_epoch == 1
    # A reader of the cut records learns where their epoch ended.
    assert log.end_offset_for_leader_epoch(0) == (0, 2)


async def test_a_log_that_was_emptied_keeps_its_epoch(world: LogWorld) -> None:
    log = world.create()
    for _ in range(2):
        world.append(b"v" * 100)
    await log.flushed()
    os.truncate(active_path(world), log.size_bytes - 10)
    log = await world.restart(crash=True)
    world.append(b"of epoch 1")
    await log.flushed()
    await world.logs.delete_records({ORDERS: log.log_end_offset})
    log = await world.restart()
    assert (log.log_start_offset, log.log_end_offset, log.leader_epoch) == (2, 2, 1)
