"""DescribeProducers: the producers of partitions, for administrators (KIP-664)."""

from fencepost.protocol.schema import int16, int32, int64, message, struct


@struct
class TopicRequest:
    """Partitions of a topic to describe."""

    name: str = ""
    partition_indexes: list[int32] = []


@message(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    """Ask for the producers of partitions."""

    topics: list[TopicRequest] = []


@struct
class ProducerState:
    """A producer in the state of the partition. The last two are -1 if no transaction has ended or is open."""

    producer_id: int64 = 0
    producer_epoch: int32 = 0  # an int32 here, unlike anywhere else
    last_sequence: int32 = -1
    last_timestamp: int64 = -1
    coordinator_epoch: int32 = 0
    current_txn_start_offset: int64 = -1


@struct
class PartitionResponse:
    """The producers of one partition.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED.
    """

    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = []


@struct
class TopicResponse:
    """The producers of a topic's partitions."""

    name: str = ""
    partitions: list[PartitionResponse] = []


@message(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    """One answer per partition."""

    throttle_time_ms: int32 = 0
    topics: list[TopicResponse] = []
