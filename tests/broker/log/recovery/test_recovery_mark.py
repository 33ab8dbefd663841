"""Recovery marks: what a crash left is read from the last mark on, and is the same as if all had been read."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.files.partition_files import LEADER_EPOCH_FILE, RECOVERY_MARK_FILE, PartitionFiles
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import Isolation, PartitionLog
from fencepost.broker.log.recovery import recovery, recovery_mark
from fencepost.broker.log.recovery.recovery_mark import RecoveryMark, decode_mark
from fencepost.broker.log.segment.tail_scan import checked_batches
from fencepost.broker.storage.disk import NoRoomError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import Record, build_batch, iterate_batches
from tests.support.captured_events import capture_logs
from tests.support.log_world import TOPIC_ID, LogWorld, content_of, overwrite, replace

DENSE = LogConfig(index_interval_bytes=200)


@pytest.fixture
def frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sweep writes a mark, if there is anything to mark."""
    monkeypatch.setattr(recovery_mark, "MARK_INTERVAL_MS", 0)
    monkeypatch.setattr(recovery_mark, "FEWEST_MARKED_RECORDS", 1)


@pytest.fixture
def read_again(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions of the batches that recovery reads."""
    positions: list[int] = []

    def noted(*arguments: Any) -> Iterator[Any]:
        for found in checked_batches(*arguments):
            positions.append(found.position)
            yield found

    monkeypatch.setattr(recovery, "checked_batches", noted)
    return positions


def mark_path(world: LogWorld) -> str:
    return world.orders.files.path(RECOVERY_MARK_FILE)


def mark_of(world: LogWorld) -> RecoveryMark | None:
    content = world.disk.read_file(mark_path(world))
    return None if content is None else decode_mark(bytes(content))


async def marked(world: LogWorld, batches_before: int = 40, batches_behind: int = 5) -> PartitionLog:
    """A log with a mark after its first batches: plain ones, of a producer, of an open and an aborted transaction."""
    log = world.create(DENSE)
    for number in range(batches_before):
        if number % 4 == 0:
            world.append(b"v" * 50)
        else:
            world.append(b"v" * 50, producer_id=1, producer_epoch=0, base_sequence=number - number // 4 - 1)
    world.append(b"a", producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.append(b"o", producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(2, 1, committed=False)
    await log.flushed()
    world.logs.sweep(world.clock.now_ms())
    for _ in range(batches_behind):
        world.append(b"w" * 50)
    await log.flushed()
    return log


def state(log: PartitionLog) -> dict[str, Any]:
    """All that a log knows, and its index files.

    Without the times of producers, of which snapshots keep one for each, and without the time indexes, to which each
    recovery adds an entry.
    """
    fetched = log.read(log.log_start_offset, 1 << 20, isolation=Isolation.READ_COMMITTED)
    files = {name: log.files.disk.read_file(log.files.path(name)) for name in log.files.disk.list(log.files.directory)}
    return {
        "end": log.log_end_offset,
        "start": log.log_start_offset,
        "stable": log.last_stable_offset,
        "producers": [
            (*producer[:2], *producer[3:5], [batch[:3] for batch in producer.recent_batches])
            for producer in log.producers.snapshot()
        ],
        "epochs": log.epochs.starts,
        "fetched": ([one.header for one in iterate_batches(fetched.records)], fetched.aborted_transactions),
        "greatest": [
            (one.indexes.max_timestamp_ms, one.indexes.offset_of_max_timestamp, one.batches.first_timestamp_ms)
            for one in log.segments
        ],
        "indexes": {
            name: bytes(content or b"") for name, content in files.items() if name.endswith((".index", ".txnindex"))
        },
    }


async def test_recovery_reads_only_what_is_behind_the_mark(
    world: LogWorld, frequent: None, read_again: list[int]
) -> None:
    log = await marked(world)
    mark = mark_of(world)
    assert mark is not None
    before = state(log)
    log = await world.restart(crash=True)
    assert len(read_again) == 5
    assert read_again[0] == mark.position
    after = state(log)
    # What a recovery adds: the greatest timestamp, and an epoch of its own.
    assert {**after, "indexes": None, "epochs": None} == {**before, "indexes": None, "epochs": None}
    assert world.append(b"v" * 50, producer_id=1, producer_epoch=0, base_sequence=29).is_duplicate
    assert world.end_transaction(3, 1, committed=True) is ErrorCode.NONE
    await log.flushed()
    assert log.last_stable_offset == log.log_end_offset


async def test_a_log_that_was_written_on_can_be_recovered_from_its_old_mark(
    world: LogWorld, frequent: None, read_again: list[int]
) -> None:
    await marked(world)
    await world.restart()
    for _ in range(3):
        world.append(b"x")
    await world.orders.flushed()
    log = await world.restart(crash=True)
    assert (len(read_again), log.log_end_offset) == (5 + 3, 43 + 5 + 3)


async def test_a_log_gets_a_mark_once_its_records_are_on_the_disk(world: LogWorld, frequent: None) -> None:
    log = world.create()
    world.append(b"v")
    world.logs.sweep(world.clock.now_ms())
    assert mark_of(world) is None
    world.append(b"w")
    await log.flushed()
    world.logs.sweep(world.clock.now_ms())
    first = mark_of(world)
    assert first is not None
    assert first.offset == 1, "the state of the sweep that came before the records were on the disk"
    world.logs.sweep(world.clock.now_ms())
    second = mark_of(world)
    assert second is not None
    assert second.offset == 2


async def test_marks_are_written_for_many_records_and_seldom(world: LogWorld) -> None:
    log = world.create()

    async def written() -> int:
        await log.flushed()
        world.logs.sweep(world.clock.now_ms())
        mark = mark_of(world)
        return 0 if mark is None else mark.offset

    many = [b"v"] * recovery_mark.FEWEST_MARKED_RECORDS
    world.append(*many[1:])
    assert await written() == 0
    world.append(b"v")
    assert await written() == len(many)
    world.append(*many)
    assert await written() == len(many)
    world.clock.time_ms += recovery_mark.MARK_INTERVAL_MS
    assert await written() == 2 * len(many)
    world.append(*many)
    world.clock.time_ms -= 1
    assert await written() == 3 * len(many), "a clock that was set back delays none"


async def test_a_sealed_segment_needs_no_mark(world: LogWorld, frequent: None, read_again: list[int]) -> None:
    log = world.create(DENSE)
    for _ in range(10):
        world.append(b"v" * 50)
    world.logs.sweep(world.clock.now_ms())
    log.roll(world.clock.now_ms())
    world.append(b"w")
    await log.flushed()
    world.logs.sweep(world.clock.now_ms())
    assert mark_of(world) is None, "that of the sealed segment came too late"
    world.logs.sweep(world.clock.now_ms())
    mark = mark_of(world)
    assert mark is not None
    assert (mark.base_offset, mark.offset) == (10, 11)
    log = await world.restart(crash=True)
    assert (read_again, log.log_end_offset) == ([], 11), "the checkpoint is older than the mark"


async def test_a_log_of_many_producers_gets_no_mark(
    world: LogWorld, frequent: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.broker.log.producers.producer_work.FEW_PRODUCERS_COUNT", 2)
    await marked(world)
    assert mark_of(world) is None


async def test_a_log_whose_files_are_not_the_log_gets_no_mark(world: LogWorld, frequent: None) -> None:
    log = world.create()
    world.append(b"v")
    await log.flushed()
    log.durability.begin_sharing(log.segments)
    world.logs.sweep(world.clock.now_ms())
    assert mark_of(world) is None


def cut(path: str, kept: float) -> None:
    os.truncate(path, int(os.path.getsize(path) * kept))


def of_active(suffix: str) -> Callable[[LogWorld], str]:
    return lambda world: world.orders.segments.active.files.path(suffix)


def flip(path: str, at: float) -> None:
    position = int(os.path.getsize(path) * at)
    overwrite(path, position, bytes([content_of(path)[position] ^ 0x10]))


DAMAGE: dict[str, Callable[[LogWorld], None]] = {
    "an empty mark": lambda world: cut(mark_path(world), 0),
    "half a mark": lambda world: cut(mark_path(world), 0.5),
    "a flipped bit in the mark": lambda world: flip(mark_path(world), 0.3),
    "a flipped bit in its producers": lambda world: flip(mark_path(world), 0.9),
    "no offset index": lambda world: os.remove(of_active(".index")(world)),
    "half an offset index": lambda world: cut(of_active(".index")(world), 0.5),
    "a flipped bit in the offset index": lambda world: flip(of_active(".index")(world), 0.2),
    "an empty time index": lambda world: cut(of_active(".timeindex")(world), 0),
    "no transaction index": lambda world: os.remove(of_active(".txnindex")(world)),
    "a flipped bit in the transaction index": lambda world: flip(of_active(".txnindex")(world), 0.5),
    "no leader epochs": lambda world: os.remove(world.orders.files.path(LEADER_EPOCH_FILE)),
    "old leader epochs": lambda world: replace(world.orders.files.path(LEADER_EPOCH_FILE), b"0\n0\n"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_a_mark_is_not_used_if_what_it_names_is_not_as_it_was(
    world: LogWorld, frequent: None, read_again: list[int], damage: Callable[[LogWorld], None]
) -> None:
    before = state(await marked(world))
    damage(world)
    after = state(await world.restart(crash=True))
    assert len(read_again) == 43 + 5
    assert {**after, "indexes": None, "epochs": None} == {**before, "indexes": None, "epochs": None}


@pytest.mark.parametrize("kept", [0.0, 0.4, 0.97])
@pytest.mark.parametrize("is_clean", [False, True])
async def test_a_log_that_ends_before_its_mark_is_refused_with_the_offsets_that_were_on_the_disk(
    world: LogWorld, frequent: None, kept: float, is_clean: bool
) -> None:
    await marked(world, batches_behind=0)
    path, marked_path = of_active(".log")(world), mark_path(world)
    if is_clean:
        await world.stop()
        forget_the_stop(world, kept)
    content = content_of(path)
    os.truncate(path, int(len(content) * kept))
    log = await world.restart(crash=True)
    assert log.is_offline
    assert re.search(r"\b(up to offset|to before) 43\b", str(log.offline_reason))
    replace(path, content)
    assert content_of(marked_path)
    assert (await world.restart(crash=True)).log_end_offset == 43


def forget_the_stop(world: LogWorld, kept: float) -> None:
    """Let the clean stop have left a log that ends where the older one does."""
    ends = {0.0: 0, 0.4: 18, 0.97: 41}
    replace(f"{world.path}/recovery-point-offset-checkpoint", b"0\n1\norders 0 %d\n" % ends[kept])
    os.remove(world.path + "/orders-0/segment-checksums")


async def test_an_older_log_under_a_newer_mark_is_refused_and_served_once_its_mark_is_gone(
    world: LogWorld, frequent: None
) -> None:
    log = await marked(world, batches_before=10, batches_behind=0)
    path = of_active(".log")(world)
    older = content_of(path)
    for _ in range(30):
        world.append(b"later")
    await log.flushed()
    for _ in range(2):
        world.logs.sweep(world.clock.now_ms())
    replace(path, older)
    with capture_logs() as lines:
        log = await world.restart(crash=True)
    assert log.is_offline
    [line] = [one for one in lines if one["event"] == "log_damaged"]
    assert (line["offset"], line["recovery_point"]) == (13, 43)
    os.remove(mark_path(world))
    assert (await world.restart(crash=True)).log_end_offset == 13


async def test_a_whole_log_without_the_marked_batch_is_another_one(world: LogWorld, frequent: None) -> None:
    await marked(world)
    path = of_active(".log")(world)
    headers = [content_of(path)]
    other = b"".join(
        build_batch([Record(0, world.clock.now_ms(), None, b"other %d" % offset)], base_offset=offset)
        for offset in range(60)
    )
    os.remove(world.path + "/orders-0/segment-checksums")
    replace(path, other)
    log = await world.restart(crash=True)
    assert log.is_offline
    assert "it is another log's file" in str(log.offline_reason)
    replace(path, headers[0])
    assert not (await world.restart(crash=True)).is_offline


async def test_a_mark_of_another_partition_counts_for_nothing(world: LogWorld, frequent: None) -> None:
    await marked(world, batches_behind=0)
    mark = mark_of(world)
    assert mark is not None
    for other in (mark._replace(partition=1), mark._replace(topic_id=b"o" * 16)):
        replace(mark_path(world), recovery_mark.encode_mark(other._replace(offset=8_204)))
        with capture_logs() as lines:
            log = await world.restart(crash=True)
        assert (log.is_offline, log.log_end_offset) == (False, 43)
        assert "recovery_mark_not_used" in [line["event"] for line in lines]


def encode_earlier(mark: RecoveryMark) -> bytes:
    """A mark as the version before this one wrote it: without the identity of the partition."""
    body = recovery_mark.encode_mark(mark)[6:]
    body = body[:92] + body[112:]
    return struct.pack(">HI", 1, crc32c(body)) + body


async def test_a_mark_of_an_earlier_version_is_used(world: LogWorld, frequent: None, read_again: list[int]) -> None:
    await marked(world)
    mark = mark_of(world)
    assert mark is not None
    replace(mark_path(world), encode_earlier(mark))
    assert mark_of(world) == mark._replace(topic_id=bytes(16), partition=-1)
    await world.restart(crash=True)
    assert len(read_again) == 5


async def test_a_mark_that_cannot_be_read_or_written_leaves_the_log_served(
    world: LogWorld, frequent: None, read_again: list[int]
) -> None:
    await marked(world)
    os.remove(mark_path(world))
    os.mkdir(mark_path(world))
    with capture_logs() as lines:
        log = await world.restart(crash=True)
        assert (log.is_offline, len(read_again)) == (False, 48)
        for _ in range(3):
            world.append(b"w")
            await log.flushed()
            world.logs.sweep(world.clock.now_ms())
    events = [line["event"] for line in lines]
    assert (events.count("recovery_mark_not_used"), events.count("recovery_mark_not_written")) == (1, 1)
    assert not log.is_offline


async def test_damage_behind_the_mark_and_before_the_end_of_what_was_synced_is_refused(
    world: LogWorld, frequent: None
) -> None:
    log = await marked(world, batches_behind=3)
    mark = mark_of(world)
    assert mark is not None
    world.clock.time_ms += 60_000
    world.logs.sweep(world.clock.now_ms())  # writes the checkpoint of recovery points
    await world.checkpointed()
    replace(mark_path(world), recovery_mark.encode_mark(mark))  # the one before
    overwrite(of_active(".log")(world), mark.position + 70, b"!!!")
    log = await world.restart(crash=True)
    assert log.is_offline


@pytest.mark.parametrize("seed", range(24))
async def test_a_log_recovered_from_its_mark_is_the_one_that_is_read_whole(
    tmp_path: Path, frequent: None, monkeypatch: pytest.MonkeyPatch, read_again: list[int], seed: int
) -> None:
    chance = random.Random(seed)
    world = LogWorld(str(tmp_path / "logs"))
    await world.start()
    config = LogConfig(
        segment_bytes=chance.choice([800, 3_000, 1 << 20]), index_interval_bytes=chance.choice([100, 400])
    )
    world.create(config)
    sequences = dict.fromkeys(range(1, 6), 0)
    is_open: dict[int, bool] = {}
    epochs = dict.fromkeys(sequences, 0)
    for _ in range(chance.randrange(5, 150)):
        what = chance.random()
        producer_id = chance.choice(list(sequences))
        values = [b"v" * chance.randrange(60)] * chance.choice([1, 1, 3])
        world.clock.time_ms += chance.randrange(-50, 100)
        if what < 0.25:
            world.append(*values)
        elif what < 0.6:
            is_transactional = producer_id > 2
            world.append(
                *values,
                producer_id=producer_id,
                producer_epoch=epochs[producer_id],
                base_sequence=sequences[producer_id],
                is_transactional=is_transactional,
            )
            sequences[producer_id] += len(values)
            is_open[producer_id] = is_transactional
        elif what < 0.75 and is_open.pop(producer_id, False):
            epochs[producer_id] += 1
            sequences[producer_id] = 0
            world.end_transaction(producer_id, epochs[producer_id], committed=chance.random() < 0.4)
        elif what < 0.85:
            await world.orders.flushed()
        elif what < 0.96:
            world.logs.sweep(world.clock.now_ms())
        else:
            await world.restart(crash=chance.random() < 0.5)
    if chance.random() < 0.5:
        await world.orders.flushed()
    log = world.orders
    directory, away = log.files.directory, str(tmp_path / "away")
    shutil.copytree(directory, away)
    if chance.random() < 0.3:  # a torn end
        path = of_active(".log")(world)
        mark = mark_of(world)
        is_marked = mark is not None and mark.base_offset == log.segments.active.base_offset
        least_bytes = mark.position if mark is not None and is_marked else 0
        os.truncate(path, max(least_bytes, log.segments.active.size_bytes - chance.randrange(40)))
        shutil.copy(path, away)
    read_again.clear()
    log = await world.restart(crash=True)
    from_mark, count_from_mark = state(log), len(read_again)
    world.disk.close()
    shutil.rmtree(directory)
    shutil.copytree(away, directory)
    (Path(directory) / RECOVERY_MARK_FILE).unlink(missing_ok=True)
    world.disk = LocalDisk()
    read_again.clear()
    log = await world.restart(crash=True)
    assert from_mark == state(log)
    assert count_from_mark <= len(read_again)
    await world.stop()


async def test_many_marks_are_written_in_several_turns_of_the_event_loop(
    world: LogWorld, frequent: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.logs._sweep._unmarked, "per_turn_count", 2)
    logs = [world.logs.create(TopicPartition("many", number), TOPIC_ID, DENSE) for number in range(5)]
    for log in logs:
        log.append(memoryview(build_batch([Record(0, world.clock.now_ms(), None, b"v")])), now_ms=world.clock.now_ms())
        await log.flushed()
    world.logs.sweep(world.clock.now_ms())
    written = []
    for _ in range(3):
        written.append(sum(world.disk.exists(log.files.path(RECOVERY_MARK_FILE)) for log in logs))
        await asyncio.sleep(0)
    assert written == [2, 4, 5]


async def test_a_mark_for_which_the_disk_has_no_room_is_tried_again(
    world: LogWorld, frequent: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.create(DENSE)
    world.append(b"v")
    await log.flushed()

    def refuse(*_: object) -> None:
        raise NoRoomError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(PartitionFiles, "write_recovery_mark", refuse)
        world.logs.sweep(world.clock.now_ms())
    assert mark_of(world) is None
    assert not log.is_offline
    world.append(b"v")
    await log.flushed()
    world.logs.sweep(world.clock.now_ms())
    assert mark_of(world) is not None
