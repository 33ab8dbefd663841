"""fetch"""

from protocol.schema import ZERO_UUID, field, int8, int16, int32, int64, message, struct, uuid
from protocol.schema import records as record_batches


@struct
class ReplicaState:
    """ReplicaState."""

    replica_id: int32 = -1
    replica_epoch: int64 = -1


@struct
class FetchPartition:
    """FetchPartition."""

    partition: int32 = 0
    current_leader_epoch: int32 = field(versions="9+", default=-1)
    fetch_offset: int64 = 0
    last_fetched_epoch: int32 = field(versions="12+", default=-1)
    log_start_offset: int64 = field(versions="5+", default=-1)
    partition_max_bytes: int32 = 0
    replica_directory_id: uuid = field(versions="17+", tag=0, default=ZERO_UUID)
    high_watermark: int64 = field(versions="18+", tag=1, default=9223372036854775807)


@struct
class FetchTopic:
    """FetchTopic."""

    topic: str = field(versions="4-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partitions: list[FetchPartition] = []


@struct
class ForgottenTopic:
    """ForgottenTopic."""

    topic: str = field(versions="7-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partitions: list[int32] = []


@message(key=1, versions="4-18", flexible="12+")
class FetchRequest:
    """FetchRequest."""

    cluster_id: str | None = field(versions="12+", tag=0, default=None)
    replica_id: int32 = field(versions="4-14", default=-1)
    replica_state: ReplicaState = field(versions="15+", tag=1, default=ReplicaState())
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = 2147483647
    isolation_level: int8 = 0
    session_id: int32 = field(versions="7+", default=0)
    session_epoch: int32 = field(versions="7+", default=-1)
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = field(versions="7+", default=[])
    rack_id: str = field(versions="11+", default="")


@struct
class EpochEndOffset:
    """EpochEndOffset."""

    epoch: int32 = -1
    end_offset: int64 = -1


@struct
class LeaderIdAndEpoch:
    """LeaderIdAndEpoch."""

    leader_id: int32 = -1
    leader_epoch: int32 = -1


@struct
class SnapshotId:
    """SnapshotId."""

    end_offset: int64 = -1
    epoch: int32 = -1


@struct
class AbortedTransaction:
    """AbortedTransaction."""

    producer_id: int64 = 0
    first_offset: int64 = 0


@struct
class PartitionData:
    """PartitionData."""

    partition_index: int32 = 0
    error_code: int16 = 0
    high_watermark: int64 = 0
    last_stable_offset: int64 = -1
    log_start_offset: int64 = field(versions="5+", default=-1)
    diverging_epoch: EpochEndOffset = field(versions="12+", tag=0, default=EpochEndOffset())
    current_leader: LeaderIdAndEpoch = field(versions="12+", tag=1, default=LeaderIdAndEpoch())
    snapshot_id: SnapshotId = field(versions="12+", tag=2, default=SnapshotId())
    aborted_transactions: list[AbortedTransaction] | None = []
    preferred_read_replica: int32 = field(versions="11+", default=-1)
    records: record_batches | None = None


@struct
class FetchableTopicResponse:
    """FetchableTopicResponse."""

    topic: str = field(versions="4-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partitions: list[PartitionData] = []


@struct
class NodeEndpoint:
    """NodeEndpoint."""

    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None


@message(key=1, versions="4-18", flexible="12+")
class FetchResponse:
    """FetchResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16 = field(versions="7+", default=0)
    session_id: int32 = field(versions="7+", default=0)
    responses: list[FetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = field(versions="16+", tag=0, default=[])
