"""The look-up of a partition: its log, or the error of a client that is at the wrong node or in another epoch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.requests.partition_lookup import NO_LEADER, Leadership, find_log, leadership
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import NO_LEADER_EPOCH
from tests.support.handler_context import NODE_ID, HandlerBroker, open_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        await opened.create_topic("orders", 1)
        yield opened


async def test_a_partition_that_is_led_here_has_its_log(broker: HandlerBroker) -> None:
    log = broker.log("orders")
    assert find_log(broker.topics, "orders", 0) is log
    assert find_log(broker.topics, "orders", 0, current_leader_epoch=log.leader_epoch) is log
    assert leadership(broker.services, "orders", 0) == Leadership(
        ErrorCode.NONE, NODE_ID, log.leader_epoch, [NODE_ID], []
    )


async def test_a_client_in_another_leader_epoch_learns_whether_it_is_behind(broker: HandlerBroker) -> None:
    epoch = broker.log("orders").leader_epoch
    ahead = find_log(broker.topics, "orders", 0, current_leader_epoch=epoch + 1)
    assert ahead is ErrorCode.UNKNOWN_LEADER_EPOCH
    broker.log("orders").leader_epoch = epoch + 5
    assert find_log(broker.topics, "orders", 0, current_leader_epoch=epoch) is ErrorCode.FENCED_LEADER_EPOCH


async def test_a_partition_that_does_not_exist_is_unknown(broker: HandlerBroker) -> None:
    for topic, partition in (("orders", 1), ("orders", -1), ("nothing", 0)):
        assert find_log(broker.topics, topic, partition) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_offline_partition_has_no_leader_and_this_replica_is_offline(broker: HandlerBroker) -> None:
    broker.log("orders").give_up(StorageError("planted"))
    assert find_log(broker.topics, "orders", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert leadership(broker.services, "orders", 0) == Leadership(
        ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, NO_LEADER_EPOCH, [NODE_ID], [NODE_ID]
    )
