"""Offsets that a restored log leaves out: batches without records, from its end on, in segments of their own."""

from __future__ import annotations

import pytest

from fencepost.broker.log.append.skipped_offsets import (
    LONGEST_SPAN,
    MOST_SKIPPED,
    SKIPPED_OFFSETS,
    SkippedSpan,
    offsets_to_skip,
    skipped_spans,
)
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.reads.time_search import searched_at_once
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import iterate_batches, read_records
from tests.broker.log.compaction.test_cleaner import COMPACTED, clean
from tests.support.log_world import NOW_MS, LogWorld


def test_the_spans_follow_each_other_up_to_the_count() -> None:
    assert list(skipped_spans(7, 0)) == []
    assert list(skipped_spans(7, 5)) == [SkippedSpan(7, 5)]
    spans = list(skipped_spans(7, 2 * LONGEST_SPAN + 3))
    assert spans == [(7, LONGEST_SPAN), (7 + LONGEST_SPAN, LONGEST_SPAN), (7 + 2 * LONGEST_SPAN, 3)]
    assert spans[-1].end_offset == 7 + 2 * LONGEST_SPAN + 3


def test_a_longer_loss_leaves_out_more() -> None:
    assert offsets_to_skip(0) == offsets_to_skip(3600) == SKIPPED_OFFSETS
    assert offsets_to_skip(7 * 24 * 3600) == 60_480_000_000
    assert offsets_to_skip(1e12) == MOST_SKIPPED


async def world_with_skipped(world: LogWorld, count: int) -> None:
    """Three records, offsets left out in a raised epoch, and two records."""
    log = world.create()
    world.append(b"a", b"b", b"c")
    log.lead(5)
    log.skip_offsets(skipped_spans(3, count), now_ms=NOW_MS)
    world.append(b"d", b"e")
    await log.flushed()


def read_from(world: LogWorld, offset: int) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    while True:
        result = world.orders.read(offset, 1 << 20, isolation=Isolation.READ_COMMITTED)
        assert result.error is ErrorCode.NONE
        if not result.records:
            return found
        for batch in iterate_batches(result.records):
            assert batch.header.last_offset >= offset
            offset = batch.header.last_offset + 1
            found += [(record.offset, record.value) for record in read_records(batch)]


@pytest.mark.parametrize("count", [500, 3 * LONGEST_SPAN + 1])
@pytest.mark.parametrize("crash", [False, True])
async def test_a_reader_at_any_of_them_gets_the_first_new_record_next(world: LogWorld, count: int, crash: bool) -> None:
    await world_with_skipped(world, count)
    await world.restart(crash=crash)
    new = [(3 + count, b"d"), (4 + count, b"e")]
    assert world.orders.log_end_offset == 5 + count
    for offset in (3, 4, 3 + count // 2, 2 + count, 3 + count):
        assert read_from(world, offset) == new
    assert read_from(world, 0) == [(0, b"a"), (1, b"b"), (2, b"c"), *new]


async def test_the_records_that_follow_are_in_the_segment_of_the_last_span(world: LogWorld) -> None:
    await world_with_skipped(world, 2 * LONGEST_SPAN)
    bases = [segment.base_offset for segment in world.orders.segments]
    assert bases == [0, 3, 3 + LONGEST_SPAN]


async def test_an_empty_log_gets_no_segment_without_a_batch(world: LogWorld) -> None:
    log = world.create()
    log.skip_offsets(skipped_spans(0, 9), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0]
    assert log.log_end_offset == 9


async def test_the_epoch_before_ends_where_they_begin(world: LogWorld) -> None:
    await world_with_skipped(world, 500)
    assert world.orders.end_offset_for_leader_epoch(4) == (0, 3)
    assert world.orders.end_offset_for_leader_epoch(5) == (5, 505)


async def test_a_search_by_time_finds_records_only(world: LogWorld) -> None:
    await world_with_skipped(world, 500)
    log = world.orders
    found = searched_at_once(log.offset_for_timestamp(NOW_MS, isolation=Isolation.READ_COMMITTED))
    assert found is not None
    assert found.offset in (0, 503)
    latest = searched_at_once(log.offset_of_max_timestamp(Isolation.READ_COMMITTED))
    assert latest is not None
    assert latest.offset in (0, 503)


async def test_a_log_that_is_offline_is_left_alone(world: LogWorld) -> None:
    log = world.create()
    log.give_up(StorageError("a bad sector"))
    with pytest.raises(StorageError, match="offline"):
        log.skip_offsets(skipped_spans(0, 9), now_ms=NOW_MS)


async def test_a_reader_at_any_of_them_gets_the_first_new_record_after_compaction_too(world: LogWorld) -> None:
    log = world.create(COMPACTED)
    world.append(b"old" * 100, key=b"a")
    log.skip_offsets(skipped_spans(1, 3 * LONGEST_SPAN), now_ms=NOW_MS)
    for number in range(5):
        world.append(b"%d" % number * 300, key=b"b" if number else b"a")
    assert await clean(world) == log.segments.active.base_offset
    first_new = 1 + 3 * LONGEST_SPAN
    assert [offset for offset, _ in read_from(world, 7)] == [first_new, first_new + 3, first_new + 4]
    assert read_from(world, first_new - 1) == read_from(world, 0) == read_from(world, 7)


async def test_records_may_be_deleted_up_to_any_of_them(world: LogWorld) -> None:
    await world_with_skipped(world, 500)
    assert world.orders.move_log_start(200) is ErrorCode.NONE
    assert read_from(world, 200) == [(503, b"d"), (504, b"e")]
    await world.restart()
    assert world.orders.log_end_offset == 505
