"""Logs that come to a node and go from it while it runs, with their partition's leadership."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import shutil
from pathlib import Path

import pytest

from fencepost.broker.kernel.sliced_work import SlicedWork, Slices, run_to_end
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory import log_opening
from fencepost.broker.log.directory.last_leader_state import ArrivingLog, LastLeaderState
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.recovery.recovery import LogRecovery
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import Record, build_batch
from tests.support.log_world import ORDERS, TOPIC_ID, LogWorld, overwrite

UNKNOWN = LastLeaderState()


async def serve(world: LogWorld, *, leader_epoch: int, last_state: LastLeaderState = UNKNOWN) -> PartitionLog | None:
    if not world.logs.has_directory(ORDERS):
        return None
    errors = await world.logs.serve([ArrivingLog(ORDERS, world.config, leader_epoch, last_state)])
    assert errors == {}
    return world.logs.get(ORDERS)


async def test_only_partitions_led_here_are_opened_in_their_leader_epochs(world: LogWorld) -> None:
    world.create()
    other = world.logs.create(TopicPartition("other", 0), TOPIC_ID, world.config)
    directory = other.files.directory
    await world.stop()
    world.logs = LogDirectory(world.path, disk=world.disk, clock=world.clock)
    await world.logs.open(lambda _: world.config, lambda name: 7 if name == ORDERS else None)
    assert world.orders.leader_epoch == 7
    assert world.logs.get(TopicPartition("other", 0)) is None
    assert world.disk.exists(directory)


async def test_other_work_goes_on_while_many_small_logs_are_opened(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [TopicPartition("small", partition) for partition in range(20)]
    for name in names:
        world.logs.create(name, TOPIC_ID, world.config)
        world.logs.release(name)
    monkeypatch.setattr(Slices, "turn", lambda _: asyncio.sleep(0))  # as if each log took a whole slice
    monkeypatch.setattr(log_opening, "run_in_slices", all_steps)
    turns: list[int] = []

    async def others() -> None:
        while True:
            turns.append(len(list(world.logs.logs())))
            await asyncio.sleep(0)

    working = asyncio.create_task(others())
    assert await world.logs.serve([ArrivingLog(name, world.config, 0, LastLeaderState()) for name in names]) == {}
    working.cancel()
    assert set(range(1, 20)) <= set(turns), "a turn after each"


async def all_steps(steps: SlicedWork[object], _slice_s: float) -> object:
    return run_to_end(steps)


async def test_a_log_leads_in_its_own_epoch_where_that_is_higher(world: LogWorld) -> None:
    world.create().lead(9)
    world.append(b"a")
    await world.orders.flushed()
    await world.stop()
    world.logs = LogDirectory(world.path, disk=world.disk, clock=world.clock)
    await world.logs.open(lambda _: world.config, lambda _: 4)
    assert world.orders.leader_epoch == 9


async def test_a_log_that_is_released_refuses_everybody_and_keeps_its_files(world: LogWorld) -> None:
    log = world.create()
    world.append(b"a")
    await log.flushed()
    woken: list[bool] = []
    log.add_watcher(lambda: woken.append(log.is_deleted))
    world.append(b"b")
    waiting = log.flushed()
    world.logs.release(ORDERS)
    with pytest.raises(StorageError, match="led by another node"):
        await waiting
    assert woken == [True]
    assert world.logs.get(ORDERS) is None
    assert log.read(0, 1000, isolation=Isolation.READ_COMMITTED).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.disk.exists(log.files.directory)
    world.logs.release(ORDERS)  # nothing to do


async def test_nobody_hears_of_a_release_whose_request_is_gone(world: LogWorld) -> None:
    """Its connection was closed while the request waited for the log to be durable."""
    world.create()
    world.append(b"a")
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    log = world.orders
    abandoned = log.durability.wait_for(log.log_end_offset + 1)
    world.logs.release(ORDERS)
    del abandoned
    gc.collect()
    assert reported == []


async def test_a_log_comes_back_with_its_records_and_open_transactions(world: LogWorld) -> None:
    log = world.create()
    world.append(b"a", b"b")
    world.append(b"c", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    await log.flushed()
    world.logs.release(ORDERS)
    back = await serve(world, leader_epoch=3)
    assert back is not None
    assert back is not log
    assert (back.log_end_offset, back.high_watermark, back.last_stable_offset) == (3, 3, 2)
    assert back.leader_epoch == 3
    assert world.append(b"c", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True).is_duplicate
    assert world.append(b"d", producer_id=7, producer_epoch=0, base_sequence=1, is_transactional=True).base_offset == 3
    assert await serve(world, leader_epoch=3) is back


async def test_there_is_no_log_to_come_without_a_directory(world: LogWorld) -> None:
    assert await serve(world, leader_epoch=3) is None


async def test_a_directory_lost_while_its_partition_was_elsewhere_does_not_come_back_as_an_offline_log(
    world: LogWorld,
) -> None:
    log = world.create()
    world.append(b"a")
    await log.flushed()
    world.logs.sweep(world.clock.now_ms() + 100_000)
    await world.checkpointed()
    world.logs.release(ORDERS)
    shutil.rmtree(log.files.directory)
    assert await serve(world, leader_epoch=1) is None
    await world.logs.remove_leftovers([ORDERS])  # as every node does that begins to lead without a directory
    made = world.logs.create(ORDERS, TOPIC_ID, world.config, leader_epoch=1)
    assert (made.is_offline, made.leader_epoch) == (False, 1)


async def test_writes_of_another_node_after_a_clean_stop_are_checked_at_the_next_start(world: LogWorld) -> None:
    log = world.create()
    world.append(b"a")
    await log.flushed()
    end_position = log.size_bytes
    await world.stop()
    # The partition was led elsewhere, where the machine died in the middle of a write.
    overwrite(f"{log.files.directory}/{0:020}.log", end_position, b"\0" * 100)
    world.disk.close()
    world.disk = LocalDisk()
    world.logs = LogDirectory(world.path, disk=world.disk, clock=world.clock)
    await world.logs.open(lambda _: world.config, lambda _: 5)
    assert not world.orders.is_offline
    assert world.orders.log_end_offset == 1
    assert world.append(b"b").base_offset == 1


async def test_only_leftovers_of_a_deleted_topic_are_removed(world: LogWorld) -> None:
    log = world.create()
    directory = log.files.directory
    world.logs.release(ORDERS)
    assert not world.logs.delete_renamed_directories(ORDERS, bytes(15) + b"x"), "another topic of that name"
    assert world.logs.delete_renamed_directories(ORDERS, TOPIC_ID)
    assert not world.disk.exists(directory)
    assert not world.logs.delete_renamed_directories(ORDERS, TOPIC_ID)
    world.logs.sweep(world.clock.now_ms())
    await asyncio.sleep(0)
    assert world.create().log_end_offset == 0


@pytest.mark.parametrize("way", ["released", "closed to move", "arrived"])
async def test_a_new_topic_is_not_judged_by_checkpoints_of_one_that_was_led_elsewhere_last(
    world: LogWorld, way: str
) -> None:
    log = world.create()
    for _ in range(15):
        world.append(b"before")
    await log.flushed()
    await world.restart()  # from now on a line of the file says that 15 records are on the disk
    if way == "closed to move":
        await world.logs.close_to_move([ORDERS])
    else:
        world.logs.release(ORDERS)
    if way == "arrived":
        assert await serve(world, leader_epoch=3) is not None
        world.logs.release(ORDERS)
    assert world.logs.delete_renamed_directories(ORDERS, TOPIC_ID)
    await world.logs.remove_leftovers([ORDERS])
    assert not world.create().is_offline
    world.append(b"after")
    await world.orders.flushed()
    log = await world.restart(crash=True)
    assert not log.is_offline
    assert log.log_end_offset == 1


async def test_a_new_epoch_on_the_same_node_requires_verification_again(world: LogWorld) -> None:
    log = world.create()
    before = log.begin_verification(7, 0, 0, transaction_version_2=False)
    log.lead(2)
    after = log.begin_verification(7, 0, 0, transaction_version_2=False)
    assert after is not before
    log.lead(1)
    assert log.leader_epoch == 2, "an epoch never falls"


# Where the last leader left off


@pytest.fixture
def recovered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directories whose logs were read as after a crash."""
    found: list[str] = []
    real = LogRecovery._recover

    def recover(recovery: LogRecovery, segments: list[Segment]) -> SlicedWork[list[Segment]]:
        found.append(recovery._files.directory)
        return real(recovery, segments)

    monkeypatch.setattr(LogRecovery, "_recover", recover)
    return found


async def test_a_log_closed_to_move_is_opened_elsewhere_without_reading_it(
    world: LogWorld, tmp_path: Path, recovered: list[str]
) -> None:
    log = world.create()
    for _ in range(5):
        world.append(b"a", producer_id=7, producer_epoch=0, base_sequence=log.log_end_offset)
    waiting = log.flushed()
    closing = asyncio.create_task(world.logs.close_to_move([ORDERS, TopicPartition("unknown", 0)]))
    await asyncio.sleep(0)
    with pytest.raises(StorageError, match="orders-0 is moving to another node"):
        log.append(memoryview(build_batch([Record(0, 0, None, b"late")])), now_ms=world.clock.now_ms())
    last_state = (await closing)[ORDERS]
    await waiting  # acknowledged by the leader that closes it
    assert last_state == LastLeaderState(5, 0, was_closed=True)
    assert log.is_deleted
    other = LogWorld(str(tmp_path / "other"))
    await other.start()
    os.rename(log.files.directory, f"{other.path}/{ORDERS}")
    back = await serve(other, leader_epoch=4, last_state=last_state)
    assert back is not None
    assert (back.log_end_offset, back.high_watermark, back.leader_epoch) == (5, 5, 4)
    assert recovered == [], "its snapshot says what its producers have written"
    assert other.append(b"a", producer_id=7, producer_epoch=0, base_sequence=4).is_duplicate
    await other.stop()


async def test_a_log_that_was_not_closed_is_recovered_from_where_it_was_durable(
    world: LogWorld, tmp_path: Path, recovered: list[str]
) -> None:
    world.config = dataclasses.replace(world.config, segment_bytes=1_000)
    log = world.create()
    for _ in range(30):
        world.append(b"x" * 100)
        await log.flushed()
    recovery_point = log.durability.recovery_point
    assert recovery_point == 30
    world.logs.release(ORDERS)
    other = LogWorld(str(tmp_path / "other"))
    other.config = world.config
    await other.start()
    os.rename(log.files.directory, f"{other.path}/{ORDERS}")
    back = await serve(other, leader_epoch=4, last_state=LastLeaderState(recovery_point, 3))
    assert back is not None
    assert (back.log_start_offset, back.log_end_offset) == (3, 30)
    assert recovered == [f"{other.path}/{ORDERS}"]
    await other.stop()


async def test_deleted_records_stay_deleted_after_the_next_leader_has_crashed(world: LogWorld) -> None:
    """Its own checkpoint may not name the partition yet."""
    log = world.create()
    for _ in range(5):
        world.append(b"a")
    await log.flushed()
    await world.logs.close()
    world.disk.close()
    world.disk = LocalDisk()
    world.logs = LogDirectory(world.path, disk=world.disk, clock=world.clock, files_move=True)
    await world.logs.open(lambda _: world.config, lambda _: 4, last_state={ORDERS: LastLeaderState(5, 3)})
    assert world.orders.log_start_offset == 3


async def test_where_directories_move_a_clean_stop_stays_clean_in_a_higher_epoch(
    world: LogWorld, recovered: list[str]
) -> None:
    log = world.create()
    world.append(b"a")
    await log.flushed()
    await world.stop()
    world.disk = LocalDisk()
    world.logs = LogDirectory(world.path, disk=world.disk, clock=world.clock, files_move=True)
    await world.logs.open(lambda _: world.config, lambda _: 5)
    assert world.orders.leader_epoch == 5
    assert recovered == []
