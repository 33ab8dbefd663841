"""A data directory that was restored to an earlier moment: nothing that follows is taken for what was after it."""

from __future__ import annotations

import asyncio
import os
import shutil

import pytest
from click.testing import CliRunner, Result

from fencepost.broker.config import Settings
from fencepost.broker.inspection.restored_directory import RestoredDirectory, after_restore, lost_time_s
from fencepost.broker.log.append.skipped_offsets import SKIPPED_OFFSETS
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.metadata.shared_sqlite import SKIPPED_EPOCHS
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.transaction.producer_ids import BLOCK_KEY, LOWEST_KEY, SKIPPED_IDS, ProducerIds
from fencepost.cli.commands import fencepost
from tests.support.data_directory import batches_of, flip, log_paths
from tests.support.log_world import NOW_MS, LogWorld, ManualClock

SKIPPED = 500


async def make_safe(world: LogWorld, skipped_offsets: int | None = SKIPPED) -> RestoredDirectory:
    return await after_restore(world.path, world.disk, Settings(), ManualClock(), skipped_offsets)


async def stopped(world: LogWorld, *values: bytes) -> None:
    log = world.create()
    world.append(*values)
    await log.flushed()
    await world.stop()


async def reopened(world: LogWorld) -> None:
    world.logs = LogDirectory(world.path, disk=world.disk, clock=world.clock)
    await world.start()


async def test_offsets_and_leader_epochs_go_on_far_above_those_of_the_copy(world: LogWorld) -> None:
    await stopped(world, b"a", b"b", b"c")
    assert await make_safe(world) == (world.path, 1, 1, SKIPPED)
    await reopened(world)
    assert (world.orders.log_end_offset, world.orders.leader_epoch) == (3 + SKIPPED, SKIPPED_EPOCHS)
    assert world.orders.end_offset_for_leader_epoch(0) == (0, 3)


async def test_it_may_be_run_again(world: LogWorld) -> None:
    await stopped(world, b"a")
    for _ in range(2):
        await make_safe(world)
    await reopened(world)
    assert (world.orders.log_end_offset, world.orders.leader_epoch) == (1 + 2 * SKIPPED, 2 * SKIPPED_EPOCHS)


async def test_a_copy_of_a_running_broker_is_recovered_first(world: LogWorld) -> None:
    log = world.create()
    world.append(b"a", b"b")
    await log.flushed()
    copy = f"{world.path}-copy"
    shutil.copytree(world.path, copy)
    assert (await after_restore(copy, world.disk, Settings(), ManualClock(), SKIPPED)).partitions == 1
    restored = LogWorld(copy)
    await restored.start()
    assert restored.orders.log_end_offset == 2 + SKIPPED
    await restored.stop()


async def test_a_topic_whose_log_was_not_made_yet_begins_above_as_well(world: LogWorld) -> None:
    await world.stop()
    assert (await make_safe(world)).partitions == 1
    await reopened(world)
    assert world.orders.log_end_offset == SKIPPED


async def test_producer_ids_and_those_of_transactional_ids_go_on_far_above(world: LogWorld) -> None:
    store = SqliteMetadataStore(f"{world.path}/{FILE_NAME}")
    await store.open()
    ids = ProducerIds(store)
    await ids.start()
    await ids.close()
    await store.close()
    await stopped(world, b"a")
    await make_safe(world)
    await store.open()
    lowest, _ = await store.read_versioned(LOWEST_KEY)
    block, version = await store.read_versioned(BLOCK_KEY)
    await store.close()
    assert lowest is not None
    assert block is not None
    assert int(lowest) > SKIPPED_IDS
    assert version == 2
    assert lowest in block


async def test_a_damaged_log_is_named_and_nothing_is_changed(world: LogWorld) -> None:
    await stopped(world, b"a", b"b")
    (path,) = log_paths(world.path)
    flip(path, batches_of(path)[0][0] + 70)
    os.truncate(path, batches_of(path)[0][1].size_bytes - 1)
    with pytest.raises(StorageError, match=r"damaged partitions of .*: orders-0\. `fencepost log verify` says"):
        await make_safe(world)
    assert log_paths(world.path) == [path]


async def test_a_directory_in_use_is_refused(world: LogWorld) -> None:
    with pytest.raises(StorageError, match="in use by a broker"):
        await make_safe(world)


async def test_a_directory_without_metadata_is_refused(world: LogWorld) -> None:
    await stopped(world, b"a")
    os.unlink(f"{world.path}/{FILE_NAME}")
    with pytest.raises(StorageError, match="restore the whole directory first"):
        await make_safe(world)


async def test_the_time_that_is_lost_is_counted_from_the_newest_file(world: LogWorld) -> None:
    await stopped(world, b"a")
    for place, _, names in os.walk(world.path):
        for name in names:
            os.utime(os.path.join(place, name), (NOW_MS / 1000 - 7200,) * 2)
    os.utime(f"{world.path}/{FILE_NAME}", (NOW_MS / 1000 - 3600,) * 2)
    assert lost_time_s(world.path, NOW_MS) == 3600
    assert lost_time_s(world.path, NOW_MS - 7_200_000) == 0
    assert (await make_safe(world, None)).skipped_offsets == SKIPPED_OFFSETS


def run(*arguments: str) -> Result:
    return CliRunner().invoke(fencepost, ["log", "restored", *arguments])


async def test_the_command_says_what_it_has_done(world: LogWorld) -> None:
    await stopped(world, b"a")
    result = await asyncio.to_thread(run, "--data-dir", world.path, "--skip-offsets", "12")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "the broker may start"
    assert result.stdout.splitlines()[1].split() == [world.path, "1", "1", "12"]


async def test_the_command_refuses_a_directory_in_use_in_one_line(world: LogWorld) -> None:
    result = await asyncio.to_thread(run, "--data-dir", world.path)
    assert result.exit_code == 1
    assert "Stop the broker first" in result.output
