"""Share partitions that are loaded while the partition itself moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.share.dead_letter_copies import DeadLetterCopies
from fencepost.broker.share.persister import SharePersister
from fencepost.broker.share.shard import SharePartitionKey, ShareState
from fencepost.broker.share.share_partitions import ServedSharePartition, ServedSharePartitions
from fencepost.protocol.errors import ErrorCode
from tests.support.group_broker import GroupBroker

WORK = TopicPartition("work", 0)


class SlowPersister(SharePersister):
    """Answers a read when the test lets it."""

    def __init__(self) -> None:
        self.on_lost = []
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def read(self, key: SharePartitionKey, *, leader_epoch: int) -> ShareState | ErrorCode:
        self.is_asked.set()
        await self.may_answer.wait()
        return ShareState(
            snapshot_epoch=0,
            state_epoch=0,
            leader_epoch=leader_epoch,
            start_offset=7,
            delivery_complete_count=0,
            state_batches=(),
            create_timestamp_ms=0,
            write_timestamp_ms=0,
        )


async def moved_while_it_is_loaded(
    broker: GroupBroker, move: Callable[[], None]
) -> tuple[ServedSharePartition | ErrorCode, ServedSharePartitions, SharePartitionKey]:
    topic = broker.topics.add("work", 1)
    persister = SlowPersister()
    copies = DeadLetterCopies(cast("Any", None), broker.group_configs, broker.clock, lambda: None)
    partitions = ServedSharePartitions(
        cast("Any", broker.topics), persister, broker.group_configs, broker.clock, copies
    )
    partitions.start()
    key = SharePartitionKey("workers", topic.topic_id, 0)
    loading = asyncio.ensure_future(partitions.get(key, cast("Any", broker.topics.logs[WORK])))
    await persister.is_asked.wait()
    move()
    persister.may_answer.set()
    return await loading, partitions, key


@pytest.mark.parametrize("way", ["stays elsewhere", "returns in a new epoch", "is another log after its return"])
async def test_a_partition_that_moves_while_its_state_is_read_is_not_served_with_that_state(way: str) -> None:
    async with GroupBroker() as broker:

        def move() -> None:
            broker.topics.resign(WORK)
            if way == "stays elsewhere":
                del broker.topics.logs[WORK]
                return
            if way == "is another log after its return":
                broker.topics.logs[WORK] = type(broker.topics.logs[WORK])(WORK)
            broker.topics.lead(WORK)

        loaded, partitions, key = await moved_while_it_is_loaded(broker, move)
        assert loaded is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partitions.loaded(key) is None
        await partitions.close()


async def test_a_partition_that_stays_is_served_with_its_stored_state() -> None:
    async with GroupBroker() as broker:
        loaded, partitions, key = await moved_while_it_is_loaded(broker, lambda: None)
        assert isinstance(loaded, ServedSharePartition)
        assert partitions.loaded(key) is loaded
        await partitions.close()
