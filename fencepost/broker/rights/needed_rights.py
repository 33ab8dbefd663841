"""The usual rights that APIs need, for their declarations: of the request as a whole, of its items, of a response.

Source: Kafka's KafkaApis, ControllerApis and AclApis; the table "Operations and Resources on Protocols" of its
documentation; KIP-430 (authorized operations), KIP-599 (creation by Metadata), KIP-848, KIP-932, KIP-939, KIP-1071.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from fencepost.broker.requests.declared_rights import (
    UNKNOWN,
    Finish,
    Needed,
    Refusal,
    Unknown,
    on_cluster,
)
from fencepost.broker.rights.authorized_operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    NOT_ASKED_FOR,
    TOPIC_OPERATIONS,
)
from fencepost.broker.security.acls import CLUSTER_NAME, AclOperation, AclResource
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.broker.kernel.sliced_work import SlicedWork
    from fencepost.broker.requests.api import RequestContext
    from fencepost.broker.security.authorizer import Rights

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
TRANSACTIONAL_ID = AclResource.TRANSACTIONAL_ID

Whole = Callable[["Rights", "RequestContext", Any], Refusal | Unknown | None]

# The request as a whole


def lacks(rights: Rights, *needed: Needed) -> Refusal | None:
    """The refusal for the first right that the client lacks."""
    for one in needed:
        if not rights.may(*one):
            return Refusal(one)
    return None


def whole(operation: AclOperation, resource: AclResource, field: str) -> Whole:
    """The request names one resource; a name that is null is left to the handler."""

    def judge(rights: Rights, context: RequestContext, request: Any) -> Refusal | None:
        name = getattr(request, field)
        return None if name is None else lacks(rights, Needed(operation, resource, name))

    return judge


def cluster(*operations: AclOperation) -> Whole:
    """One of these operations on the cluster is needed."""

    def judge(rights: Rights, context: RequestContext, request: Any) -> Refusal | None:
        refusal = None
        for operation in reversed(operations):
            refusal = lacks(rights, on_cluster(operation))
            if refusal is None:
                return None
        return refusal

    return judge


def both(*parts: Whole) -> Whole:
    """All of these are needed; the first that is lacking refuses the request."""

    def judge(rights: Rights, context: RequestContext, request: Any) -> Refusal | Unknown | None:
        return next((refusal for part in parts if (refusal := part(rights, context, request)) is not None), None)

    return judge


def described_topics(names_of: Callable[[Any], Iterable[str]]) -> Whole:
    """DESCRIBE on all topics that the request names."""

    def judge(rights: Rights, context: RequestContext, request: Any) -> Refusal | None:
        return lacks(rights, *(Needed(DESCRIBE, TOPIC, name) for name in names_of(request)))

    return judge


def subscribed_topics(request: Any) -> Iterable[str]:
    return request.subscribed_topic_names or ()


# Items


def named(operation: AclOperation, resource: AclResource, field: str = "") -> Callable[..., Needed | Unknown]:
    """Items with a name in this field, or that are names."""

    def needed(context: RequestContext, request: Any, item: Any) -> Needed | Unknown:
        return Needed(operation, resource, getattr(item, field) if field else item)

    return needed


def topic_by_id(operation: AclOperation, first_version: int, field: str = "name") -> Callable[..., Needed | Unknown]:
    """Topics by name, from this version on by id."""

    def needed(context: RequestContext, request: Any, item: Any) -> Needed | Unknown:
        if context.api_version < first_version:
            return Needed(operation, TOPIC, getattr(item, field))
        topic = context.services.topics.metadata.get_by_id(item.topic_id)
        return UNKNOWN if topic is None else Needed(operation, TOPIC, topic.name)

    return needed


_KINDS_OF_CONFIGS: Final[Mapping[int, AclResource]] = {2: TOPIC, 4: CLUSTER, 8: CLUSTER, 16: CLUSTER, 32: GROUP}
"""The resource of a right, by the resource type of a request about configs."""


def configs_of(operation: AclOperation) -> Callable[..., Needed | Unknown]:
    def needed(context: RequestContext, request: Any, item: Any) -> Needed | Unknown:
        kind = _KINDS_OF_CONFIGS.get(item.resource_type)
        if kind is None:
            return UNKNOWN
        return Needed(operation, kind, CLUSTER_NAME if kind is CLUSTER else item.resource_name)

    return needed


def key_of_config(item: Any) -> tuple[int, str]:
    return item.resource_type, item.resource_name


def name_of(item: Any) -> str:
    name: str = item.name
    return name


def itself(item: Any) -> Any:
    return item


def with_topics(request: Any, topics: list[Any]) -> Any:
    changed = type(request)(**{name: getattr(request, name) for name in type(request).__slots__})
    changed.topics = topics
    return changed


# The parts of a response that a client may not see


def bits(rights: Rights, operations: Iterable[AclOperation], resource: AclResource, name: str) -> int:
    """The operations that the client may do, as bits."""
    return sum(1 << operation for operation in operations if rights.may(operation, resource, name))


def cluster_bits(rights: Rights, response: Any) -> None:
    if response.cluster_authorized_operations != NOT_ASKED_FOR:
        may_describe = rights.may(*on_cluster(DESCRIBE))
        response.cluster_authorized_operations = (
            bits(rights, CLUSTER_OPERATIONS, CLUSTER, CLUSTER_NAME) if may_describe else 0
        )


def topic_bits(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    for topic in response.topics:
        if topic.topic_authorized_operations != NOT_ASKED_FOR and topic.name is not None:
            topic.topic_authorized_operations = bits(rights, TOPIC_OPERATIONS, TOPIC, topic.name)
            yield
    yield


def only(answered: str, resource: AclResource, field: str, *, everything: AclOperation | None = None) -> Finish:
    """Leave out entries that the client may not describe. everything: the operation on the cluster that shows all."""

    def finish(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
        if everything is not None and rights.may(*on_cluster(everything)):
            return
        shown = []
        for one in getattr(response, answered):
            if rights.may(DESCRIBE, resource, getattr(one, field)):
                shown.append(one)
            yield
        setattr(response, answered, shown)

    return finish


def group_bits(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    for group in response.groups:
        if group.authorized_operations != NOT_ASKED_FOR:
            group.authorized_operations = bits(rights, GROUP_OPERATIONS, GROUP, group.group_id)
        yield


def groups_without_hidden_topics(names_of: Callable[[Any], Iterable[str]]) -> Finish:
    """Of a group that has a topic which the client may not describe, only the id is shown."""

    def finish(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
        yield from group_bits(rights, context, request, response)
        for position, group in enumerate(response.groups):
            if not all(rights.may(DESCRIBE, TOPIC, name) for name in set(names_of(group))):
                response.groups[position] = type(group)(
                    group_id=group.group_id,
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    error_message=HIDDEN_TOPICS,
                )
            yield

    return finish


HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
