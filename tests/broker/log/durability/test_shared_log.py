"""Logs whose ends an engine keeps: what a flush gives it, when the high watermark follows, what a failure does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from fencepost.broker.coordination.shard import CoordinatorRecord
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.durability.shared_log import AppendedBytes
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.record_batch import LENGTH_OVERHEAD_BYTES, read_header
from tests.support.log_world import NOW_MS, ORDERS, TOPIC_ID, LogWorld, content_of


class SteppedSharedLog:
    """Commits end when the test says so. rebuilt: the log files of ORDERS, made from the committed bytes alone."""

    logs_per_flush = 1_000
    begin_another: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.flushes: list[tuple[list[AppendedBytes], asyncio.Future[None]]] = []
        self.rebuilt: dict[int, bytearray] = {}

    def room_after(self, produced_bytes: int) -> None:
        return None

    def commit(self, appended: Sequence[AppendedBytes]) -> Awaitable[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for one in (each for each in appended if each.topic_partition == ORDERS):
            file = self.rebuilt.setdefault(one.segment_base, bytearray())
            assert len(file) == one.position, "a flush goes on where the one before ended"
            file += one.content()
        self.flushes.append((list(appended), future))
        return future

    def end(self, error: StorageError | None = None, *, number: int = -1) -> None:
        """End a flush, the one that began last unless another is named."""
        (_, future) = self.flushes[number]
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


class SharedLogWorld(LogWorld):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.shared = SteppedSharedLog()
        self.logs = LogDirectory(path, disk=self.disk, clock=self.clock, shared_log=self.shared)


@pytest.fixture
async def world(tmp_path: Path) -> SharedLogWorld:
    world = SharedLogWorld(str(tmp_path))
    await world.start()
    world.create()
    return world


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_records_are_readable_once_the_engine_has_committed_them(world: SharedLogWorld) -> None:
    world.append(b"one", b"two")
    flushed = asyncio.ensure_future(world.orders.flushed())
    await turn()
    assert world.orders.high_watermark == 0
    ((appended,),) = [flush for flush, _ in world.shared.flushes]
    assert appended.topic_partition == ORDERS
    assert appended.topic_id == TOPIC_ID
    assert (appended.segment_base, appended.position, appended.base_offset, appended.end_offset) == (0, 0, 0, 2)
    world.shared.end()
    await flushed
    assert world.orders.high_watermark == 2


async def test_what_is_appended_during_a_flush_goes_with_the_next_from_where_it_ended(world: SharedLogWorld) -> None:
    world.append(b"one")
    world.orders.flush_soon()
    await turn()
    world.append(b"two")
    world.append(b"three")
    world.orders.flush_soon()
    await turn()
    assert len(world.shared.flushes) == 1
    world.shared.end()
    await turn()
    assert world.orders.high_watermark == 1
    (second,) = world.shared.flushes[1][0]
    assert (second.base_offset, second.end_offset) == (1, 3)
    world.shared.end()
    await turn()
    assert world.orders.high_watermark == 3
    assert world.shared.rebuilt[0] == content_of(f"{world.path}/orders-0/{0:020d}.log")


def are_there(*paths: str) -> list[bool]:
    return [os.path.exists(path) for path in paths]


async def two_flushes(world: SharedLogWorld) -> None:
    """A flush of the first record, and beside it one of the second."""
    world.append(b"one")
    world.orders.flush_soon()
    await turn()
    world.append(b"two")
    world.orders.flush_soon()
    await turn()
    assert world.shared.begin_another is not None
    world.shared.begin_another()
    assert [[(one.base_offset, one.end_offset) for one in flush] for flush, _ in world.shared.flushes] == [
        [(0, 1)],
        [(1, 2)],
    ]


async def test_a_flush_beside_another_takes_what_was_appended_since_and_counts_after_it(world: SharedLogWorld) -> None:
    await two_flushes(world)
    world.shared.end(number=1)
    await turn()
    assert world.orders.high_watermark == 0
    world.shared.end(number=0)
    await turn()
    assert world.orders.high_watermark == 2


async def test_the_high_watermark_follows_each_of_two_flushes(world: SharedLogWorld) -> None:
    await two_flushes(world)
    world.shared.end(number=0)
    await turn()
    assert world.orders.high_watermark == 1
    world.append(b"three")
    world.orders.flush_soon()
    await turn()
    assert len(world.shared.flushes) == 2, "what is appended now waits for the flushes that are under way"
    world.shared.end(number=1)
    await turn()
    assert world.orders.high_watermark == 2
    ((third,), _) = world.shared.flushes[2]
    assert (third.base_offset, third.end_offset) == (2, 3)
    world.shared.end()
    await turn()
    assert world.orders.high_watermark == 3


async def test_a_flush_that_fails_lets_nothing_behind_it_count(world: SharedLogWorld) -> None:
    await two_flushes(world)
    world.shared.end(number=1)
    world.shared.end(StorageError("lost"), number=0)
    await turn()
    assert world.orders.is_offline
    assert world.orders.high_watermark == 0


async def test_no_flush_begins_beside_others_where_there_is_nothing_to_flush(world: SharedLogWorld) -> None:
    assert world.shared.begin_another is not None
    world.shared.begin_another()
    assert world.shared.flushes == []
    world.append(b"one")
    world.orders.flush_soon()
    world.shared.begin_another()
    assert world.shared.flushes == [], "the first is about to begin, with all of this turn"
    await turn()
    world.shared.begin_another()
    assert len(world.shared.flushes) == 1
    world.shared.end()
    await turn()
    assert world.orders.high_watermark == 1


async def test_segments_that_are_removed_during_flushes_are_deleted_when_their_turn_is_over(
    world: SharedLogWorld,
) -> None:
    log = world.orders
    log.configure(LogConfig(segment_bytes=200))
    for number in range(6):
        world.append(b"%d" % number * 100)
    log.flush_soon()
    await turn()
    world.shared.end()
    await turn()
    first, second, *_ = list(log.segments)
    paths = [segment.files.path(".log") for segment in (first, second)]

    def remove(count: int) -> None:
        kept_bytes = sum(segment.size_bytes for segment in list(log.segments)[count:])
        log.configure(LogConfig(segment_bytes=200, retention_bytes=kept_bytes))
        log.sweep(world.clock.now_ms())

    remove(1)
    await turn()
    remove(1)
    assert world.shared.begin_another is not None
    world.shared.begin_another()
    assert len(world.shared.flushes) == 3
    assert are_there(*paths) == [True, True]
    world.shared.end(number=2)
    await turn()
    assert are_there(*paths) == [True, True]
    world.shared.end(number=1)
    await turn()
    assert are_there(*paths) == [False, False]


async def test_a_flush_deletes_no_segment_that_was_removed_after_it_began(world: SharedLogWorld) -> None:
    log = world.orders
    log.configure(LogConfig(segment_bytes=200))
    for number in range(6):
        world.append(b"%d" % number * 100)
    log.flush_soon()
    await turn()
    first = log.segments.first
    path = first.files.path(".log")
    world.shared.end()
    await turn()
    world.append(b"last")
    log.flush_soon()
    await turn()
    log.configure(LogConfig(segment_bytes=200, retention_bytes=sum(one.size_bytes for one in list(log.segments)[1:])))
    log.sweep(world.clock.now_ms())
    assert world.shared.begin_another is not None
    world.shared.begin_another()
    world.shared.end(number=1)
    await turn()
    assert are_there(path) == [True]
    world.shared.end(number=2)
    await turn()
    assert are_there(path) == [False]


async def test_a_flush_takes_along_what_no_reply_waits_for(world: SharedLogWorld) -> None:
    coordinator = TopicPartition("state", 0)
    unawaited = world.logs.create(coordinator, bytes(16), LogConfig())
    unawaited.append_records([CoordinatorRecord(b"key", b"value")], now_ms=NOW_MS, is_awaited=False)
    await turn()
    assert world.shared.flushes == []
    world.append(b"awaited")
    world.orders.flush_soon()
    await turn()
    ((appended, _),) = world.shared.flushes
    assert {one.topic_partition for one in appended} == {ORDERS, coordinator}
    world.shared.end()
    await world.orders.flusher.drain()
    assert unawaited.high_watermark == 1
    assert len(world.shared.flushes) == 1


async def test_every_byte_of_every_segment_is_committed_once(world: SharedLogWorld) -> None:
    world.orders.configure(LogConfig(segment_bytes=2_000))
    for number in range(40):
        world.append(b"%d" % number * 100)
        if number % 3 == 0:
            world.orders.flush_soon()
            await turn()
            world.shared.end()
            await turn()
    world.orders.flush_soon()
    await turn()
    while not world.shared.flushes[-1][1].done():
        world.shared.end()
        await turn()
    assert world.orders.high_watermark == 40
    segments = list(world.orders.segments)
    assert len(segments) > 3
    written = {segment.base_offset: content_of(segment.files.path(".log")) for segment in segments}
    assert {base: bytes(content) for base, content in world.shared.rebuilt.items()} == {
        base: content for base, content in written.items() if content
    }


async def test_an_empty_segment_is_no_part_of_a_flush(world: SharedLogWorld) -> None:
    world.append(b"one")
    world.orders.roll(world.clock.now_ms())
    world.orders.flush_soon()
    await turn()
    (appended,) = world.shared.flushes[0][0]
    assert (appended.segment_base, appended.end_offset) == (0, 1)
    world.shared.end()
    world.append(b"two")
    world.orders.flush_soon()
    await turn()
    (appended,) = world.shared.flushes[1][0]
    assert (appended.segment_base, appended.position, appended.base_offset) == (1, 0, 1)
    world.shared.end()
    await turn()


async def test_a_range_begins_and_ends_with_whole_batches(world: SharedLogWorld) -> None:
    world.orders.configure(LogConfig(segment_bytes=500))
    for number in range(12):
        world.append(b"%d" % number * 50)
    world.orders.flush_soon()
    await turn()
    (flush, _) = world.shared.flushes[0]
    assert len(flush) > 1
    for one in flush:
        content, offset = one.content(), one.base_offset
        while content:
            header = read_header(content)
            assert header.base_offset == offset
            offset = header.last_offset + 1
            content = content[header.batch_length + LENGTH_OVERHEAD_BYTES :]
        assert offset == one.end_offset
    world.shared.end()


async def test_what_an_opened_log_holds_is_not_committed_again(tmp_path: Path) -> None:
    before = LogWorld(str(tmp_path))
    await before.start()
    before.create()
    before.append(b"one", b"two")
    await before.orders.flushed()
    await before.stop()
    world = SharedLogWorld(str(tmp_path))
    world.shared.rebuilt[0] = bytearray(content_of(f"{world.path}/orders-0/{0:020d}.log"))
    await world.start()
    assert world.orders.high_watermark == 2
    world.append(b"three")
    world.orders.flush_soon()
    await turn()
    ((appended,),) = [flush for flush, _ in world.shared.flushes]
    assert (appended.base_offset, appended.end_offset) == (2, 3)
    assert appended.position > 0
    world.shared.end()
    await turn()


async def test_a_log_that_has_resigned_stays_online_elsewhere_and_its_waiters_know(world: SharedLogWorld) -> None:
    log = world.orders
    world.append(b"one")
    flushed = asyncio.ensure_future(log.flushed())
    await turn()
    world.logs.release(ORDERS)
    world.shared.end(StorageError("another node leads"))
    with pytest.raises(StorageError, match="is led by another node now"):
        await flushed
    assert log.is_deleted


async def test_files_that_cannot_be_read_concern_their_own_log(world: SharedLogWorld) -> None:
    world.append(b"one")
    world.orders.flush_soon()
    await turn()
    path = world.orders.segments.active.batches.log.path
    world.shared.end(StorageError("cannot be read", paths=[path]))
    await turn()
    assert world.orders.is_offline
