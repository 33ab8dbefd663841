"""OffsetForLeaderEpoch: where an epoch ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.leader_epochs import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.handler_context import NOW_MS, HandlerBroker, batch, open_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        await opened.create_topic("orders", 1)
        yield opened


async def ask(
    broker: HandlerBroker, leader_epoch: int, *, partition: int = 0, current: int = -1, version: int | None = None
) -> EpochEndOffset:
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic="orders",
                partitions=[
                    OffsetForLeaderPartition(
                        partition=partition, current_leader_epoch=current, leader_epoch=leader_epoch
                    )
                ],
            )
        ]
    )
    found: EpochEndOffset = (await broker.call(request, version)).topics[0].partitions[0]
    return found


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_current_epoch_ends_at_the_end_of_the_log(broker: HandlerBroker, version: int) -> None:
    log = broker.log("orders")
    log.append(memoryview(batch(b"a", b"b")), now_ms=NOW_MS)
    await log.flushed()
    found = await ask(broker, log.leader_epoch, version=version)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, log.leader_epoch, 2)


async def test_epoch_of_the_future_is_not_known(broker: HandlerBroker) -> None:
    found = await ask(broker, broker.log("orders").leader_epoch + 1)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, -1, -1)


async def test_stale_client_gets_fenced_leader_epoch(broker: HandlerBroker) -> None:
    broker.log("orders").leader_epoch = 3
    assert (await ask(broker, 0, current=2)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (await ask(broker, 0, current=4)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_unknown_partition_is_refused(broker: HandlerBroker) -> None:
    found = await ask(broker, 0, partition=9)
    assert (found.error_code, found.partition, found.end_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 9, -1)
