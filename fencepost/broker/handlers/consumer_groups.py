"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups in which the broker assigns the partitions (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fencepost.broker.group.modern import every_name
from fencepost.broker.handlers.group_admin import describe_in_turn, describing_failed
from fencepost.broker.hosting.features import GROUP_VERSION
from fencepost.broker.requests.api import RequestContext, SlicedResponse, api
from fencepost.broker.requests.declared_errors import COORDINATOR_AWAY, GROUP_MEMBER, codes
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
from fencepost.broker.security.acls import AclOperation, AclResource
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

# ConsumerGroupHeartbeat


@api(
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    versions="0-1",
    rights=NeededRights(both(whole(READ, GROUP, "group_id"), described_topics(subscribed_topics))),
    errors=GROUP_MEMBER
    | codes(
        "TOPIC_AUTHORIZATION_FAILED UNSUPPORTED_VERSION INVALID_REQUEST GROUP_ID_NOT_FOUND "
        "GROUP_MAX_SIZE_REACHED FENCED_MEMBER_EPOCH UNRELEASED_INSTANCE_ID UNSUPPORTED_ASSIGNOR "
        "INVALID_REGULAR_EXPRESSION"
    ),
)
async def handle_consumer_group_heartbeat(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """A member joins, stays or leaves, and gets its assignment. Refuses: see `ConsumerGroupHeartbeatResponse`."""
    if not context.services.features.level(GROUP_VERSION):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return await context.services.groups.consumer_heartbeat(
        request,
        context.api_version,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",  # as Java prints an address
        may_describe=_may_describe(context),
    )


def _may_describe(context: RequestContext) -> Callable[[str], bool]:
    """The filter for topics that a regular expression matches. Source: KIP-848; Kafka's GroupMetadataManager."""
    gate = context.services.gate
    if gate is None:
        return every_name
    rights = gate.rights_of(context)
    return lambda name: rights.may(AclOperation.DESCRIBE, AclResource.TOPIC, name)


# ConsumerGroupDescribe


consumer_group_describe_failed = describing_failed(ConsumerGroupDescribeResponse, ConsumerGroupDescribedGroup)


def _consumer_topics(group: Any) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for topic in assignment.topic_partitions:
                yield topic.topic_name


@api(
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    versions="0-1",
    rights=NeededRights(
        items=(Items("group_ids", "groups", named(DESCRIBE, GROUP), are_first=True),),
        finish=groups_without_hidden_topics(_consumer_topics),
    ),
    errors=COORDINATOR_AWAY
    | codes("INVALID_GROUP_ID TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED GROUP_ID_NOT_FOUND"),
    failed=consumer_group_describe_failed,
)
async def handle_consumer_group_describe(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse | SlicedResponse:
    """Describe state, epochs, members and assignments of each group of the consumer protocol.

    Refuses, per group: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND (also for groups of other kinds), the coordinator's errors.
    """
    if not context.services.features.level(GROUP_VERSION):
        return consumer_group_describe_failed(request, ErrorCode.UNSUPPORTED_VERSION, context.api_version)

    async def describe(group_id: str) -> ConsumerGroupDescribedGroup:
        if not group_id:
            return ConsumerGroupDescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
        return await context.services.groups.describe_consumer_group(group_id)

    return await describe_in_turn(request, request.group_ids, describe, ConsumerGroupDescribeResponse)
