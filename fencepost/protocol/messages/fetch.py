"""Fetch: record batches to be read, in sessions that name only changes (KIP-227, KIP-98 for isolation)."""

from fencepost.protocol.leaders import LeaderIdAndEpoch, NodeEndpoint
from fencepost.protocol.schema import ZERO_UUID, field, int8, int16, int32, int64, message, struct, uuid
from fencepost.protocol.schema import records as record_batches


@struct
class ReplicaState:
    """The follower that sends the request; -1 for a consumer."""

    replica_id: int32 = -1
    replica_epoch: int64 = -1


@struct
class FetchPartition:
    """A partition to read, with offset and limit. An epoch of -1 is not checked."""

    partition: int32 = 0
    current_leader_epoch: int32 = field(versions="9+", default=-1)
    fetch_offset: int64 = 0
    last_fetched_epoch: int32 = field(versions="12+", default=-1)
    log_start_offset: int64 = field(versions="5+", default=-1)
    partition_max_bytes: int32 = 0
    replica_directory_id: uuid = field(versions="17+", tag=0, default=ZERO_UUID)
    high_watermark: int64 = field(
        versions="18+", tag=1, default=9223372036854775807
    )  # as the reader knows it; the default means unknown (KIP-1166)


@struct
class FetchTopic:
    """Partitions of a topic, known by its name or, from version 13 on, by its id."""

    topic: str = field(versions="4-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partitions: list[FetchPartition] = []


@struct
class ForgottenTopic:
    """Partitions that leave the session."""

    topic: str = field(versions="7-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partitions: list[int32] = []


@message(key=1, versions="4-18", flexible="12+")
class FetchRequest:
    """Read partitions, waiting up to `max_wait_ms` for `min_bytes`.

    isolation_level: 0 reads up to the high watermark, 1 up to the last stable offset.
    session_epoch: -1 without a session, 0 to begin one, otherwise the number of the request within it.
    """

    cluster_id: str | None = field(versions="12+", tag=0, default=None)
    replica_id: int32 = field(versions="4-14", default=-1)  # -1 for a consumer
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
    """The latest point at which the logs of leader and reader can still agree."""

    epoch: int32 = -1
    end_offset: int64 = -1


@struct
class SnapshotId:
    """For the replicas of the metadata log only."""

    end_offset: int64 = -1
    epoch: int32 = -1


@struct
class AbortedTransaction:
    """An aborted transaction that overlaps the records of the answer. Its records are to be skipped, from this offset
    up to its marker.
    """

    producer_id: int64 = 0
    first_offset: int64 = 0


@struct
class PartitionData:
    """The records read. `records` is never null, on which some clients fail; `aborted_transactions` is None unless
    read_committed.

    Errors: OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID,
    NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR.
    """

    partition_index: int32 = 0
    error_code: int16 = 0
    high_watermark: int64 = 0
    last_stable_offset: int64 = -1
    log_start_offset: int64 = field(versions="5+", default=-1)
    diverging_epoch: EpochEndOffset = field(versions="12+", tag=0, default=EpochEndOffset())
    current_leader: LeaderIdAndEpoch = field(versions="12+", tag=1, default=LeaderIdAndEpoch())
    snapshot_id: SnapshotId = field(versions="12+", tag=2, default=SnapshotId())
    aborted_transactions: list[AbortedTransaction] | None = []
    preferred_read_replica: int32 = field(versions="11+", default=-1)  # -1: read here
    records: record_batches | None = None


@struct
class FetchableTopicResponse:
    """The records read of a topic."""

    topic: str = field(versions="4-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partitions: list[PartitionData] = []


@message(key=1, versions="4-18", flexible="12+")
class FetchResponse:
    """The records read; within a session only the partitions that changed.

    Errors: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = field(versions="7+", default=0)
    session_id: int32 = field(versions="7+", default=0)
    responses: list[FetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = field(versions="16+", tag=0, default=[])
