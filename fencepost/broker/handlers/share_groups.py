"""ShareGroupHeartbeat and ShareGroupDescribe: groups whose members share partitions record by record (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fencepost.broker.handlers.group_admin import describe_in_turn, describing_failed
from fencepost.broker.hosting.features import SHARE_VERSION
from fencepost.broker.requests.api import RequestContext, SlicedResponse, api
from fencepost.broker.requests.declared_errors import COORDINATOR_AWAY, codes
from fencepost.broker.requests.declared_rights import Items, NeededRights
from fencepost.broker.rights.needed_rights import (
    DESCRIBE,
    GROUP,
    READ,
    both,
    described_topics,
    groups_without_hidden_topics,
    named,
    subscribed_topics,
    whole,
)
from fencepost.broker.share.service import (
    ShareService,  # not in a request: descriptors may be short
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_groups import (
    ShareGroupDescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

MAX_MEMBER_ID_LENGTH = 36


def are_share_groups_on(context: RequestContext) -> bool:
    """Whether the feature level of the cluster has share groups."""
    return context.services.features.level(SHARE_VERSION) > 0


def is_member_id(member_id: str | None) -> bool:
    """Whether this can be the member id that a client made: at most as long as a UUID in text."""
    return bool(member_id) and len(member_id or "") <= MAX_MEMBER_ID_LENGTH


# ShareGroupHeartbeat


@api(
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    versions="1",
    rights=NeededRights(both(whole(READ, GROUP, "group_id"), described_topics(subscribed_topics))),
    errors=COORDINATOR_AWAY
    | codes(
        "UNKNOWN_MEMBER_ID TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED UNSUPPORTED_VERSION "
        "INVALID_REQUEST GROUP_ID_NOT_FOUND GROUP_MAX_SIZE_REACHED FENCED_MEMBER_EPOCH"
    ),
)
async def handle_share_group_heartbeat(
    context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """A member joins, stays or leaves, and gets its assignment. Refuses: see `ShareGroupHeartbeatResponse`."""
    if not are_share_groups_on(context):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not is_member_id(request.member_id):
        return ShareGroupHeartbeatResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="Invalid member id in the request."
        )
    shares: ShareService = context.services.shares
    return await shares.heartbeat(
        request,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",  # as Java prints an address
    )


# ShareGroupDescribe


share_group_describe_failed = describing_failed(ShareGroupDescribeResponse, ShareGroupDescribedGroup)


def _share_topics(group: Any) -> Iterator[str]:
    for member in group.members:
        for topic in member.assignment.topic_partitions:
            yield topic.topic_name


@api(
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    versions="1",
    rights=NeededRights(
        items=(Items("group_ids", "groups", named(DESCRIBE, GROUP), are_first=True),),
        finish=groups_without_hidden_topics(_share_topics),
    ),
    errors=COORDINATOR_AWAY
    | codes(
        "INVALID_GROUP_ID TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED UNSUPPORTED_VERSION GROUP_ID_NOT_FOUND"
    ),
    failed=share_group_describe_failed,
)
async def handle_share_group_describe(
    context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse | SlicedResponse:
    """Describe state, epochs, members and assignments of each share group.

    Refuses, per group: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND (also for groups of other kinds), the coordinator's errors.
    """
    if not are_share_groups_on(context):
        return share_group_describe_failed(request, ErrorCode.UNSUPPORTED_VERSION, context.api_version)

    async def describe(group_id: str) -> ShareGroupDescribedGroup:
        if not group_id:
            return ShareGroupDescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
        return await context.services.shares.describe(group_id)

    return await describe_in_turn(request, request.group_ids, describe, ShareGroupDescribeResponse)
