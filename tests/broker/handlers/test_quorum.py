"""DescribeQuorum, UnregisterBroker and UnregisterController: a quorum of one, which stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
)
from tests.support.handler_context import NODE_ID, NOW_MS, HandlerBroker, open_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        yield opened


async def describe(broker: HandlerBroker, *topics: tuple[str, list[int]], version: int = 2) -> DescribeQuorumResponse:
    asked = [
        DescribeQuorumTopic(
            topic_name=name, partitions=[DescribeQuorumPartition(partition_index=number) for number in partitions]
        )
        for name, partitions in topics
    ]
    response = await broker.call(DescribeQuorumRequest(topics=asked), version)
    assert isinstance(response, DescribeQuorumResponse)
    assert response.error_code == 0
    return response


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_this_node_is_the_only_voter_and_leads(broker: HandlerBroker, version: int) -> None:
    await broker.create_topic("orders")
    response = await describe(broker, ("__cluster_metadata", [0]), version=version)
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.observers) == (0, NODE_ID, [])
    (voter,) = partition.current_voters
    assert voter.replica_id == NODE_ID
    assert voter.log_end_offset == partition.high_watermark > 0
    if version >= 1:
        assert voter.last_caught_up_timestamp == NOW_MS
    if version >= 2:
        assert [node.node_id for node in response.nodes] == [NODE_ID]


@pytest.mark.parametrize("asked", [("orders", [0]), ("__cluster_metadata", [1]), ("__cluster_metadata", [0, 1])])
async def test_there_is_no_other_log_of_metadata(broker: HandlerBroker, asked: tuple[str, list[int]]) -> None:
    (topic,) = (await describe(broker, asked)).topics
    assert {partition.error_code for partition in topic.partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_broker_that_is_alive_is_not_forgotten(broker: HandlerBroker) -> None:
    assert (await broker.call(UnregisterBrokerRequest(broker_id=NODE_ID))).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("controller_id", "error", "message"),
    [
        (NODE_ID, ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."),
        (99, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "Controller ID 99 is not currently registered."),
        (-1, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "Controller ID -1 is not currently registered."),
    ],
)
async def test_the_only_controller_stays_and_no_other_is_registered(
    broker: HandlerBroker, controller_id: int, error: ErrorCode, message: str
) -> None:
    answer = await broker.call(UnregisterControllerRequest(controller_id=controller_id))
    assert (answer.error_code, answer.error_message) == (error, message)
