"""OffsetForLeaderEpoch: the end offset of a leader epoch, for clients that check for truncation (KIP-101, KIP-320)."""

from fencepost.protocol.schema import field, int16, int32, int64, message, struct


@struct
class OffsetForLeaderPartition:
    """An epoch whose end offset is requested. `current_leader_epoch`: as the client knows it, -1 for no check."""

    partition: int32 = 0
    current_leader_epoch: int32 = -1
    leader_epoch: int32 = 0


@struct
class OffsetForLeaderTopic:
    """Lookups in a topic."""

    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = []


@message(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """Ask for the end offsets of leader epochs."""

    replica_id: int32 = field(versions="3+", default=-2)  # -1 for a client, -2 for a debugging consumer
    topics: list[OffsetForLeaderTopic] = []


@struct
class EpochEndOffset:
    """The largest epoch not above the requested one, and the offset after its last record; -1 when there is none.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
    """

    error_code: int16 = 0
    partition: int32 = 0
    leader_epoch: int32 = -1
    end_offset: int64 = -1


@struct
class OffsetForLeaderTopicResult:
    """Answers for a topic."""

    topic: str = ""
    partitions: list[EpochEndOffset] = []


@message(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """One answer per lookup."""

    throttle_time_ms: int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []
