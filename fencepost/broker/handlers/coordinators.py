"""FindCoordinator: the broker that coordinates a group, a transactional id or a share partition.

Source: KIP-98 (key types), KIP-699 (many keys in one request); Kafka's KafkaApis.handleFindCoordinatorRequest.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from fencepost.broker.coordination.runtime import partition_for_key
from fencepost.broker.hosting.placement import NodeAddress
from fencepost.broker.kernel.sliced_work import SLICE_S, Slices
from fencepost.broker.kernel.topic_partition import (
    CONSUMER_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from fencepost.broker.requests.api import RequestContext, Services, api
from fencepost.broker.requests.declared_errors import codes
from fencepost.broker.requests.declared_rights import UNKNOWN, Items, Needed, NeededRights, Refusal, Unknown, on_cluster
from fencepost.broker.rights.needed_rights import CLUSTER_ACTION, DESCRIBE, GROUP, TRANSACTIONAL_ID, lacks
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.coordinators import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from fencepost.broker.security.authorizer import Rights


FIRST_VERSION_WITH_MANY_KEYS = 4
FIRST_VERSION_WITH_SHARE_KEYS = 6
NO_NODE_ID = -1
NO_PORT = -1


class KeyType(IntEnum):
    """The kind of a requested key. Source: Kafka's FindCoordinatorRequest.CoordinatorType."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_TOPICS = {
    KeyType.GROUP: CONSUMER_OFFSETS_TOPIC,
    KeyType.TRANSACTION: TRANSACTION_STATE_TOPIC,
    KeyType.SHARE: SHARE_GROUP_STATE_TOPIC,
}
_SHARE_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}:\d+", re.DOTALL)


def find_coordinator_failed(request: FindCoordinatorRequest, error: ErrorCode, version: int) -> FindCoordinatorResponse:
    """Every key of the request fails with the same error. Clients of librdkafka show its message."""
    # Imported here: a broker without an authorizer does without it until a request fails.
    from fencepost.broker.requests.declared_rights import MESSAGES

    keys = request.coordinator_keys if version >= FIRST_VERSION_WITH_MANY_KEYS else [request.key]
    return _response([_no_coordinator(key, error, MESSAGES.get(error)) for key in keys], version)


FIRST_COORDINATORS_VERSION = 4


def _right_to_find(context: RequestContext, request: Any, key: str) -> Needed | Unknown:
    match request.key_type:
        case 0:
            return Needed(DESCRIBE, GROUP, key)
        case 1:
            return Needed(DESCRIBE, TRANSACTIONAL_ID, key)
        case 2:
            return on_cluster(CLUSTER_ACTION)
    return UNKNOWN


def _rights_to_find_one(rights: Rights, context: RequestContext, request: Any) -> Refusal | None:
    if context.api_version >= FIRST_COORDINATORS_VERSION:
        return None
    needed = _right_to_find(context, request, request.key)
    return None if isinstance(needed, Unknown) else lacks(rights, needed)


@api(
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    versions="0-6",
    rights=NeededRights(
        _rights_to_find_one,
        (
            Items(
                "coordinator_keys",
                "coordinators",
                _right_to_find,
                in_order=True,
                versions=(FIRST_COORDINATORS_VERSION, 99),
            ),
        ),
    ),
    needs_lease=False,
    errors=codes(
        "COORDINATOR_NOT_AVAILABLE INVALID_GROUP_ID GROUP_AUTHORIZATION_FAILED INVALID_REQUEST "
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    ),
    failed=find_coordinator_failed,
)
async def handle_find_coordinator(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Return the node that leads the key's partition of the internal topic; this node, once it can answer.

    The first valid key of a kind creates its internal topic. COORDINATOR_NOT_AVAILABLE while no node leads the
    partition. INVALID_REQUEST for a key type that is unknown, and for the key of a share partition that is not
    `group:topic id:partition`.
    """
    version = context.api_version
    keys = request.coordinator_keys if version >= FIRST_VERSION_WITH_MANY_KEYS else [request.key]
    try:
        key_type = KeyType(request.key_type)
    except ValueError:
        return _response([_no_coordinator(key, *_refuse_type(request.key_type)) for key in keys], version)
    if key_type is KeyType.SHARE and version < FIRST_VERSION_WITH_SHARE_KEYS:
        reason = f"Version {version} has no share group keys"
        return _response([_no_coordinator(key, ErrorCode.INVALID_REQUEST, reason) for key in keys], version)
    if key_type is KeyType.SHARE and not any(map(_SHARE_KEY.fullmatch, keys)):
        return _response([_no_share_partition(key) for key in keys], version)
    services = context.services
    try:
        if key_type is KeyType.GROUP:
            await services.topics.ensure_internal(CONSUMER_OFFSETS_TOPIC)
            await services.groups.ensure_loaded()
        elif key_type is KeyType.SHARE:
            await services.shares.coordinator.ensure_available()
        else:
            await services.transactions.ensure_available()
    except StorageError as error:
        # Clients retry after this error, and fail after KAFKA_STORAGE_ERROR.
        return _response(
            [_no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) for key in keys], version
        )
    topic = _TOPICS[key_type]
    coordinators = []
    slices = Slices(SLICE_S)
    for key in keys:
        await slices.turn()
        if key_type is KeyType.SHARE and not _SHARE_KEY.fullmatch(key):
            coordinators.append(_no_share_partition(key))
        else:
            coordinators.append(_coordinator(services, topic, key))
    return _response(coordinators, version)


def _refuse_type(key_type: int) -> tuple[ErrorCode, str]:
    return ErrorCode.INVALID_REQUEST, f"There is no coordinator of type {key_type}"


def _coordinator(services: Services, topic: str, key: str) -> Coordinator:
    metadata = services.topics.metadata.get(topic)
    if metadata is None:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    placement = services.topics.placement
    partition = TopicPartition(topic, partition_for_key(key, metadata.partition_count))
    # A client gets the address of the listener that it connected to.
    node = NodeAddress(services.node_id, services.listener.host, services.listener.port)
    if not placement.is_local(partition):
        leader = placement.leader(partition)
        if leader is None:
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "Its partition has no leader")
        node = leader.at(services.listener.name)
    return Coordinator(
        key=key,
        node_id=node.node_id,
        host=node.host,
        port=node.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def _no_coordinator(key: str, error: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_NODE_ID, host="", port=NO_PORT, error_code=error, error_message=message or error.name
    )


def _no_share_partition(key: str) -> Coordinator:
    return _no_coordinator(key, ErrorCode.INVALID_REQUEST, f"{key!r} is no key of a share partition")


def _response(coordinators: list[Coordinator], version: int) -> FindCoordinatorResponse:
    if version >= FIRST_VERSION_WITH_MANY_KEYS:
        return FindCoordinatorResponse(coordinators=coordinators)
    only = coordinators[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message or ErrorCode.NONE.name,  # Kafka's text for success
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
