"""DescribeGroups, ListGroups and DeleteGroups, as each version says it on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fencepost.broker.group import service
from fencepost.broker.group.offsets.commits import Committer, OffsetToCommit
from fencepost.broker.handlers import group_admin
from fencepost.broker.handlers.group_admin import GROUP_OPERATIONS
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from tests.support.group_broker import GroupBroker
from tests.support.longest_step import steps_until_done

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
async def test_an_unknown_group_is_dead_and_since_version_6_not_found(broker: GroupBroker, version: int) -> None:
    (group,) = (await broker.call(DescribeGroupsRequest(groups=["unknown"]), version)).groups
    assert (group.group_id, group.group_state) == ("unknown", "Dead")
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    assert group.error_message == ("Group unknown not found." if version >= 6 else None)


async def test_operations_are_listed_on_request(broker: GroupBroker) -> None:
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


@pytest.mark.parametrize("version", range(4))
async def test_only_empty_groups_are_deleted(broker: GroupBroker, version: int) -> None:
    request = DeleteGroupsRequest(groups_names=["members", "simple", "unknown"])
    response = await broker.call(request, version)
    assert [(result.group_id, result.error_code) for result in response.results] == [
        ("members", ErrorCode.NON_EMPTY_GROUP),
        ("simple", ErrorCode.NONE),
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert {result.error_message for result in response.results} == {None}, "as in Kafka, the code says it"


async def test_groups_of_another_coordinator_are_refused_one_by_one() -> None:
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


# Many groups

GROUPS_COUNT = 1_500


async def test_many_groups_are_listed_described_and_deleted_while_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (service, group_admin):
        monkeypatch.setattr(module, "SLICE_S", 0.0)
    group_ids = [f"group-{number}" for number in range(GROUPS_COUNT)]
    async with GroupBroker() as broker:
        offset = OffsetToCommit(TopicPartition("orders", 0), broker.topic_id("orders"), 5, -1, "")
        for group_id in group_ids:
            committer = Committer()
            assert await broker.groups.commit_offsets(group_id, committer, [offset], retention_time_ms=-1) == [0]

        async def in_slices(request: Any) -> Any:
            answering = asyncio.ensure_future(broker.call(request))
            steps = await steps_until_done(answering)
            assert steps.turns_count > GROUPS_COUNT / 100
            return await answering

        listed = await in_slices(ListGroupsRequest(states_filter=["empty"]))
        assert [group.group_id for group in listed.groups] == sorted(group_ids)
        described = await in_slices(DescribeGroupsRequest(groups=[*group_ids, "none"]))
        assert [group.error_code for group in described.groups] == [0] * GROUPS_COUNT + [ErrorCode.GROUP_ID_NOT_FOUND]
        consumers = await in_slices(ConsumerGroupDescribeRequest(group_ids=group_ids))
        assert {group.error_code for group in consumers.groups} == {ErrorCode.GROUP_ID_NOT_FOUND}
        deleted = await in_slices(DeleteGroupsRequest(groups_names=group_ids))
        assert {result.error_code for result in deleted.results} == {0}
        assert (await broker.call(ListGroupsRequest())).groups == []


async def test_a_list_of_many_groups_is_never_without_those_of_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "SLICE_S", 0.0)
    monkeypatch.setattr(service, "GROUPS_PER_STEP", 1)
    async with GroupBroker() as broker:
        offset = OffsetToCommit(TopicPartition("orders", 0), broker.topic_id("orders"), 5, -1, "")
        for number in range(50):
            committer = Committer()
            await broker.groups.commit_offsets(f"group-{number}", committer, [offset], retention_time_ms=-1)
        listing = asyncio.ensure_future(broker.groups.list_groups())
        for _ in range(5):
            await asyncio.sleep(0)
        last = list(broker.groups._runtime.partitions())[-1]
        broker.groups._offsets_topic.reload(last.log)
        assert await listing is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await broker.groups.ensure_loaded()
        assert len(await broker.groups.list_groups()) == 50  # type: ignore[arg-type]  # no error
