"""OffsetDelete: committed offsets of topics that a group does not consume any more."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fencepost.broker.handlers.group_offsets import change_in_slices, count_of, look_for, yield_if_large
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.requests.administrative_changes import AdministrativeChange, Changes, succeeded_partitions
from fencepost.broker.requests.api import (
    RequestContext,
    SlicedResponse,
    api,
    written_in_slices,
)
from fencepost.broker.requests.declared_errors import COORDINATOR_AWAY, codes
from fencepost.broker.requests.declared_rights import Items, NeededRights
from fencepost.broker.rights.needed_rights import (
    DELETE,
    GROUP,
    READ,
    TOPIC,
    named,
    whole,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from fencepost.broker.security.authorizer import Rights


def _offsets_not_deleted(
    rights: Rights, context: RequestContext, item: Any, error: ErrorCode
) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        item.name, [OffsetDeleteResponsePartition(partition.partition_index, error) for partition in item.partitions]
    )


def _audit_deleted_offsets(context: RequestContext, request: Any, response: Any) -> Changes:
    partitions = succeeded_partitions(response.topics)
    if partitions and not response.error_code:
        yield AdministrativeChange("DELETE", "GROUP", request.group_id, {"offsets_of": partitions})


@api(
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    versions="0",
    rights=NeededRights(
        whole(DELETE, GROUP, "group_id"),
        (
            Items(
                "topics",
                "topics",
                named(READ, TOPIC, "name"),
                refused=_offsets_not_deleted,
                are_first=True,
                asks_always=True,
            ),
        ),
    ),
    audit=_audit_deleted_offsets,
    errors=COORDINATOR_AWAY
    | codes(
        "UNKNOWN_TOPIC_OR_PARTITION INVALID_GROUP_ID TOPIC_AUTHORIZATION_FAILED "
        "GROUP_AUTHORIZATION_FAILED NON_EMPTY_GROUP GROUP_ID_NOT_FOUND GROUP_SUBSCRIBED_TO_TOPIC"
    ),
)
async def handle_offset_delete(
    context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | SlicedResponse:
    """Delete committed offsets of topics that the group does not consume; only missing partitions are refused."""
    await yield_if_large(context, count_of(request.topics))
    await look_for(context, map(context.services.topics.metadata.get, (topic.name for topic in request.topics)))
    # Missing topics, also without partitions, and missing partitions come first, as in Kafka.
    answers: dict[str, list[OffsetDeleteResponsePartition]] = {}
    wanted: list[TopicPartition] = []
    for requested in request.topics:
        topic = context.services.topics.metadata.get(requested.name)
        if topic is None:
            answers.setdefault(requested.name, [])
        for partition in requested.partitions:
            index = partition.partition_index
            if topic is not None and 0 <= index < topic.partition_count:
                wanted.append(TopicPartition(requested.name, index))
            else:
                refused = OffsetDeleteResponsePartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                answers.setdefault(requested.name, []).append(refused)
    errors = await change_in_slices(wanted, partial(context.services.groups.delete_offsets, request.group_id))
    if isinstance(errors, ErrorCode):
        return OffsetDeleteResponse(error_code=errors)
    for (name, index), error in zip(wanted, errors, strict=True):
        answers.setdefault(name, []).append(OffsetDeleteResponsePartition(index, error))
    response = OffsetDeleteResponse(
        topics=[OffsetDeleteResponseTopic(name=name, partitions=partitions) for name, partitions in answers.items()]
    )
    return written_in_slices(response, len(wanted))
