"""One partition's log: offsets, refusals, what is durable and stable, and what readers of each isolation see."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import random
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from fencepost.broker.coordination.shard import CoordinatorRecord
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import AbortedRange, AppendResult, Isolation, PartitionLog, TimestampedOffset
from fencepost.broker.log.producers.verification import ANSWERED_AT_ONCE, VerificationGuard
from fencepost.broker.log.reads.time_search import searched_at_once
from fencepost.broker.storage.disk import LogFile, NoRoomError, StorageError
from fencepost.broker.storage.file_slice import FileSlice
from fencepost.broker.storage.local_disk import LocalDisk, LocalFile
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import (
    Record,
    RecordBatch,
    build_batch,
    check_crc,
    iterate_batches,
    read_header,
    read_records,
)
from tests.support.captured_events import capture_logs
from tests.support.log_world import NOW_MS, TOPIC_ID, LogWorld, content_of, overwrite
from tests.support.markers import end_in_log

PAGE_CACHE = LogConfig(flush_interval_messages=2**63 - 1)


def batches(log: PartitionLog, isolation: Isolation, offset: int = 0) -> Iterator[RecordBatch]:
    while True:
        found = log.read(offset, 1 << 20, isolation=isolation)
        assert found.error is ErrorCode.NONE
        if not found.records:
            return
        for batch in iterate_batches(found.records):
            offset = batch.header.last_offset + 1
            yield batch


def values(log: PartitionLog, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> list[bytes | None]:
    return [
        record.value
        for batch in batches(log, isolation)
        if not batch.header.is_control
        for record in read_records(batch)
    ]


async def test_records_get_the_next_offsets_and_come_back_as_they_were_sent(world: LogWorld) -> None:
    log = world.create()
    log.leader_epoch = 3
    assert world.append(b"a", b"b").base_offset == 0
    result = world.append(b"c")
    assert (result.error, result.base_offset, result.last_offset, result.log_start_offset) == (ErrorCode.NONE, 2, 2, 0)
    await log.flushed()
    first, second = batches(log, Isolation.READ_UNCOMMITTED)
    assert (first.header.base_offset, second.header.base_offset) == (0, 2)
    assert {first.header.partition_leader_epoch, second.header.partition_leader_epoch} == {3}
    assert check_crc(first.buffer)
    assert values(log) == [b"a", b"b", b"c"]


async def test_nothing_is_readable_before_it_is_durable(world: LogWorld) -> None:
    log = world.create()
    moves: list[int] = []
    log.add_watcher(lambda: moves.append(log.high_watermark))
    world.append(b"a")
    assert (log.log_end_offset, log.high_watermark) == (1, 0)
    assert values(log) == []
    assert values(log, Isolation.LOG_END) == [b"a"]
    await log.flushed()
    assert (log.high_watermark, moves) == (1, [1])
    assert values(log) == [b"a"]


async def test_a_waiter_for_a_running_sync_causes_no_second_one(world: LogWorld) -> None:
    log, flusher = world.create(), world.logs._flusher
    world.append(b"a")
    await log.flushed()
    count = flusher.sync_count
    world.append(b"b")
    first = log.flushed()
    await asyncio.sleep(0)
    assert flusher.sync_count == count + 1  # it has begun
    await log.flushed()
    await first
    await flusher.drain()
    assert (flusher.sync_count, log.high_watermark) == (count + 1, 2)


async def test_in_page_cache_mode_an_append_is_readable_at_once(world: LogWorld) -> None:
    log = world.create(PAGE_CACHE)
    moves: list[int] = []
    log.add_watcher(lambda: moves.append(log.high_watermark))
    world.append(b"a")
    await log.flushed()
    assert moves == [1]
    assert values(log) == [b"a"]


async def test_a_removed_watcher_is_not_called(world: LogWorld) -> None:
    log = world.create(PAGE_CACHE)
    calls: list[int] = []

    def watcher() -> None:
        calls.append(1)

    log.add_watcher(watcher)
    log.remove_watcher(watcher)
    log.remove_watcher(watcher)
    world.append(b"a")
    assert calls == []


async def test_waiting_for_an_earlier_offset_does_not_wait_for_later_appends(world: LogWorld) -> None:
    log = world.create()
    world.append(b"a")
    first = log.flushed(1)
    await asyncio.sleep(0)
    world.append(b"b")
    await first
    assert log.high_watermark >= 1
    await log.flushed()
    assert log.high_watermark == 2


async def test_a_cancelled_waiter_does_not_disturb_the_others(world: LogWorld) -> None:
    log = world.create()
    world.append(b"a")

    async def wait() -> None:
        await log.flushed()

    cancelled, other = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(0)
    cancelled.cancel()
    await other
    assert log.high_watermark == 1


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        ("short", ErrorCode.CORRUPT_MESSAGE),
        ("magic", ErrorCode.INVALID_RECORD),
        ("two batches", ErrorCode.INVALID_RECORD),
        ("base offset", ErrorCode.INVALID_RECORD),
        ("too large", ErrorCode.MESSAGE_TOO_LARGE),
        ("checksum", ErrorCode.CORRUPT_MESSAGE),
        ("control", ErrorCode.INVALID_RECORD),
    ],
)
async def test_a_bad_batch_is_refused_and_leaves_nothing(world: LogWorld, damage: str, error: ErrorCode) -> None:
    log = world.create(LogConfig(max_message_bytes=2000))
    batch = build_batch([Record(0, NOW_MS, None, b"v")], is_control=damage == "control")
    match damage:
        case "short":
            batch = batch[:60]
        case "magic":
            batch[16] = 1
        case "two batches":
            batch = bytearray(bytes(batch) * 2)
        case "base offset":
            batch[7] = 1
        case "too large":
            batch = build_batch([Record(0, NOW_MS, None, b"v" * 2000)])
        case "checksum":
            batch[-1] ^= 1
    result = log.append(memoryview(batch), now_ms=NOW_MS)
    assert (result.error, result.base_offset) == (error, -1)
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


async def test_a_batch_larger_than_a_segment_is_refused(world: LogWorld) -> None:
    world.create(LogConfig(segment_bytes=200))
    assert world.append(b"v" * 200).error is ErrorCode.RECORD_LIST_TOO_LARGE


async def test_a_record_without_key_is_refused_on_a_compacted_topic(world: LogWorld) -> None:
    world.create(LogConfig(cleanup_policy=frozenset({"compact"})))
    result = world.append(b"a")
    assert result.error is ErrorCode.INVALID_RECORD
    assert [refused.index for refused in result.record_errors] == [0]
    assert world.append(b"a", key=b"k").error is ErrorCode.NONE


async def test_log_append_time_is_the_time_of_all_records(world: LogWorld) -> None:
    log = world.create(LogConfig(message_timestamp_type="LogAppendTime"))
    assert world.append(b"a", b"b", timestamp_ms=5).log_append_time_ms == NOW_MS
    await log.flushed()
    (batch,) = batches(log, Isolation.READ_UNCOMMITTED)
    assert check_crc(batch.buffer)
    assert [record.timestamp_ms for record in read_records(batch)] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize(("compression", "error"), [("gzip", ErrorCode.INVALID_RECORD), ("producer", ErrorCode.NONE)])
async def test_a_negative_producer_id_is_no_producer_but_for_a_batch_to_be_compressed(
    world: LogWorld, compression: str, error: ErrorCode
) -> None:
    log = world.create(LogConfig(compression_type=compression))
    assert world.append(b"v", producer_id=-73).error is error
    await log.flushed()


async def test_a_topic_with_a_codec_of_its_own_stores_batches_in_it(world: LogWorld) -> None:
    log = world.create(LogConfig(compression_type="gzip"))
    world.append(b"a" * 1000)
    await log.flushed()
    (batch,) = batches(log, Isolation.READ_UNCOMMITTED)
    assert batch.header.codec.name == "GZIP"
    assert log.size_bytes < 200
    assert values(log) == [b"a" * 1000]


async def test_a_retry_gets_the_offsets_of_the_original(world: LogWorld) -> None:
    log = world.create()
    for sequence in range(3):
        world.append(b"v", producer_id=1, producer_epoch=0, base_sequence=sequence)
    retry = world.append(b"v", producer_id=1, producer_epoch=0, base_sequence=1)
    assert (retry.error, retry.base_offset, retry.is_duplicate) == (ErrorCode.NONE, 1, True)
    assert log.log_end_offset == 3
    gap = world.append(b"v", producer_id=1, producer_epoch=0, base_sequence=7)
    assert gap.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_offsets_outside_the_log_are_out_of_range(world: LogWorld) -> None:
    log = world.create(PAGE_CACHE)
    world.append(b"a")
    assert log.read(2, 100, isolation=Isolation.READ_UNCOMMITTED).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(1, 100, isolation=Isolation.READ_UNCOMMITTED).error is ErrorCode.NONE
    assert log.move_log_start(1) is ErrorCode.NONE
    assert log.read(0, 100, isolation=Isolation.READ_UNCOMMITTED).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.move_log_start(2) is ErrorCode.OFFSET_OUT_OF_RANGE


# Records of coordinators


@pytest.mark.parametrize("time_type", ["CreateTime", "LogAppendTime"])
async def test_records_of_a_coordinator_are_one_batch_of_this_time(world: LogWorld, time_type: str) -> None:
    log = world.create(LogConfig(message_timestamp_type=time_type))
    log.leader_epoch = 3
    world.append(b"a")
    is_log_append_time = time_type == "LogAppendTime"
    records = [CoordinatorRecord(b"k", b"v"), CoordinatorRecord(b"gone", None)]
    assert log.append_records(records, now_ms=NOW_MS + 5) is ErrorCode.NONE
    assert log.log_end_offset == 3
    await log.flushed()
    _, batch = batches(log, Isolation.READ_UNCOMMITTED)
    assert batch.buffer == build_batch(
        [Record(0, NOW_MS + 5, b"k", b"v"), Record(1, NOW_MS + 5, b"gone", None)],
        base_offset=1,
        partition_leader_epoch=3,
        is_log_append_time=is_log_append_time,
    )
    assert check_crc(batch.buffer)
    assert searched_at_once(log.offset_of_max_timestamp(Isolation.LOG_END)) == TimestampedOffset(1, NOW_MS + 5, 3)


async def test_records_of_a_coordinator_may_belong_to_a_transaction(world: LogWorld) -> None:
    log = world.create()
    record = CoordinatorRecord(b"k", b"v")
    guard = log.begin_verification(7, 1, -1, transaction_version_2=True)
    assert isinstance(guard, VerificationGuard)
    stale = VerificationGuard(0, 0, False)
    refused = log.append_records([record], now_ms=NOW_MS, producer=(7, 1), guard=stale)
    assert (refused, log.log_end_offset) == (ErrorCode.INVALID_TXN_STATE, 0)
    assert log.append_records([record], now_ms=NOW_MS, producer=(7, 1), guard=guard) is ErrorCode.NONE
    refused = log.append_records([record], now_ms=NOW_MS, producer=(7, 0))
    assert (refused, log.log_end_offset) == (ErrorCode.INVALID_PRODUCER_EPOCH, 1)
    await log.flushed()
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    assert world.end_transaction(7, 2, committed=True) is ErrorCode.NONE
    await log.flushed()
    assert log.last_stable_offset == 2


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (LogConfig(max_message_bytes=200), ErrorCode.MESSAGE_TOO_LARGE),
        (LogConfig(segment_bytes=200), ErrorCode.RECORD_LIST_TOO_LARGE),
        (LogConfig(max_message_bytes=200, segment_bytes=200), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
async def test_records_of_a_coordinator_that_are_too_large_leave_nothing(
    world: LogWorld, config: LogConfig, error: ErrorCode
) -> None:
    log = world.create(config)
    assert log.append_records([CoordinatorRecord(b"k", b"v" * 200)], now_ms=NOW_MS) is error
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


# Transactions


def pending(log: PartitionLog) -> dict[int, tuple[int, int, bool]]:
    return {
        producer_id: (entry.producer_epoch, entry.lowest_sequence, entry.is_transaction_version_2)
        for producer_id, entry in log.producers.verifications.items()
    }


class Transactions:
    """Batches and markers of two producers by chance, for a log."""

    def __init__(self, seed: int) -> None:
        self._choose = random.Random(seed)
        self._sequences = dict.fromkeys((1, 2), 0)
        self._epochs = dict.fromkeys((1, 2), 0)

    def next(self) -> Callable[[PartitionLog, bool], object]:
        choose = self._choose
        producer_id = choose.choice((1, 2))
        if not choose.randrange(8):
            self._epochs[producer_id] += 1
            self._sequences[producer_id] = 0
        epoch = self._epochs[producer_id] - choose.choice((0, 0, 0, 0, 0, 0, 1))
        if not choose.randrange(4):
            return partial(self._mark, producer_id, epoch)
        sequence = max(0, self._sequences[producer_id] + choose.choice((0, 0, 0, 0, 0, 1, -1, -2)))
        count = choose.randrange(1, 3)
        batch = build_batch(
            [Record(offset, NOW_MS, None, b"v") for offset in range(count)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=choose.randrange(10) > 0,
        )
        if not choose.randrange(12):
            batch[-2] ^= 1
        elif sequence == self._sequences[producer_id]:
            self._sequences[producer_id] += count
        is_confirmed, is_version_2 = choose.randrange(6) > 0, not choose.randrange(6)
        return partial(self._append, memoryview(batch), is_confirmed, is_version_2)

    @staticmethod
    def _mark(producer_id: int, epoch: int, log: PartitionLog, _in_this_step: bool) -> object:
        return end_in_log(log, producer_id, epoch)

    @staticmethod
    def _append(
        batch: memoryview, is_confirmed: bool, is_version_2: bool, log: PartitionLog, in_this_step: bool
    ) -> object:
        header = read_header(batch)
        guard = None
        if header.is_transactional:
            producer = header.producer_id, header.producer_epoch, header.base_sequence
            verification = log.begin_verification(
                *producer, transaction_version_2=is_version_2, in_this_step=in_this_step
            )
            if isinstance(verification, ErrorCode):
                return verification
            if verification is not None and not is_confirmed:
                if verification is ANSWERED_AT_ONCE:
                    verification = log.keep_verification(*producer)
                return type(verification)
            guard = verification
        result = log.append(batch, now_ms=NOW_MS, guard=guard)
        if result.error is ErrorCode.NONE and guard is not None:
            log.confirm_owner(header.producer_id, "")
        elif guard is ANSWERED_AT_ONCE:
            log.keep_verification(header.producer_id, header.producer_epoch, header.base_sequence)
        return result


@pytest.mark.parametrize("seed", range(12))
async def test_a_batch_confirmed_in_the_step_of_its_append_is_checked_like_a_verified_one(
    world: LogWorld, seed: int
) -> None:
    noted, unnoted = (world.logs.create(TopicPartition("orders", number), TOPIC_ID, PAGE_CACHE) for number in (1, 2))
    transactions = Transactions(seed)
    results: set[tuple[ErrorCode, bool]] = set()
    for _ in range(300):
        step = transactions.next()
        outcome = step(unnoted, True)
        assert step(noted, False) == outcome
        assert pending(noted) == pending(unnoted)
        assert noted.producers.snapshot() == unnoted.producers.snapshot()
        assert noted.last_stable_offset == unnoted.last_stable_offset
        if isinstance(outcome, AppendResult):
            results.add((outcome.error, outcome.is_duplicate))
    assert list(batches(noted, Isolation.LOG_END)) == list(batches(unnoted, Isolation.LOG_END))
    assert results >= {
        (ErrorCode.NONE, False),
        (ErrorCode.NONE, True),
        (ErrorCode.CORRUPT_MESSAGE, False),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
        (ErrorCode.INVALID_TXN_STATE, False),
    }


async def test_the_guard_of_a_single_step_counts_only_while_no_verification_is_pending(world: LogWorld) -> None:
    log = world.create(PAGE_CACHE)
    assert log.begin_verification(7, 0, 0, transaction_version_2=True, in_this_step=True) is not ANSWERED_AT_ONCE
    assert log.begin_verification(7, 0, 0, transaction_version_2=False, in_this_step=True) is not ANSWERED_AT_ONCE

    def append(producer_id: int) -> ErrorCode:
        return world.append(
            b"v",
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
            guard=ANSWERED_AT_ONCE,
        ).error

    assert append(7) is ErrorCode.INVALID_TXN_STATE
    assert log.begin_verification(8, 0, 0, transaction_version_2=False, in_this_step=True) is ANSWERED_AT_ONCE
    assert append(8) is ErrorCode.NONE
    assert list(pending(log)) == [7]


async def test_an_open_transaction_holds_the_last_stable_offset_until_its_marker_is_durable(world: LogWorld) -> None:
    log = world.create()
    world.append(b"before")
    world.append(b"open", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.append(b"after")
    await log.flushed()
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    assert values(log, Isolation.READ_COMMITTED) == [b"before"]
    assert values(log) == [b"before", b"open", b"after"]
    assert world.end_transaction(1, 1, committed=True) is ErrorCode.NONE
    assert log.log_end_offset == 4
    assert log.last_stable_offset == 1
    await log.flushed()
    assert log.last_stable_offset == 4
    assert values(log, Isolation.READ_COMMITTED) == [b"before", b"open", b"after"]


async def test_a_read_names_the_aborted_transactions_of_its_records(world: LogWorld) -> None:
    log = world.create()
    for producer_id in (1, 2, 3):
        world.append(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(2, 1, committed=True)
    world.end_transaction(1, 1, committed=False)
    world.end_transaction(3, 1, committed=False)
    await log.flushed()
    read = log.read(0, 1 << 20, isolation=Isolation.READ_COMMITTED)
    assert read.aborted_transactions == [(1, 0), (3, 2)]
    # From the second marker on, only the transaction that ends with it is left.
    assert log.read(5, 1 << 20, isolation=Isolation.READ_COMMITTED).aborted_transactions == [(3, 2)]
    assert log.read(0, 1 << 20, isolation=Isolation.READ_UNCOMMITTED).aborted_transactions is None
    assert log.read(6, 1 << 20, isolation=Isolation.READ_COMMITTED).aborted_transactions == []


async def test_an_abort_in_a_later_segment_is_named_to_readers_of_an_earlier_one(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_bytes=200, flush_interval_messages=2))
    world.append(b"x" * 100, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    for _ in range(3):
        world.append(b"y" * 100)
    world.end_transaction(1, 1, committed=False)
    assert len(log.segments) > 3
    read = log.read(0, 1, isolation=Isolation.READ_COMMITTED)
    assert read.aborted_transactions == [(1, 0)]


async def test_a_damaged_transaction_index_is_rebuilt(world: LogWorld) -> None:
    log = world.create()
    for producer_id in (1, 2):
        world.append(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(2, 1, committed=False)
    world.end_transaction(1, 1, committed=False)
    await log.flushed()
    path = log.segments.active.files.path(".txnindex")
    await world.stop()
    good = content_of(path)
    overwrite(path, 1, b"\x07")
    with capture_logs() as logs:
        await world.restart()
        read = world.orders.read(0, 1 << 20, isolation=Isolation.READ_COMMITTED)
    assert read.aborted_transactions == [(2, 1), (1, 0)]
    assert [entry["event"] for entry in logs] == ["index_rebuilt", "logs_opened"]
    assert content_of(path) == good
    world.append(b"x", producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(3, 1, committed=False)
    await world.orders.flushed()
    assert world.orders.read(4, 1 << 20, isolation=Isolation.READ_COMMITTED).aborted_transactions == [(3, 4)]


@pytest.mark.parametrize("segment_bytes", [200, 1 << 20])
async def test_removed_indexes_do_not_turn_aborted_records_into_committed_ones(
    world: LogWorld, segment_bytes: int
) -> None:
    log = world.create(LogConfig(segment_bytes=segment_bytes))
    world.append(b"x" * 100, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(1, 1, committed=False)
    for _ in range(3):
        world.append(b"y" * 100)
    await log.flushed()
    await world.stop()
    for name in world.disk.list(log.files.directory):
        if name.endswith("index"):
            world.disk.delete(log.files.path(name))
    log = await world.restart()
    assert log.read(0, 1, isolation=Isolation.READ_COMMITTED).aborted_transactions == [(1, 0)]


async def test_the_observer_hears_of_every_marker_in_the_step_that_appends_it(world: LogWorld) -> None:
    log = world.create()
    heard: list[tuple[int, int, bool, int]] = []

    class Observer:
        def marker_appended(self, producer_id: int, producer_epoch: int, *, committed: bool, offset: int) -> None:
            heard.append((producer_id, producer_epoch, committed, offset))

    log.observer = Observer()
    world.append(b"x", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(1, 1, committed=True)
    assert heard == [(1, 1, True, 1)]


async def test_a_marker_of_an_old_epoch_is_refused(world: LogWorld) -> None:
    log = world.create()
    world.append(b"x", producer_id=1, producer_epoch=5, base_sequence=0)
    assert world.end_transaction(1, 4, committed=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log_end_offset == 1


# Rolling, retention, timestamps, epochs


async def test_segments_are_rolled_by_size_with_a_snapshot_beside_each(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_bytes=500))
    for sequence in range(12):
        world.append(b"v" * 100, producer_id=1, producer_epoch=0, base_sequence=sequence)
    await log.flushed()
    bases = [segment.base_offset for segment in log.segments]
    assert bases == [0, 2, 4, 6, 8, 10]
    assert log.files.snapshot_offsets == bases[1:]
    assert values(log) == [b"v" * 100] * 12
    assert log.high_watermark == 12


async def test_a_segment_is_rolled_when_its_records_span_too_much_time(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_ms=1000))
    for age_ms in (3000, 2500, 1999, 1000, 0):
        world.append(b"v", timestamp_ms=NOW_MS - age_ms)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    await log.flushed()


async def test_a_segment_is_rolled_for_a_batch_whose_sequence_is_then_refused(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_bytes=300))
    world.append(b"v" * 200, producer_id=1, producer_epoch=0, base_sequence=0)
    refused = world.append(b"v" * 200, producer_id=1, producer_epoch=0, base_sequence=7)
    assert refused.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert log.log_end_offset == 1
    await log.flushed()


async def test_a_segment_is_rolled_for_a_marker_that_comes_too_late(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_ms=1000))
    world.append(b"v", producer_id=1, producer_epoch=5, base_sequence=0, timestamp_ms=NOW_MS - 3000)
    refused = log.append_marker(
        producer_id=1, producer_epoch=4, committed=False, coordinator_epoch=0, transaction_version=1, now_ms=NOW_MS
    )
    assert refused is ErrorCode.INVALID_PRODUCER_EPOCH
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    await log.flushed()


async def test_a_quiet_segment_is_rolled_by_a_sweep(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_ms=1000))
    world.append(b"v")
    await log.flushed()
    world.clock.time_ms += 1000
    log.sweep(world.clock.now_ms())
    assert len(log.segments) == 1
    world.clock.time_ms += 1
    log.sweep(world.clock.now_ms())
    log.sweep(world.clock.now_ms() + 10_000)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


async def test_retention_by_time_deletes_whole_segments_that_are_too_old(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_bytes=200, retention_ms=1000))
    for age_ms in (3000, 2000, 500):
        world.append(b"v" * 100, timestamp_ms=NOW_MS - age_ms)
    await log.flushed()
    log.sweep(NOW_MS)
    assert log.log_start_offset == 2
    assert log.read(2, 1000, isolation=Isolation.READ_UNCOMMITTED).records
    world.clock.time_ms += 10_000
    log.sweep(world.clock.now_ms())
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (3, 3, 0)
    await world.logs._flusher.drain()
    assert world.disk.list(log.files.directory)[0] == "00000000000000000003.log"


async def test_retention_by_size_keeps_at_least_the_configured_size(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_bytes=200, retention_bytes=400))
    for _ in range(10):
        world.append(b"v" * 100)
    await log.flushed()
    segment_bytes = log.segments.first.size_bytes
    log.sweep(NOW_MS)
    assert 400 <= log.size_bytes < 400 + segment_bytes
    assert log.log_start_offset == 10 - len(log.segments)


@pytest.mark.parametrize(
    "config", [LogConfig(segment_bytes=200, retention_ms=1000), LogConfig(segment_bytes=200, retention_bytes=0)]
)
async def test_retention_leaves_the_records_of_a_transaction_until_its_outcome_is_known(
    world: LogWorld, config: LogConfig
) -> None:
    log = world.create(config)
    world.append(b"v" * 100, timestamp_ms=NOW_MS - 5000)
    open_one = b"v" * 100
    world.append(
        open_one, timestamp_ms=NOW_MS - 5000, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    for _ in range(3):
        world.append(b"v" * 100, timestamp_ms=NOW_MS - 5000)
    await log.flushed()
    log.sweep(NOW_MS)
    assert log.log_start_offset == 1
    assert world.end_transaction(1, 1, committed=True) is ErrorCode.NONE
    await log.flushed()
    log.sweep(NOW_MS + 1)
    assert log.log_start_offset >= 5


@pytest.mark.parametrize("crash", [False, True])
async def test_records_without_a_time_are_as_old_as_the_last_write_of_their_segment(
    world: LogWorld, crash: bool
) -> None:
    log = world.create(LogConfig(segment_bytes=200, retention_ms=1000))
    for age_ms in (1001, 1000, 0):
        world.append(b"v" * 100, timestamp_ms=-1)
        log.segments.active.batches.log.set_last_write_ms(NOW_MS - age_ms)
        await log.flushed()
    log = await world.restart(crash=crash)
    log.sweep(NOW_MS)
    assert log.log_start_offset == 1
    log.sweep(NOW_MS + 1000)
    assert log.log_start_offset == 2
    log.sweep(NOW_MS + 1001)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (3, 3, 0)


async def test_records_of_the_future_stay_until_their_time_has_come(world: LogWorld) -> None:
    log = world.create(LogConfig(retention_ms=1000))
    world.append(b"v", timestamp_ms=NOW_MS + 3_600_000)
    await log.flushed()
    log.sweep(NOW_MS + 3_601_000)
    assert log.log_start_offset == 0
    log.sweep(NOW_MS + 3_601_001)
    assert log.log_start_offset == 1


async def test_records_without_a_time_do_not_make_a_segment_old(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_ms=1000))
    for timestamp_ms in (-1, NOW_MS, -1, NOW_MS + 5000, -1):
        world.append(b"v", timestamp_ms=timestamp_ms)
    await log.flushed()
    assert len(log.segments) == 1
    log.sweep(NOW_MS + 1000)
    assert len(log.segments) == 1
    log.sweep(NOW_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 5]
    await log.flushed()


@pytest.mark.parametrize(("retention_bytes", "start_offset"), [(0, 10), (1, 9)])
async def test_retention_of_no_bytes_lets_the_active_segment_go_too(
    world: LogWorld, retention_bytes: int, start_offset: int
) -> None:
    log = world.create(LogConfig(segment_bytes=200, retention_bytes=retention_bytes))
    for _ in range(10):
        world.append(b"v" * 100)
    await log.flushed()
    log.sweep(NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (start_offset, 10)
    assert world.append(b"v").base_offset == 10
    await log.flushed()


async def test_retention_waits_for_its_interval_after_a_log_was_made_and_looked_at(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_bytes=200, retention_ms=1000))
    world.append(b"old", timestamp_ms=0)
    await log.flushed()
    for now_ms, start_offset in ((NOW_MS + 299_999, 0), (NOW_MS + 300_000, 1)):
        world.logs.sweep(now_ms, retention_interval_ms=300_000)
        assert log.log_start_offset == start_offset
    world.append(b"old", timestamp_ms=0)
    await log.flushed()
    for now_ms, start_offset in ((NOW_MS + 599_999, 1), (NOW_MS + 600_000, 2)):
        world.logs.sweep(now_ms, retention_interval_ms=300_000)
        assert log.log_start_offset == start_offset


async def test_rolling_by_time_waits_for_the_interval_and_not_for_a_clock_that_was_set_back(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_ms=1))
    world.append(b"v")
    await log.flushed()
    log.sweep(NOW_MS + 4999, retention_interval_ms=5000)
    assert len(log.segments) == 1
    log.sweep(NOW_MS + 5000, retention_interval_ms=5000)
    assert len(log.segments) == 2
    log.configure(dataclasses.replace(log.config, retention_bytes=0))
    log.sweep(NOW_MS - 100_000, retention_interval_ms=5000)
    assert log.log_start_offset == 1
    await log.flushed()


async def test_a_topic_that_is_only_compacted_is_not_cut_by_retention(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_bytes=200, retention_ms=1, cleanup_policy=frozenset({"compact"})))
    for _ in range(3):
        world.append(b"v" * 100, key=b"k", timestamp_ms=NOW_MS - 1000)
    await log.flushed()
    log.sweep(NOW_MS)
    assert log.log_start_offset == 0


async def test_a_topic_with_compact_and_delete_has_retention_by_age_and_size(world: LogWorld) -> None:
    both = frozenset({"compact", "delete"})
    log = world.create(LogConfig(segment_bytes=200, retention_ms=1000, retention_bytes=450, cleanup_policy=both))
    for age_ms in (3000, 2000, *[500] * 6):
        world.append(b"v" * 100, key=b"k", timestamp_ms=NOW_MS - age_ms)
    await log.flushed()
    log.configure(dataclasses.replace(log.config, retention_bytes=-1))
    log.sweep(NOW_MS)
    assert log.log_start_offset == 2  # too old
    log.configure(dataclasses.replace(log.config, retention_bytes=450))
    log.sweep(NOW_MS)
    assert log.log_start_offset > 2  # too much
    assert log.size_bytes >= 450


async def test_a_replaced_config_counts_from_the_next_append_on(world: LogWorld) -> None:
    log = world.create(PAGE_CACHE)
    for _ in range(2):
        assert world.append(b"v" * 100).error is ErrorCode.NONE
    assert len(log.segments) == 1
    log.configure(dataclasses.replace(log.config, segment_bytes=200))
    world.append(b"v" * 100)
    assert len(log.segments) == 2
    log.configure(dataclasses.replace(log.config, message_timestamp_type="LogAppendTime"))
    assert world.append(b"v", timestamp_ms=NOW_MS - 1).log_append_time_ms == NOW_MS
    log.configure(dataclasses.replace(log.config, max_message_bytes=100))
    assert world.append(b"v" * 100).error is ErrorCode.MESSAGE_TOO_LARGE
    log.configure(dataclasses.replace(log.config, flush_interval_messages=1))
    world.append(b"v")
    assert log.high_watermark == 4
    await log.flushed()
    assert log.high_watermark == 5


@pytest.mark.parametrize("is_log_append_time", [True, False])
async def test_a_marker_has_its_offset_and_epoch_and_the_time_of_its_topic(
    world: LogWorld, is_log_append_time: bool
) -> None:
    time_type = "LogAppendTime" if is_log_append_time else "CreateTime"
    log = world.create(dataclasses.replace(PAGE_CACHE, message_timestamp_type=time_type, max_message_bytes=10))
    log.lead(3)
    for offset in range(2):
        assert world.end_transaction(7, 0, committed=True) is ErrorCode.NONE
        assert log.log_end_offset == offset + 1
    _, marker = batches(log, Isolation.READ_UNCOMMITTED)
    assert check_crc(marker.buffer)
    assert (marker.header.base_offset, marker.header.partition_leader_epoch) == (1, 3)
    assert marker.header.is_log_append_time is is_log_append_time
    assert marker.header.base_timestamp_ms == marker.header.max_timestamp_ms == NOW_MS


async def test_deleted_records_stay_deleted_after_a_crash(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_bytes=200))
    for _ in range(5):
        world.append(b"v" * 100)
    await log.flushed()
    assert await world.logs.delete_records({log.topic_partition: 3}) == {log.topic_partition: ErrorCode.NONE}
    log = await world.restart(crash=True)
    assert (log.log_start_offset, log.log_end_offset) == (3, 5)
    log.sweep(NOW_MS)
    assert log.segments.first.base_offset == 3
    assert await world.logs.delete_records({log.topic_partition: -1}) == {log.topic_partition: ErrorCode.NONE}
    assert log.log_start_offset == 5


async def test_a_time_finds_the_first_record_that_is_not_older(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_bytes=1000, index_interval_bytes=200, flush_interval_messages=2))
    for index in range(40):
        time_ms = NOW_MS - 1000 + 10 * index
        world.append(b"v" * 50, b"w" * 50, timestamp_ms=time_ms)
    assert len(log.segments) > 3
    for index in range(40):
        for ask_ms in (NOW_MS - 1000 + 10 * index, NOW_MS - 1009 + 10 * index):
            found = searched_at_once(log.offset_for_timestamp(ask_ms, isolation=Isolation.READ_UNCOMMITTED))
            assert found == (2 * index, NOW_MS - 1000 + 10 * index, 0)
    assert searched_at_once(log.offset_for_timestamp(NOW_MS, isolation=Isolation.READ_UNCOMMITTED)) is None
    assert searched_at_once(log.offset_of_max_timestamp(Isolation.READ_UNCOMMITTED)) == (78, NOW_MS - 610, 0)


async def test_a_record_at_or_above_the_bound_is_not_found_by_its_time(world: LogWorld) -> None:
    log = world.create(PAGE_CACHE)
    world.append(b"a", timestamp_ms=NOW_MS - 10)
    world.append(b"b", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert searched_at_once(log.offset_for_timestamp(NOW_MS, isolation=Isolation.READ_UNCOMMITTED)) == (1, NOW_MS, 0)
    assert searched_at_once(log.offset_for_timestamp(NOW_MS, isolation=Isolation.READ_COMMITTED)) is None
    assert searched_at_once(log.offset_of_max_timestamp(Isolation.READ_COMMITTED)) is None


async def test_leader_epochs_end_where_the_next_begins(world: LogWorld) -> None:
    log = world.create()
    world.append(b"a")
    log.leader_epoch = 2
    world.append(b"b")
    log.leader_epoch = 5
    world.append(b"c")
    await log.flushed()
    asked = {epoch: log.end_offset_for_leader_epoch(epoch) for epoch in (-1, 0, 1, 2, 4, 5, 6)}
    assert asked == {-1: (-1, -1), 0: (0, 1), 1: (0, 1), 2: (2, 2), 4: (2, 2), 5: (5, 3), 6: (-1, -1)}
    assert (await world.restart()).leader_epoch == 5
    assert world.orders.end_offset_for_leader_epoch(1) == (0, 1)


async def test_a_leader_epoch_ends_where_its_successor_begins_to_lead_even_if_that_has_written_nothing(
    world: LogWorld,
) -> None:
    """A client that has read all asks a new leader whether its position is still there: as Kafka, which records the
    epoch when a leader begins."""
    log = world.create()
    assert log.end_offset_for_leader_epoch(0) == (0, 0)
    log.lead(1)
    assert log.end_offset_for_leader_epoch(0) == (0, 0)
    world.append(b"a")
    log.lead(4)
    asked = {epoch: log.end_offset_for_leader_epoch(epoch) for epoch in (0, 1, 3, 4, 5)}
    assert asked == {0: (0, 0), 1: (1, 1), 3: (1, 1), 4: (4, 1), 5: (-1, -1)}


# Reads that are sent later


def read_later(log: PartitionLog) -> FileSlice:
    found = log.read(0, 1 << 20, isolation=Isolation.READ_UNCOMMITTED, is_lazy=True)
    assert found.slice is not None
    assert not found.records
    return found.slice


async def test_a_large_lazy_read_holds_the_same_as_an_eager_one(world: LogWorld) -> None:
    log = world.create()
    world.append(bytes(100_000))
    world.append(b"small")
    await log.flushed()
    eager = log.read(0, 1 << 20, isolation=Isolation.READ_UNCOMMITTED)
    assert b"".join(read_later(log).pieces()) == eager.records
    small = log.read(1, 1 << 20, isolation=Isolation.READ_UNCOMMITTED, is_lazy=True)
    assert small.slice is None
    assert small.records


async def test_a_lazy_read_lists_aborted_transactions_too(world: LogWorld) -> None:
    log = world.create()
    world.append(bytes(100_000), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(7, 1, committed=False)
    await log.flushed()
    found = log.read(0, 1 << 20, isolation=Isolation.READ_COMMITTED, is_lazy=True)
    assert found.slice is not None
    assert found.aborted_transactions == [AbortedRange(7, 0)]


async def test_a_file_that_cannot_be_read_when_it_is_sent_takes_the_log_offline(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.create()
    world.append(bytes(100_000))
    await log.flushed()
    found = read_later(log)

    def broken(*_: object) -> None:
        raise StorageError(errno.EIO, "Input/output error")

    monkeypatch.setattr(type(log.segments.active.batches.log), "read", broken)
    with capture_logs() as logs, pytest.raises(StorageError, match="Input/output error"):
        list(found.pieces())
    assert [entry["event"] for entry in logs] == ["partition_went_offline"]
    assert log.is_offline


async def test_a_segment_that_is_gone_when_it_is_to_be_sent_leaves_the_log_well(world: LogWorld) -> None:
    log = world.create(LogConfig(segment_bytes=100_000))
    world.append(bytes(90_000))
    world.append(bytes(90_000))
    await log.flushed()
    found = read_later(log)
    log.move_log_start(1)
    log.sweep(NOW_MS)
    await world.logs._flusher.drain()
    with pytest.raises(StorageError, match="closed"):
        list(found.pieces())
    assert not log.is_offline


# Failing disks


class LimitedRoom:
    """Lets only `operations` more of what takes room happen on all disks; None: as many as there are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.operations: int | None = None
        open_file, write_file, append = LocalDisk.open, LocalDisk.write_file, LocalFile.append

        def opened(disk: LocalDisk, path: str) -> LogFile:
            if not disk.exists(path):
                self._take(path)
            return open_file(disk, path)

        def written(disk: LocalDisk, path: str, content: bytes, *, durable: bool) -> None:
            self._take(path)
            write_file(disk, path, content, durable=durable)

        def appended(file: LocalFile, *buffers: bytes) -> None:
            self._take(file.path)
            append(file, *buffers)

        monkeypatch.setattr(LocalDisk, "open", opened)
        monkeypatch.setattr(LocalDisk, "write_file", written)
        monkeypatch.setattr(LocalFile, "append", appended)

    def _take(self, path: str) -> None:
        if self.operations is None:
            return
        if not self.operations:
            raise NoRoomError(errno.ENOSPC, "No space left on device", path)
        self.operations -= 1


async def test_a_failed_append_takes_the_log_offline_and_leaves_the_file_as_it_was(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.create()
    world.append(b"a")
    await log.flushed()
    size_bytes = log.size_bytes

    def full(*_: object) -> None:
        raise StorageError(errno.ENOSPC, "No space left on device")

    calls: list[bool] = []
    log.add_watcher(lambda: calls.append(log.is_offline))
    monkeypatch.setattr(type(log.segments.active.batches.log), "append", full)
    with capture_logs() as logs, pytest.raises(StorageError, match="No space left"):
        world.append(b"b")
    monkeypatch.undo()
    assert [entry["event"] for entry in logs] == ["partition_went_offline"]
    assert log.is_offline
    assert calls == [True]
    with pytest.raises(StorageError, match="offline"):
        world.append(b"c")
    assert log.read(0, 100, isolation=Isolation.READ_UNCOMMITTED).error is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(StorageError, match="offline"):
        log.read(0, 100, isolation=Isolation.LOG_END)
    log = await world.restart()
    assert not log.is_offline
    assert (log.size_bytes, log.log_end_offset) == (size_bytes, 1)


@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EDQUOT])
async def test_a_full_disk_refuses_appends_and_reads_go_on_until_there_is_room(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch, failure: int
) -> None:
    log = world.create()
    world.append(b"a")
    await log.flushed()
    size_bytes = log.size_bytes

    def full(*_: object) -> int:
        raise OSError(failure, os.strerror(failure))

    real_pwrite = os.pwrite
    with monkeypatch.context() as broken, capture_logs() as logs:
        broken.setattr(os, "pwritev", lambda fd, buffers, at: real_pwrite(fd, b"".join(buffers)[:10], at))
        broken.setattr(os, "pwrite", full)
        for _ in range(3):
            with pytest.raises(NoRoomError, match=os.strerror(failure)):
                world.append(b"b")
    assert [entry["event"] for entry in logs] == ["partition_without_room"]
    assert not log.is_offline
    assert log.files.disk.size_bytes(log.segments.active.batches.log.path) == size_bytes
    assert len(log.read(0, 100, isolation=Isolation.READ_UNCOMMITTED).records) == size_bytes
    world.append(b"c")
    await log.flushed()
    log = await world.restart()
    assert log.log_end_offset == 2


async def test_a_full_disk_takes_the_log_offline_where_the_file_cannot_be_cut_back(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.create()
    world.append(b"a")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def broken_disk(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwritev", full)
        broken.setattr(os, "ftruncate", broken_disk)
        with pytest.raises(StorageError, match=r"cut back to .* bytes: Input/output error") as raised:
            world.append(b"b")
    assert not isinstance(raised.value, NoRoomError)
    assert log.is_offline


@pytest.mark.parametrize("failing", range(1, 8))
async def test_a_full_disk_while_a_segment_ends_leaves_the_log_as_it_was(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """failing: which of the operations of a roll finds no room."""
    log = world.create(LogConfig(segment_bytes=1_000))
    for _ in range(3):
        world.append(b"x" * 400)
    await log.flushed()
    end_offset, count = log.log_end_offset, len(log.segments)
    room = LimitedRoom(monkeypatch)
    room.operations = failing - 1
    for _ in range(2):
        with pytest.raises(NoRoomError):
            log.roll(NOW_MS)
        room.operations = 0
    assert (log.log_end_offset, len(log.segments)) == (end_offset, count)
    assert len(log.files.numbered()[".log"]) == count
    room.operations = None
    world.append(b"y" * 400)
    await log.flushed()
    log = await world.restart(crash=True)
    assert not log.is_offline
    assert log.log_end_offset == end_offset + 1


async def test_a_sweep_on_a_full_disk_takes_no_log_offline(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.create(LogConfig(segment_bytes=1_000, segment_ms=1_000, retention_ms=1_000, retention_bytes=-1))
    for _ in range(3):
        world.append(b"x" * 400)
    await log.flushed()
    assert len(log.segments) > 1
    room = LimitedRoom(monkeypatch)
    room.operations = 0
    log.sweep(NOW_MS + 10_000_000)
    assert not log.is_offline
    assert len(log.segments) == 1  # what has expired is gone, which makes room
    room.operations = None
    world.append(b"y")
    assert not log.is_offline


async def test_a_failed_sync_fails_its_waiters_and_takes_the_log_offline(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.create()
    world.append(b"a")

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.fdatasync", broken)
    with pytest.raises(StorageError, match="Input/output error"):
        await log.flushed()
    monkeypatch.undo()
    assert log.is_offline
    assert log.high_watermark == 0
    with pytest.raises(StorageError):
        await log.flushed()


# Flushing where the page cache is enough


async def test_records_are_flushed_after_the_count_in_the_topic_config(world: LogWorld) -> None:
    log = world.create(LogConfig(flush_interval_messages=3))
    world.append(b"a", b"b")
    await world.logs._flusher.drain()
    assert (log.high_watermark, log.durability.recovery_point) == (2, 0)  # acknowledged, and in the page cache
    world.append(b"c")
    world.append(b"d")  # while it is on its way
    await world.logs._flusher.drain()
    assert log.durability.recovery_point >= 3
    flushed = log.durability.recovery_point
    world.append(b"e")
    await world.logs._flusher.drain()
    assert log.durability.recovery_point == flushed


async def test_records_are_flushed_after_a_time(world: LogWorld) -> None:
    log = world.create(LogConfig(flush_interval_messages=1000, flush_ms=5000))
    world.append(b"a")
    world.logs.sweep(NOW_MS + 4999)
    await world.logs._flusher.drain()
    assert log.durability.recovery_point == 0
    world.logs.sweep(NOW_MS + 5000)
    await world.logs._flusher.drain()
    assert log.durability.recovery_point == 1
    syncs = world.logs._flusher.sync_count
    world.logs.sweep(NOW_MS + 10_000)  # nothing has come since
    await world.logs._flusher.drain()
    assert world.logs._flusher.sync_count == syncs
