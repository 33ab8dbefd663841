"""Produce: record batches to be appended (KIP-98 for transactions, KIP-890 for version 12 and up)."""

from fencepost.protocol.leaders import LeaderIdAndEpoch, NodeEndpoint
from fencepost.protocol.schema import ZERO_UUID, field, int16, int32, int64, message, struct, uuid
from fencepost.protocol.schema import records as record_batches


@struct
class PartitionProduceData:
    """The batch for one partition: exactly one, of format version 2."""

    index: int32 = 0
    records: record_batches | None = None


@struct
class TopicProduceData:
    """Batches for a topic, known by its name or, from version 13 on, by its id."""

    name: str = field(versions="3-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partition_data: list[PartitionProduceData] = []


@message(key=0, versions="3-13", flexible="9+")
class ProduceRequest:
    """Append batches. From version 12 on their partitions need no AddPartitionsToTxn before (KIP-890).

    acks: 0 for no reply at all, 1 for the leader's acknowledgement, -1 for all in-sync replicas.
    """

    transactional_id: str | None = None
    acks: int16 = 0
    timeout_ms: int32 = 0
    topic_data: list[TopicProduceData] = []


@struct
class BatchIndexAndErrorMessage:
    """A record that was refused, counted within its batch."""

    batch_index: int32 = 0
    batch_index_error_message: str | None = None


@struct
class PartitionProduceResponse:
    """Result of one batch. `log_append_time_ms` is -1 unless the topic keeps append times.

    Errors: CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER,
    MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE (11+),
    UNSUPPORTED_COMPRESSION_TYPE, KAFKA_STORAGE_ERROR.
    """

    index: int32 = 0
    error_code: int16 = 0
    base_offset: int64 = 0
    log_append_time_ms: int64 = -1
    log_start_offset: int64 = field(versions="5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(versions="8+", default=[])
    error_message: str | None = field(versions="8+", default=None)
    current_leader: LeaderIdAndEpoch = field(versions="10+", tag=0, default=LeaderIdAndEpoch())


@struct
class TopicProduceResponse:
    """The outcomes of a topic's partitions."""

    name: str = field(versions="3-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse] = []


@message(key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    """One outcome for each partition of the request, and for no other."""

    responses: list[TopicProduceResponse] = []
    throttle_time_ms: int32 = 0
    node_endpoints: list[NodeEndpoint] = field(versions="10+", tag=0, default=[])
