"""list_offsets"""

from protocol.schema import field, int8, int16, int32, int64, message, struct


@struct
class ListOffsetsPartition:
    """ListOffsetsPartition."""

    partition_index: int32 = 0
    current_leader_epoch: int32 = field(versions="4+", default=-1)
    timestamp: int64 = 0


@struct
class ListOffsetsTopic:
    """ListOffsetsTopic."""

    name: str = ""
    partitions: list[ListOffsetsPartition] = []


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    """ListOffsetsRequest."""

    replica_id: int32 = 0
    isolation_level: int8 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopic] = []
    timeout_ms: int32 = field(versions="10+", default=0)


@struct
class ListOffsetsPartitionResponse:
    """ListOffsetsPartitionResponse."""

    partition_index: int32 = 0
    error_code: int16 = 0
    timestamp: int64 = -1
    offset: int64 = -1
    leader_epoch: int32 = field(versions="4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    """ListOffsetsTopicResponse."""

    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = []


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    """ListOffsetsResponse."""

    throttle_time_ms: int32 = field(versions="2+", default=0)
    topics: list[ListOffsetsTopicResponse] = []
