"""transactions"""

from protocol.schema import field, int16, int32, int64, message, struct


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    """InitProducerIdRequest."""

    transactional_id: str | None = ""
    transaction_timeout_ms: int32 = 0
    producer_id: int64 = field(versions="3+", default=-1)
    producer_epoch: int16 = field(versions="3+", default=-1)
    enable2_pc: bool = field(versions="6+", default=False)
    keep_prepared_txn: bool = field(versions="6+", default=False)


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    """InitProducerIdResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16 = 0
    ongoing_txn_producer_id: int64 = field(versions="6+", default=-1)
    ongoing_txn_producer_epoch: int16 = field(versions="6+", default=-1)


@struct
class AddPartitionsToTxnTopic:
    """AddPartitionsToTxnTopic."""

    name: str = ""
    partitions: list[int32] = []


@struct
class AddPartitionsToTxnTransaction:
    """AddPartitionsToTxnTransaction."""

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = []


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """AddPartitionsToTxnRequest."""

    transactions: list[AddPartitionsToTxnTransaction] = field(versions="4+", default=[])
    v3_and_below_transactional_id: str = field(versions="0-3", default="")
    v3_and_below_producer_id: int64 = field(versions="0-3", default=0)
    v3_and_below_producer_epoch: int16 = field(versions="0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(versions="0-3", default=[])


@struct
class AddPartitionsToTxnPartitionResult:
    """AddPartitionsToTxnPartitionResult."""

    partition_index: int32 = 0
    partition_error_code: int16 = 0


@struct
class AddPartitionsToTxnTopicResult:
    """AddPartitionsToTxnTopicResult."""

    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


@struct
class AddPartitionsToTxnResult:
    """AddPartitionsToTxnResult."""

    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """AddPartitionsToTxnResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16 = field(versions="4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(versions="4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(versions="0-3", default=[])


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """AddOffsetsToTxnRequest."""

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    group_id: str = ""


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """AddOffsetsToTxnResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    """EndTxnRequest."""

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    committed: bool = False


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """EndTxnResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = field(versions="5+", default=-1)
    producer_epoch: int16 = field(versions="5+", default=-1)


@struct
class TxnOffsetCommitRequestPartition:
    """TxnOffsetCommitRequestPartition."""

    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = field(versions="2+", default=-1)
    committed_metadata: str | None = ""


@struct
class TxnOffsetCommitRequestTopic:
    """TxnOffsetCommitRequestTopic."""

    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = []


@message(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    """TxnOffsetCommitRequest."""

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    generation_id: int32 = field(versions="3+", default=-1)
    member_id: str = field(versions="3+", default="")
    group_instance_id: str | None = field(versions="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = []


@struct
class TxnOffsetCommitResponsePartition:
    """TxnOffsetCommitResponsePartition."""

    partition_index: int32 = 0
    error_code: int16 = 0


@struct
class TxnOffsetCommitResponseTopic:
    """TxnOffsetCommitResponseTopic."""

    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = []


@message(key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    """TxnOffsetCommitResponse."""

    throttle_time_ms: int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []
