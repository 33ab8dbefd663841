"""ShareGroupDescribe, and where share groups begin to read, against a node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.alter_configs import ListConfigResourcesRequest
from fencepost.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest, ListGroupsRequest
from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from fencepost.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from tests.support.share_broker import ShareBroker, lent, running_share_broker

ACCEPT = 1
GROUP = 32


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ShareBroker]:
    async with running_share_broker(tmp_path) as running:
        await running.create("orders", 2)
        await running.configure("g", share_auto_offset_reset="earliest")
        await running.produce("orders", 10)
        yield running


async def offsets(broker: ShareBroker, topics: list[str] | None = None, group_id: str = "g") -> dict[str, object]:
    """Start offset and lag by topic and partition."""
    asked = None
    if topics is not None:
        asked = [DescribeShareGroupOffsetsRequestTopic(name, [0, 1]) for name in topics]
    group = DescribeShareGroupOffsetsRequestGroup(group_id, asked)
    response = await broker.call(DescribeShareGroupOffsetsRequest(groups=[group]))
    (described,) = response.groups
    assert described.error_code == ErrorCode.NONE
    return {
        f"{topic.topic_name}-{partition.partition_index}": (partition.start_offset, partition.lag)
        for topic in described.topics
        for partition in topic.partitions
    }


async def alter(broker: ShareBroker, to: int, group_id: str = "g") -> AlterShareGroupOffsetsResponse:
    partitions = [AlterShareGroupOffsetsRequestPartition(0, to), AlterShareGroupOffsetsRequestPartition(9, to)]
    topics = [
        AlterShareGroupOffsetsRequestTopic("orders", partitions),
        AlterShareGroupOffsetsRequestTopic("missing", partitions[:1]),
    ]
    response: AlterShareGroupOffsetsResponse = await broker.call(
        AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics)
    )
    return response


async def test_a_group_has_a_start_offset_once_it_has_acknowledged(broker: ShareBroker) -> None:
    await broker.join("a", ["orders"])
    assert await offsets(broker) == {"orders-0": (-1, -1), "orders-1": (-1, -1)}
    await broker.fetch("a", 0)
    await broker.acknowledge("a", 1, (0, 3, [ACCEPT]))
    assert await offsets(broker, ["orders"]) == {"orders-0": (0, 6), "orders-1": (-1, -1)}
    assert await offsets(broker, ["missing"]) == {"missing-0": (-1, -1), "missing-1": (-1, -1)}
    assert await offsets(broker, group_id="nobody") == {}


async def test_an_empty_group_is_moved(broker: ShareBroker) -> None:
    await broker.join("a", ["orders"])
    assert (await alter(broker, 5)).error_code == ErrorCode.NON_EMPTY_GROUP
    await broker.fetch("a", 0)
    await broker.heartbeat("a", -1)
    response = await alter(broker, 5)
    assert [(topic.topic_name, [part.error_code for part in topic.partitions]) for topic in response.responses] == [
        ("missing", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ("orders", [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    ]
    assert (await offsets(broker))["orders-0"] == (5, 5)
    await broker.join("b", ["orders"])
    assert lent(await broker.fetch("b", 0)) == [(5, 9, 1)]
    assert (await alter(broker, 5, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID


async def test_a_group_that_does_not_exist_can_be_moved(broker: ShareBroker) -> None:
    await broker.join("a", ["orders"], group_id="other")
    assert (await alter(broker, 7)).error_code == ErrorCode.NONE
    assert await offsets(broker) == {"orders-0": (7, 3)}


async def test_a_lag_beyond_64_bits_wraps_around_as_in_kafka(broker: ShareBroker) -> None:
    lowest = -(2**63)
    await broker.join("a", ["orders"], group_id="other")
    assert (await alter(broker, lowest)).error_code == ErrorCode.NONE
    assert await offsets(broker) == {"orders-0": (lowest, lowest + 10)}


async def test_an_empty_group_forgets_topics(broker: ShareBroker) -> None:
    topics = [DeleteShareGroupOffsetsRequestTopic("orders"), DeleteShareGroupOffsetsRequestTopic("missing")]
    request = DeleteShareGroupOffsetsRequest(group_id="g", topics=topics)
    await broker.join("a", ["orders"])
    assert (await broker.call(request)).error_code == ErrorCode.NON_EMPTY_GROUP
    await broker.heartbeat("a", -1)
    response = await broker.call(request)
    assert [(topic.topic_name, topic.error_code) for topic in response.responses] == [
        ("orders", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert await offsets(broker) == {}
    unknown = DeleteShareGroupOffsetsRequest(group_id="nobody", topics=topics)
    assert (await broker.call(unknown)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await broker.call(DeleteShareGroupOffsetsRequest())).error_code == ErrorCode.INVALID_GROUP_ID


async def test_a_group_is_deleted_with_all_that_is_kept_for_it(broker: ShareBroker) -> None:
    await broker.join("a", ["orders"])
    await broker.fetch("a", 0)
    await broker.acknowledge("a", 1, (0, 3, [ACCEPT]))
    request = DeleteGroupsRequest(groups_names=["g"])
    assert (await broker.call(request)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await broker.heartbeat("a", -1)
    assert (await broker.call(request)).results[0].error_code == ErrorCode.NONE
    assert (await broker.call(ListGroupsRequest())).groups == []
    await broker.join("b", ["orders"])
    assert lent(await broker.fetch("b", 0)) == [(0, 9, 1)]


async def test_a_deleted_topic_leaves_nothing_behind(broker: ShareBroker) -> None:
    await broker.join("a", ["orders"])
    await broker.fetch("a", 0)
    await broker.node.services.topics.delete("orders")
    await broker.create("orders", 1)
    assert await offsets(broker) == {}


async def test_groups_are_described(broker: ShareBroker) -> None:
    await broker.join("a", ["orders"])
    request = ShareGroupDescribeRequest(group_ids=["g", "", "nobody"], include_authorized_operations=True)
    described, unnamed, unknown = (await broker.call(request)).groups
    assert (described.group_state, described.assignor_name, described.authorized_operations) == (
        "Stable",
        "simple",
        3400,
    )
    assert described.members[0].client_host == "/127.0.0.1"
    assert unnamed.error_code == ErrorCode.INVALID_GROUP_ID
    assert (unknown.error_code, unknown.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group nobody not found.")


@pytest.mark.parametrize("member_id", ["", "m" * 37])
async def test_members_have_names_that_kafka_would_take(broker: ShareBroker, member_id: str) -> None:
    assert (await broker.heartbeat(member_id, 0, ["orders"])).error_code == ErrorCode.INVALID_REQUEST


async def test_configs_of_groups_are_described_and_listed(broker: ShareBroker) -> None:
    await broker.configure("g", share_record_lock_duration_ms="20000")
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name="g", configuration_keys=None)
    (result,) = (await broker.call(DescribeConfigsRequest(resources=[resource], include_synonyms=True))).results
    shown = {config.name: (config.value, config.config_source) for config in result.configs}
    assert shown["share.auto.offset.reset"] == ("earliest", 8)
    assert shown["share.record.lock.duration.ms"] == ("20000", 8)
    assert shown["share.delivery.count.limit"] == ("5", 5)
    listed = await broker.call(ListConfigResourcesRequest(resource_types=[GROUP]))
    assert [found.resource_name for found in listed.config_resources] == ["g"]


async def test_without_the_feature_there_are_no_share_groups(broker: ShareBroker) -> None:
    update = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=3)
    assert (await broker.call(UpdateFeaturesRequest(timeout_ms=1_000, feature_updates=[update]))).error_code == 0
    for request in (ShareGroupHeartbeatRequest(member_id="m"), AlterShareGroupOffsetsRequest(group_id="g")):
        assert (await broker.call(request)).error_code == ErrorCode.UNSUPPORTED_VERSION
