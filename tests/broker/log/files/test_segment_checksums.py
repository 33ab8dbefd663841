"""Files beside the log, and sealed segments, are compared with what they were like when they were written."""

from __future__ import annotations

import dataclasses
import errno
import os
import struct
from collections.abc import Callable

import pytest
import structlog

from fencepost.broker.log.files.producer_snapshot import ProducerSnapshot, encode_snapshot
from fencepost.broker.log.files.segment_checksums import CHECKSUMS_FILE, FileRecord, SegmentChecksums, content_record
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import Isolation, PartitionLog
from fencepost.broker.log.reads.time_search import searched_at_once
from fencepost.broker.log.segment.transaction_index import TransactionIndexEntry
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import iterate_batches
from tests.support.captured_events import capture_logs
from tests.support.log_world import NOW_MS, ORDERS, LogWorld, content_of, overwrite, replace

BATCHES = 12
BATCH_BYTES = 1000 + 61 + 8 + 2  # header, record overhead, lengths
CONFIG = LogConfig(segment_bytes=4 * BATCH_BYTES, index_interval_bytes=0)


def path_of(world: LogWorld, offset: int, suffix: str) -> str:
    return f"{world.path}/{ORDERS}/{offset:020d}{suffix}"


async def with_three_segments(world: LogWorld) -> list[int]:
    """A log of transactions, every second one aborted, in at least three segments; returns their base offsets."""
    world.create(CONFIG)
    for number in range(BATCHES):
        producer_id = 7 + number % 2
        world.append(
            b"v" * 1000, producer_id=producer_id, producer_epoch=number, base_sequence=0, is_transactional=True
        )
        world.end_transaction(producer_id, number + 1, committed=number % 2 == 0)
    await world.orders.flushed()
    bases = [segment.base_offset for segment in world.orders.segments]
    assert len(bases) >= 3
    return bases


def committed_offsets(log: PartitionLog) -> list[int]:
    """What a read_committed consumer delivers, by the rules that consumers go by."""
    found: list[int] = []
    offset = 0
    while offset < log.last_stable_offset:
        read = log.read(offset, 3000, isolation=Isolation.READ_COMMITTED)
        assert read.error is ErrorCode.NONE
        coming = sorted(read.aborted_transactions or (), key=lambda aborted: aborted.first_offset)
        active: set[int] = set()
        for batch in iterate_batches(read.records):
            header = batch.header
            while coming and coming[0].first_offset <= header.last_offset:
                active.add(coming.pop(0).producer_id)
            if header.is_control:
                active.discard(header.producer_id)
            elif header.producer_id not in active:
                found.extend(range(header.base_offset, header.last_offset + 1))
            offset = header.last_offset + 1
    return found


def events(logs: list[structlog.typing.EventDict]) -> list[str]:
    return [entry["event"] for entry in logs]


@pytest.mark.parametrize("crash", [False, True])
async def test_nothing_is_said_of_files_that_are_as_they_were_left(world: LogWorld, crash: bool) -> None:
    await with_three_segments(world)
    before = committed_offsets(world.orders)
    assert before == [4 * number for number in range(BATCHES // 2)]
    for _ in range(2):
        with capture_logs() as logs:
            log = await world.restart(crash=crash)
            assert committed_offsets(log) == before
        assert set(events(logs)) <= {"logs_opened", "unclean_stop_found"}


async def test_a_sealed_segment_that_was_cut_where_a_batch_ends_takes_the_partition_offline(world: LogWorld) -> None:
    bases = await with_three_segments(world)
    path = path_of(world, bases[1], ".log")
    whole = content_of(path)
    await world.stop()
    for _ in ("after a clean stop", "after a crash"):
        replace(path, whole[:-78])  # the last batch is a marker
        with capture_logs() as logs:
            log = await world.restart(crash=True)
        assert "log_damaged" in events(logs)
        assert log.is_offline
        assert log.read(0, 100, isolation=Isolation.READ_COMMITTED).error is ErrorCode.KAFKA_STORAGE_ERROR
        await world.stop()
        replace(path, whole)
        assert not (await world.restart(crash=True)).is_offline


async def test_a_segment_that_is_missing_in_the_middle_takes_the_partition_offline(world: LogWorld) -> None:
    bases = await with_three_segments(world)
    await world.stop()
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        os.unlink(path_of(world, bases[1], suffix))
    with capture_logs() as logs:
        log = await world.restart(crash=True)
    assert log.is_offline
    (entry,) = [entry for entry in logs if entry["event"] == "log_damaged"]
    assert entry["path"] == path_of(world, bases[1], ".log")
    assert f"from {bases[1]} to before {bases[2]}" in entry["reason"]


async def test_a_missing_segment_can_be_given_up(world: LogWorld) -> None:
    bases = await with_three_segments(world)
    await world.stop()
    os.unlink(path_of(world, bases[1], ".log"))
    replace(f"{world.path}/recovery-point-offset-checkpoint", b"0\n0\n")
    os.unlink(f"{world.path}/{ORDERS}/{CHECKSUMS_FILE}")
    for _ in range(2):
        log = await world.restart(crash=True)
        assert not log.is_offline
        assert log.log_end_offset == 2 * BATCHES
        await world.stop()


def foreign_offset_index(content: bytes) -> bytes:
    """Entries of batches twice as far apart: offsets and positions rise and lie inside the log."""
    entries = [content[start : start + 8] for start in range(0, len(content), 8)]
    return b"".join(int.to_bytes(2 * slot + 1, 4, "big") + entries[slot][4:] for slot in range(len(entries)))


def foreign_transactions(_: bytes) -> bytes:
    return TransactionIndexEntry(99, 8, 9, 10).to_bytes()


def foreign_snapshot(_: bytes) -> bytes:
    return encode_snapshot([ProducerSnapshot(7, 1000, NOW_MS, 5, -1, ())])


@pytest.mark.parametrize(
    ("suffix", "change", "event"),
    [
        pytest.param(".index", foreign_offset_index, "index_rebuilt", id="index"),
        pytest.param(".timeindex", lambda _: struct.pack(">qi", NOW_MS + 5, 0), "index_rebuilt", id="time index"),
        pytest.param(".txnindex", foreign_transactions, "index_rebuilt", id="transaction index"),
        pytest.param(".txnindex", None, "index_rebuilt", id="transaction index deleted"),
        pytest.param(".snapshot", foreign_snapshot, "producer_snapshot_corrupt", id="snapshot"),
    ],
)
async def test_a_side_file_that_could_be_right_but_is_not_its_own_is_made_anew_and_said(
    world: LogWorld, suffix: str, change: Callable[[bytes], bytes] | None, event: str
) -> None:
    bases = await with_three_segments(world)
    before = committed_offsets(world.orders)
    producers = list(world.orders.active_producers(NOW_MS))
    await world.stop()
    offset = 2 * BATCHES if suffix == ".snapshot" else bases[1]
    path = path_of(world, offset, suffix)
    content = content_of(path)
    if change is None:
        os.unlink(path)
    else:
        assert change(content) != content
        replace(path, change(content))
    for expected in ({event}, set()):
        with capture_logs() as logs:
            log = await world.restart(crash=True)
            assert committed_offsets(log) == before
            assert searched_at_once(log.offset_for_timestamp(NOW_MS, isolation=Isolation.READ_COMMITTED)) is not None
            assert list(log.active_producers(NOW_MS)) == producers
        assert {entry["event"] for entry in logs if entry["log_level"] == "warning"} == expected
        await world.stop()


async def test_an_index_that_leads_astray_is_noticed_without_the_list_too(world: LogWorld) -> None:
    bases = await with_three_segments(world)
    before = committed_offsets(world.orders)
    await world.stop()
    os.unlink(f"{world.path}/{ORDERS}/{CHECKSUMS_FILE}")
    path = path_of(world, bases[1], ".index")
    content = content_of(path)
    within_a_batch = content[:4] + int.to_bytes(17, 4, "big")
    later_offsets = int.to_bytes(0, 4, "big") + content[12:16]
    for changed in (within_a_batch, later_offsets):
        replace(path, changed)
        with capture_logs() as logs:
            log = await world.restart(crash=True)
            assert log.read(bases[1] + 1, 100, isolation=Isolation.READ_COMMITTED).error is ErrorCode.NONE
            first = next(iterate_batches(log.read(bases[1] + 1, 100, isolation=Isolation.READ_COMMITTED).records))
            assert first.header.base_offset == bases[1] + 1
        assert "index_rebuilt" in events(logs)
        await world.stop()
        os.unlink(f"{world.path}/{ORDERS}/{CHECKSUMS_FILE}")
    assert committed_offsets(await world.restart(crash=True)) == before


@pytest.mark.parametrize("damage", ["deleted", "torn", "changed", "of another kind"])
async def test_without_a_whole_list_files_are_taken_as_they_are(world: LogWorld, damage: str) -> None:
    await with_three_segments(world)
    before = committed_offsets(world.orders)
    await world.stop()
    path = f"{world.path}/{ORDERS}/{CHECKSUMS_FILE}"
    content = content_of(path)
    if damage == "deleted":
        os.unlink(path)
    else:
        changes = {"torn": content[:-3], "changed": content[:40] + b"7" + content[41:], "of another kind": b"1\nx\n"}
        replace(path, changes[damage])
    with capture_logs() as logs:
        log = await world.restart(crash=True)
        assert committed_offsets(log) == before
    assert ("segment_checksums_dropped" in events(logs)) is (damage != "deleted")
    await world.stop()
    with capture_logs() as logs:
        await world.restart(crash=True)
    assert events(logs) == ["logs_opened"]


async def test_a_damaged_batch_is_reported_to_its_readers_and_hides_no_other(world: LogWorld) -> None:
    bases = await with_three_segments(world)
    await world.stop()
    overwrite(path_of(world, bases[1], ".log"), 8, b"\xff\xff\xff\xff")
    log = await world.restart(crash=True)
    with capture_logs() as logs:
        for _ in range(2):
            for isolation in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED):
                assert log.read(bases[1], 5000, isolation=isolation).error is ErrorCode.CORRUPT_MESSAGE
    assert events(logs).count("log_damaged") == 1
    assert not log.is_offline
    assert log.read(0, 5000, isolation=Isolation.READ_COMMITTED).error is ErrorCode.NONE
    assert log.read(bases[2], 5000, isolation=Isolation.READ_COMMITTED).error is ErrorCode.NONE
    assert world.append(b"on").error is ErrorCode.NONE


async def test_producers_are_not_guessed_from_a_part_of_a_damaged_log(world: LogWorld) -> None:
    bases = await with_three_segments(world)
    await world.stop()
    directory = f"{world.path}/{ORDERS}"
    for name in os.listdir(directory):
        if name.endswith(".snapshot"):
            os.unlink(f"{directory}/{name}")
    overwrite(path_of(world, bases[1], ".log"), 8, b"\xff\xff\xff\xff")
    with capture_logs() as logs:
        log = await world.restart(crash=True)
    assert log.is_offline
    assert "log_damaged" in events(logs)


async def test_a_transaction_index_is_not_guessed_from_a_part_of_a_damaged_log(world: LogWorld) -> None:
    bases = await with_three_segments(world)
    await world.stop()
    os.unlink(path_of(world, bases[1], ".txnindex"))
    overwrite(path_of(world, bases[1], ".log"), 8 + BATCH_BYTES + 78, b"\xff\xff\xff\xff")
    log = await world.restart(crash=True)
    assert log.read(bases[1], 100, isolation=Isolation.READ_COMMITTED).error is ErrorCode.CORRUPT_MESSAGE
    assert log.read(bases[1], 100, isolation=Isolation.READ_UNCOMMITTED).error is ErrorCode.NONE


def test_the_last_line_about_a_file_counts_and_the_list_stays_short(disk: LocalDisk, directory: str) -> None:
    checksums = SegmentChecksums(disk, directory)
    for size_bytes in range(300):
        checksums.add({"a": FileRecord(size_bytes, 7), "b": content_record(b"x")}).close()
    checksums.add({"b": None}).close()
    again = SegmentChecksums(disk, directory)
    assert again.get("a") == FileRecord(299, 7)
    assert again.get("b") is None
    assert again.matches("b", b"anything")
    again.tidy({"a"})
    assert len(content_of(f"{directory}/{CHECKSUMS_FILE}").splitlines()) == 3
    assert SegmentChecksums(disk, directory).get("a") == FileRecord(299, 7)


@pytest.mark.parametrize("age_ms", [-86_400_000, 86_400_000])
async def test_a_false_greatest_time_is_noticed_without_the_list_too(world: LogWorld, age_ms: int) -> None:
    bases = await with_three_segments(world)
    await world.stop()
    os.unlink(f"{world.path}/{ORDERS}/{CHECKSUMS_FILE}")
    path = path_of(world, bases[1], ".timeindex")
    time_ms, offset = struct.unpack(">qi", content_of(path)[-12:])
    replace(path, struct.pack(">qi", time_ms - age_ms, offset))
    with capture_logs() as logs:
        log = await world.restart(crash=True)
        assert [segment.indexes.max_timestamp_ms for segment in log.segments][1] == time_ms
    assert "index_rebuilt" in events(logs)


async def test_a_list_of_an_earlier_version_does_not_miss_what_retention_deleted(world: LogWorld) -> None:
    bases = await with_three_segments(world)
    await world.stop()
    path = f"{world.path}/{ORDERS}/{CHECKSUMS_FILE}"
    content = content_of(path)
    assert content.startswith(b"1\n")
    replace(path, b"0" + content[1:])
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        if world.disk.exists(path_of(world, bases[0], suffix)):
            os.unlink(path_of(world, bases[0], suffix))
    log = await world.restart(crash=True)
    assert (log.is_offline, log.log_start_offset) == (False, bases[1])
    await world.stop()
    content = content_of(path)
    assert content.startswith(b"1\n")
    assert f"{bases[0]:020d}.log".encode() not in content
    assert f"{bases[1]:020d}.log".encode() in content


async def test_without_room_for_the_list_segments_are_deleted_all_the_same_and_not_missed(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    bases = await with_three_segments(world)
    world.clock.time_ms += 10
    log = world.orders
    log.configure(dataclasses.replace(CONFIG, retention_bytes=1))

    def no_room(*_: object) -> None:
        raise StorageError(errno.ENOSPC, "cannot write: No space left on device")

    monkeypatch.setattr(SegmentChecksums, "add", no_room)
    log.sweep(world.clock.now_ms())
    assert not log.is_offline
    assert log.log_start_offset == bases[-1]
    assert not world.disk.exists(path_of(world, bases[0], ".log"))
    monkeypatch.undo()
    log = await world.restart(crash=True)
    assert (log.is_offline, log.log_start_offset) == (False, bases[-1])
