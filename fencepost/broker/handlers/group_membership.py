"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: membership in classic groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencepost.broker.group.classic.rebalance import refuse_join, refuse_sync
from fencepost.broker.requests.api import RequestContext, api
from fencepost.broker.requests.declared_errors import GROUP_MEMBER, codes
from fencepost.broker.requests.declared_rights import Needed, NeededRights, Refusal
from fencepost.broker.rights.needed_rights import GROUP, READ, lacks, whole
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.security.authorizer import Rights


JOIN_REQUIRES_KNOWN_MEMBER_ID = 4  # KIP-394
JOIN_KNOWS_NULL_PROTOCOL = 7
JOIN_CAN_SKIP_ASSIGNMENT = 9  # KIP-814
SYNC_NAMES_PROTOCOL = 5  # KIP-559
FIRST_BATCH_LEAVE = 3  # KIP-345


# JoinGroup


def join_group_failed(request: JoinGroupRequest, error: ErrorCode, version: int) -> JoinGroupResponse:
    return _join_group_response(refuse_join(error), version)


def _join_group_response(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if response.protocol_name is None and version < JOIN_KNOWS_NULL_PROTOCOL:
        response.protocol_name = ""
    return response


@api(
    JoinGroupRequest,
    JoinGroupResponse,
    versions="0-9",
    rights=NeededRights(whole(READ, GROUP, "group_id")),
    errors=GROUP_MEMBER
    | codes(
        "INCONSISTENT_GROUP_PROTOCOL INVALID_SESSION_TIMEOUT REBALANCE_IN_PROGRESS MEMBER_ID_REQUIRED "
        "GROUP_MAX_SIZE_REACHED"
    ),
    failed=join_group_failed,
    is_cancelled_on_disconnect=True,
)
async def handle_join_group(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    """Join a group, or join again; the reply comes when all members have joined."""
    version = context.api_version
    response = await context.services.groups.join_group(
        request,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",  # as Java prints an address: tools cut the slash off
        requires_known_member_id=version >= JOIN_REQUIRES_KNOWN_MEMBER_ID,
        can_skip_assignment=version >= JOIN_CAN_SKIP_ASSIGNMENT,
    )
    return _join_group_response(response, version)


# SyncGroup


def sync_group_failed(request: SyncGroupRequest, error: ErrorCode, version: int) -> SyncGroupResponse:
    return refuse_sync(error)


def _rights_to_sync(rights: Rights, context: RequestContext, request: Any) -> Refusal | None:
    """A request that lacks the required protocol is refused for that, with or without rights."""
    if context.api_version >= SYNC_NAMES_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return None
    return lacks(rights, Needed(READ, GROUP, request.group_id))


@api(
    SyncGroupRequest,
    SyncGroupResponse,
    versions="0-5",
    rights=NeededRights(_rights_to_sync),
    errors=GROUP_MEMBER | codes("ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL REBALANCE_IN_PROGRESS"),
    failed=sync_group_failed,
    is_cancelled_on_disconnect=True,
)
async def handle_sync_group(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """Get the assignment of a generation, which the leader sends; the reply comes when it is known."""
    if context.api_version >= SYNC_NAMES_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return refuse_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return await context.services.groups.sync_group(request)


# Heartbeat


@api(
    HeartbeatRequest,
    HeartbeatResponse,
    versions="0-4",
    rights=NeededRights(whole(READ, GROUP, "group_id")),
    errors=GROUP_MEMBER | codes("ILLEGAL_GENERATION REBALANCE_IN_PROGRESS"),
)
async def handle_heartbeat(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Keep a member alive, and report to it a rebalance that it has to join.

    Refuses: REBALANCE_IN_PROGRESS (join again), ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
    INVALID_GROUP_ID, and the coordinator's errors.
    """
    return HeartbeatResponse(error_code=await context.services.groups.heartbeat(request))


# LeaveGroup


@api(
    LeaveGroupRequest,
    LeaveGroupResponse,
    versions="0-5",
    rights=NeededRights(whole(READ, GROUP, "group_id")),
    errors=GROUP_MEMBER,
)
async def handle_leave_group(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove one member (0 to 2), or any number of them, each with its own result."""
    is_batch = context.api_version >= FIRST_BATCH_LEAVE
    members = request.members if is_batch else [MemberIdentity(member_id=request.member_id)]
    response = await context.services.groups.leave_group(request.group_id, members)
    if not is_batch and response.members:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response
