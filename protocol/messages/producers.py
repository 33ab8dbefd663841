"""producers"""

from protocol.schema import int16, int32, int64, message, struct


@struct
class TopicRequest:
    """TopicRequest."""

    name: str = ""
    partition_indexes: list[int32] = []


@message(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    """DescribeProducersRequest."""

    topics: list[TopicRequest] = []


@struct
class ProducerState:
    """ProducerState."""

    producer_id: int64 = 0
    producer_epoch: int32 = 0
    last_sequence: int32 = -1
    last_timestamp: int64 = -1
    coordinator_epoch: int32 = 0
    current_txn_start_offset: int64 = -1


@struct
class PartitionResponse:
    """PartitionResponse."""

    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = []


@struct
class TopicResponse:
    """TopicResponse."""

    name: str = ""
    partitions: list[PartitionResponse] = []


@message(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    """DescribeProducersResponse."""

    throttle_time_ms: int32 = 0
    topics: list[TopicResponse] = []
