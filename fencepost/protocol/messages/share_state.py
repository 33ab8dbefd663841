"""State of share partitions, which their leaders and group coordinators keep with the share coordinator:
InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState and
ReadShareGroupStateSummary (KIP-932, KIP-1226).

Each names one group, and each answer has a result per partition. Sent by brokers, not by clients.
"""

from fencepost.protocol.schema import ZERO_UUID, field, int16, int32, int64, message, struct, uuid
from fencepost.protocol.stored.share_group_state import DeadLetterCopy, StateBatch


@struct
class ShareStatePartitionResult:
    """Result for a partition. Errors: see the requests."""

    partition: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None


@struct
class ShareStateTopicResult:
    """Results for partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[ShareStatePartitionResult] = []


# Initialize


@struct
class InitializeShareStatePartition:
    """A partition. start_offset: -1 leaves its start open."""

    partition: int32 = 0
    state_epoch: int32 = 0
    start_offset: int64 = 0


@struct
class InitializeShareStateTopic:
    """Partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[InitializeShareStatePartition] = []


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    """Create the state of share partitions, or reset it."""

    group_id: str = ""
    topics: list[InitializeShareStateTopic] = []


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    """Errors of partitions: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
    FENCED_STATE_EPOCH, INVALID_REQUEST, CLUSTER_AUTHORIZATION_FAILED."""

    results: list[ShareStateTopicResult] = []


# Read


@struct
class ReadShareStatePartition:
    """A partition. leader_epoch: the reading leader's; older ones are fenced from then on."""

    partition: int32 = 0
    leader_epoch: int32 = 0


@struct
class ReadShareStateTopic:
    """Partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[ReadShareStatePartition] = []


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    """Ask for the state of share partitions, as the leader of their partitions."""

    group_id: str = ""
    topics: list[ReadShareStateTopic] = []


@struct
class ReadShareStatePartitionResult:
    """State of a partition. start_offset: -1 until the group has acknowledged something. dead_letters: at most one;
    ours."""

    partition: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    state_epoch: int32 = 0
    start_offset: int64 = 0
    state_batches: list[StateBatch] = []
    dead_letters: list[DeadLetterCopy] = field(tag=10_000, default=[])


@struct
class ReadShareStateTopicResult:
    """Results for partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[ReadShareStatePartitionResult] = []


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    """Errors of partitions: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
    FENCED_LEADER_EPOCH, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, CLUSTER_AUTHORIZATION_FAILED."""

    results: list[ReadShareStateTopicResult] = []


# Write


@struct
class WriteShareStatePartition:
    """New states of records of a partition. start_offset: -1 leaves it. delivery_complete_count: of records from there
    on; -1 if unknown. dead_letters: empty if that has not changed; ours."""

    partition: int32 = 0
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = field(versions="1+", default=-1)
    state_batches: list[StateBatch] = []
    dead_letters: list[DeadLetterCopy] = field(tag=10_000, default=[])


@struct
class WriteShareStateTopic:
    """Partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[WriteShareStatePartition] = []


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    """Store states of records. The count of complete deliveries since version 1 (KIP-1226)."""

    group_id: str = ""
    topics: list[WriteShareStateTopic] = []


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    """Errors of partitions: as for a read, and FENCED_STATE_EPOCH."""

    results: list[ShareStateTopicResult] = []


# Delete


@struct
class DeleteShareStatePartition:
    """A partition."""

    partition: int32 = 0


@struct
class DeleteShareStateTopic:
    """Partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[DeleteShareStatePartition] = []


@message(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    """Delete the state of share partitions."""

    group_id: str = ""
    topics: list[DeleteShareStateTopic] = []


@message(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    """Errors of partitions: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST,
    CLUSTER_AUTHORIZATION_FAILED."""

    results: list[ShareStateTopicResult] = []


# Summary


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    """Ask for the offsets of share partitions, without the states of their records. Fences no leader."""

    group_id: str = ""
    topics: list[ReadShareStateTopic] = []


@struct
class ShareStateSummary:
    """Offsets of a partition. delivery_complete_count: of records from the start offset on; -1 if unknown."""

    partition: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = field(versions="1+", default=-1)


@struct
class ShareStateSummaryTopic:
    """Summaries of partitions of a topic."""

    topic_id: uuid = ZERO_UUID
    partitions: list[ShareStateSummary] = []


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    """Errors of partitions: as for a read. The count of complete deliveries since version 1 (KIP-1226)."""

    results: list[ShareStateSummaryTopic] = []
