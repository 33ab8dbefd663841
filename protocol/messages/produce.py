"""produce"""

from protocol.schema import ZERO_UUID, field, int16, int32, int64, message, struct, uuid
from protocol.schema import records as record_batches


@struct
class PartitionProduceData:
    """PartitionProduceData."""

    index: int32 = 0
    records: record_batches | None = None


@struct
class TopicProduceData:
    """TopicProduceData."""

    name: str = field(versions="3-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partition_data: list[PartitionProduceData] = []


@message(key=0, versions="3-13", flexible="9+")
class ProduceRequest:
    """ProduceRequest."""

    transactional_id: str | None = None
    acks: int16 = 0
    timeout_ms: int32 = 0
    topic_data: list[TopicProduceData] = []


@struct
class BatchIndexAndErrorMessage:
    """BatchIndexAndErrorMessage."""

    batch_index: int32 = 0
    batch_index_error_message: str | None = None


@struct
class LeaderIdAndEpoch:
    """LeaderIdAndEpoch."""

    leader_id: int32 = -1
    leader_epoch: int32 = -1


@struct
class PartitionProduceResponse:
    """PartitionProduceResponse."""

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
    """TopicProduceResponse."""

    name: str = field(versions="3-12", default="")
    topic_id: uuid = field(versions="13+", default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse] = []


@struct
class NodeEndpoint:
    """NodeEndpoint."""

    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None


@message(key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    """ProduceResponse."""

    responses: list[TopicProduceResponse] = []
    throttle_time_ms: int32 = 0
    node_endpoints: list[NodeEndpoint] = field(versions="10+", tag=0, default=[])
