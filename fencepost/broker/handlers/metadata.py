"""Metadata: brokers, topics and partition leaders. A request may create missing topics, if that is allowed.

Source: KIP-4, KIP-204 (automatic creation by the client's leave), KIP-430, KIP-516 (topic ids), KIP-1102; Kafka's
KafkaApis.handleTopicMetadataRequest and AutoTopicCreationManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from fencepost.broker.hosting.topic_rules import check_topic_name
from fencepost.broker.hosting.topics import DEFAULT_PARTITION_COUNT
from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.requests.api import RequestContext, Services, SlicedResponse, api, build_in_slices
from fencepost.broker.requests.caught_up import caught_up, may_have_missed
from fencepost.broker.requests.declared_errors import codes
from fencepost.broker.requests.declared_rights import Needed, NeededRights, Part, on_cluster
from fencepost.broker.requests.leader_hints import nodes_alive
from fencepost.broker.requests.partition_lookup import NO_LEADER, leadership
from fencepost.broker.rights.authorized_operations import cluster_operations, topic_operations
from fencepost.broker.rights.needed_rights import CREATE, DESCRIBE, TOPIC, cluster_bits, topic_bits, with_topics
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.leaders import NodeEndpoint
from fencepost.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from fencepost.broker.security.authorizer import Rights


MAX_CREATED_PER_REQUEST = 100
"""Bound on new topics: the client chooses the names, and each costs a directory, descriptors and memory."""
FEWEST_IN_SLICES = 500
"""From this number of partitions on, the reply is built in slices between other requests."""
DESCRIBED_PER_STEP = 50

FIRST_VERSION_WHERE_EMPTY_IS_NONE = 1
FIRST_VERSION_BY_TOPIC_ID = 12


def metadata_failed(request: MetadataRequest, error: ErrorCode, version: int) -> MetadataResponse:
    """Every topic of the request fails, and from version 13 on the response as a whole."""
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(error_code=error, name=asked.name or "", topic_id=asked.topic_id)
            for asked in request.topics or []
        ],
        error_code=error,
    )


FIRST_METADATA_VERSION_WITHOUT_NAMES = 12


def _described_part(rights: Rights, context: RequestContext, request: Any) -> Part:
    """Topics by name or id; of all topics those that the client may not see are left out. A missing topic is created
    only with CREATE on it, or on the cluster.
    """
    asked = request.topics
    if asked is None or (not asked and context.api_version == 0):
        return Part(request, finish=_only_described_topics)
    metadata, settings = context.services.topics.metadata, context.services.settings
    creates = (
        request.allow_auto_topic_creation and settings.auto_create_topics_enable and not rights.may(*on_cluster(CREATE))
    )
    allowed, refused, lacking = [], [], []
    for topic in asked:
        name = topic.name
        if topic.topic_id != ZERO_UUID:
            known = metadata.get_by_id(topic.topic_id)
            if known is None or rights.may(DESCRIBE, TOPIC, known.name):
                allowed.append(topic)
                continue
            lacking.append(Needed(DESCRIBE, TOPIC, known.name))
            name = None if context.api_version >= FIRST_METADATA_VERSION_WITHOUT_NAMES else ""
        elif name is None:
            allowed.append(topic)
            continue
        elif not rights.may(DESCRIBE, TOPIC, name):
            lacking.append(Needed(DESCRIBE, TOPIC, name))
        elif creates and metadata.get(name) is None and not rights.may(CREATE, TOPIC, name):
            lacking.append(Needed(CREATE, TOPIC, name))
        else:
            allowed.append(topic)
            continue
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        refused.append(MetadataResponseTopic(error_code=error, name=name, topic_id=topic.topic_id))
    if not refused:
        return Part(request)
    part = Part(with_topics(request, allowed), "topics", refused, lacking)
    # In version 0 a request for no topic is one for all.
    return part._replace(finish=_no_topics) if not allowed and context.api_version == 0 else part


def _only_described_topics(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    described = []
    for topic in response.topics:
        if rights.may(DESCRIBE, TOPIC, topic.name):
            described.append(topic)
        yield
    response.topics = described
    yield from _with_authorized_operations(rights, context, request, response)


def _no_topics(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    response.topics = []
    yield


def _with_authorized_operations(
    rights: Rights, context: RequestContext, request: Any, response: Any
) -> SlicedWork[None]:
    cluster_bits(rights, response)
    yield from topic_bits(rights, context, request, response)


@api(
    MetadataRequest,
    MetadataResponse,
    versions="0-13",
    rights=NeededRights(split=_described_part, finish=_with_authorized_operations),
    needs_lease=False,
    errors=codes(
        "UNKNOWN_TOPIC_OR_PARTITION LEADER_NOT_AVAILABLE INVALID_TOPIC_EXCEPTION "
        "TOPIC_AUTHORIZATION_FAILED INVALID_REPLICATION_FACTOR UNKNOWN_TOPIC_ID"
    ),
    failed=metadata_failed,
)
def handle_metadata(
    context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse | SlicedResponse]:
    """Describe topics: null for all, [] for none (in version 0, without null, [] for all).

    A missing topic is created, and described as created, when the client and `auto.create.topics.enable` allow it.
    Refuses, per topic: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID (then the name is null), INVALID_TOPIC_EXCEPTION,
    and the refusals of `Topics.check_create`. As a whole: INVALID_REQUEST (by id or without a name before version 12).
    """
    services = context.services
    if may_have_missed(services, (_find(services, one) for one in request.topics) if request.topics else (None,)):
        return caught_up(context, lambda: _describe_known(context, request))
    return _describe_known(context, request)


def _describe_known(
    context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse | SlicedResponse]:
    services = context.services
    version = context.api_version
    asked = request.topics
    if asked is None or (not asked and version < FIRST_VERSION_WHERE_EMPTY_IS_NONE):
        if services.topics.metadata.partition_count >= FEWEST_IN_SLICES:
            return build_in_slices(_describe_all_in_steps(services, request))
        return _response(services, request, _describe_all(services, request))
    if version < FIRST_VERSION_BY_TOPIC_ID and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in asked
    ):
        return metadata_failed(request, ErrorCode.INVALID_REQUEST, version)
    asked = list({(topic.topic_id, topic.name): topic for topic in asked}.values())
    if request.allow_auto_topic_creation and services.settings.auto_create_topics_enable:
        missing = [
            topic.name
            for topic in asked
            if topic.name and topic.topic_id == ZERO_UUID and services.topics.metadata.get(topic.name) is None
        ]
        creatable = _creatable(context, missing)
        if creatable:
            return _create_and_respond(services, request, asked, creatable)
    return _describe_asked(services, request, asked, {})


def _creatable(context: RequestContext, missing: Sequence[str]) -> Sequence[str]:
    """The missing topics that this request may create, within the bound and the client's quota of KIP-599.

    The others are reported as unknown; the client's next request creates them.
    """
    creatable = missing[:MAX_CREATED_PER_REQUEST]
    meter = context.meter
    if meter is None:
        return creatable
    partition_count = context.services.settings.num_partitions
    for count, name in enumerate(creatable):
        if name not in INTERNAL_TOPICS and not meter.charge_mutations(partition_count, is_strict=True):
            return creatable[:count]
    return creatable


async def _create_and_respond(
    services: Services, request: MetadataRequest, asked: Sequence[MetadataRequestTopic], missing: Sequence[str]
) -> MetadataResponse | SlicedResponse:
    refused: dict[str, ErrorCode] = {
        name: error for name in missing if (error := await _create(services, name)) is not ErrorCode.NONE
    }
    if services.confirmations is not None and len(refused) < len(missing):
        await services.confirmations.everywhere()  # the client connects to the leaders next
    described = _describe_asked(services, request, asked, refused)
    return described if isinstance(described, MetadataResponse) else await described


def _describe_asked(
    services: Services,
    request: MetadataRequest,
    asked: Sequence[MetadataRequestTopic],
    refused: dict[str, ErrorCode],
) -> MetadataResponse | Awaitable[SlicedResponse]:
    found = [_find(services, one) for one in asked]
    count = sum(1 if topic is None else topic.partition_count for topic in found)
    if count >= FEWEST_IN_SLICES:
        return build_in_slices(_describe_asked_in_steps(services, request, asked, refused))
    return _response(services, request, [_describe(services, request, topic, refused) for topic in asked])


def _find(services: Services, asked: MetadataRequestTopic) -> TopicMetadata | None:
    metadata = services.topics.metadata
    return metadata.get_by_id(asked.topic_id) if asked.topic_id != ZERO_UUID else metadata.get(asked.name or "")


def _describe_all_in_steps(services: Services, request: MetadataRequest) -> SlicedWork[MetadataResponse]:
    """Describe the topics that exist when this begins, except those that are deleted meanwhile."""
    metadata = services.topics.metadata
    described: list[MetadataResponseTopic] = []
    for topic in metadata.all():
        described += [(yield from _describe_in_steps(services, request, topic))]
    return _response(
        services, request, [topic for topic in described if metadata.get_by_id(topic.topic_id) is not None]
    )


def _describe_asked_in_steps(
    services: Services,
    request: MetadataRequest,
    asked: Sequence[MetadataRequestTopic],
    refused: dict[str, ErrorCode],
) -> SlicedWork[MetadataResponse]:
    metadata = services.topics.metadata
    described = []
    for one in asked:
        topic = _find(services, one)
        if topic is not None:
            found = yield from _describe_in_steps(services, request, topic)
        if topic is None or metadata.get_by_id(topic.topic_id) is None:  # missing, or deleted meanwhile
            found = _describe(services, request, one, refused)
            yield
        described.append(found)
    return _response(services, request, described)


def _describe_in_steps(
    services: Services, request: MetadataRequest, topic: TopicMetadata
) -> SlicedWork[MetadataResponseTopic]:
    described = _describe_topic(services, request, topic, range(0))
    for start in range(0, topic.partition_count, DESCRIBED_PER_STEP):
        partitions = range(start, min(start + DESCRIBED_PER_STEP, topic.partition_count))
        described.partitions += [_describe_partition(services, topic.name, partition) for partition in partitions]
        yield
    return described


async def _create(services: Services, name: str) -> ErrorCode:
    try:
        if name in INTERNAL_TOPICS:
            await services.topics.ensure_internal(name)
            return ErrorCode.NONE
        error, _ = await services.topics.create(name, DEFAULT_PARTITION_COUNT, {})
    except StorageError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE if error is ErrorCode.TOPIC_ALREADY_EXISTS else error


def _nodes_listed(services: Services) -> list[NodeEndpoint]:
    """The nodes that are alive, and those that were moments ago."""
    lost = (each.at(services.listener.name) for each in services.topics.placement.recently_lost())
    return [*nodes_alive(services), *(NodeEndpoint(node.node_id, node.host, node.port, node.rack) for node in lost)]


def _response(services: Services, request: MetadataRequest, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in _nodes_listed(services)
        ],
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations(asked_for=request.include_cluster_authorized_operations),
    )


def _describe_all(services: Services, request: MetadataRequest) -> list[MetadataResponseTopic]:
    return [
        _describe_topic(services, request, topic, range(topic.partition_count))
        for topic in services.topics.metadata.all()
    ]


def _describe(
    services: Services, request: MetadataRequest, asked: MetadataRequestTopic, refused: dict[str, ErrorCode]
) -> MetadataResponseTopic:
    """refused: the errors of the topics that could not be created."""
    topic = _find(services, asked)
    if topic is not None:
        return _describe_topic(services, request, topic, range(topic.partition_count))
    if asked.topic_id != ZERO_UUID:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
    name = asked.name or ""
    return MetadataResponseTopic(
        error_code=refused.get(name) or missing_topic_error(name),
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=topic_operations(asked_for=request.include_topic_authorized_operations),
    )


def missing_topic_error(name: str) -> ErrorCode:
    """The error for a missing topic: INVALID_TOPIC_EXCEPTION if its name is invalid."""
    invalid = check_topic_name(name) is not None
    return ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _describe_topic(
    services: Services, request: MetadataRequest, topic: TopicMetadata, partitions: range
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_describe_partition(services, topic.name, partition) for partition in partitions],
        topic_authorized_operations=topic_operations(asked_for=request.include_topic_authorized_operations),
    )


def _describe_partition(services: Services, topic: str, partition: int) -> MetadataResponsePartition:
    leader = leadership(services, topic, partition)
    replicas = leader.replicas
    if services.near_reads is not None and leader.leader_id != NO_LEADER:
        known = services.topics.metadata.get(topic)
        if known is not None:
            name = TopicPartition(topic, partition)
            replicas = [*replicas, *services.near_reads.nodes_named(name, known.topic_id, leader.leader_id)]
    return MetadataResponsePartition(
        error_code=leader.error,
        partition_index=partition,
        leader_id=leader.leader_id,
        leader_epoch=leader.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
        offline_replicas=leader.offline_replicas,
    )
