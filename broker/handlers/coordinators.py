"""FindCoordinator: which broker coordinates a group or a transactional id.

Source: KIP-98 (key types), KIP-699 (many keys in one request); Kafka's KafkaApis.handleFindCoordinatorRequest.
"""

from __future__ import annotations

from enum import IntEnum

from broker.handlers.api import RequestContext, Services, api
from broker.topic_partition import CONSUMER_OFFSETS_TOPIC
from protocol.errors import ErrorCode
from protocol.messages.coordinators import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

FIRST_VERSION_WITH_MANY_KEYS = 4
FIRST_VERSION_WITH_SHARE_KEYS = 6
NO_NODE_ID = -1
NO_PORT = -1


class KeyType(IntEnum):
    """What kind of key is asked about. Source: Kafka's FindCoordinatorRequest.CoordinatorType."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


def find_coordinator_failed(request: FindCoordinatorRequest, error: ErrorCode, version: int) -> FindCoordinatorResponse:
    """Every key of the request fails with the same error."""
    keys = request.coordinator_keys if version >= FIRST_VERSION_WITH_MANY_KEYS else [request.key]
    return _response([_no_coordinator(key, error, None) for key in keys], version)


@api(FindCoordinatorRequest, FindCoordinatorResponse, versions="0-6", failed=find_coordinator_failed)
async def handle_find_coordinator(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """This node for every group and transactional id, once it can answer for them.

    The first key of a kind creates the internal topic behind it. INVALID_REQUEST for an empty transactional id, for a
    key type that is unknown, or for share groups, which are not served.
    """
    version = context.api_version
    keys = request.coordinator_keys if version >= FIRST_VERSION_WITH_MANY_KEYS else [request.key]
    try:
        key_type = KeyType(request.key_type)
    except ValueError:
        return _response([_no_coordinator(key, *_refuse_type(request.key_type)) for key in keys], version)
    if key_type is KeyType.SHARE:
        return _response([_no_coordinator(key, *_refuse_share(version)) for key in keys], version)
    services = context.services
    if key_type is KeyType.TRANSACTION:
        if any(keys):
            await services.transactions.ensure_available()
        coordinators = [
            _here(services, key)
            if key
            else _no_coordinator(key, ErrorCode.INVALID_REQUEST, "A transactional id must not be empty")
            for key in keys
        ]
    else:
        await services.topics.ensure_internal(CONSUMER_OFFSETS_TOPIC)
        await services.groups.ensure_loaded()
        coordinators = [_here(services, key) for key in keys]
    return _response(coordinators, version)


def _refuse_type(key_type: int) -> tuple[ErrorCode, str]:
    return ErrorCode.INVALID_REQUEST, f"There is no coordinator of type {key_type}"


def _refuse_share(version: int) -> tuple[ErrorCode, str]:
    if version < FIRST_VERSION_WITH_SHARE_KEYS:
        return ErrorCode.INVALID_REQUEST, f"Version {version} has no share group keys"
    return ErrorCode.INVALID_REQUEST, "Share groups are not served"


def _here(services: Services, key: str) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=services.node_id,
        host=services.host,
        port=services.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def _no_coordinator(key: str, error: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_NODE_ID, host="", port=NO_PORT, error_code=error, error_message=message or error.name
    )


def _response(coordinators: list[Coordinator], version: int) -> FindCoordinatorResponse:
    if version >= FIRST_VERSION_WITH_MANY_KEYS:
        return FindCoordinatorResponse(coordinators=coordinators)
    only = coordinators[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
