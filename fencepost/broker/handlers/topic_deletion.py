"""DeleteTopics: by name, and by id.

The broker refuses to delete its internal topics: the state of their coordinators would be lost (Kafka allows that).
Source: Kafka's ReplicationControlManager and ControllerApis; KIP-516 (topic ids), KIP-599 (quotas).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fencepost.broker.handlers.topics import OVER_QUOTA, may_mutate, outcome_of
from fencepost.broker.requests.administrative_changes import AdministrativeChange, Changes, succeeded
from fencepost.broker.requests.api import RequestContext, Services, api
from fencepost.broker.requests.declared_errors import codes
from fencepost.broker.requests.declared_rights import UNKNOWN, Items, Needed, NeededRights, Unknown
from fencepost.broker.rights.needed_rights import (
    DELETE,
    DESCRIBE,
    TOPIC,
    itself,
)
from fencepost.protocol.errors import ErrorCode, ErrorWithMessage
from fencepost.protocol.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from fencepost.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from fencepost.broker.security.authorizer import Rights


FIRST_DELETE_VERSION_BY_ID = 6
FIRST_DELETE_VERSION_WITH_DISABLED_ERROR = 3
DEFAULT_REPLICATION_FACTOR = -1
REPLICATION_FACTOR = 1

FIRST_VERSION_WITH_QUOTA = 5
"""From this version on a client over its quota is refused (KIP-599); before, it is only throttled."""


def delete_topics_failed(request: DeleteTopicsRequest, error: ErrorCode, version: int) -> DeleteTopicsResponse:
    """Every topic of the request fails with the same error."""
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=wanted.name, topic_id=wanted.topic_id, error_code=error)
            for wanted in _to_delete(request, version)
        ]
    )


def _to_delete(request: DeleteTopicsRequest, version: int) -> Sequence[DeleteTopicState]:
    if version >= FIRST_DELETE_VERSION_BY_ID:
        return request.topics
    return [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names]


def _right_to_delete_name(context: RequestContext, request: Any, name: str) -> Needed | Unknown:
    """Only a client that may describe a topic learns that it does not exist; the right to delete does not matter."""
    services = context.services
    is_missing = services.topics.metadata.get(name) is None
    if is_missing and services.gate is not None and services.gate.rights_of(context).may(DESCRIBE, TOPIC, name):
        return UNKNOWN
    return Needed(DELETE, TOPIC, name)


def _right_to_delete(context: RequestContext, request: Any, item: Any) -> Needed | Unknown:
    if item.name is not None:
        return UNKNOWN if item.topic_id != ZERO_UUID else _right_to_delete_name(context, request, item.name)
    topic = context.services.topics.metadata.get_by_id(item.topic_id)
    return UNKNOWN if topic is None else Needed(DELETE, TOPIC, topic.name)


def _not_deleted_topic(rights: Rights, context: RequestContext, item: Any, error: ErrorCode) -> DeletableTopicResult:
    """The name of a topic that is given by id is shown only to those who may describe the topic."""
    name = item.name
    if name is None:
        topic = context.services.topics.metadata.get_by_id(item.topic_id)
        if topic is not None and rights.may(DESCRIBE, TOPIC, topic.name):
            name = topic.name
    return DeletableTopicResult(name=name, topic_id=item.topic_id, error_code=error)


def _audit_deleted(context: RequestContext, request: Any, response: Any) -> Changes:
    for topic in succeeded(response.responses):
        yield AdministrativeChange("DELETE", "TOPIC", topic.name or "", {})


@api(
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    versions="1-6",
    rights=NeededRights(
        items=(
            Items("topic_names", "responses", _right_to_delete_name, instead=DELETE, key_of=itself, versions=(0, 5)),
            Items(
                "topics",
                "responses",
                _right_to_delete,
                instead=DELETE,
                refused=_not_deleted_topic,
                key_of=lambda item: (item.name, item.topic_id),
                versions=(6, 99),
            ),
        )
    ),
    audit=_audit_deleted,
    awaits_other_nodes=True,
    needs_lease=False,
    errors=codes(
        "UNKNOWN_TOPIC_OR_PARTITION REQUEST_TIMED_OUT INVALID_TOPIC_EXCEPTION TOPIC_AUTHORIZATION_FAILED "
        "INVALID_REQUEST KAFKA_STORAGE_ERROR TOPIC_DELETION_DISABLED THROTTLING_QUOTA_EXCEEDED "
        "UNKNOWN_TOPIC_ID"
    ),
    failed=delete_topics_failed,
)
async def handle_delete_topics(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete topics by name, from version 6 on also by id; their logs are deleted when the reply is sent.

    Refuses, per topic: INVALID_REQUEST (named twice; both name and id, or neither), UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (internal), TOPIC_DELETION_DISABLED, KAFKA_STORAGE_ERROR.
    """
    services = context.services
    await services.topics.catch_up()
    wanted = _to_delete(request, context.api_version)
    results, wanted = _without_topics_by_both(services, wanted)
    counts = Counter((topic.name, topic.topic_id) for topic in wanted)
    for (name, topic_id), count in counts.items():
        if count > 1:
            result = DeletableTopicResult(
                name=name,
                topic_id=topic_id,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="The request names this topic more than once.",
            )
        else:
            result = await _delete(context, name, topic_id)
        results.append(result)
    return DeleteTopicsResponse(responses=results)


def _without_topics_by_both(
    services: Services, wanted: Sequence[DeleteTopicState]
) -> tuple[list[DeletableTopicResult], Sequence[DeleteTopicState]]:
    """Refuse topics that a request lists both by name and by id; return the refusals and the other topics."""
    by_id = {topic.topic_id for topic in wanted if topic.name is None}
    if not by_id:
        return [], wanted
    refused: dict[bytes, DeletableTopicResult] = {}
    for topic in wanted:
        metadata = services.topics.metadata.get(topic.name) if topic.name is not None else None
        if metadata is not None and metadata.topic_id in by_id:
            refused[metadata.topic_id] = DeletableTopicResult(
                name=topic.name,
                topic_id=metadata.topic_id,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="The request names this topic and lists its id, too.",
            )
    names = {result.name for result in refused.values()}
    left = [
        topic
        for topic in wanted
        if (topic.name not in names if topic.name is not None else topic.topic_id not in refused)
    ]
    return list(refused.values()), left


async def _delete(context: RequestContext, name: str | None, topic_id: bytes) -> DeletableTopicResult:
    services = context.services

    def refused(error: ErrorCode, message: str | None = None) -> DeletableTopicResult:
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error, error_message=message)

    metadata = services.topics.metadata
    wanted_id = topic_id if name is None else None
    if name is None:
        if topic_id == ZERO_UUID:
            return refused(ErrorCode.INVALID_REQUEST, "Neither a topic name nor a topic id is given.")
        topic = metadata.get_by_id(topic_id)
        if topic is None:
            return refused(ErrorCode.UNKNOWN_TOPIC_ID, _DELETION_MESSAGES[ErrorCode.UNKNOWN_TOPIC_ID])
        name = topic.name
    elif topic_id != ZERO_UUID:
        return refused(ErrorCode.INVALID_REQUEST, "Both a topic name and a topic id are given.")
    else:
        topic = metadata.get(name)
        if topic is not None:
            topic_id = topic.topic_id
    if (
        topic is not None
        and not topic.is_internal
        and services.settings.delete_topic_enable
        and not may_mutate(context, topic.partition_count, strict_from=FIRST_VERSION_WITH_QUOTA)
    ):
        return refused(*OVER_QUOTA)
    error, message = await outcome_of(_delete_found(services, name, wanted_id))
    if error is ErrorCode.TOPIC_DELETION_DISABLED and context.api_version < FIRST_DELETE_VERSION_WITH_DISABLED_ERROR:
        error = ErrorCode.INVALID_REQUEST
    return refused(error, message)


async def _delete_found(services: Services, name: str, wanted_id: bytes | None) -> ErrorWithMessage:
    error = await services.topics.delete(name, wanted_id)
    return error, _DELETION_MESSAGES.get(error)


_DELETION_MESSAGES = {
    ErrorCode.UNKNOWN_TOPIC_ID: "There is no topic with this id.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no topic of this name.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The broker's own topics cannot be deleted.",
    ErrorCode.TOPIC_DELETION_DISABLED: "delete.topic.enable is false.",
}
