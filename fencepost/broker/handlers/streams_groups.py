"""StreamsGroupHeartbeat, StreamsGroupDescribe and StreamsGroupTopologyDescriptionUpdate: groups of Kafka Streams' own
rebalance protocol.

Source: KIP-1071, KIP-1331; Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fencepost.broker.group.modern import JOIN_EPOCH
from fencepost.broker.group.streams.requests import check_topic_names
from fencepost.broker.group.streams.service import StreamsGroupService  # not in a request: descriptors may be short
from fencepost.broker.group.streams.topology import TopologyStatus
from fencepost.broker.handlers.group_admin import describe_in_turn, describing_failed
from fencepost.broker.hosting.features import STREAMS_VERSION
from fencepost.broker.hosting.topic_rules import check_topic_name
from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS
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
    whole,
)
from fencepost.broker.security.acls import CLUSTER_NAME, AclOperation, AclResource
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.streams_groups import (
    StreamsGroupDescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

FIRST_VERSION_WITH_CLIENT_TAGS = 1
"""Members of version 0 do not know the status MISSING_CLIENT_TAGS."""
ACCEPTABLE_RECOVERY_LAG = 10_000  # records; Kafka's default of group.streams.acceptable.recovery.lag
TASK_OFFSET_INTERVAL_MS = 60_000  # Kafka's default; without it a member would report its offsets all the time
DESCRIPTION_NOT_STORED = 1


def _are_streams_groups_on(context: RequestContext) -> bool:
    """Whether the feature level of the cluster has streams groups."""
    return context.services.features.level(STREAMS_VERSION) > 0


# StreamsGroupHeartbeat


def _topics_of_topology(request: Any) -> Iterator[str]:
    for part in () if request.topology is None else request.topology.subtopologies:
        yield from part.source_topics
        yield from part.repartition_sink_topics
        for topic in (*part.repartition_source_topics, *part.state_changelog_topics):
            yield topic.name


@api(
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    versions="0-1",
    # And CREATE for the internal topics that are missing, which the handler asks.
    rights=NeededRights(both(whole(READ, GROUP, "group_id"), described_topics(_topics_of_topology))),
    errors=COORDINATOR_AWAY
    | codes(
        "UNKNOWN_MEMBER_ID TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED UNSUPPORTED_VERSION "
        "INVALID_REQUEST GROUP_ID_NOT_FOUND GROUP_MAX_SIZE_REACHED FENCED_MEMBER_EPOCH "
        "UNRELEASED_INSTANCE_ID FENCED_INSTANCE_ID STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH"
    ),
)
async def handle_streams_group_heartbeat(
    context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """A member joins, stays or leaves, and gets its tasks. Refuses: see `StreamsGroupHeartbeatResponse`."""
    if not _are_streams_groups_on(context):
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if request.topology is not None:
        refusal = check_topic_names(
            request.topology,
            is_internal=lambda name: name in INTERNAL_TOPICS,
            is_valid=lambda name: check_topic_name(name) is None,
        )
        if refusal is not None:
            return StreamsGroupHeartbeatResponse(error_code=refusal.error, error_message=refusal.message)
    streams: StreamsGroupService = context.services.groups.streams
    response = await streams.heartbeat(
        request,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",  # as Java prints an address
        may_create=_may_create(context),
    )
    if response.error_code == ErrorCode.NONE and request.member_epoch >= JOIN_EPOCH:
        response.task_offset_interval_ms = TASK_OFFSET_INTERVAL_MS
        response.acceptable_recovery_lag = ACCEPTABLE_RECOVERY_LAG
    if context.api_version < FIRST_VERSION_WITH_CLIENT_TAGS:
        known = [one for one in response.status or () if one.status_code != TopologyStatus.MISSING_CLIENT_TAGS]
        response.status = known
    return response


def _may_create(context: RequestContext) -> Callable[[str], bool] | None:
    """The right to create internal topics; None without an authorizer."""
    gate = context.services.gate
    if gate is None:
        return None
    rights = gate.rights_of(context)
    create = AclOperation.CREATE
    return lambda name: (
        rights.may(create, AclResource.CLUSTER, CLUSTER_NAME) or rights.may(create, AclResource.TOPIC, name)
    )


# StreamsGroupDescribe


streams_group_describe_failed = describing_failed(StreamsGroupDescribeResponse, StreamsGroupDescribedGroup)


def _streams_topics(group: Any) -> Iterator[str]:
    for part in () if group.topology is None else group.topology.subtopologies or ():
        yield from part.source_topics
        yield from part.repartition_sink_topics
        for topic in (*part.repartition_source_topics, *part.state_changelog_topics):
            yield topic.name


@api(
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    versions="0-1",
    rights=NeededRights(
        items=(Items("group_ids", "groups", named(DESCRIBE, GROUP), are_first=True),),
        finish=groups_without_hidden_topics(_streams_topics),
    ),
    errors=COORDINATOR_AWAY
    | codes(
        "INVALID_GROUP_ID TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED UNSUPPORTED_VERSION GROUP_ID_NOT_FOUND"
    ),
    failed=streams_group_describe_failed,
)
async def handle_streams_group_describe(
    context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse | SlicedResponse:
    """Describe state, epochs, topology, members and tasks of each streams group.

    Refuses, per group: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND (also for groups of other kinds), the coordinator's errors.
    """
    if not _are_streams_groups_on(context):
        return streams_group_describe_failed(request, ErrorCode.UNSUPPORTED_VERSION, context.api_version)

    async def describe(group_id: str) -> StreamsGroupDescribedGroup:
        if not group_id:
            return StreamsGroupDescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
        described = await context.services.groups.streams.describe(group_id)
        if request.include_topology_description and described.error_code == ErrorCode.NONE:
            described.topology_description_status = DESCRIPTION_NOT_STORED
        return described

    return await describe_in_turn(request, request.group_ids, describe, StreamsGroupDescribeResponse)


# StreamsGroupTopologyDescriptionUpdate


@api(
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    versions="0",
    rights=NeededRights(whole(READ, GROUP, "group_id")),
    errors=codes("GROUP_AUTHORIZATION_FAILED UNSUPPORTED_VERSION"),
)
def handle_streams_group_topology_description_update(
    context: RequestContext, request: StreamsGroupTopologyDescriptionUpdateRequest
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Store no description of a topology: that takes a plugin, and this broker has none, as Kafka's by default.

    Refuses: UNSUPPORTED_VERSION.
    """
    message = None
    if _are_streams_groups_on(context):
        message = "The broker has no streams group topology description plugin configured."
    return StreamsGroupTopologyDescriptionUpdateResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=message
    )
