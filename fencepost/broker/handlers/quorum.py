"""DescribeQuorum, Unregister{Broker,Controller}, AddRaftVoter and RemoveRaftVoter: the quorum that keeps the metadata.

This node alone keeps it, in its own store; clients see a quorum of one.
Source: KIP-595, KIP-631, KIP-853; Kafka's KafkaRaftClient, QuorumController and ClusterControlManager.
"""

from __future__ import annotations

from fencepost.broker.requests.api import RequestContext, Services, api
from fencepost.broker.requests.declared_errors import FIXED_QUORUM, codes
from fencepost.broker.requests.declared_rights import NeededRights
from fencepost.broker.rights.needed_rights import ALTER, DESCRIBE, cluster
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    Node,
    PartitionData,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    ReplicaState,
    TopicData,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)

METADATA_TOPIC = "__cluster_metadata"
LEADER_EPOCH = 1
NOT_HOSTED = "This server does not host this topic-partition."


# DescribeQuorum


@api(
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    versions="0-2",
    rights=NeededRights(cluster(DESCRIBE)),
    needs_lease=False,
    errors=codes("UNKNOWN_TOPIC_OR_PARTITION CLUSTER_AUTHORIZATION_FAILED"),
)
def handle_describe_quorum(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Describe this node as the only voter. Offsets count the topic changes since its start: there is no metadata log.

    Refuses, per partition: UNKNOWN_TOPIC_OR_PARTITION, for all when any other than `__cluster_metadata`-0 is requested.
    """
    services = context.services
    if [_names(topic) for topic in request.topics] == [(METADATA_TOPIC, [0])]:
        topics = [TopicData(topic_name=METADATA_TOPIC, partitions=[_quorum(services)])]
        nodes = [Node(node_id=services.node_id, listeners=[])]
        return DescribeQuorumResponse(error_code=ErrorCode.NONE, error_message="", topics=topics, nodes=nodes)
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message="",
        topics=[
            TopicData(
                topic_name=topic.topic_name, partitions=[_not_hosted(partition) for partition in topic.partitions]
            )
            for topic in request.topics
        ],
    )


def _names(topic: DescribeQuorumTopic) -> tuple[str, list[int]]:
    return topic.topic_name, [partition.partition_index for partition in topic.partitions]


def _quorum(services: Services) -> PartitionData:
    now_ms = services.clock.now_ms()
    end_offset = services.topics.metadata.version
    voter = ReplicaState(
        replica_id=services.node_id,
        log_end_offset=end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message="",
        leader_id=services.node_id,
        leader_epoch=LEADER_EPOCH,
        high_watermark=end_offset,
        current_voters=[voter],
        observers=[],
    )


def _not_hosted(partition: DescribeQuorumPartition) -> PartitionData:
    return PartitionData(
        partition_index=partition.partition_index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=NOT_HOSTED,
    )


# UnregisterBroker


def unregister_broker_failed(
    request: UnregisterBrokerRequest, error: ErrorCode, version: int, message: str | None = None
) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error, error_message=message)


@api(
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    versions="0",
    rights=NeededRights(cluster(ALTER)),
    needs_lease=False,
    errors=codes("CLUSTER_AUTHORIZATION_FAILED INVALID_REQUEST BROKER_ID_NOT_REGISTERED"),
    failed=unregister_broker_failed,
)
def handle_unregister_broker(context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Unregister no broker: all registered brokers are alive, and a broker needs its registration.

    Refuses: BROKER_ID_NOT_REGISTERED, INVALID_REQUEST (a broker that is alive).
    """
    services, broker_id = context.services, request.broker_id
    if broker_id == services.node_id or services.topics.placement.address(broker_id) is not None:
        message = f"Broker {broker_id} is alive; stop it instead."
        return unregister_broker_failed(request, ErrorCode.INVALID_REQUEST, context.api_version, message)
    message = f"Broker ID {broker_id} is not currently registered"
    return unregister_broker_failed(request, ErrorCode.BROKER_ID_NOT_REGISTERED, context.api_version, message)


# UnregisterController


def unregister_controller_failed(
    request: UnregisterControllerRequest, error: ErrorCode, version: int, message: str | None = None
) -> UnregisterControllerResponse:
    return UnregisterControllerResponse(error_code=error, error_message=message)


@api(
    UnregisterControllerRequest,
    UnregisterControllerResponse,
    versions="0",
    rights=NeededRights(cluster(ALTER)),
    needs_lease=False,
    errors=codes("CLUSTER_AUTHORIZATION_FAILED INVALID_REQUEST CONTROLLER_ID_NOT_REGISTERED"),
    failed=unregister_controller_failed,
)
def handle_unregister_controller(
    context: RequestContext, request: UnregisterControllerRequest
) -> UnregisterControllerResponse:
    """Unregister no controller: this node is the only one, and active.

    Refuses: CONTROLLER_ID_NOT_REGISTERED, INVALID_REQUEST (this node).
    """
    if request.controller_id == context.services.node_id:
        message = "Controller cannot unregister itself while it is active."
        return unregister_controller_failed(request, ErrorCode.INVALID_REQUEST, context.api_version, message)
    message = f"Controller ID {request.controller_id} is not currently registered."
    error = ErrorCode.CONTROLLER_ID_NOT_REGISTERED
    return unregister_controller_failed(request, error, context.api_version, message)


# AddRaftVoter and RemoveRaftVoter


def add_raft_voter_failed(
    request: AddRaftVoterRequest, error: ErrorCode, version: int, message: str | None = None
) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(error_code=error, error_message=message)


@api(
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    versions="0-1",
    rights=NeededRights(cluster(ALTER)),
    needs_lease=False,
    errors=FIXED_QUORUM | codes("DUPLICATE_VOTER"),
    failed=add_raft_voter_failed,
)
def handle_add_raft_voter(context: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """Refused: as with `kraft.version` 0, the quorum is fixed. UNSUPPORTED_VERSION, INCONSISTENT_CLUSTER_ID."""
    error, message = _fixed_quorum(context.services, request.cluster_id, "adding")
    return add_raft_voter_failed(request, error, context.api_version, message)


def remove_raft_voter_failed(
    request: RemoveRaftVoterRequest, error: ErrorCode, version: int, message: str | None = None
) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(error_code=error, error_message=message)


@api(
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    versions="0",
    rights=NeededRights(cluster(ALTER)),
    needs_lease=False,
    errors=FIXED_QUORUM | codes("VOTER_NOT_FOUND"),
    failed=remove_raft_voter_failed,
)
def handle_remove_raft_voter(context: RequestContext, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    """Refused: as with `kraft.version` 0, the quorum is fixed. UNSUPPORTED_VERSION, INCONSISTENT_CLUSTER_ID."""
    error, message = _fixed_quorum(context.services, request.cluster_id, "removing")
    return remove_raft_voter_failed(request, error, context.api_version, message)


def _fixed_quorum(services: Services, cluster_id: str | None, change: str) -> tuple[ErrorCode, str]:
    if cluster_id is not None and cluster_id != services.cluster_id:
        message = f'The given id "{cluster_id}" doesn\'t match the cluster id "{services.cluster_id}"'
        return ErrorCode.INCONSISTENT_CLUSTER_ID, message
    return (
        ErrorCode.UNSUPPORTED_VERSION,
        f"Cluster doesn't support {change} voter because the kraft.version feature is 0",
    )
