"""DeleteRecords: raising the log start offsets of partitions.

Source: KIP-107.
"""

from fencepost.protocol.schema import int16, int32, int64, message, struct


@struct
class DeleteRecordsPartition:
    """The first offset that stays; -1 for the high watermark."""

    partition_index: int32 = 0
    offset: int64 = 0


@struct
class DeleteRecordsTopic:
    """Partitions of a topic."""

    name: str = ""
    partitions: list[DeleteRecordsPartition] = []


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    """Delete all records below an offset, partition by partition."""

    topics: list[DeleteRecordsTopic] = []
    timeout_ms: int32 = 0


@struct
class DeleteRecordsPartitionResult:
    """The new log start offset of the partition; -1 with an error.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE, POLICY_VIOLATION,
    INVALID_TOPIC_EXCEPTION, KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT, TOPIC_AUTHORIZATION_FAILED.
    """

    partition_index: int32 = 0
    low_watermark: int64 = 0
    error_code: int16 = 0


@struct
class DeleteRecordsTopicResult:
    """Results of a topic."""

    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = []


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """One result per partition."""

    throttle_time_ms: int32 = 0
    topics: list[DeleteRecordsTopicResult] = []
