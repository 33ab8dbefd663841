"""A data directory without its broker: opened as the broker opens it, alone, and closed as by a clean stop."""

from __future__ import annotations

import os

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.inspection.directory_lock import exclusive_use
from fencepost.broker.inspection.stopped_directory import open_stopped
from fencepost.broker.log.directory.directory_files import CLEAN_SHUTDOWN_FILE
from fencepost.broker.storage.disk import StorageError
from tests.support.data_directory import crashed
from tests.support.log_world import ORDERS, LogWorld


async def test_the_logs_are_those_of_the_metadata_and_are_closed_cleanly(world: LogWorld) -> None:
    world.create()
    world.append(b"a", b"b")
    await world.orders.flushed()
    path = await crashed(world)
    os.mkdir(f"{path}/unknown-0")
    async with open_stopped(path, world.disk, Settings(), world.clock, purpose="go on") as opened:
        assert list(opened.topics) == ["orders"]
        assert [(log.topic_partition, log.log_end_offset) for log in opened.logs()] == [(ORDERS, 2)]
        assert opened.cleaned_offset(ORDERS) == 0
        with pytest.raises(StorageError, match="in use by a broker"), exclusive_use(path, may_create=False):
            raise AssertionError
    assert world.disk.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}")


async def test_what_to_repeat_after_a_repair_is_said(world: LogWorld) -> None:
    world.create()
    world.append(b"a")
    await world.orders.flushed()
    await world.stop()
    os.rename(f"{world.path}/{ORDERS}", f"{world.path}/away")
    with pytest.raises(StorageError, match=r"damaged partitions of .*: orders-0\. .* what to do; then go on"):
        async with open_stopped(world.path, world.disk, Settings(), world.clock, purpose="go on"):
            raise AssertionError
