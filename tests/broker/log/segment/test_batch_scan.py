"""What no checksum covers, false: base offset, length, leader epoch and format of a batch, and files that are gone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import Isolation, PartitionLog
from fencepost.broker.log.reads.time_search import searched_at_once
from fencepost.broker.log.recovery.recovery import LogRecovery
from fencepost.broker.log.segment.batch_scan import DamagedLogError, scan_batches
from fencepost.broker.log.segment.header_plausibility import HeaderPlausibility
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import iterate_batches
from tests.support.captured_events import capture_logs
from tests.support.log_world import NOW_MS, ORDERS, TOPIC_ID, LogWorld, content_of, replace

BATCHES = 10
OTHERS = TopicPartition("others", 0)
PREFIX_BITS = range(0, 17 * 8, 5)  # in each of the fields
LENGTH_BITS = range(8 * 8, 12 * 8)
EPOCH_BITS = range(12 * 8, 16 * 8, 3)
LOWEST_EPOCH_BIT = 16 * 8 - 1
INDEX_EVERY_BATCH = LogConfig(index_interval_bytes=0)
EVERY_OFFSET = list(range(BATCHES))


def log_path(log: PartitionLog) -> str:
    return log.segments.active.files.path(".log")


def flipped(content: bytes, position: int, bit: int) -> bytes:
    """With one bit of the bytes from a position on the other way round; 0 is the highest of the first byte."""
    changed = bytearray(content)
    changed[position + bit // 8] ^= 0x80 >> bit % 8
    return bytes(changed)


def events(logs: Sequence[Any]) -> list[str]:
    return [entry["event"] for entry in logs if entry["log_level"] in ("warning", "error")]


def sizes_bytes(log: PartitionLog) -> dict[str, int]:
    """The files of a partition's directory."""
    return {entry.name: entry.stat().st_size for entry in os.scandir(log.files.directory)}


async def with_batches(world: LogWorld, config: LogConfig | None = None) -> tuple[str, bytes, list[int]]:
    """A log of `BATCHES` batches of one record each; its file, what is in it, and where the batches begin."""
    log = world.create(config)
    for number in range(BATCHES):
        world.append(b"value %d" % number)
    await log.flushed()
    content = content_of(log_path(log))
    positions, position = [], 0
    for batch in iterate_batches(content):
        positions.append(position)
        position += batch.header.size_bytes
    return log_path(log), content, positions


def served(log: PartitionLog) -> dict[int, int | ErrorCode]:
    """Which record each offset leads to, by the number in its value, or the error."""
    found: dict[int, int | ErrorCode] = {}
    for offset in range(BATCHES):
        read = log.read(offset, 1, isolation=Isolation.READ_UNCOMMITTED)
        if read.error is not ErrorCode.NONE:
            found[offset] = read.error
            continue
        value = bytes(read.records).split(b"value ")[1]
        found[offset] = int(value[:1])
    return found


@pytest.mark.parametrize("which", [0, 4, BATCHES - 1])
async def test_a_false_bit_below_the_recovery_point_takes_the_partition_offline(world: LogWorld, which: int) -> None:
    path, content, positions = await with_batches(world)
    other = world.logs.create(OTHERS, TOPIC_ID, world.config)
    await world.logs.checkpoints.write_recovery_points(durable=True)
    for bit in PREFIX_BITS:
        if (which, bit) == (BATCHES - 1, LOWEST_EPOCH_BIT):
            continue  # the last batch may be the first of the next epoch
        replace(path, flipped(content, positions[which], bit))
        with capture_logs() as logs:
            log = await world.restart(crash=True)
        (entry,) = [entry for entry in logs if entry["event"] == "log_damaged"]
        assert (entry["path"], entry["position"], entry["offset"]) == (path, positions[which], which)
        assert f"fencepost log repair --data-dir {world.path} {ORDERS}" in entry["reason"]
        assert log.is_offline
        assert content_of(path) == flipped(content, positions[which], bit)
        assert not [name for name in os.listdir(log.files.directory) if "lost" in name]
        served_other = world.logs.get(OTHERS)
        assert served_other is not None
        assert not served_other.is_offline
    replace(path, content)
    log = await world.restart(crash=True)
    assert list(served(log).values()) == EVERY_OFFSET
    assert other.topic_id == TOPIC_ID


@pytest.mark.parametrize("which", [0, 4, BATCHES - 1])
async def test_a_batch_that_is_not_whole_above_the_recovery_point_is_cut_and_whole_ones_are_kept(
    world: LogWorld, which: int
) -> None:
    path, content, positions = await with_batches(world)
    for bit in LENGTH_BITS if which < BATCHES - 1 else PREFIX_BITS:
        if (which, bit) == (BATCHES - 1, LOWEST_EPOCH_BIT):
            continue
        damaged = flipped(content, positions[which], bit)
        replace(path, damaged)
        with capture_logs() as logs:
            log = await world.restart(crash=True)
        has_whole = which < BATCHES - 1 or bit not in LENGTH_BITS
        event = "log_cut_before_valid_batches" if has_whole else "torn_tail_cut"
        (entry,) = [entry for entry in logs if entry["event"] == event]
        assert events(logs) == ["unclean_stop_found", event]
        assert (entry["position"], entry["offset"]) == (positions[which], which)
        assert entry["lost_bytes"] == len(content) - positions[which]
        assert log.log_end_offset == which
        os.unlink(f"{log.files.directory}/leader-epoch-checkpoint")  # each cut has begun another epoch
        if has_whole:
            assert content_of(entry["kept_as"]) == damaged[positions[which] :]
            os.unlink(entry["kept_as"])
            assert which == BATCHES - 1 or entry["end_offset"] == BATCHES


@pytest.mark.parametrize("which", [0, 4, BATCHES - 2])
async def test_a_whole_batch_with_a_false_header_is_no_torn_write_wherever_the_recovery_point_is(
    world: LogWorld, which: int
) -> None:
    path, content, positions = await with_batches(world)
    for bit in set(PREFIX_BITS) - set(LENGTH_BITS):
        damaged = flipped(content, positions[which], bit)
        replace(path, damaged)
        with capture_logs() as logs:
            log = await world.restart(crash=True)
        (entry,) = [entry for entry in logs if entry["event"] == "log_damaged"]
        assert (entry["path"], entry["position"], entry["offset"]) == (path, positions[which], which)
        assert f"up to {BATCHES - 1}" in entry["reason"]
        assert log.is_offline
        assert content_of(path) == damaged
    replace(path, content)
    assert list(served(await world.restart(crash=True)).values()) == EVERY_OFFSET


async def test_batches_of_earlier_epochs_are_found_behind_a_bad_place(world: LogWorld) -> None:
    log = world.create()
    for epoch in (0, 0, 3, 300):
        log.lead(epoch)
        world.append(b"value")
    await log.flushed()
    path = log_path(log)
    content = content_of(path)
    replace(path, b"\xff" * 20 + content[20:])
    with capture_logs() as logs:
        await world.restart(crash=True)
    (entry,) = [entry for entry in logs if entry["event"] == "log_cut_before_valid_batches"]
    assert (entry["offset"], entry["end_offset"]) == (0, 4)


async def test_an_epoch_that_the_log_knows_is_no_damage_in_a_segment_that_was_rolled(world: LogWorld) -> None:
    log = world.create(INDEX_EVERY_BATCH)
    world.append(b"value", timestamp_ms=NOW_MS)
    log.roll(NOW_MS)
    world.append(b"value", timestamp_ms=NOW_MS + 1)
    log.lead(9)
    world.append(b"value", timestamp_ms=NOW_MS + 2)
    found = searched_at_once(log.offset_for_timestamp(NOW_MS + 2, isolation=Isolation.LOG_END))
    assert found is not None
    assert (found.offset, found.leader_epoch) == (2, 9)


async def test_an_epoch_that_the_checkpoint_knows_is_no_damage_when_producers_are_replayed(world: LogWorld) -> None:
    log = world.create()
    world.append(b"value", producer_id=7, producer_epoch=0, base_sequence=0)
    log.lead(9)
    world.append(b"value", producer_id=7, producer_epoch=0, base_sequence=1)
    await log.flushed()
    directory = log.files.directory
    await world.stop()
    for name in os.listdir(directory):
        if name.endswith(".snapshot"):
            os.unlink(f"{directory}/{name}")
    log = await world.restart(crash=True)
    assert not log.is_offline
    assert [producer.last_sequence for producer in log.active_producers(NOW_MS)] == [1]


async def test_a_length_that_covers_another_batch_is_reported_at_its_position(world: LogWorld) -> None:
    path, content, positions = await with_batches(world)
    length = positions[2] - positions[1] - 12
    doubled = content[: positions[1] + 8] + (2 * length + 12).to_bytes(4, "big") + content[positions[1] + 12 :]
    replace(path, doubled)
    file = world.disk.open(path)
    order = HeaderPlausibility(0, BATCHES, may_skip=True)
    read = [scanned.header.base_offset for scanned in scan_batches(file, 0, file.size_bytes, order)]
    file.close()
    assert read == [0, 1]
    assert order.fault is not None
    assert order.fault[:3] == (positions[1], 1, 1)


async def test_a_false_leader_epoch_is_not_adopted(world: LogWorld) -> None:
    path, content, positions = await with_batches(world)
    for bit in EPOCH_BITS:
        replace(path, flipped(content, positions[-1], bit))
        log = await world.restart(crash=True)
        assert log.leader_epoch <= 1
        for name in os.listdir(log.files.directory):
            if name != os.path.basename(path):
                os.unlink(f"{log.files.directory}/{name}")


async def test_epochs_that_the_log_has_been_led_in_are_believed(world: LogWorld) -> None:
    log = world.create()
    for epoch in (0, 5, 70_000, 2**31 - 2):
        log.lead(epoch)
        world.append(b"value")
        world.append(b"value")
    await log.flushed()
    log = await world.restart(crash=True)
    assert (log.log_end_offset, log.leader_epoch) == (8, 2**31 - 2)


@pytest.mark.parametrize("has_list", [True, False])
@pytest.mark.parametrize("which", [0, 4, BATCHES - 2])
async def test_after_a_clean_stop_a_batch_with_a_false_header_is_not_served(
    world: LogWorld, tmp_path: Path, which: int, has_list: bool
) -> None:
    path, content, positions = await with_batches(world, INDEX_EVERY_BATCH)
    await world.stop()
    shutil.copytree(world.path, tmp_path / "kept")
    for bit in PREFIX_BITS:
        shutil.rmtree(world.path)
        shutil.copytree(tmp_path / "kept", world.path)
        replace(path, flipped(content, positions[which], bit))
        if not has_list:
            os.unlink(f"{world.path}/{ORDERS}/segment-checksums")
        log = await world.restart(crash=True)
        with capture_logs() as logs:
            found = served(log)
            assert found[which] is ErrorCode.CORRUPT_MESSAGE
            if has_list:  # else the index is made anew, and nothing leads behind the damage
                others = {offset: number for offset, number in found.items() if offset != which}
                assert all(offset == number for offset, number in others.items())
            assert all(number in (offset, ErrorCode.CORRUPT_MESSAGE) for offset, number in found.items())
            for _ in range(2):
                with pytest.raises(DamagedLogError):
                    log.read(which, 1, isolation=Isolation.LOG_END)
        assert events(logs).count("log_damaged") == (1 if has_list else events(logs).count("log_damaged"))
        assert not log.is_offline
        assert world.append(b"on").error is ErrorCode.NONE


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("which", [0, 1, -2])
async def test_a_segment_that_is_gone_takes_the_partition_offline(world: LogWorld, which: int, crash: bool) -> None:
    log = world.create(LogConfig(segment_bytes=400))
    for _ in range(BATCHES):
        world.append(b"v" * 100)
    await log.flushed()
    gone = list(log.segments)[which]
    following_offset = gone.next_offset
    path = gone.files.path(".log")
    content = content_of(path)
    if not crash:
        await world.stop()
    os.unlink(path)
    kept = sizes_bytes(log)
    with capture_logs() as logs:
        log = await world.restart(crash=True)
    (entry,) = [entry for entry in logs if entry["event"] == "log_damaged"]
    assert entry["path"] == path
    assert f"is missing; it held the offsets from {gone.base_offset} to before {following_offset}" in entry["reason"]
    assert log.is_offline
    assert sizes_bytes(log).items() >= kept.items()
    await world.stop()
    replace(path, content)
    assert not (await world.restart(crash=True)).is_offline


@pytest.mark.parametrize("crash", [False, True])
async def test_segments_that_retention_deleted_are_not_missed(world: LogWorld, crash: bool) -> None:
    log = world.create(LogConfig(segment_bytes=400, retention_ms=1000))
    for number in range(BATCHES):
        world.append(b"v" * 100, timestamp_ms=NOW_MS - (2000 if number < 5 else 0))
    await log.flushed()
    log.sweep(NOW_MS)
    await world.logs._flusher.drain()
    start_offset = log.log_start_offset
    assert 0 < start_offset < BATCHES
    log = await world.restart(crash=crash)
    assert not log.is_offline
    assert log.log_start_offset == start_offset


async def test_nothing_is_said_of_empty_partitions_after_a_clean_stop(world: LogWorld) -> None:
    world.create()
    for _ in range(2):
        with capture_logs() as logs:
            await world.restart()
        assert events(logs) == []


async def test_an_unexpected_exception_takes_one_partition_offline(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_batches(world)
    world.logs.create(OTHERS, TOPIC_ID, world.config)
    recover = LogRecovery._recover

    def fail_for_orders(loader: LogRecovery, segments: Any) -> Any:
        if str(ORDERS) in loader._files.directory:
            raise OverflowError("signed integer is greater than maximum")
        return recover(loader, segments)

    monkeypatch.setattr(LogRecovery, "_recover", fail_for_orders)
    log = await world.restart(crash=True)
    assert log.is_offline
    assert "OverflowError" in (log.offline_reason or "")
    other = world.logs.get(OTHERS)
    assert other is not None
    assert not other.is_offline


@pytest.mark.parametrize("name", ["00000000000000000000.log", "segment-checksums", ""])
async def test_a_partition_that_cannot_be_opened_is_offline_and_keeps_no_other_from_being_served(
    world: LogWorld, name: str
) -> None:
    path, _, _ = await with_batches(world)
    world.logs.create(OTHERS, TOPIC_ID, world.config)
    await world.stop()
    replaced = f"{os.path.dirname(path)}/{name}".rstrip("/")
    os.rename(replaced, f"{world.path}/kept")
    if name:
        os.mkdir(replaced)
    else:
        replace(replaced, b"")
    for _ in range(2):
        log = await world.restart(crash=True)
        assert log.is_offline
        assert replaced in (log.offline_reason or "")
        assert log.read(0, 1, isolation=Isolation.READ_UNCOMMITTED).error is ErrorCode.KAFKA_STORAGE_ERROR
        other = world.logs.get(OTHERS)
        assert other is not None
        assert not other.is_offline
        await world.stop()
    if name:
        os.rmdir(replaced)
    else:
        os.unlink(replaced)
    os.rename(f"{world.path}/kept", replaced)
    log = await world.restart(crash=True)
    assert list(served(log).values()) == EVERY_OFFSET


@pytest.mark.parametrize("crash", [False, True])
async def test_a_checkpoint_with_an_epoch_that_the_log_has_not_reached_is_corrected(
    world: LogWorld, crash: bool
) -> None:
    path, _, _ = await with_batches(world)
    await world.stop()
    checkpoint = f"{os.path.dirname(path)}/leader-epoch-checkpoint"
    assert content_of(checkpoint) == b"0\n1\n0 0\n"
    replace(checkpoint, b"0\n1\n8 0\n")
    if crash:
        os.unlink(f"{world.path}/.kafka_cleanshutdown")
    with capture_logs() as logs:
        log = await world.restart(crash=True)
    assert crash or "leader_epochs_corrupt" in events(logs)  # after a crash it is made anew from the log anyway
    assert log.leader_epoch == 0
    assert list(served(log).values()) == EVERY_OFFSET


@pytest.mark.parametrize("which", [2, BATCHES - 3])
async def test_a_length_that_reaches_over_whole_batches_is_noticed(world: LogWorld, which: int) -> None:
    log = world.create(LogConfig(segment_bytes=75 * BATCHES + 10))
    for number in range(BATCHES):
        world.append(b"value %d" % number)
    path = log_path(log)
    world.append(bytes(100))
    assert len(log.segments) == 2
    await log.flushed()
    await world.stop()
    content = content_of(path)
    batch_bytes = len(content) // BATCHES
    reached = which + 3
    length = (reached - which) * batch_bytes - 12
    position = which * batch_bytes
    replace(path, content[: position + 8] + length.to_bytes(4, "big") + content[position + 12 :])
    log = await world.restart(crash=True)
    found = served(log)
    assert [found[offset] for offset in range(which)] == list(range(which))
    assert {found[offset] for offset in range(which, reached)} == {ErrorCode.CORRUPT_MESSAGE}
    assert all(found[offset] in (offset, ErrorCode.CORRUPT_MESSAGE) for offset in range(reached, BATCHES))


@pytest.mark.parametrize("damage", ["its last batch reaches over a segment that it does not replace", "a flipped bit"])
async def test_a_swap_file_that_cannot_be_believed_costs_no_segment(world: LogWorld, damage: str) -> None:
    log = world.create(LogConfig(segment_bytes=400))
    for _ in range(BATCHES):
        world.append(b"v" * 100)
    await log.flushed()
    first, second = list(log.segments)[:2]
    await world.stop()
    content = content_of(first.files.path(".log"))
    if damage == "a flipped bit":
        content = flipped(content, len(content) - 1, 0)
    else:
        position = len(content) // 2
        content = content[:position] + second.base_offset.to_bytes(8, "big") + content[position + 8 :]
    replace(first.files.path(".log.swap"), content)
    kept = sizes_bytes(log)
    for _ in range(2):
        with capture_logs() as logs:
            log = await world.restart(crash=True)
        assert "log_damaged" in events(logs)
        assert log.is_offline
        assert sizes_bytes(log).items() >= kept.items()
        await world.stop()
    os.unlink(first.files.path(".log.swap"))
    assert not (await world.restart(crash=True)).is_offline


@pytest.mark.parametrize("crash", [False, True])
async def test_gaps_in_a_log_of_apache_kafka_are_no_damage(world: LogWorld, crash: bool) -> None:
    path, content, positions = await with_batches(world)
    await world.stop()
    for name in ("segment-checksums", "00000000000000000000.index", "00000000000000000000.timeindex"):
        os.unlink(f"{os.path.dirname(path)}/{name}")
    without_some = b"".join(content[positions[which] :][: positions[1]] for which in (0, 1, 4, 5, 8, 9))
    replace(path, without_some)
    if crash:
        os.unlink(f"{world.path}/.kafka_cleanshutdown")
    log = await world.restart(crash=True)
    assert not log.is_offline
    assert sorted({number for number in served(log).values() if isinstance(number, int)}) == [0, 1, 4, 5, 8, 9]
    assert log.log_end_offset == BATCHES
