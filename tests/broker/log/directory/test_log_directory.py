"""The directory of all logs: one process uses it; logs are created and deleted in it; opening many is quick."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Awaitable, Sequence

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.storage.descriptors import Descriptors
from fencepost.broker.storage.disk import LogFile, NoRoomError, StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import Record, build_batch
from tests.support.captured_events import capture_logs
from tests.support.log_world import NOW_MS, ORDERS, TOPIC_ID, LogWorld, replace


async def test_a_directory_in_use_is_refused_with_a_reason(world: LogWorld) -> None:
    other_disk = LocalDisk()
    other = LogDirectory(world.path, disk=other_disk, clock=world.clock)
    with pytest.raises(StorageError, match=r"in use by another broker.*\.lock"):
        await other.open(lambda _: LogConfig())
    await other.close()
    await world.stop()
    await other.open(lambda _: LogConfig())
    await other.close()
    other_disk.close()


async def test_a_new_log_has_the_files_of_kafka(world: LogWorld) -> None:
    log = world.create()
    world.append(b"a")
    await log.flushed()
    await world.stop()
    assert world.disk.list(f"{world.path}/{ORDERS}") == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000001.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "segment-checksums",
    ]
    assert world.disk.read_file(f"{world.path}/{ORDERS}/partition.metadata") == (
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    )
    assert world.disk.read_file(f"{world.path}/{ORDERS}/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert world.disk.read_file(f"{world.path}/recovery-point-offset-checkpoint") == b"0\n1\norders 0 1\n"
    assert world.disk.exists(f"{world.path}/.kafka_cleanshutdown")


@pytest.mark.parametrize(("crash", "many"), [(False, True), (False, False), (True, True)])
async def test_records_of_many_logs_are_written_in_one_pass_before_each_file_is_synced(
    crash: bool, many: bool, world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    threshold = 2 if many else 3
    monkeypatch.setattr("fencepost.broker.log.directory.log_closing.WRITTEN_BACK_TOGETHER_COUNT", threshold)
    monkeypatch.setattr("fencepost.broker.log.directory.log_opening.WRITTEN_BACK_TOGETHER_COUNT", threshold)
    batch = memoryview(build_batch([Record(0, NOW_MS, None, b"a")]))
    partitions = [TopicPartition("orders", index) for index in range(2)]
    for partition in partitions:
        log = world.logs.create(partition, TOPIC_ID, LogConfig())
        log.append(batch, now_ms=NOW_MS)
        await log.flushed()
    calls: list[str] = []
    write_back, sync = LocalDisk.write_back, LocalDisk.sync

    def writes_back(disk: LocalDisk, path: str) -> Awaitable[None]:
        calls.append(f"write back {path}")
        return write_back(disk, path)

    def syncs(disk: LocalDisk, files: Sequence[LogFile], directories: Sequence[str] = ()) -> Awaitable[None]:
        if any(file.path.endswith(".log") for file in files):
            calls.append("sync")
        return sync(disk, files, directories)

    monkeypatch.setattr(LocalDisk, "write_back", writes_back)
    monkeypatch.setattr(LocalDisk, "sync", syncs)
    await world.restart(crash=crash)
    assert calls[:2] == ([f"write back {world.path}", "sync"] if many else ["sync"])
    for partition in partitions:
        found = world.logs.get(partition)
        assert found is not None
        assert found.log_end_offset == 1


async def test_topic_ids_are_known_after_a_restart(world: LogWorld) -> None:
    world.create()
    assert (await world.restart()).topic_id == TOPIC_ID


async def test_the_mark_of_a_clean_stop_is_gone_while_a_broker_runs(world: LogWorld) -> None:
    await world.stop()
    await world.start()
    assert not world.disk.exists(f"{world.path}/.kafka_cleanshutdown")


async def test_creating_over_a_directory_that_is_there_is_refused(world: LogWorld) -> None:
    world.create()
    with pytest.raises(StorageError, match="exists already"):
        world.create()
    os.mkdir(f"{world.path}/other-0")
    with pytest.raises(StorageError, match="exists already"):
        world.logs.create(TopicPartition("other", 0), TOPIC_ID, LogConfig())


async def test_a_deleted_log_fails_its_waiters_and_its_files_go(world: LogWorld) -> None:
    log = world.create()
    calls: list[bool] = []
    log.add_watcher(lambda: calls.append(log.is_deleted))
    world.append(b"a")
    waiting = log.flushed()
    world.logs.delete(ORDERS)
    assert calls == [True]
    with pytest.raises(StorageError, match="deleted"):
        await waiting
    assert world.logs.get(ORDERS) is None
    assert [name for name in world.disk.list(world.path) if name.startswith("orders")] == [
        f"orders-0.{TOPIC_ID.hex()}-delete"
    ]
    again = world.create()
    assert again.log_end_offset == 0
    world.logs.sweep(world.clock.now_ms())
    assert [name for name in world.disk.list(world.path) if name.startswith("orders")] == ["orders-0"]
    await asyncio.sleep(0.01)


async def test_a_deletion_that_a_crash_interrupted_is_finished(world: LogWorld) -> None:
    world.create()
    world.logs.delete(ORDERS)
    world.disk.close()
    world.disk = LocalDisk()
    world.logs = LogDirectory(world.path, disk=world.disk, clock=world.clock)
    await world.start()
    assert list(world.logs.logs()) == []
    world.logs.sweep(world.clock.now_ms())
    assert [name for name in world.disk.list(world.path) if name.startswith("orders")] == []


async def test_a_partition_that_the_power_left_without_anything_is_forgotten(world: LogWorld) -> None:
    world.create()
    os.truncate(f"{world.path}/{ORDERS}/partition.metadata", 0)
    await world.stop()
    world.disk = LocalDisk()
    world.logs = LogDirectory(world.path, disk=world.disk, clock=world.clock)
    await world.start()
    assert world.logs.get(ORDERS) is None
    world.create()


async def test_many_partitions_share_few_descriptors_and_all_come_back(world: LogWorld) -> None:
    world.disk = LocalDisk(Descriptors(100))
    await world.stop()
    world.logs = LogDirectory(world.path, disk=world.disk, clock=world.clock)
    await world.start()
    before = len(os.listdir("/proc/self/fd"))
    for partition in range(300):
        world.logs.create(TopicPartition("many", partition), TOPIC_ID, LogConfig())
    assert len(os.listdir("/proc/self/fd")) - before <= 60
    await world.stop()
    await world.start()
    assert len(list(world.logs.logs())) == 300


async def test_records_of_the_next_partition_of_a_deleted_ones_name_do_not_count_as_clean(world: LogWorld) -> None:
    world.create()
    await world.stop()
    replace(f"{world.path}/cleaner-offset-checkpoint", b"0\n2\norders 0 20\nothers 0 30\n")
    world.logs = LogDirectory(world.path, disk=world.disk, clock=world.clock)
    await world.start()
    assert world.logs.cleaned_offset(ORDERS) == 20
    world.logs.delete(ORDERS)
    await world.logs.remove_leftovers([ORDERS])
    world.create()
    await world.restart(crash=True)
    assert world.logs.cleaned_offset(ORDERS) == 0
    assert world.logs.cleaned_offset(TopicPartition("others", 0)) == 30


async def test_a_partition_whose_directory_was_removed_is_offline_and_stays_so(world: LogWorld) -> None:
    world.create()
    world.append(b"a")
    await world.stop()
    shutil.rmtree(f"{world.path}/{ORDERS}")
    world.logs = LogDirectory(world.path, disk=world.disk, clock=world.clock)
    await world.start()
    with capture_logs() as logs:
        log = world.create()
    assert [(entry["event"], entry["recovery_point"]) for entry in logs] == [("partition_lost", 1)]
    assert log.is_offline
    with pytest.raises(StorageError, match="missing, with all records up to offset 1"):
        world.append(b"b")
    log = await world.restart()
    assert log.is_offline


async def test_a_log_that_could_not_be_made_leaves_nothing_in_the_way(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageError("full")

    with monkeypatch.context() as patch:
        patch.setattr(LocalDisk, "write_file", fail)
        with pytest.raises(StorageError, match="full"):
            world.create()
    world.create()


async def test_records_are_deleted_on_a_full_disk_and_the_reserve_is_made_again_when_there_is_room(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.create()
    for _ in range(20):
        world.append(b"a")
    await log.flushed()
    reserve = f"{world.path}/log-start-offset-checkpoint.reserve"
    assert world.disk.size_bytes(reserve) > 100_000
    write_file = LocalDisk.write_file

    def full(disk: LocalDisk, path: str, content: bytes, *, durable: bool) -> None:
        if disk.exists(reserve):
            raise NoRoomError(errno.ENOSPC, "No space left on device", path)
        write_file(disk, path, content, durable=durable)

    with monkeypatch.context() as broken:
        broken.setattr(LocalDisk, "write_file", full)
        assert await world.logs.delete_records({ORDERS: 15}) == {ORDERS: ErrorCode.NONE}
    assert not world.disk.exists(reserve)
    log = await world.restart(crash=True)
    assert log.log_start_offset == 15
    assert world.disk.size_bytes(reserve) > 100_000


@pytest.mark.parametrize("content", [b"", b"version: 0\n", bytes(40)])
async def test_a_topic_id_that_cannot_be_read_is_written_again_only_where_the_directory_is_the_partitions_own(
    world: LogWorld, content: bytes
) -> None:
    log = world.create()
    world.append(b"a")
    await log.flushed()
    await world.stop()
    replace(f"{world.path}/{ORDERS}/partition.metadata", content)
    shutil.copytree(f"{world.path}/{ORDERS}", f"{world.path}/other-0")
    log = await world.restart()
    other = world.logs.get(TopicPartition("other", 0))
    assert other is not None
    for each in (log, other):
        world.logs.open_arrived(each, TOPIC_ID)
    assert not log.is_offline
    assert log.files.read_topic_id() == TOPIC_ID
    assert "is the directory of another partition" in str(other.offline_reason)
    assert world.disk.read_file(f"{other.files.directory}/partition.metadata") == content
