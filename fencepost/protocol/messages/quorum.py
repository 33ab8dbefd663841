"""DescribeQuorum, Unregister{Broker,Controller}, AddRaftVoter and RemoveRaftVoter: the nodes that keep the metadata.

Source: KIP-595, KIP-631, KIP-836, KIP-853.
"""

from fencepost.protocol.schema import ZERO_UUID, field, int16, int32, int64, message, struct, uint16, uuid


@struct
class DescribeQuorumPartition:
    """A partition of a metadata log."""

    partition_index: int32 = 0


@struct
class DescribeQuorumTopic:
    """A log of metadata."""

    topic_name: str = ""
    partitions: list[DescribeQuorumPartition] = []


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    """Ask for the quorum: partition 0 of `__cluster_metadata`."""

    topics: list[DescribeQuorumTopic] = []


@struct
class ReplicaState:
    """Position of one node in the log. Times are -1 if unknown."""

    replica_id: int32 = 0
    replica_directory_id: uuid = field(versions="2+", default=ZERO_UUID)
    log_end_offset: int64 = 0
    last_fetch_timestamp: int64 = field(versions="1+", default=-1)
    last_caught_up_timestamp: int64 = field(versions="1+", default=-1)


@struct
class PartitionData:
    """Leader, voters and observers of a partition.

    Errors: UNKNOWN_TOPIC_OR_PARTITION.
    """

    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = field(versions="2+", default="")
    leader_id: int32 = 0
    leader_epoch: int32 = 0
    high_watermark: int64 = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


@struct
class TopicData:
    """State of a metadata log."""

    topic_name: str = ""
    partitions: list[PartitionData] = []


@struct
class Listener:
    """An address of a node."""

    name: str = ""
    host: str = ""
    port: uint16 = 0


@struct
class Node:
    """A node and its addresses."""

    node_id: int32 = 0
    listeners: list[Listener] = []


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    """The quorum.

    Errors: INVALID_REQUEST, CLUSTER_AUTHORIZATION_FAILED.
    """

    error_code: int16 = 0
    error_message: str | None = field(versions="2+", default="")
    topics: list[TopicData] = []
    nodes: list[Node] = field(versions="2+", default=[])


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    """Forget a broker that will not come back."""

    broker_id: int32 = 0


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    """Errors: BROKER_ID_NOT_REGISTERED, CLUSTER_AUTHORIZATION_FAILED."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


@message(key=94, versions="0", flexible="0+")
class UnregisterControllerRequest:
    """Forget a controller that will not come back (Kafka 4.4)."""

    controller_id: int32 = 0


@message(key=94, versions="0", flexible="0+")
class UnregisterControllerResponse:
    """Errors: CONTROLLER_ID_NOT_REGISTERED, INVALID_REQUEST, CLUSTER_AUTHORIZATION_FAILED."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    """Add a node to the voters."""

    cluster_id: str | None = ""
    timeout_ms: int32 = 0
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID
    listeners: list[Listener] = []
    ack_when_committed: bool = field(versions="1+", default=True)


@message(key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    """Errors: UNSUPPORTED_VERSION, DUPLICATE_VOTER, INCONSISTENT_CLUSTER_ID, INVALID_REQUEST."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    """Remove a node from the voters."""

    cluster_id: str | None = ""
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    """Errors: UNSUPPORTED_VERSION, VOTER_NOT_FOUND, INCONSISTENT_CLUSTER_ID, INVALID_REQUEST."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
