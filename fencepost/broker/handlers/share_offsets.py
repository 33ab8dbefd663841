"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets: start offsets of share partitions.

Source: KIP-932, KIP-1226 (lag); Kafka's KafkaApis and GroupCoordinatorService.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencepost.broker.group.refusals import HeartbeatRefusal
from fencepost.broker.handlers.share_groups import are_share_groups_on
from fencepost.broker.requests.administrative_changes import AdministrativeChange, Changes, listed, succeeded
from fencepost.broker.requests.api import RequestContext, Services, api
from fencepost.broker.requests.declared_errors import COORDINATOR_AWAY, SHARE_OFFSETS, codes
from fencepost.broker.requests.declared_rights import MESSAGES, Items, NeededRights
from fencepost.broker.rights.needed_rights import DELETE, DESCRIBE, GROUP, READ, TOPIC, named, whole
from fencepost.broker.share.service import ShareOffset
from fencepost.broker.share.sessions import TopicIdPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from fencepost.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from fencepost.broker.kernel.sliced_work import SlicedWork
    from fencepost.broker.security.authorizer import Rights


NO_SUCH_PARTITION = "This server does not host this topic-partition."

# DescribeShareGroupOffsets


def describe_share_group_offsets_failed(
    request: DescribeShareGroupOffsetsRequest, error: ErrorCode, version: int
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, error_code=error)
            for group in request.groups
        ]
    )


def _with_described_offsets(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    are_named = {group.group_id: group.topics is not None for group in request.groups}
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for group in response.groups:
        shown = []
        for topic in group.topics:
            yield
            if not rights.may(DESCRIBE, TOPIC, topic.topic_name):
                if not are_named[group.group_id]:
                    continue
                topic.topic_id = ZERO_UUID
                topic.partitions = [
                    DescribeShareGroupOffsetsResponsePartition(
                        partition.partition_index, start_offset=-1, error_code=error, error_message=MESSAGES[error]
                    )
                    for partition in topic.partitions
                ]
            shown.append(topic)
        group.topics = shown


@api(
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    versions="0-1",
    rights=NeededRights(
        items=(Items("groups", "groups", named(DESCRIBE, GROUP, "group_id"), in_order=True),),
        finish=_with_described_offsets,
    ),
    errors=COORDINATOR_AWAY | codes("NOT_LEADER_OR_FOLLOWER GROUP_AUTHORIZATION_FAILED UNSUPPORTED_VERSION"),
    failed=describe_share_group_offsets_failed,
)
async def handle_describe_share_group_offsets(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Describe start offset and lag of the partitions of share groups. -1 if they are unknown, as for a group or a
    topic that does not exist. Refuses, per group: the coordinator's errors."""
    if not are_share_groups_on(context):
        return describe_share_group_offsets_failed(request, ErrorCode.UNSUPPORTED_VERSION, context.api_version)
    return DescribeShareGroupOffsetsResponse(
        groups=[await _describe(context.services, group) for group in request.groups]
    )


async def _describe(
    services: Services, group: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    metadata = services.topics.metadata
    wanted = None
    unknown = []
    if group.topics is not None:
        wanted = {}
        for asked in group.topics:
            topic = metadata.get(asked.topic_name)
            if topic is not None:
                wanted[topic.topic_id] = asked.partitions
                continue
            nothing = [_described(number, ShareOffset()) for number in asked.partitions]
            unknown.append(DescribeShareGroupOffsetsResponseTopic(asked.topic_name, ZERO_UUID, nothing))
    found = await services.shares.offsets(group.group_id, wanted)
    if isinstance(found, ErrorCode):
        return DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, error_code=found)
    topics = []
    for topic_id, offsets in found.items():
        topic = metadata.get_by_id(topic_id)
        if topic is not None:
            partitions = [_described(number, offset) for number, offset in offsets.items()]
            topics.append(DescribeShareGroupOffsetsResponseTopic(topic.name, topic_id, partitions))
    return DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=topics + unknown)


def _described(number: int, offset: ShareOffset) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=number,
        start_offset=offset.start_offset,
        leader_epoch=offset.leader_epoch,
        lag=offset.lag,
        error_code=offset.error,
    )


# AlterShareGroupOffsets


def _share_offsets_not_altered(
    rights: Rights, context: RequestContext, item: Any, error: ErrorCode
) -> AlterShareGroupOffsetsResponseTopic:
    return AlterShareGroupOffsetsResponseTopic(
        item.topic_name,
        ZERO_UUID,
        [
            AlterShareGroupOffsetsResponsePartition(partition.partition_index, error, MESSAGES[error])
            for partition in item.partitions
        ],
    )


def _audit_altered(context: RequestContext, request: Any, response: Any) -> Changes:
    wanted = {
        (topic.topic_name, partition.partition_index): partition.start_offset
        for topic in request.topics
        for partition in topic.partitions
    }
    offsets = listed(
        f"{topic.topic_name}-{partition.partition_index}: {wanted.get((topic.topic_name, partition.partition_index))}"
        for topic in response.responses
        for partition in succeeded(topic.partitions)
    )
    if offsets and not response.error_code:
        yield AdministrativeChange("ALTER", "GROUP", request.group_id, {"offsets": offsets})


@api(
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    versions="0",
    rights=NeededRights(
        whole(READ, GROUP, "group_id"),
        (
            Items(
                "topics",
                "responses",
                named(READ, TOPIC, "topic_name"),
                refused=_share_offsets_not_altered,
                asks_always=True,
            ),
        ),
    ),
    audit=_audit_altered,
    errors=SHARE_OFFSETS | codes("FENCED_STATE_EPOCH"),
)
async def handle_alter_share_group_offsets(
    context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Set the start offsets of an empty group; a missing group is created.

    Refuses as a whole: INVALID_GROUP_ID, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND (a group of another kind), the
    coordinator's errors. Of a partition: UNKNOWN_TOPIC_OR_PARTITION, COORDINATOR_NOT_AVAILABLE, FENCED_STATE_EPOCH.
    """
    services = context.services
    if not are_share_groups_on(context):
        return AlterShareGroupOffsetsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not request.group_id:
        return AlterShareGroupOffsetsResponse(
            error_code=ErrorCode.INVALID_GROUP_ID, error_message="The group id must not be empty."
        )
    start_offsets = {}
    for topic in request.topics:
        known = services.topics.metadata.get(topic.topic_name)
        for partition in topic.partitions:
            if known is not None and 0 <= partition.partition_index < known.partition_count:
                at = TopicIdPartition(known.topic_id, partition.partition_index)
                start_offsets[at] = partition.start_offset
    outcome = await services.shares.alter_offsets(request.group_id, start_offsets)
    if isinstance(outcome, HeartbeatRefusal):
        return AlterShareGroupOffsetsResponse(error_code=outcome.error, error_message=outcome.message)
    altered = [_altered(services, topic, outcome) for topic in request.topics]
    altered.sort(key=lambda topic: topic.topic_id != ZERO_UUID)  # Kafka's order: missing partitions come first
    return AlterShareGroupOffsetsResponse(responses=altered)


def _altered(
    services: Services, topic: AlterShareGroupOffsetsRequestTopic, outcome: dict[TopicIdPartition, ErrorCode]
) -> AlterShareGroupOffsetsResponseTopic:
    known = services.topics.metadata.get(topic.topic_name)
    topic_id = ZERO_UUID if known is None else known.topic_id
    partitions = []
    for partition in topic.partitions:
        number = partition.partition_index
        error = outcome.get(TopicIdPartition(topic_id, number), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        message = NO_SUCH_PARTITION if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None
        partitions.append(AlterShareGroupOffsetsResponsePartition(number, error, message))
    return AlterShareGroupOffsetsResponseTopic(topic.topic_name, topic_id, partitions)


# DeleteShareGroupOffsets


def _share_offsets_not_deleted(
    rights: Rights, context: RequestContext, item: Any, error: ErrorCode
) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(item.topic_name, ZERO_UUID, error, MESSAGES[error])


def _audit_deleted(context: RequestContext, request: Any, response: Any) -> Changes:
    topics = listed(topic.topic_name for topic in succeeded(response.responses))
    if topics and not response.error_code:
        yield AdministrativeChange("DELETE", "GROUP", request.group_id, {"offsets_of": topics})


@api(
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    versions="0",
    rights=NeededRights(
        whole(DELETE, GROUP, "group_id"),
        (
            Items(
                "topics",
                "responses",
                named(READ, TOPIC, "topic_name"),
                refused=_share_offsets_not_deleted,
                asks_always=True,
            ),
        ),
    ),
    audit=_audit_deleted,
    errors=SHARE_OFFSETS,
)
async def handle_delete_share_group_offsets(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Delete the start offsets of topics of an empty group.

    Refuses as a whole: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, the coordinator's errors. Of a topic:
    UNKNOWN_TOPIC_OR_PARTITION (it does not exist, or the group has not read it), COORDINATOR_NOT_AVAILABLE.
    """
    services = context.services
    if not are_share_groups_on(context):
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not request.group_id:
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    names = list(dict.fromkeys(topic.topic_name for topic in request.topics))
    outcome = await services.shares.delete_offsets(request.group_id, names)
    if isinstance(outcome, HeartbeatRefusal):
        return DeleteShareGroupOffsetsResponse(error_code=outcome.error, error_message=outcome.message)
    errors, without_state = outcome
    responses = []
    for topic_id, error in errors.items():
        topic = services.topics.metadata.get_by_id(topic_id)
        name = "" if topic is None else topic.name
        responses.append(DeleteShareGroupOffsetsResponseTopic(name, topic_id, error))
    for name in without_state:
        is_known = services.topics.metadata.get(name) is not None
        message = "There is no offset information to delete." if is_known else NO_SUCH_PARTITION
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        responses.append(DeleteShareGroupOffsetsResponseTopic(name, ZERO_UUID, error, message))
    return DeleteShareGroupOffsetsResponse(responses=responses)
