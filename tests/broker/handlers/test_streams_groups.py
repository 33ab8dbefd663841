"""StreamsGroupHeartbeat, StreamsGroupDescribe and StreamsGroupTopologyDescriptionUpdate, what the older APIs say of
streams groups, and the internal topics that are created for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fencepost.broker.group.streams.topology import TopologyStatus
from fencepost.broker.handlers.group_admin import GROUP_OPERATIONS
from fencepost.broker.hosting.features import FeatureUpdate
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from fencepost.protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from fencepost.protocol.streams_topology import StreamsKeyValue, StreamsTaskIds
from tests.support.group_broker import GroupBroker
from tests.support.streams_group import CHANGELOG, REPARTITION, counting

UNSAFE_DOWNGRADE = 3
EAGER = {"group_streams_initial_rebalance_delay_ms": 0, "group_streams_assignment_interval_ms": 0}


@pytest.fixture
async def broker() -> AsyncIterator[GroupBroker]:
    broker = GroupBroker(**EAGER)
    await broker.start()
    yield broker
    await broker.groups.close()


async def heartbeat(
    broker: GroupBroker, epoch: int, *, version: int = 1, **fields: Any
) -> StreamsGroupHeartbeatResponse:
    request = StreamsGroupHeartbeatRequest(**{"group_id": "g", "member_id": "a", "member_epoch": epoch, **fields})
    response = await broker.call(request, version)
    assert isinstance(response, StreamsGroupHeartbeatResponse)
    return response


async def join(broker: GroupBroker, **fields: Any) -> StreamsGroupHeartbeatResponse:
    wanted = {"rebalance_timeout_ms": 60_000, "process_id": "p", "topology": counting("orders")}
    return await heartbeat(broker, 0, **{**wanted, **fields})


async def join_and_settle(broker: GroupBroker) -> StreamsGroupHeartbeatResponse:
    joined = await join(broker)
    await broker.groups.streams.settled()
    return await heartbeat(broker, joined.member_epoch)


async def test_a_member_joins_gets_tasks_and_leaves(broker: GroupBroker) -> None:
    joined = await join(broker)
    assert (joined.error_code, joined.member_id, joined.active_tasks) == (ErrorCode.NONE, "a", [])
    await broker.groups.streams.settled()
    assert [broker.topics.metadata.get(name) is not None for name in (REPARTITION, CHANGELOG)] == [True, True]
    settled = await heartbeat(broker, joined.member_epoch)
    assert settled.active_tasks == [StreamsTaskIds("0", [0, 1]), StreamsTaskIds("1", [0, 1])]
    assert settled.status == []
    left = await heartbeat(broker, -1)
    assert (left.error_code, left.member_id, left.member_epoch, left.status) == (ErrorCode.NONE, "a", -1, [])


@pytest.mark.parametrize(("version", "acceptable_lag"), [(0, -1), (1, 10_000)])
async def test_the_group_says_how_it_wants_offsets_and_wants_no_description(
    broker: GroupBroker, version: int, acceptable_lag: int
) -> None:
    joined = await join(broker, version=version)
    assert joined.task_offset_interval_ms == 60_000
    assert (joined.acceptable_recovery_lag, joined.topology_description_required) == (acceptable_lag, False)


@pytest.mark.parametrize(("version", "is_warned"), [(0, False), (1, True)])
async def test_a_member_without_the_client_tags_of_its_group_is_warned(version: int, is_warned: bool) -> None:
    broker = GroupBroker(**EAGER, group_streams_rack_aware_assignment_tags=("zone", "rack"))
    await broker.start()
    tagged = await join(broker, version=version, client_tags=[StreamsKeyValue("zone", "a")])
    details = {one.status_code: one.status_detail for one in tagged.status or ()}
    assert (TopologyStatus.MISSING_CLIENT_TAGS in details) is is_warned
    assert not is_warned or details[TopologyStatus.MISSING_CLIENT_TAGS].endswith("lacks: rack.")
    await broker.groups.close()


@pytest.mark.parametrize(("is_asked", "status"), [(False, 0), (True, 1)])
async def test_version_1_describes_the_assignor_and_that_no_description_is_stored(
    broker: GroupBroker, is_asked: bool, status: int
) -> None:
    await join_and_settle(broker)
    request = StreamsGroupDescribeRequest(["g", "missing"], include_topology_description=is_asked)
    found, missing = (await broker.call(request, 1)).groups
    assert (found.assignor_name, found.topology_description, found.topology_description_status) == (
        "sticky",
        None,
        status,
    )
    assert (missing.assignor_name, missing.topology_description_status) == (None, 0)


async def test_a_description_of_the_topology_finds_no_plugin(broker: GroupBroker) -> None:
    request = StreamsGroupTopologyDescriptionUpdateRequest(group_id="g", member_id="a")
    answer = await broker.call(request, 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.error_message == "The broker has no streams group topology description plugin configured."
    await broker.features.update([FeatureUpdate("streams.version", 0, UNSAFE_DOWNGRADE)])
    answer = await broker.call(request, 0)
    assert (answer.error_code, answer.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)


async def test_a_group_outlives_a_restart(broker: GroupBroker) -> None:
    epoch = (await join_and_settle(broker)).member_epoch
    await broker.restart()
    again = await heartbeat(broker, epoch)
    assert (again.error_code, again.member_epoch, again.active_tasks) == (ErrorCode.NONE, epoch, None)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "__consumer_offsets",
            "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
        ),
        ("a b", "Topic names a b are not valid topic names."),
    ],
)
async def test_topics_that_cannot_be_read_make_an_invalid_topology(
    broker: GroupBroker, source: str, message: str
) -> None:
    refused = await join(broker, topology=counting(source))
    assert (refused.error_code, refused.error_message) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


@pytest.mark.parametrize("failure", ["Too many partitions.", StorageError("The disk is full.")])
async def test_topics_that_cannot_be_created_are_reported_until_the_report_expires(
    broker: GroupBroker, failure: str | StorageError
) -> None:
    broker.topics.creation_refusals[CHANGELOG] = failure
    joined = await join(broker)
    await broker.groups.streams.settled()
    reply = await heartbeat(broker, joined.member_epoch)
    (status,) = reply.status or []
    assert status.status_code == TopologyStatus.MISSING_INTERNAL_TOPICS
    assert status.status_detail == (
        f"Internal topics are missing: {CHANGELOG}; Creation failed: {CHANGELOG} ({failure})."
    )
    broker.topics.creation_refusals.clear()
    broker.clock.time_ms += 10_000
    again = await heartbeat(broker, reply.member_epoch)
    assert "failed" not in (again.status or [])[0].status_detail
    await broker.groups.streams.settled()
    assert (await heartbeat(broker, again.member_epoch)).status == []


async def test_more_replicas_than_there_are_brokers_cannot_be(broker: GroupBroker) -> None:
    topology = counting("orders")
    topology.subtopologies[1].state_changelog_topics[0].replication_factor = 3
    joined = await join(broker, topology=topology)
    await broker.groups.streams.settled()
    (status,) = (await heartbeat(broker, joined.member_epoch)).status or []
    assert "Unable to replicate the partition 3 time(s)" in status.status_detail
    assert broker.topics.metadata.get(REPARTITION) is not None


async def test_the_settings_of_a_group_are_in_force(broker: GroupBroker) -> None:
    configs = {"streams.heartbeat.interval.ms": "7000", "streams.num.standby.replicas": "1"}
    assert await broker.group_configs.alter("g", lambda _: configs, validate_only=False) == (ErrorCode.NONE, None)
    first = await join_and_settle(broker)
    second = await join(broker, member_id="b", process_id="q")
    assert second.error_code == ErrorCode.NONE
    broker.clock.time_ms += 4_000
    for _ in range(4):
        first = await heartbeat(broker, first.member_epoch, active_tasks=[], standby_tasks=[], warmup_tasks=[])
        second = await heartbeat(
            broker, second.member_epoch, member_id="b", active_tasks=[], standby_tasks=[], warmup_tasks=[]
        )
        broker.clock.time_ms += 4_000
    assert [len(response.standby_tasks or []) for response in (first, second)] == [1, 1]
    assert first.heartbeat_interval_ms == 7_000


async def test_groups_are_described_with_their_members(broker: GroupBroker) -> None:
    await join_and_settle(broker)
    request = StreamsGroupDescribeRequest(["g", "unknown", ""], include_authorized_operations=True)
    found, unknown, nameless = (await broker.call(request, 0)).groups
    assert (found.group_state, found.authorized_operations) == ("Stable", GROUP_OPERATIONS)
    assert [subtopology.subtopology_id for subtopology in found.topology.subtopologies] == ["0", "1"]
    assert found.members[0].client_host == "/127.0.0.1"
    assert (unknown.error_code, unknown.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group unknown not found.")
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


async def test_other_apis_know_streams_groups_for_what_they_are(broker: GroupBroker) -> None:
    await join(broker)
    (listed,) = (await broker.call(ListGroupsRequest(types_filter=["Streams"]))).groups
    assert (listed.group_id, listed.protocol_type, listed.group_type) == ("g", "streams", "streams")
    assert (await broker.call(ListGroupsRequest(types_filter=["consumer"]))).groups == []
    (classic,) = (await broker.call(DescribeGroupsRequest(["g"]))).groups
    assert (classic.error_code, classic.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a classic group.",
    )
    (consumer,) = (await broker.call(ConsumerGroupDescribeRequest(["g"]))).groups
    assert consumer.error_message == "Group g is not a consumer group."
    (deleted,) = (await broker.call(DeleteGroupsRequest(["g"]))).results
    assert deleted.error_code == ErrorCode.NON_EMPTY_GROUP
    await heartbeat(broker, -1)
    (deleted,) = (await broker.call(DeleteGroupsRequest(["g"]))).results
    assert deleted.error_code == ErrorCode.NONE


async def test_without_the_feature_there_are_no_streams_groups(broker: GroupBroker) -> None:
    await broker.features.update([FeatureUpdate("streams.version", 0, UNSAFE_DOWNGRADE)])
    assert (await join(broker)).error_code == ErrorCode.UNSUPPORTED_VERSION
    (described,) = (await broker.call(StreamsGroupDescribeRequest(["g"]), 0)).groups
    assert described.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_no_member_is_served_before_the_coordinator_is_loaded() -> None:
    broker = GroupBroker()
    await broker.start(create=False)
    assert (await join(broker)).error_code == ErrorCode.NOT_COORDINATOR
    (described,) = (await broker.call(StreamsGroupDescribeRequest(["g"]), 0)).groups
    assert described.error_code == ErrorCode.NOT_COORDINATOR
    await broker.groups.close()
