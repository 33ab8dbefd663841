"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: changes of leaders and replicas.

Source: KIP-183, KIP-455, KIP-460, KIP-860 (replication factor).
"""

from fencepost.protocol.schema import field, int8, int16, int32, message, struct


@struct
class TopicPartitions:
    """Partitions of a topic."""

    topic: str = ""
    partitions: list[int32] = []


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    """Elect leaders: of all partitions when `topic_partitions` is None.

    election_type: 0 the preferred replica, 1 any replica, even one that has lost records.
    """

    election_type: int8 = field(versions="1+", default=0)
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: int32 = 60000


@struct
class PartitionResult:
    """Result of one partition.

    Errors: ELECTION_NOT_NEEDED, UNKNOWN_TOPIC_OR_PARTITION, PREFERRED_LEADER_NOT_AVAILABLE,
    ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """

    partition_id: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


@struct
class ReplicaElectionResult:
    """Results of a topic."""

    topic: str = ""
    partition_result: list[PartitionResult] = []


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """One result per partition; of all partitions only those with an election or an error."""

    throttle_time_ms: int32 = 0
    error_code: int16 = field(versions="1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = []


@struct
class ReassignablePartition:
    """The brokers that a partition is to be on; None cancels a reassignment in progress."""

    partition_index: int32 = 0
    replicas: list[int32] | None = None


@struct
class ReassignableTopic:
    """Partitions of a topic."""

    name: str = ""
    partitions: list[ReassignablePartition] = []


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    """Move partitions to other brokers."""

    timeout_ms: int32 = 60000
    allow_replication_factor_change: bool = field(versions="1+", default=True)
    topics: list[ReassignableTopic] = []


@struct
class ReassignablePartitionResponse:
    """Result of one partition.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR,
    NO_REASSIGNMENT_IN_PROGRESS.
    """

    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


@struct
class ReassignableTopicResponse:
    """Results of a topic."""

    name: str = ""
    partitions: list[ReassignablePartitionResponse] = []


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """One result per partition."""

    throttle_time_ms: int32 = 0
    allow_replication_factor_change: bool = field(versions="1+", default=True)
    error_code: int16 = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = []


@struct
class ListPartitionReassignmentsTopics:
    """Partitions of a topic."""

    name: str = ""
    partition_indexes: list[int32] = []


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """Ask for the reassignments in progress; of all partitions when `topics` is None."""

    timeout_ms: int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


@struct
class OngoingPartitionReassignment:
    """A partition that moves from some brokers to others."""

    partition_index: int32 = 0
    replicas: list[int32] = []
    adding_replicas: list[int32] = []
    removing_replicas: list[int32] = []


@struct
class OngoingTopicReassignment:
    """Moves in a topic."""

    name: str = ""
    partitions: list[OngoingPartitionReassignment] = []


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """The reassignments in progress."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = []
