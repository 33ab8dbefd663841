"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup, as each version says it on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fencepost.broker.group.classic.group import ClassicGroup
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_admin import DescribedGroup
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.support.group_broker import GroupBroker


@pytest.fixture
async def broker() -> AsyncIterator[GroupBroker]:
    async with GroupBroker() as made:
        yield made


def join_request(**fields: object) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"metadata")],
        **fields,  # type: ignore[arg-type]  # fields of the request
    )


@pytest.mark.parametrize("version", range(10))
async def test_a_group_of_one_is_formed_in_every_version(broker: GroupBroker, version: int) -> None:
    joined = await broker.join(version=version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("app-")
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, b"metadata")]
    if version >= 7:
        assert joined.protocol_type == "consumer"
    synced = await broker.call(
        SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
        ),
        min(version, 5),
    )
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"all")
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert (await broker.call(heartbeat, min(version, 4))).error_code == ErrorCode.NONE
    leave = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
    if version >= 3:
        leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=joined.member_id)])
    left = await broker.call(leave, min(version, 5))
    assert left.error_code == ErrorCode.NONE
    assert [member.error_code for member in left.members] == ([ErrorCode.NONE] if version >= 3 else [])


@pytest.mark.parametrize("version", range(4))
async def test_members_of_old_versions_join_with_one_request(broker: GroupBroker, version: int) -> None:
    assert (await broker.call(join_request(), version)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(4, 10))
async def test_new_members_first_get_their_id(broker: GroupBroker, version: int) -> None:
    response = await broker.call(join_request(), version)
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id == "app-1"
    assert (response.generation_id, response.leader, response.members) == (-1, "", [])
    assert response.protocol_name == (None if version >= 7 else "")


async def test_version_0_has_no_rebalance_timeout_and_means_the_session_timeout(broker: GroupBroker) -> None:
    await broker.call(join_request(), 0)
    shard = next(p.shard for p in broker.groups._runtime.partitions() if p.shard._groups)
    group = shard._groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.rebalance_timeout_ms == 10_000


async def test_a_static_leader_skips_the_assignment_since_version_9(broker: GroupBroker) -> None:
    joined = await broker.call(join_request(group_instance_id="i"))
    await broker.call(
        SyncGroupRequest(
            group_id="g", generation_id=1, member_id=joined.member_id, protocol_type="consumer", protocol_name="range"
        )
    )
    again = await broker.call(join_request(group_instance_id="i"))
    assert (again.skip_assignment, again.leader) == (True, again.member_id)
    once_more = await broker.call(join_request(group_instance_id="i"), 8)
    assert (once_more.skip_assignment, once_more.leader) == (False, again.member_id)
    assert once_more.member_id != again.member_id


async def test_members_are_shown_the_way_java_prints_addresses(broker: GroupBroker) -> None:
    await broker.stable_member()
    described = await broker.groups.describe_group("g")
    assert isinstance(described, DescribedGroup)
    assert described.members[0].client_host == "/127.0.0.1"


@pytest.mark.parametrize(("protocol_type", "protocol_name"), [(None, "range"), ("consumer", None)])
async def test_sync_must_name_the_protocol_since_version_5(
    broker: GroupBroker, protocol_type: str | None, protocol_name: str | None
) -> None:
    member_id = await broker.stable_member()
    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=member_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
    )
    assert (await broker.call(request, 5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await broker.call(request, 4)).error_code == ErrorCode.NONE


async def test_a_member_that_is_not_there_cannot_leave(broker: GroupBroker) -> None:
    await broker.stable_member()
    request = LeaveGroupRequest(group_id="g", member_id="m", members=[MemberIdentity(member_id="m")])
    assert (await broker.call(request, 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    batch = await broker.call(request, 3)
    assert batch.error_code == ErrorCode.NONE
    assert [member.error_code for member in batch.members] == [ErrorCode.UNKNOWN_MEMBER_ID]
    request.group_id = ""
    assert (await broker.call(request, 5)).error_code == ErrorCode.INVALID_GROUP_ID


async def test_a_member_that_waits_is_answered_when_the_others_have_joined(broker: GroupBroker) -> None:
    first = await broker.stable_member()
    waiting = broker.start_call(join_request(), 3)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=first)
    assert (await broker.call(heartbeat)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    joined = await broker.join(member_id=first)
    assert len(joined.members) == 2
    assert (await waiting).generation_id == joined.generation_id == 2


@pytest.mark.parametrize("version", range(10))
async def test_a_join_that_fails_as_a_whole_says_so_in_every_version(broker: GroupBroker, version: int) -> None:
    response = broker.failed(join_request(member_id="m"), ErrorCode.NOT_COORDINATOR, version)
    assert (response.error_code, response.member_id, response.generation_id) == (ErrorCode.NOT_COORDINATOR, "", -1)


@pytest.mark.parametrize("request_type", [SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest])
async def test_requests_that_fail_as_a_whole_say_so(broker: GroupBroker, request_type: type) -> None:
    for version in range(request_type.minimum_version, request_type.maximum_version + 1):  # type: ignore[attr-defined]
        assert broker.failed(request_type(), ErrorCode.NOT_COORDINATOR, version).error_code == ErrorCode.NOT_COORDINATOR
