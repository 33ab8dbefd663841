"""leader_epochs"""

from protocol.schema import field, int16, int32, int64, message, struct


@struct
class OffsetForLeaderPartition:
    """OffsetForLeaderPartition."""

    partition: int32 = 0
    current_leader_epoch: int32 = -1
    leader_epoch: int32 = 0


@struct
class OffsetForLeaderTopic:
    """OffsetForLeaderTopic."""

    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = []


@message(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """OffsetForLeaderEpochRequest."""

    replica_id: int32 = field(versions="3+", default=-2)
    topics: list[OffsetForLeaderTopic] = []


@struct
class EpochEndOffset:
    """EpochEndOffset."""

    error_code: int16 = 0
    partition: int32 = 0
    leader_epoch: int32 = -1
    end_offset: int64 = -1


@struct
class OffsetForLeaderTopicResult:
    """OffsetForLeaderTopicResult."""

    topic: str = ""
    partitions: list[EpochEndOffset] = []


@message(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """OffsetForLeaderEpochResponse."""

    throttle_time_ms: int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []
