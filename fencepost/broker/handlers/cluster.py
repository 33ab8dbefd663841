"""DescribeCluster and DescribeTopicPartitions: descriptions of the cluster and its topics for administrators.

Source: KIP-700, KIP-919 (endpoint types), KIP-966 (pages of partitions); Kafka's
AuthHelper.computeDescribeClusterResponse and DescribeTopicPartitionsRequestHandler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from fencepost.broker.handlers.metadata import missing_topic_error
from fencepost.broker.hosting.placement import NO_PORT
from fencepost.broker.kernel.sliced_work import SlicedWork, run_to_end
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.requests.api import (
    FEWEST_WRITTEN_IN_SLICES,
    RequestContext,
    Services,
    SlicedResponse,
    api,
    build_in_slices,
)
from fencepost.broker.requests.caught_up import caught_up, may_have_missed
from fencepost.broker.requests.declared_errors import codes
from fencepost.broker.requests.declared_rights import Needed, NeededRights, Part
from fencepost.broker.requests.leader_hints import nodes_alive
from fencepost.broker.requests.partition_lookup import NO_LEADER, leadership
from fencepost.broker.rights.authorized_operations import cluster_operations, topic_operations
from fencepost.broker.rights.needed_rights import DESCRIBE, TOPIC, cluster_bits, topic_bits, with_topics
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import (
    Cursor,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribedListener,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)

if TYPE_CHECKING:
    from fencepost.broker.security.authorizer import Rights


BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2
MAXIMUM_PARTITIONS_PER_RESPONSE = 2000


def _with_authorized_operations(
    rights: Rights, context: RequestContext, request: Any, response: Any
) -> SlicedWork[None]:
    cluster_bits(rights, response)
    yield


@api(
    DescribeClusterRequest,
    DescribeClusterResponse,
    versions="0-2",
    rights=NeededRights(finish=_with_authorized_operations),
    needs_lease=False,
    errors=codes("MISMATCHED_ENDPOINT_TYPE UNSUPPORTED_ENDPOINT_TYPE"),
)
def handle_describe_cluster(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the nodes that are alive, and the others if fenced ones are asked for; this node is the controller.

    Refuses: MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE.
    """
    services = context.services
    if request.endpoint_type == CONTROLLER_ENDPOINTS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="This is a listener for clients; controllers are not reached through it.",
        )
    if request.endpoint_type != BROKER_ENDPOINTS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"There is no endpoint type {request.endpoint_type}.",
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        endpoint_type=BROKER_ENDPOINTS,
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        brokers=_brokers(services, with_fenced=request.include_fenced_brokers),
        cluster_authorized_operations=cluster_operations(asked_for=request.include_cluster_authorized_operations),
    )


def _brokers(services: Services, *, with_fenced: bool) -> list[DescribeClusterBroker]:
    """The nodes that are alive, this one first; then the others, which have no address."""
    brokers = [
        DescribeClusterBroker(broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in nodes_alive(services)
    ]
    if services.leader_choices is None:
        return brokers
    nodes = {node.node_id: node for node in services.leader_choices.nodes()}
    known = {broker.broker_id for broker in brokers}
    if with_fenced:
        brokers += [
            DescribeClusterBroker(broker_id=node_id, host="", port=NO_PORT, is_fenced=True)
            for node_id in nodes
            if node_id not in known
        ]
    for broker in brokers:
        node = nodes[broker.broker_id]
        broker.state, broker.since_ms = node.state, node.since_ms
        broker.listeners = [DescribedListener(*listener) for listener in node.listeners]
    return brokers


def describe_topic_partitions_failed(
    request: DescribeTopicPartitionsRequest, error: ErrorCode, version: int
) -> DescribeTopicPartitionsResponse:
    """Every topic of the request fails with the same error."""
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error_code=error, name=topic.name) for topic in request.topics]
    )


MAXIMUM_PARTITIONS_PER_PAGE = 2000


def _described_page(rights: Rights, context: RequestContext, request: Any) -> Part:
    """Topics by name, in pages; if none is named, all that the client may see. The names of others are taken out
    before the page is made, so that a page does not end at one of them.
    """
    cursor, limit = request.cursor, max(1, min(request.response_partition_limit, MAXIMUM_PARTITIONS_PER_PAGE))
    first = "" if cursor is None else cursor.topic_name
    refused, lacking = [], []
    if request.topics:
        wanted = {topic.name for topic in request.topics}
        if cursor is not None and cursor.topic_name not in wanted:
            return Part(request)  # the handler refuses it
        allowed = sorted(name for name in wanted if name >= first and rights.may(DESCRIBE, TOPIC, name))
        for name in sorted(wanted.difference(allowed)):
            if name >= first:
                lacking.append(Needed(DESCRIBE, TOPIC, name))
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.append(DescribeTopicPartitionsResponseTopic(error_code=error, name=name))
    else:
        allowed, count = [], 0
        for topic in context.services.topics.metadata.all():
            if topic.name >= first and rights.may(DESCRIBE, TOPIC, topic.name):
                allowed.append(topic.name)
                count += topic.partition_count
                if count > limit and len(allowed) > 1:
                    break  # one more than the page shows: the first of the next page
    if not allowed:
        return Part(None, "topics", refused, lacking)
    changed = with_topics(request, [TopicRequest(name) for name in allowed])
    if cursor is not None and cursor.topic_name not in allowed:
        changed.cursor = None
    return Part(changed, "topics", refused, lacking)


@api(
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    versions="0",
    rights=NeededRights(split=_described_page, finish=topic_bits),
    needs_lease=False,
    errors=codes("UNKNOWN_TOPIC_OR_PARTITION INVALID_TOPIC_EXCEPTION TOPIC_AUTHORIZATION_FAILED INVALID_REQUEST"),
    failed=describe_topic_partitions_failed,
)
def handle_describe_topic_partitions(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse | Awaitable[DescribeTopicPartitionsResponse | SlicedResponse]:
    """Describe one page of partitions by topic name, of all topics when none is named. `next_cursor` starts the next.

    Refuses, per topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION. As a whole: INVALID_REQUEST (a cursor
    before the first partition, or at a topic that is not requested).
    """
    services = context.services
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        return describe_topic_partitions_failed(request, ErrorCode.INVALID_REQUEST, context.api_version)
    find = services.topics.metadata.get
    if may_have_missed(services, (find(one.name) for one in request.topics) if request.topics else (None,)):
        return caught_up(context, lambda: _describe_known(context, request))
    return _describe_known(context, request)


def _describe_known(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse | Awaitable[SlicedResponse]:
    services, cursor = context.services, request.cursor
    metadata = services.topics.metadata
    names = sorted({topic.name for topic in request.topics}) or [topic.name for topic in metadata.all()]
    if cursor is not None:
        if request.topics and cursor.topic_name not in names:
            return describe_topic_partitions_failed(request, ErrorCode.INVALID_REQUEST, context.api_version)
        names = [name for name in names if name >= cursor.topic_name]
    left = max(1, min(request.response_partition_limit, MAXIMUM_PARTITIONS_PER_RESPONSE))
    steps = _describe_page(services, names, cursor, left)
    partition_count = sum([topic.partition_count for name in names if (topic := metadata.get(name)) is not None])
    is_large = max(min(left, partition_count), len(names)) >= FEWEST_WRITTEN_IN_SLICES
    return build_in_slices(steps) if is_large else run_to_end(steps)


def _describe_page(
    services: Services, names: Sequence[str], cursor: Cursor | None, left: int
) -> SlicedWork[DescribeTopicPartitionsResponse]:
    """Describe each topic as it is when its step comes; `left` is the number of partitions that still fit."""
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        yield
        if left == 0:
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(topic_name=name))
        topic = services.topics.metadata.get(name)
        if topic is None:
            topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=missing_topic_error(name),
                    name=name,
                    topic_authorized_operations=topic_operations(asked_for=True),
                )
            )
            continue
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        end = min(topic.partition_count, start + left)
        topics.append((yield from _describe_topic(services, topic, start, end)))
        if end < topic.partition_count:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=end)
            )
        left -= max(0, end - start)
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=None)


def _describe_topic(
    services: Services, topic: TopicMetadata, start: int, end: int
) -> SlicedWork[DescribeTopicPartitionsResponseTopic]:
    """Describe the partitions from `start` to `end`, exclusive."""
    partitions = []
    for partition in range(start, end):
        partitions.append(_describe_partition(services, topic.name, partition))
        yield
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=topic_operations(asked_for=True),
    )


def _describe_partition(services: Services, topic: str, partition: int) -> DescribeTopicPartitionsResponsePartition:
    leader = leadership(services, topic, partition)
    described = DescribeTopicPartitionsResponsePartition(
        error_code=leader.error,
        partition_index=partition,
        leader_id=leader.leader_id,
        leader_epoch=leader.leader_epoch,
        replica_nodes=leader.replicas,
        isr_nodes=leader.replicas,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=leader.offline_replicas,
    )
    if services.leader_choices is not None:
        choice = services.leader_choices.choice(TopicPartition(topic, partition))
        described.chosen_leader = NO_LEADER if choice.chosen is None else choice.chosen
        described.next_leader = NO_LEADER if choice.next_leader is None else choice.next_leader
    return described
