"""The share coordinator over real logs: what is written is kept, and what says nothing any more is deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.topic_partition import SHARE_GROUP_STATE_TOPIC, TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.share.coordinator import PRUNE_INTERVAL_MS, ShareCoordinator
from fencepost.broker.share.persister import SharePersister
from fencepost.broker.share.sessions import TopicIdPartition
from fencepost.broker.share.shard import SharePartitionKey, ShareState
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.stored.share_group_state import StateBatch
from tests.support.share_broker import ManualClock

TOPIC_ID = b"t" * 16
AT = TopicIdPartition(TOPIC_ID, 0)
KEY = SharePartitionKey("g", *AT)


class World:
    """A persister over logs in a directory."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.settings = Settings(
            log_dirs=str(directory),
            share_coordinator_state_topic_num_partitions=1,
            share_coordinator_snapshot_update_records_per_snapshot=3,
        )
        self.disk = LocalDisk()
        self.logs = LogDirectory(str(directory), disk=self.disk, clock=self.clock)
        self.topics = Topics(InMemoryMetadataStore("cluster"), self.logs, self.settings)
        self._begin()

    def _begin(self) -> None:
        self.coordinator = ShareCoordinator(self.topics, self.settings, self.clock)
        self.persister = SharePersister(self.coordinator, self.clock)

    async def restart(self) -> None:
        """The coordinator begins anew on the same logs."""
        await self.coordinator.close()
        self._begin()
        self.coordinator.start()
        await self.coordinator.ensure_loaded()

    def write(self, offset: int, key: SharePartitionKey = KEY) -> ErrorCode:
        return self.persister.write(
            key,
            state_epoch=1,
            leader_epoch=0,
            start_offset=0,
            delivery_complete_count=offset + 1,
            state_batches=[StateBatch(offset, offset, 2, 1)],
        )

    async def state(self, key: SharePartitionKey = KEY) -> ShareState:
        state = await self.persister.read(key, leader_epoch=0)
        assert isinstance(state, ShareState)
        return state


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    await world.topics.open()
    world.coordinator.start()
    yield world
    await world.coordinator.close()
    await world.topics.close()
    await world.logs.close()
    world.disk.close()


async def test_nothing_can_be_kept_before_its_topic_exists(world: World) -> None:
    assert world.write(0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await world.persister.read(KEY, leader_epoch=0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await world.persister.durable(KEY) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await world.persister.summary(KEY) is None


async def test_written_state_survives_a_restart(world: World) -> None:
    assert await world.persister.initialize("g", {AT: -1}, state_epoch=1) == {AT: ErrorCode.NONE}
    for offset in range(5):
        assert world.write(offset) is ErrorCode.NONE
    assert await world.persister.durable(KEY) is ErrorCode.NONE
    before = await world.state()
    await world.restart()
    assert await world.state() == before
    assert before.state_batches == (StateBatch(0, 4, 2, 1),)
    assert await world.persister.summary(KEY) == before


async def test_deleted_state_stays_deleted(world: World) -> None:
    await world.persister.initialize("g", {AT: 5}, state_epoch=1)
    assert await world.persister.delete("g", {TOPIC_ID: [0, 1]}) == {TOPIC_ID: ErrorCode.NONE}
    await world.restart()
    assert await world.persister.read(KEY, leader_epoch=0) is ErrorCode.INVALID_REQUEST
    assert world.write(0) is ErrorCode.INVALID_REQUEST


async def test_records_before_the_oldest_snapshot_in_use_are_deleted(world: World) -> None:
    other = SharePartitionKey("g", TOPIC_ID, 1)
    await world.persister.initialize("g", {AT: -1, TopicIdPartition(TOPIC_ID, 1): -1}, state_epoch=1)
    for offset in range(9):
        world.write(offset)
    world.write(0, other)
    log = world.topics.log(TopicPartition(SHARE_GROUP_STATE_TOPIC, 0))
    assert log is not None
    await log.flushed()
    world.clock.time_ms += PRUNE_INTERVAL_MS + 1
    before = [await world.state(), await world.state(other)]
    await world.coordinator.prune(0)
    assert log.log_start_offset > 5
    await world.restart()
    after = [await world.state(), await world.state(other)]
    assert [(state.start_offset, state.state_batches) for state in after] == [
        (state.start_offset, state.state_batches) for state in before
    ]
