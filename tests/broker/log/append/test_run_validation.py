"""Batches that are appended together leave a log as the same batches do that are appended one by one.

Two logs are given the same batches. One is asked to append as many together as it takes, and is given what it does not
take by itself; the other gets each by itself.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import AppendResult, Isolation, PartitionLog
from fencepost.broker.log.producers.verification import VerificationGuard
from fencepost.broker.log.reads.time_search import searched_at_once
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import CURRENT_MAGIC, HEADER_BYTES, Record, build_batch, read_header
from fencepost.protocol.sequence import MAXIMUM_SEQUENCE
from tests.support.batch_runs import BEFORE, BEHIND, equal_batch, run_of, with_byte, with_header
from tests.support.log_world import NOW_MS, LogWorld

PAGE_CACHE = LogConfig(flush_interval_messages=2**63 - 1)
RECORDS_COUNT = 8
PRODUCER = (9, 0)
ROUNDS_COUNT = 25


def batch(value: bytes = b"value", **build: Any) -> bytes:
    build = {"timestamp_ms": NOW_MS, "records_count": RECORDS_COUNT, **build}
    return equal_batch(value, **build)


def in_sequence(count: int, *, first: int = 0, producer: tuple[int, int] = PRODUCER, **build: Any) -> list[bytes]:
    sequences = range(first, first + count * RECORDS_COUNT, RECORDS_COUNT)
    return [batch(producer=producer, base_sequence=sequence, **build) for sequence in sequences]


class Logs:
    """The two logs, and what both are to have done.

    together_counts: of each step in which batches were appended together, how many they were.
    """

    def __init__(self, worlds: tuple[LogWorld, LogWorld]) -> None:
        self.worlds = worlds
        self.together_counts: list[int] = []

    @property
    def both(self) -> tuple[PartitionLog, PartitionLog]:
        return self.worlds[0].orders, self.worlds[1].orders

    @property
    def now_ms(self) -> int:
        return self.worlds[0].clock.now_ms()

    def create(self, config: LogConfig = PAGE_CACHE, **changes: Any) -> None:
        for world in self.worlds:
            world.create(dataclasses.replace(config, **changes))

    def configure(self, **changes: Any) -> None:
        for log in self.both:
            log.configure(dataclasses.replace(log.config, **changes))

    def append(self, *batches: bytes) -> list[AppendResult]:
        """Append the same batches to both. Both say the same of each, and are the same afterwards."""
        together, one_by_one = self.both
        results = self._append_together(together, batches)
        assert results == [one_by_one.append(memoryview(one), now_ms=self.now_ms) for one in batches]
        self.assert_same()
        return results

    def append_alone(self, *batches: bytes) -> None:
        """Append what may differ in length."""
        for one in batches:
            results = [log.append(memoryview(one), now_ms=self.now_ms) for log in self.both]
            assert results[0] == results[1]

    def open_transaction(self, one: bytes) -> None:
        header = read_header(one)
        for log in self.both:
            guard = log.begin_verification(*header[9:12], transaction_version_2=False)
            assert isinstance(guard, VerificationGuard)
            assert log.append(memoryview(one), now_ms=self.now_ms, guard=guard).error is ErrorCode.NONE
            log.confirm_owner(header.producer_id, "")

    def end_transaction(self, *, committed: bool = True) -> None:
        for world in self.worlds:
            world.end_transaction(PRODUCER[0], PRODUCER[1] + 1, committed=committed)

    def _append_together(self, log: PartitionLog, batches: Sequence[bytes]) -> list[AppendResult]:
        results: list[AppendResult] = []
        self.together_counts.clear()
        while len(results) < len(batches):
            rest = batches[len(results) :]
            run = run_of(rest)
            before = bytes(run.buffer)
            header = read_header(rest[0])
            appended = log.append_run(run, header, now_ms=self.now_ms) if header.magic == CURRENT_MAGIC else None
            if appended is None:
                assert run.buffer == before, "what is to be looked at once more is as it was"
                results.append(log.append(memoryview(rest[0]), now_ms=self.now_ms))
                continue
            self.together_counts.append(appended.batches_count)
            assert appended.batches_count > 0
            behind_taken = appended.batches_count * run.distance_bytes
            assert run.buffer[behind_taken:] == before[behind_taken:]
            results += [
                AppendResult(ErrorCode.NONE, offset, offset + appended.records_count - 1, -1, log.log_start_offset)
                for offset in appended.base_offsets
            ]
            assert len(appended.base_offsets) == appended.batches_count
            assert appended.end_offset == log.log_end_offset
        return results

    def assert_same(self) -> None:
        one, other = map(state_of, self.both)
        assert one == other

    async def assert_same_when_durable(self) -> None:
        for log in self.both:
            await log.flushed()
            assert log.high_watermark == log.log_end_offset
        self.assert_same()


def state_of(log: PartitionLog) -> dict[str, Any]:
    """All that a log holds and knows."""
    return {
        "segments": [
            {
                "base_offset": segment.base_offset,
                "next_offset": segment.next_offset,
                "content": bytes(segment.batches.log.read(0, segment.size_bytes)),
                "positions": list(segment.indexes.offset_index.positions),
                "last_offsets": list(segment.indexes.offset_index.last_offsets),
                "timestamps": list(segment.indexes.time_index.timestamps_ms),
                "last_offsets_by_time": list(segment.indexes.time_index.last_offsets),
                "unindexed_end_position": segment.indexes.unindexed_end_position,
                "first_timestamp_ms": segment.batches.first_timestamp_ms,
                "max_timestamp_ms": segment.indexes.max_timestamp_ms,
                "offset_of_max_timestamp": segment.indexes.offset_of_max_timestamp,
                "last_batch": (segment.batches.last_batch_offset, segment.batches.last_batch_position),
            }
            for segment in log.segments
        ],
        "offsets": (log.log_start_offset, log.log_end_offset, log.last_stable_offset, log.high_watermark),
        "epochs": log.epochs.starts,
        "producers": log.producers.snapshot(),
        "active_producers": log.active_producers(NOW_MS),
        "greatest": searched_at_once(log.offset_of_max_timestamp(Isolation.LOG_END)),
        "last_batch": bytes(
            log.read(max(log.log_end_offset - 1, 0), 1 << 20, isolation=Isolation.READ_UNCOMMITTED).records
        ),
        "offline": log.is_offline,
    }


@pytest.fixture
async def logs(tmp_path: Path) -> AsyncIterator[Logs]:
    worlds = LogWorld(str(tmp_path / "together")), LogWorld(str(tmp_path / "one by one"))
    for world in worlds:
        await world.start()
    yield Logs(worlds)
    for world in worlds:
        await world.stop()


def test_batches_lie_apart_where_they_are_sent() -> None:
    run = run_of([batch(), batch()])
    assert (BEFORE, BEHIND) != (b"", b"")
    assert run.batches() == [batch(), batch()]


async def test_batches_without_a_producer_are_appended_with_one_write(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.create()
    logs.append_alone(batch())
    together, _ = logs.both
    file = together.segments.active.batches.log
    writes: list[int] = []
    append = type(file).append

    def counting(self: Any, *buffers: Any) -> None:
        if self is file:
            writes.append(len(buffers))
        append(self, *buffers)

    monkeypatch.setattr(type(file), "append", counting)
    results = logs.append(*[batch(bytes([index]) * 50) for index in range(16)])
    assert (logs.together_counts, writes) == ([16], [16])
    assert [result.base_offset for result in results] == list(range(8, 8 + 16 * 8, 8))


async def test_the_first_batch_of_a_log_is_appended_by_itself(logs: Logs) -> None:
    logs.create()
    logs.append(*[batch()] * 5)
    assert logs.together_counts == [4]


async def test_batches_of_a_producer_leave_its_last_five(logs: Logs) -> None:
    logs.create()
    logs.append(*in_sequence(9, timestamp_ms=NOW_MS + 7))
    assert logs.together_counts == [8]
    (producer,) = logs.both[0].producers.snapshot()
    assert [one.last_sequence for one in producer.recent_batches] == [39, 47, 55, 63, 71]
    assert all(result.is_duplicate for result in logs.append(*in_sequence(5, first=32)))
    assert logs.together_counts == []


@pytest.mark.parametrize(
    ("batches", "errors"),
    [
        ([*in_sequence(3), *in_sequence(2, first=32)], {3, 4}),
        ([*in_sequence(3), *in_sequence(2, first=8)], set()),
        ([*in_sequence(3), *in_sequence(2, first=16)], set()),
        ([*in_sequence(3), *in_sequence(3, producer=(9, 1))], set()),
        ([*in_sequence(3), *in_sequence(3, first=24, producer=(9, 1))], {3, 4, 5}),
        ([*in_sequence(3, producer=(9, 1)), *in_sequence(3)], {3, 4, 5}),
        ([*in_sequence(3), *in_sequence(3, producer=(10, 0))], set()),
        ([one for pair in zip(in_sequence(4), in_sequence(4, producer=(10, 0)), strict=True) for one in pair], set()),
        ([*in_sequence(3), batch(), batch(), *in_sequence(2, first=24)], set()),
        ([*in_sequence(3), *in_sequence(2, producer=(-2, 0)), batch(), *in_sequence(2, first=24)], set()),
        ([*in_sequence(3)[::-1]], {1, 2}),
        ([in_sequence(1)[0]] * 4, set()),
        (in_sequence(3, first=-1), {0}),
        ([*in_sequence(3, producer=(9, -1))], set()),
    ],
    ids=[
        "a gap",
        "sent again",
        "the last one sent again",
        "a new epoch",
        "a new epoch that does not begin anew",
        "an old epoch",
        "another producer",
        "two producers in turns",
        "without a producer in between",
        "with a negative producer in between",
        "backwards",
        "one again and again",
        "sequences that begin below 0",
        "a negative epoch",
    ],
)
async def test_a_batch_out_of_sequence_gets_the_same_reply_as_alone(
    logs: Logs, batches: list[bytes], errors: set[int]
) -> None:
    logs.create()
    logs.append_alone(batch())
    results = logs.append(*batches)
    assert {index for index, result in enumerate(results) if result.error is not ErrorCode.NONE} == errors
    if batches[0] == in_sequence(1)[0] != batches[1]:
        assert logs.together_counts


@pytest.mark.parametrize("producer", [(9, 0), (10, 0), (9, 1)], ids=["known", "new", "of a new epoch"])
@pytest.mark.parametrize("sequence", [-1, -2, -(2**31)])
async def test_a_producer_without_a_sequence_is_refused_in_front_of_a_run(
    logs: Logs, producer: tuple[int, int], sequence: int
) -> None:
    logs.create()
    logs.append_alone(batch())
    logs.append(*in_sequence(4))
    first = batch(producer=producer, base_sequence=sequence)
    results = logs.append(first, first, first)
    assert {result.error for result in results} == {ErrorCode.INVALID_RECORD}


@pytest.mark.parametrize("before_end", range(0, 4 * RECORDS_COUNT, 4))
async def test_sequences_begin_anew_behind_the_greatest(logs: Logs, before_end: int) -> None:
    logs.create()
    logs.append_alone(batch())
    first = MAXIMUM_SEQUENCE + 1 - before_end
    sequences = [(first + index * RECORDS_COUNT) % (MAXIMUM_SEQUENCE + 1) for index in range(8)]
    batches = [batch(producer=PRODUCER, base_sequence=sequence) for sequence in sequences]
    assert {result.error for result in logs.append(*batches)} == {ErrorCode.NONE}
    assert {result.error for result in logs.append(*batches[-3:])} == {ErrorCode.NONE}


@pytest.mark.parametrize("producer", [(-1, -1), PRODUCER], ids=["without a producer", "of a producer"])
@pytest.mark.parametrize("is_sealed", [True, False])
async def test_a_batch_that_differs_by_a_bit_gets_the_same_reply_as_alone(
    logs: Logs, is_sealed: bool, producer: tuple[int, int]
) -> None:
    logs.create()
    logs.append_alone(batch())
    for index, position in enumerate((*range(8), *range(12, HEADER_BYTES + 24))):
        plain = in_sequence(4, producer=(producer[0] + 2 * index, producer[1]) if producer[0] >= 0 else producer)
        for bit in (0, 1, 7) if is_sealed else (index % 8,):
            logs.append(*plain[:2], with_byte(plain[2], position, 1 << bit, is_sealed=is_sealed), *plain[3:])


@pytest.mark.parametrize(
    "field",
    [
        {"records_count": RECORDS_COUNT + 1},
        {"records_count": 0},
        {"last_offset_delta": RECORDS_COUNT},
        {"base_offset": 5},
        {"attributes": 1},
        {"attributes": 8},
        {"attributes": 16},
        {"attributes": 32},
        {"attributes": 64},
        {"partition_leader_epoch": 3},
        {"base_timestamp_ms": NOW_MS - 5},
        {"max_timestamp_ms": -1},
        {"max_timestamp_ms": -(2**63)},
        {"max_timestamp_ms": 2**63 - 1},
    ],
    ids=str,
)
async def test_batches_with_other_headers_get_the_same_replies_as_alone(logs: Logs, field: dict[str, int]) -> None:
    logs.create()
    logs.append_alone(batch())
    plain = [batch(bytes([index]) * 5) for index in range(6)]
    changed = [with_header(one, **field) for one in plain]
    logs.append(*plain[:3], changed[3], *plain[4:])
    logs.append(*changed)
    logs.append(*plain)


# Where a run lies in a log


@pytest.mark.parametrize("config", [PAGE_CACHE, LogConfig()], ids=["page cache", "durable"])
async def test_a_run_is_readable_like_single_batches(logs: Logs, config: LogConfig) -> None:
    logs.create(config)
    for _ in range(3):
        logs.append(*[batch()] * 6)
        await logs.assert_same_when_durable()


BATCH_BYTES = len(batch())


@pytest.mark.parametrize(
    "index_interval_bytes",
    [0, 1, BATCH_BYTES - 1, BATCH_BYTES, BATCH_BYTES + 1, 2 * BATCH_BYTES, 500, 5 * BATCH_BYTES, 4_096],
)
@pytest.mark.parametrize("count", [2, 9])
async def test_index_entries_lie_where_they_would(logs: Logs, index_interval_bytes: int, count: int) -> None:
    logs.create(index_interval_bytes=index_interval_bytes)
    times = random.Random(index_interval_bytes)
    for value_bytes in (5, 5, 6, 40, 300):
        for _ in range(3):
            logs.append(*[batch(bytes(value_bytes), timestamp_ms=NOW_MS + times.randrange(20)) for _ in range(count)])
    for log in logs.both:
        for offset in range(0, log.log_end_offset, 7):
            found = log.read(offset, 1, isolation=Isolation.READ_UNCOMMITTED)
            assert read_header(found.records).base_offset == offset // RECORDS_COUNT * RECORDS_COUNT


def rising(count: int) -> list[int]:
    return [NOW_MS + 10 * index for index in range(count)]


@pytest.mark.parametrize(
    "times_ms",
    [
        rising(12),
        rising(12)[::-1],
        [NOW_MS] * 12,
        [*rising(6), *rising(6)],
        [-1] * 12,
        [-1, -1, NOW_MS, -1, NOW_MS - 1, NOW_MS + 1] * 2,
        [0] * 6 + [-1] * 6,
        [NOW_MS - 1_000, *rising(11)],
        [*rising(11), NOW_MS + 10**9],
        [NOW_MS + 10**9, *rising(11)],
        [NOW_MS, NOW_MS + 10**9, *rising(10)],
        [NOW_MS + 3_600_000, *rising(5), NOW_MS + 3_600_001, *rising(5)],
    ],
    ids=[
        "rising",
        "falling",
        "the same",
        "again",
        "none",
        "some without",
        "from the beginning",
        "one before",
        "the last too far ahead",
        "the first too far ahead",
        "the second too far ahead",
        "just too far ahead",
    ],
)
@pytest.mark.parametrize("index_interval_bytes", [1, 400, 4_096])
async def test_times_are_found_where_they_would_be(logs: Logs, times_ms: list[int], index_interval_bytes: int) -> None:
    logs.create(index_interval_bytes=index_interval_bytes, segment_bytes=3_000)
    for _ in range(2):
        logs.append(*[batch(timestamp_ms=time_ms, step_ms=-1 if time_ms < 0 else 0) for time_ms in times_ms])
    for time_ms in (0, NOW_MS - 1, NOW_MS, NOW_MS + 1, NOW_MS + 15, NOW_MS + 110, NOW_MS + 111):
        one, other = (
            searched_at_once(log.offset_for_timestamp(time_ms, isolation=Isolation.LOG_END)) for log in logs.both
        )
        assert one == other


@pytest.mark.parametrize("segment_bytes", [200, 700, 999, 1_000, 1_500])
async def test_a_segment_ends_where_it_would(logs: Logs, segment_bytes: int) -> None:
    logs.create(segment_bytes=segment_bytes)
    for _ in range(3):
        logs.append(*in_sequence(7, producer=(len(logs.both[0].producers.snapshot()), 0)))
    assert len(logs.both[0].segments) > 2


@pytest.mark.parametrize("entries_count", [1, 2, 3, 7])
async def test_a_segment_ends_with_its_index_where_it_would(logs: Logs, entries_count: int) -> None:
    logs.create(segment_index_bytes=entries_count * 8, index_interval_bytes=200)
    for _ in range(5):
        logs.append(*[batch()] * 7)
    assert len(logs.both[0].segments) > 2


async def test_a_segment_ends_by_its_age_where_it_would(logs: Logs) -> None:
    logs.create(segment_ms=50)
    for later_ms in (0, 100, 200):
        logs.append(*[batch(timestamp_ms=later_ms + time_ms) for time_ms in rising(12)])
        logs.append(*[batch(timestamp_ms=-1, step_ms=-1)] * 3)
    assert len(logs.both[0].segments) > 2


async def test_a_higher_leader_epoch_begins_with_the_run(logs: Logs) -> None:
    logs.create()
    for leader_epoch in (0, 0, 3, 4):
        for log in logs.both:
            log.lead(leader_epoch)
        logs.append(*[batch()] * 5)
        assert {read_header(logs.both[0].read(0, 1 << 20, isolation=Isolation.LOG_END).records)[2]} == {0}
    assert [start.leader_epoch for start in logs.both[0].epochs.starts] == [0, 3, 4]


async def test_a_log_that_was_opened_again_goes_on(logs: Logs) -> None:
    logs.create(index_interval_bytes=300)
    for is_crash in (False, True):
        logs.append(*in_sequence(5, first=40 * is_crash))
        for world in logs.worlds:
            await world.restart(crash=is_crash)
        logs.assert_same()
    logs.append(*in_sequence(5, first=80))
    assert logs.together_counts == [5]


# What a topic asks for


@pytest.mark.parametrize(
    ("config", "goes_together"),
    [
        ({"compression_type": "producer"}, True),
        ({"compression_type": "uncompressed"}, True),
        ({"compression_type": "gzip"}, False),
        ({"message_timestamp_type": "LogAppendTime"}, False),
        ({"cleanup_policy": frozenset({"compact"})}, False),
        ({"cleanup_policy": frozenset({"compact", "delete"})}, False),
        ({"message_timestamp_before_max_ms": 1_000}, False),
        ({"message_timestamp_after_max_ms": 5}, False),
        ({"message_timestamp_after_max_ms": 2**63 - 1}, True),
        ({"max_message_bytes": 100}, False),
        ({"segment_bytes": 100}, False),
    ],
    ids=[
        "as the producer has compressed",
        "uncompressed",
        "compressed",
        "time of the append",
        "compacted",
        "compacted and deleted",
        "nothing old",
        "nothing ahead",
        "any time",
        "only short batches",
        "only short segments",
    ],
)
@pytest.mark.parametrize("is_known", [True, False])
async def test_rules_of_the_topic_apply_to_every_batch_of_a_run(
    logs: Logs, config: dict[str, Any], goes_together: bool, is_known: bool
) -> None:
    logs.create()
    batches = [batch(timestamp_ms=NOW_MS + (10 if index else 0)) for index in range(6)]
    logs.append(*batches)
    if not is_known:
        logs.append(*[batch(b"of another length")] * 2)
    logs.configure(**config)
    logs.append(*batches)
    assert (logs.together_counts == [6]) is goes_together
    logs.configure(**{name: getattr(PAGE_CACHE, name) for name in config})
    logs.append(*batches)


async def test_records_with_keys_go_together_into_a_compacted_topic(logs: Logs) -> None:
    logs.create(cleanup_policy=frozenset({"compact"}))
    for key in (b"key", b"", None, b"abc"):
        logs.append(*[batch(key=key)] * 5)
        assert bool(logs.together_counts) is (key is not None)


@pytest.mark.parametrize("records_count", [1, 5, 6, 7, 63, 64, 65, 69, 70, 128, 200])
@pytest.mark.parametrize("key", [None, b"a key"])
async def test_batches_may_have_any_number_of_records(logs: Logs, records_count: int, key: bytes | None) -> None:
    logs.create()
    batches = [
        batch(bytes([index]) * 9, records_count=records_count, key=key, timestamp_ms=NOW_MS - 1_000, step_ms=step_ms)
        for index, step_ms in enumerate((0, 1, 0, 1, 2))
    ]
    size_bytes = len(batches[0])
    logs.append(*[one for one in batches if len(one) == size_bytes])


async def test_equally_long_batches_of_records_of_other_lengths_are_no_run(logs: Logs) -> None:
    logs.create()

    def uneven(*lengths: int) -> bytes:
        return bytes(build_batch([Record(at, NOW_MS, None, b"v" * length) for at, length in enumerate(lengths)]))

    even = uneven(*[10] * 8)
    other = uneven(9, 11, *[10] * 6)
    assert len(even) == len(other)
    logs.append_alone(even)
    logs.append(even, even, other, even, even)
    logs.append(other, other, even, even)


# Transactions


async def test_batches_of_an_open_transaction_go_together(logs: Logs) -> None:
    logs.create()
    for first in (0, 40):
        transactional = in_sequence(5, first=first, is_transactional=True, producer=(9, first // 40))
        if first:
            transactional = in_sequence(5, is_transactional=True, producer=(9, 1))
        logs.open_transaction(transactional[0])
        logs.append(*transactional[1:])
        assert logs.together_counts == [4]
        assert logs.both[0].last_stable_offset < logs.both[0].high_watermark
        for world in logs.worlds:
            world.end_transaction(9, 1 + first // 40, committed=not first)
        logs.assert_same()


async def test_batches_without_a_transaction_that_is_open_are_refused(logs: Logs) -> None:
    logs.create()
    logs.append(*[batch()] * 3)
    transactional = in_sequence(6, is_transactional=True)
    assert {result.error for result in logs.append(*transactional)} == {ErrorCode.INVALID_TXN_STATE}
    logs.open_transaction(transactional[0])
    assert {result.error for result in logs.append(*transactional[1:4])} == {ErrorCode.NONE}
    assert logs.append(*in_sequence(3, first=32))[0].error is ErrorCode.INVALID_TXN_STATE
    logs.end_transaction()
    logs.append(*transactional[4:])
    logs.append(*in_sequence(3, producer=(9, 1)))


async def test_a_verification_that_a_stranger_began_does_not_hold_an_idempotent_producer_up(logs: Logs) -> None:
    logs.create()
    logs.append(*[batch()] * 3)
    logs.append(*in_sequence(3))
    for log in logs.both:
        log.begin_verification(9, 0, 0, transaction_version_2=True, transactional_id="stranger")
        log.begin_verification(9, 32_000, 0, transaction_version_2=True, transactional_id="stranger")
    assert {result.error for result in logs.append(*in_sequence(4, first=3 * RECORDS_COUNT))} == {ErrorCode.NONE}


async def test_batches_under_another_transactional_id_are_not_appended_together(logs: Logs) -> None:
    logs.create()
    logs.append(*[batch()] * 3)
    first, *others = in_sequence(4, is_transactional=True)
    logs.open_transaction(first)
    for log in logs.both:
        log.confirm_owner(9, "mine")
    logs.append(*others)
    assert logs.together_counts == []


async def test_unverified_batches_are_appended_where_verification_is_off(logs: Logs) -> None:
    logs.create(transaction_partition_verification_enable=False)
    logs.append(*[batch()] * 3)
    transactional = in_sequence(5, is_transactional=True)
    assert {result.error for result in logs.append(*transactional)} == {ErrorCode.NONE}
    assert logs.together_counts == [4]


# A disk that fails


@pytest.mark.parametrize("failure", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
async def test_a_failed_write_leaves_the_log_as_it_was_and_takes_it_offline_unless_the_disk_is_full(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, failure: int
) -> None:
    logs.create(LogConfig())
    logs.append(*in_sequence(5))
    await logs.assert_same_when_durable()
    world, _ = logs.worlds
    log = world.orders
    before = state_of(log)
    run = run_of(in_sequence(4, first=40))

    def full(descriptor: int, buffers: Any, position: int) -> int:
        if len(buffers) == 4:
            return 100  # a part of it
        raise OSError(failure, os.strerror(failure))

    def full_at_last(*_: object) -> int:
        raise OSError(failure, os.strerror(failure))

    with monkeypatch.context() as broken:
        broken.setattr("os.pwritev", full)
        broken.setattr("os.pwrite", full_at_last)
        with pytest.raises(StorageError, match=os.strerror(failure)):
            log.append_run(run, read_header(run.first_batch), now_ms=NOW_MS)
    if failure != errno.EIO:
        assert not log.is_offline
        assert state_of(log) == before
        logs.append(*in_sequence(4, first=40))
        await logs.assert_same_when_durable()
        return
    assert log.is_offline
    with pytest.raises(StorageError, match="offline"):
        log.append_run(run, read_header(run.first_batch), now_ms=NOW_MS)
    assert state_but(before, "offline", "greatest") == state_but(state_while_offline(log), "offline", "greatest")
    for world in logs.worlds:
        await world.restart(crash=True)
    logs.append(*in_sequence(4, first=40))


async def test_a_log_that_cannot_be_read_where_a_segment_might_end_goes_offline(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.create()
    logs.append(*[batch()] * 3)
    world, _ = logs.worlds
    log = await world.restart()
    run = run_of([batch()] * 3)

    def broken(*_: object) -> None:
        raise StorageError(errno.EIO, "Input/output error")

    monkeypatch.setattr(type(log.segments.active.batches.log), "read", broken)
    with pytest.raises(StorageError, match="Input/output"):
        log.append_run(run, read_header(run.first_batch), now_ms=NOW_MS)
    assert log.is_offline


def state_while_offline(log: PartitionLog) -> dict[str, Any]:
    reason, log.offline_reason = log.offline_reason, None
    try:
        return state_of(log)
    finally:
        log.offline_reason = reason


def state_but(state: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name not in names}


# By chance


class Producers:
    """Equally long batches by chance, most of them right."""

    def __init__(self, choose: random.Random) -> None:
        self._choose = choose
        self._sequences = {producer_id: choose.choice((0, 0, MAXIMUM_SEQUENCE - 200)) for producer_id in (5, 6, 7)}
        self._epochs = dict.fromkeys(self._sequences, 0)

    def batches(self) -> list[bytes]:
        choose = self._choose
        shape: dict[str, Any] = {
            "records_count": choose.choice((6, 8, 64, 70)),
            "key": choose.choice((None, None, b"key")),
            "step_ms": choose.choice((0, 0, 0, 1)),
        }
        value_bytes = choose.choice((3, 30, 120))
        producer_id = choose.choice((-1, 5, 6, 7))
        found: list[bytes] = []
        for _ in range(choose.randrange(1, 14)):
            if not choose.randrange(25):
                producer_id = choose.choice((-1, 5, 6, 7))
            one = self._batch(producer_id, choose.randbytes(value_bytes), shape)
            if not choose.randrange(30):
                one = with_byte(
                    one,
                    choose.choice((*range(8), *range(12, len(one)))),
                    choose.randrange(1, 256),
                    is_sealed=choose.random() < 0.5,
                )
            found.append(one)
        return found

    def _batch(self, producer_id: int, value: bytes, shape: dict[str, Any]) -> bytes:
        choose = self._choose
        timestamp_ms = NOW_MS + choose.choice((0, 0, 0, 1, -500, choose.randrange(2_000)))
        if not choose.randrange(60):
            timestamp_ms += 10**8
        if producer_id < 0:
            return batch(value, timestamp_ms=timestamp_ms, **shape)
        if not choose.randrange(40):
            self._epochs[producer_id] += choose.choice((1, 1, -1))
            self._sequences[producer_id] = choose.choice((0, 0, 0, 5))
        sequence = self._sequences[producer_id]
        if not choose.randrange(20):
            sequence += choose.choice((-2, -1, 1)) * shape["records_count"]
        else:
            self._sequences[producer_id] = (sequence + shape["records_count"]) & MAXIMUM_SEQUENCE
        sequence = max(-(2**31), min(sequence, MAXIMUM_SEQUENCE))
        return batch(
            value,
            timestamp_ms=timestamp_ms,
            producer=(producer_id, self._epochs[producer_id]),
            base_sequence=sequence,
            **shape,
        )


@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "page cache"])
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 10))])
async def test_logs_are_the_same_whatever_comes(logs: Logs, seed: int, is_durable: bool) -> None:
    choose = random.Random(seed)
    producers = Producers(choose)
    logs.create(
        LogConfig() if is_durable else PAGE_CACHE,
        index_interval_bytes=choose.choice((0, 300, 1_000, 4_096)),
        segment_bytes=choose.choice((20_000, 60_000, 2**30)),
        segment_index_bytes=choose.choice((80, 10_485_760)),
        segment_ms=choose.choice((1_000, 604_800_000)),
    )
    together_count = 0
    for _ in range(ROUNDS_COUNT):
        logs.append(*producers.batches())
        together_count += sum(logs.together_counts)
        match choose.randrange(12):
            case 0:
                logs.configure(max_message_bytes=choose.choice((500, 5_000, 1_048_588)))
            case 1:
                logs.configure(cleanup_policy=choose.choice((frozenset({"compact"}), frozenset({"delete"}))))
            case 2:
                logs.configure(segment_bytes=choose.choice((10_000, 2**30)))
            case 3:
                for log in logs.both:
                    log.lead(log.leader_epoch + 1)
            case 4:
                for world in logs.worlds:
                    await world.restart()
            case 5:
                for world in logs.worlds:
                    world.clock.time_ms += 100
            case 6:
                await logs.assert_same_when_durable() if is_durable else logs.assert_same()
    assert together_count > ROUNDS_COUNT // 4
    for log in logs.both:
        await log.flushed()
    logs.assert_same()
