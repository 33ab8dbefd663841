"""Looking for records by time in batches and files that take longer than one step of the event loop may."""

from __future__ import annotations

import asyncio
import dataclasses
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from fencepost.broker.log.log_types import Isolation, TimestampedOffset
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.reads import time_search
from fencepost.broker.log.reads.time_search import Need, Search, Searches, searched_at_once
from fencepost.broker.log.segment.batch_scan import DamagedLogError, ScannedBatch
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record import LEAST_DELTA_MS, find_record
from fencepost.protocol.record_batch import Record, RecordBatch, build_batch, read_header, read_records
from tests.broker.handlers.test_list_offsets import list_offsets
from tests.broker.log.append.test_large_batch_checks import first_offsets
from tests.broker.log.compaction.test_cleaner import COMPACTED, batches, clean
from tests.support.handler_context import NOW_MS, batch
from tests.support.log_world import LogWorld, overwrite
from tests.support.longest_step import steps_until_done
from tests.support.produce_clients import Served, served
from tests.support.produce_frames import produce_frame

COUNT = 60_000
CODECS = [Codec.NONE, Codec.LZ4]


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "one") as opened:
        await opened.broker.topics.alter_configs("orders", {"max.message.bytes": "100000000"})
        yield opened


async def send_large(one: Served, codec: Codec, *, count: int = COUNT) -> PartitionLog:
    """Append a batch whose records are a millisecond apart."""
    records = [Record(offset, NOW_MS - count + offset, None, b"v" * 80, ()) for offset in range(count)]
    sent = bytes(build_batch(records, codec=codec))
    assert [error for error, _ in first_offsets(await one.produce(produce_frame(sent)))] == [ErrorCode.NONE]
    return one.broker.log("orders", 0)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("requested_ms", [NOW_MS - 1, -3])
async def test_no_step_is_long_while_a_batch_of_many_records_is_searched(
    one: Served, codec: Codec, requested_ms: int
) -> None:
    await send_large(one, codec)
    searching = asyncio.ensure_future(one.broker.call(list_offsets((0, requested_ms))))
    steps = await steps_until_done(searching)
    found = (await searching).topics[0].partitions[0]
    assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.NONE, COUNT - 1, NOW_MS - 1)
    assert steps.longest_s < 0.05
    assert steps.turns_count > 5


async def test_no_step_is_long_while_many_partitions_are_searched(one: Served) -> None:
    """Each search alone is a short one, with a batch that is decompressed in its step."""
    await one.broker.create_topic("wide", 99)
    for partition in range(99):
        records = [Record(offset, NOW_MS + offset, None, b"v", ()) for offset in range(1_000)]
        sent = memoryview(build_batch(records, codec=Codec.LZ4))
        assert one.broker.log("wide", partition).append(sent, now_ms=NOW_MS).error is ErrorCode.NONE
        await one.broker.log("wide", partition).flushed()
    asked = list_offsets(*((partition, NOW_MS + 999) for partition in range(99)), topic="wide")
    searching = asyncio.ensure_future(one.broker.call(asked))
    steps = await steps_until_done(searching)
    assert {found.offset for found in (await searching).topics[0].partitions} == {999}
    assert steps.longest_s < 0.05


async def test_no_step_is_long_while_many_headers_are_passed(one: Served) -> None:
    """Where times do not rise, the index says nothing of where the last one begins."""
    log = one.broker.log("orders", 0)
    small = batch()
    for _ in range(40_000):
        log.append(memoryview(small), now_ms=NOW_MS)
    log.append(memoryview(batch(timestamp_ms=NOW_MS + 1)), now_ms=NOW_MS)
    await log.flushed()
    searching = asyncio.ensure_future(one.broker.call(list_offsets((0, NOW_MS + 1))))
    steps = await steps_until_done(searching)
    assert (await searching).topics[0].partitions[0].offset == 40_000
    assert steps.longest_s < 0.05
    assert steps.turns_count > 5


def interrupted(search: Search[Any], change: Callable[[], object]) -> Any:
    """The result of a search, after whose first step something happens."""
    next(search)
    change()
    return searched_at_once(search)


@pytest.fixture
async def rising(one: Served, monkeypatch: pytest.MonkeyPatch) -> PartitionLog:
    """A log whose records are a millisecond apart, three to a batch, and each a step."""
    monkeypatch.setattr(time_search, "RECORDS_PER_STEP", 1)
    log = one.broker.log("orders", 0)
    for first in (0, 3):
        if first:
            log.roll(NOW_MS)
        records = [Record(offset, NOW_MS + first + offset, None, b"v", ()) for offset in range(3)]
        log.append(memoryview(build_batch(records)), now_ms=NOW_MS)
    return log


async def test_a_search_begins_again_where_segments_have_left(rising: PartitionLog) -> None:
    await rising.flushed()

    def delete_first() -> None:
        assert rising.move_log_start(3) is ErrorCode.NONE
        rising.sweep(NOW_MS)
        assert len(rising.segments) == 1

    search = rising.offset_for_timestamp(NOW_MS + 2, isolation=Isolation.LOG_END)
    assert interrupted(search, delete_first) == TimestampedOffset(3, NOW_MS + 3, 0)


async def test_a_record_below_a_start_that_moved_meanwhile_is_not_found(rising: PartitionLog) -> None:
    await rising.flushed()
    search = rising.offset_for_timestamp(NOW_MS + 1, isolation=Isolation.LOG_END)
    assert interrupted(search, lambda: rising.move_log_start(2)) == TimestampedOffset(2, NOW_MS + 2, 0)


async def test_a_search_ends_where_its_log_is_deleted(one: Served, rising: PartitionLog) -> None:
    search = rising.offset_for_timestamp(NOW_MS + 1, isolation=Isolation.LOG_END)
    next(search)
    await one.broker.topics.delete("orders")
    with pytest.raises(StorageError):
        searched_at_once(search)


async def test_a_large_batch_that_is_damaged_is_not_searched(one: Served) -> None:
    log = await send_large(one, Codec.NONE, count=10_000)
    path = log.segments.active.batches.log.path
    overwrite(path, log.size_bytes - 10, b"\0" * 10)
    with pytest.raises(DamagedLogError, match="checksum"):
        searched_at_once(log.offset_for_timestamp(NOW_MS - 1, isolation=Isolation.LOG_END))
    answered = await one.broker.call(list_offsets((0, NOW_MS - 1)))
    assert answered.topics[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE


async def test_few_searches_hold_a_large_batch_at_a_time_and_others_do_not_wait() -> None:
    searches = Searches()
    holding: list[int] = []
    most = 0

    def large(number: int) -> Search[int]:
        nonlocal most
        yield Need.MEMORY
        holding.append(number)
        most = max(most, len(holding))
        content = yield lambda: b"content"
        assert content == b"content"
        yield Need.TURN
        holding.remove(number)
        yield Need.NEXT
        return number

    def small() -> Search[str]:
        yield Need.TURN
        return "small"

    tasks = [asyncio.ensure_future(searches.finish(large(number))) for number in range(6)]
    await asyncio.sleep(0)
    assert await searches.finish(small()) == "small"
    assert not any(task.done() for task in tasks)
    tasks[0].cancel()
    tasks[5].cancel()
    assert await asyncio.gather(*tasks[1:5]) == [1, 2, 3, 4]
    assert most <= time_search.IN_WORK_COUNT + 1  # the cancelled one does not give its place in the list back


@pytest.mark.parametrize("has_log_append_time", [False, True])
def test_a_record_is_found_as_if_all_were_read(has_log_append_time: bool) -> None:
    deltas_ms = [0, -70_000, 5, 63, 64, 300, 70, 5_000_000_000, 1]
    records = [
        Record(2 * index, NOW_MS + delta_ms, b"k" * index * 20, b"v" * index, (("h", b"x"),))
        for index, delta_ms in enumerate(deltas_ms)
    ]
    built = memoryview(build_batch(records, base_offset=7, is_log_append_time=has_log_append_time))
    read = list(read_records(RecordBatch(read_header(built), built)))
    content = built[61:]
    for least_ms in {record.timestamp_ms + extra for record in read for extra in (0, 1)}:
        for least_offset in range(5, 26):
            least_delta_ms = LEAST_DELTA_MS if has_log_append_time else least_ms - NOW_MS
            _, found = find_record(content, 0, len(records), least_delta_ms, least_offset - 7)
            expected = next(
                (
                    record.offset
                    for record in read
                    if record.offset >= least_offset and (has_log_append_time or record.timestamp_ms >= least_ms)
                ),
                None,
            )
            assert (None if found is None else 7 + found.offset_delta) == expected


@pytest.mark.parametrize("content", [b"", b"\x0e", b"\x03\x00", b"\x02\x00\x00\x00", b"\x20\x00\x00", b"\x81"])
def test_records_that_are_none_are_refused(content: bytes) -> None:
    with pytest.raises(DecodeError):
        find_record(content, 0, 1, 0, 0)


def latest_of(log: PartitionLog) -> TimestampedOffset | None:
    return searched_at_once(log.offset_of_max_timestamp(Isolation.LOG_END))


async def test_the_latest_record_is_found_though_compaction_has_emptied_a_batch_of_a_greater_time(
    world: LogWorld,
) -> None:
    """The last batch of a producer keeps its header, with its time, when no record of it is left."""
    log = world.create(dataclasses.replace(COMPACTED, segment_bytes=10_000))
    world.append(b"early", key=b"other", timestamp_ms=NOW_MS + 5)
    world.append(b"old", key=b"k", timestamp_ms=NOW_MS + 90, producer_id=7, producer_epoch=0, base_sequence=0)
    world.append(b"late", key=b"third", timestamp_ms=NOW_MS + 7)
    log.roll(NOW_MS)
    world.append(b"new", key=b"k", timestamp_ms=NOW_MS + 1)
    log.roll(NOW_MS)
    world.append(b"end", key=b"end", timestamp_ms=NOW_MS)
    await clean(world)
    assert [batch.header.records_count for batch in batches(log)].count(0) == 1
    assert latest_of(log) == TimestampedOffset(2, NOW_MS + 7, 0)
    assert log.move_log_start(3) is ErrorCode.NONE
    assert latest_of(log) == TimestampedOffset(3, NOW_MS + 1, 0)


@pytest.mark.parametrize(("start", "latest"), [(0, 1), (1, 1), (2, 2), (3, 5), (4, 5), (5, 5), (6, 6), (7, None)])
async def test_records_below_the_start_are_not_the_latest(world: LogWorld, start: int, latest: int | None) -> None:
    log = world.create()
    times_ms = [10, 90, 50, 5, 20, 30, 1]
    for part in (times_ms[:4], times_ms[4:]):
        world.append_records(*(Record(slot, NOW_MS + at, None, b"v") for slot, at in enumerate(part)))
    await log.flushed()
    assert log.move_log_start(start) is ErrorCode.NONE
    found = None if latest is None else TimestampedOffset(latest, NOW_MS + times_ms[latest], 0)
    assert latest_of(log) == found


async def test_greatest_timestamps_that_no_record_has_cost_each_batch_one_search(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header's greatest timestamp is its producer's word."""
    log = world.create()
    count = 300
    for slot in range(count):
        batch = build_batch([Record(0, NOW_MS + (9 if slot == 150 else 5), None, b"v")])
        struct.pack_into(">q", batch, 35, NOW_MS + 10 + slot)
        struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
        assert log.append(memoryview(batch), now_ms=NOW_MS).error is ErrorCode.NONE
    headers_read = []
    scan_from = Segment.scan_from

    def counted(segment: Segment, relative_offset: int) -> Iterator[ScannedBatch]:
        for found in scan_from(segment, relative_offset):
            headers_read.append(found.position)
            yield found

    monkeypatch.setattr(Segment, "scan_from", counted)
    assert latest_of(log) == TimestampedOffset(150, NOW_MS + 9, 0)
    assert len(headers_read) <= 12 * count
