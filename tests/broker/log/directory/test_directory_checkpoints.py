"""Checkpoints of a log directory: written now and then, and true of the logs that have the names now."""

from __future__ import annotations

import pytest

from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from tests.support.captured_events import capture_logs
from tests.support.log_world import NOW_MS, ORDERS, LogWorld, replace


async def test_a_corrupt_checkpoint_means_reading_the_logs_again(world: LogWorld) -> None:
    world.create()
    world.append(b"a")
    await world.stop()
    replace(f"{world.path}/recovery-point-offset-checkpoint", b"\0\0\0")
    with capture_logs() as logs:
        log = await world.restart()
    assert [entry["event"] for entry in logs][:2] == ["checkpoint_corrupt", "unclean_stop_found"]
    assert log.log_end_offset == 1


async def test_a_failed_opening_leaves_the_checkpoints_unchanged(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create()
    world.append(b"a")
    await world.stop()
    checkpoint = world.disk.read_file(f"{world.path}/recovery-point-offset-checkpoint")

    def fail(*_: object) -> bytes:
        raise StorageError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(LocalDisk, "list", fail)
        with pytest.raises(StorageError, match="broken"):
            await world.start()
        await world.stop()
    assert world.disk.read_file(f"{world.path}/recovery-point-offset-checkpoint") == checkpoint
    log = await world.restart()
    assert log.log_end_offset == 1


async def test_recovery_points_are_written_now_and_then(world: LogWorld) -> None:
    log = world.create()
    world.append(b"a")
    await log.flushed()
    world.logs.sweep(world.clock.now_ms())
    assert not world.disk.exists(f"{world.path}/recovery-point-offset-checkpoint")
    world.clock.time_ms += 60_000
    world.logs.sweep(world.clock.now_ms())
    await world.checkpointed()
    assert world.disk.read_file(f"{world.path}/recovery-point-offset-checkpoint") == b"0\n1\norders 0 1\n"


async def test_the_next_partition_of_a_deleted_ones_name_is_not_judged_by_its_checkpoints(world: LogWorld) -> None:
    log = world.create()
    for _ in range(20):
        world.append(b"before")
    await log.flushed()
    await world.logs.delete_records({ORDERS: 15})
    await world.restart()
    world.logs.delete(ORDERS)
    await world.logs.remove_leftovers([ORDERS])
    world.create()
    world.append(b"after")
    await world.orders.flushed()
    log = await world.restart(crash=True)
    assert not log.is_offline
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)


async def test_a_reserve_that_was_used_is_made_again_with_the_next_checkpoint(world: LogWorld) -> None:
    world.create()
    world.append(b"a")
    await world.orders.flushed()
    reserve = f"{world.path}/log-start-offset-checkpoint.reserve"
    world.disk.delete(reserve)
    world.logs.sweep(NOW_MS + 60_000)
    await world.checkpointed()
    assert world.disk.exists(reserve)
