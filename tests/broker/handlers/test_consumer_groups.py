"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, and what the older APIs say of groups of the consumer protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fencepost.broker.handlers.group_admin import GROUP_OPERATIONS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from fencepost.protocol.messages.group_admin import DescribeGroupsRequest, ListGroupsRequest
from tests.support.group_broker import GroupBroker

NOT_ASKED_FOR = -(2**31)


@pytest.fixture
async def broker() -> AsyncIterator[GroupBroker]:
    async with GroupBroker() as broker:
        yield broker


def join_request(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    wanted = {"group_id": "g", "member_id": "a", "rebalance_timeout_ms": 60_000, "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest(**{**wanted, "subscribed_topic_names": ["orders"], **fields})


@pytest.mark.parametrize("version", [0, 1])
async def test_a_member_joins_stays_and_leaves(broker: GroupBroker, version: int) -> None:
    joined = await broker.call(join_request(), version)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.NONE, "a", 2)
    assert [(topic.topic_id, topic.partitions) for topic in joined.assignment.topic_partitions] == [
        (broker.topic_id("orders"), [0, 1])
    ]
    owned = [ConsumerGroupHeartbeatTopicPartitions(broker.topic_id("orders"), [0, 1])]
    stays = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=2, topic_partitions=owned)
    assert (await broker.call(stays, version)).assignment is None
    leaves = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=-1)
    left = await broker.call(leaves, version)
    assert (left.error_code, left.member_id, left.member_epoch) == (ErrorCode.NONE, "a", -1)


async def test_a_refusal_says_why(broker: GroupBroker) -> None:
    refused = await broker.call(join_request(rebalance_timeout_ms=-1), 1)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message == "RebalanceTimeoutMs must be provided in first request."
    assert (refused.member_id, refused.assignment) == (None, None)


async def test_a_group_outlives_a_restart(broker: GroupBroker) -> None:
    await broker.call(join_request(), 1)
    await broker.restart()
    stays = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=2)
    again = await broker.call(stays, 1)
    assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize("version", [0, 1])
async def test_groups_are_described_with_their_members(broker: GroupBroker, version: int) -> None:
    await broker.call(join_request(instance_id="i", rack_id="r", server_assignor="range"), 1)
    request = ConsumerGroupDescribeRequest(["g", "unknown", ""], include_authorized_operations=True)
    found, unknown, nameless = (await broker.call(request, version)).groups
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 2, 2)
    assert (found.assignor_name, found.authorized_operations) == ("range", GROUP_OPERATIONS)
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("a", "i", "r", 2)
    assert (member.client_id, member.client_host) == ("app", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["orders"], "")
    assert member.assignment == member.target_assignment
    assert [(topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions] == [
        ("orders", [0, 1])
    ]
    assert member.member_type == (1 if version else -1)
    assert (unknown.error_code, unknown.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group unknown not found.")
    assert (unknown.authorized_operations, nameless.error_code) == (NOT_ASKED_FOR, ErrorCode.INVALID_GROUP_ID)


@pytest.mark.parametrize("version", [5, 6])
async def test_to_older_apis_the_group_is_listed_and_dead(broker: GroupBroker, version: int) -> None:
    await broker.call(join_request(), 1)
    (described,) = (await broker.call(DescribeGroupsRequest(["g"]), version)).groups
    assert described.group_state == "Dead"
    if version >= 6:
        assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert described.error_message == "Group g is not a classic group."
    listed = (await broker.call(ListGroupsRequest(types_filter=["Consumer"]), 5)).groups
    assert [(group.group_id, group.group_state, group.group_type) for group in listed] == [("g", "Stable", "consumer")]
    assert not (await broker.call(ListGroupsRequest(types_filter=["classic"]), 5)).groups


@pytest.mark.parametrize("version", [0, 1])
async def test_requests_that_fail_as_a_whole_are_answered(broker: GroupBroker, version: int) -> None:
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.failed(join_request(), error, version).error_code == error
    failed = broker.failed(ConsumerGroupDescribeRequest(["g", "h"]), error, version)
    assert [(group.group_id, group.error_code) for group in failed.groups] == [("g", error), ("h", error)]
