"""Records that a read_committed consumer gets are counted as it gets them: no markers, nothing aborted."""

from __future__ import annotations

import dataclasses
import random

import pytest

from fencepost.broker.log.append.skipped_offsets import LONGEST_SPAN, skipped_spans
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.reads.readable_records import count_readable_records, count_skipped_offsets
from fencepost.diagnosis.lag import NO_TIME_MS, ReadableRecords
from fencepost.protocol.errors import ErrorCode
from tests.broker.log.compaction.test_cleaner import COMPACTED, clean
from tests.broker.log.compaction.test_cleaner import committed as read_as_a_consumer
from tests.support.log_world import NOW_MS, LogWorld

PRODUCERS = (1, 2, 3)


def counted(log: PartitionLog, offset: int, most_batches: int) -> int:
    """Count in as many steps as it takes."""
    found = ReadableRecords(0, offset, NO_TIME_MS)
    while found.next_offset < log.last_stable_offset:
        more = count_readable_records(log, found.next_offset, log.last_stable_offset, most_batches)
        assert more is not None
        assert more.next_offset > found.next_offset
        found = found.followed_by(more)
    return found.records_count


class Writer:
    """A transactional producer; each end of a transaction raises its epoch."""

    def __init__(self, world: LogWorld, producer_id: int) -> None:
        self._world = world
        self._producer_id = producer_id
        self._epoch = 0
        self._sequence = 0

    def append(self, *values: bytes, key: bytes = b"k", timestamp_ms: int = NOW_MS) -> None:
        result = self._world.append(
            *values,
            key=key,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            is_transactional=True,
            timestamp_ms=timestamp_ms,
        )
        assert result.error is ErrorCode.NONE
        self._sequence += len(values)

    def end(self, *, committed: bool) -> None:
        if self._sequence:
            self._epoch, self._sequence = self._epoch + 1, 0
            ended = self._world.end_transaction(self._producer_id, self._epoch, committed=committed)
            assert ended is ErrorCode.NONE


def write_by_chance(world: LogWorld, chance: random.Random) -> None:
    """Plain records, and transactions of three producers that end either way; one is open at the end."""
    writers = [Writer(world, producer_id) for producer_id in PRODUCERS]
    for number in range(120):
        writer, values = chance.choice(writers), [b"v"] * chance.randint(1, 4)
        match chance.randrange(4):
            case 0:
                world.append(*values, key=b"plain %d" % (number % 5))
            case 1:
                writer.end(committed=chance.random() < 0.5)
            case _:
                writer.append(*values, key=b"key %d" % (number % 7))
    for writer in writers:
        writer.end(committed=chance.random() < 0.5)
    writers[0].append(b"open")
    world.append(b"behind it")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_compacted", [False, True])
async def test_as_many_are_counted_as_a_consumer_reads(world: LogWorld, seed: int, *, is_compacted: bool) -> None:
    chance = random.Random(seed)
    log = world.create(COMPACTED if is_compacted else dataclasses.replace(LogConfig(), segment_bytes=700))
    write_by_chance(world, chance)
    await log.flushed()
    if is_compacted:
        await clean(world)
    assert len(log.segments) > 3
    for offset in (
        log.log_start_offset,
        log.last_stable_offset,
        *(chance.randrange(log.last_stable_offset) for _ in range(9)),
    ):
        log_start, log.log_start_offset = log.log_start_offset, offset
        try:
            expected = len(read_as_a_consumer(log))
        finally:
            log.log_start_offset = log_start
        for most_batches in (1, 3, 1_000):
            assert counted(log, offset, most_batches) == expected, offset


async def test_the_time_is_that_of_the_first_batch_that_is_read(world: LogWorld) -> None:
    log = world.create()
    writer = Writer(world, 1)
    writer.append(b"a")
    writer.end(committed=False)
    world.append(b"b", timestamp_ms=NOW_MS + 2)
    world.append(b"c", timestamp_ms=NOW_MS + 3)
    await log.flushed()
    assert count_readable_records(log, 0, 4, 10) == ReadableRecords(2, 4, NOW_MS + 2)
    assert count_readable_records(log, 0, 2, 10) == ReadableRecords(0, 2, NO_TIME_MS)


async def test_offsets_that_were_left_out_are_counted_from_any_offset(world: LogWorld) -> None:
    log = world.create()
    world.append(b"a", b"b", b"c")
    log.skip_offsets(skipped_spans(3, 2 * LONGEST_SPAN + 10_000), now_ms=NOW_MS)
    world.append(b"d")
    end_offset = log.log_end_offset
    for offset, skipped_count in ((0, 2 * LONGEST_SPAN + 10_000), (5, 2 * LONGEST_SPAN + 9_998), (end_offset - 1, 0)):
        assert count_skipped_offsets(log, offset, end_offset) == skipped_count
    assert count_skipped_offsets(log, 0, 13) == 10
