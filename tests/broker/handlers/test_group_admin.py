"""DescribeGroups, ListGroups and DeleteGroups, as each version says it on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker.group.offsets.commits import Committer, OffsetToCommit
from broker.handlers.group_admin import GROUP_OPERATIONS
from broker.topic_partition import TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from tests.support.group_broker import GroupBroker

NOT_ASKED_FOR = -(2**31)


@pytest.fixture
async def broker() -> AsyncIterator[GroupBroker]:
    """A stable group `members` and a group `simple` that only has an offset."""
    made = GroupBroker()
    await made.start()
    await made.stable_member("members")
    offset = OffsetToCommit(TopicPartition("orders", 0), made.topic_id("orders"), 5, -1, "")
    await made.groups.commit_offsets("simple", Committer(), [offset], retention_time_ms=-1)
    yield made
    await made.groups.close()


@pytest.mark.parametrize("version", range(7))
async def test_groups_are_described_in_every_version(broker: GroupBroker, version: int) -> None:
    response = await broker.call(DescribeGroupsRequest(groups=["members", "simple"]), version)
    members, simple = response.groups
    assert (members.error_code, members.group_state, members.protocol_type) == (ErrorCode.NONE, "Stable", "consumer")
    assert members.protocol_data == "range"
    assert [(m.client_id, m.member_metadata, m.member_assignment) for m in members.members] == [
        ("app", b"metadata", b"assigned")
    ]
    assert (simple.group_state, simple.protocol_type, simple.members) == ("Empty", "", [])
    assert members.authorized_operations == NOT_ASKED_FOR


@pytest.mark.parametrize("version", range(7))
async def test_a_group_nobody_knows_is_dead_and_since_version_6_not_found(broker: GroupBroker, version: int) -> None:
    (group,) = (await broker.call(DescribeGroupsRequest(groups=["unknown"]), version)).groups
    assert (group.group_id, group.group_state) == ("unknown", "Dead")
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    assert group.error_message == ("Group unknown not found." if version >= 6 else None)


async def test_operations_are_told_when_asked_for(broker: GroupBroker) -> None:
    request = DescribeGroupsRequest(groups=["members", "unknown"], include_authorized_operations=True)
    known, unknown = (await broker.call(request)).groups
    assert (known.authorized_operations, unknown.authorized_operations) == (GROUP_OPERATIONS, NOT_ASKED_FOR)


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_in_every_version(broker: GroupBroker, version: int) -> None:
    response = await broker.call(ListGroupsRequest(), version)
    assert response.error_code == ErrorCode.NONE
    assert [(group.group_id, group.protocol_type) for group in response.groups] == [
        ("members", "consumer"),
        ("simple", ""),
    ]
    assert [group.group_state for group in response.groups] == (["Stable", "Empty"] if version >= 4 else ["", ""])
    assert [group.group_type for group in response.groups] == (["classic"] * 2 if version >= 5 else ["", ""])


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        (["Stable"], [], ["members"]),
        (["empty", "dead"], [], ["simple"]),
        ([], ["classic"], ["members", "simple"]),
        ([], ["consumer"], []),
        (["Stable"], ["Classic", "consumer"], ["members"]),
        (["nonsense"], [], []),
    ],
)
async def test_the_list_is_filtered(
    broker: GroupBroker, states: list[str], types: list[str], listed: list[str]
) -> None:
    response = await broker.call(ListGroupsRequest(states_filter=states, types_filter=types))
    assert [group.group_id for group in response.groups] == listed


@pytest.mark.parametrize("version", range(3))
async def test_only_empty_groups_are_deleted(broker: GroupBroker, version: int) -> None:
    request = DeleteGroupsRequest(groups_names=["members", "simple", "unknown"])
    response = await broker.call(request, version)
    assert [(result.group_id, result.error_code) for result in response.results] == [
        ("members", ErrorCode.NON_EMPTY_GROUP),
        ("simple", ErrorCode.NONE),
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


async def test_a_coordinator_that_is_elsewhere_is_told_group_by_group() -> None:
    lost = GroupBroker()
    await lost.start(create=False)
    (group,) = (await lost.call(DescribeGroupsRequest(groups=["g"]))).groups
    assert (group.group_id, group.error_code) == ("g", ErrorCode.NOT_COORDINATOR)
    (result,) = (await lost.call(DeleteGroupsRequest(groups_names=["g"]))).results
    assert (result.group_id, result.error_code) == ("g", ErrorCode.NOT_COORDINATOR)
    await lost.groups.close()


async def test_requests_that_fail_as_a_whole_say_so(broker: GroupBroker) -> None:
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.failed(DescribeGroupsRequest(groups=["g"]), error, 6).groups[0].error_code == error
    assert broker.failed(ListGroupsRequest(), error, 5).error_code == error
    assert broker.failed(DeleteGroupsRequest(groups_names=["g"]), error, 2).results[0].error_code == error
