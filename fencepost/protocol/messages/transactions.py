"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn (KIP-98, KIP-360, KIP-447, KIP-890)."""

from fencepost.protocol.schema import field, int16, int32, int64, message, struct


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    """Ask for a producer id. With a transactional id it ends the transaction of an earlier instance, and fences that
    instance.

    producer_id, producer_epoch: the identity so far, if the producer wants to continue with a higher epoch
        (KIP-360).
    Version 6 is that of two-phase commit, which Kafka itself marks unstable (KIP-939).

    Not Kafka's: with `guard`, from now on no new session of the id aborts its open transaction unless the request names
    the current pair, or is `forced`, as that of an administrator, whose `reason` goes into the audit log.
    """

    transactional_id: str | None = ""
    transaction_timeout_ms: int32 = 0
    producer_id: int64 = field(versions="3+", default=-1)
    producer_epoch: int16 = field(versions="3+", default=-1)
    enable2_pc: bool = field(versions="6+", default=False)  # KIP-939
    keep_prepared_txn: bool = field(versions="6+", default=False)
    guard: bool = field(versions="2+", tag=10_000, default=False)
    forced: bool = field(versions="2+", tag=10_001, default=False)
    reason: str | None = field(versions="2+", tag=10_002, default=None)


@message(key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    """The identity to write with.

    Errors: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_TRANSACTION_TIMEOUT,
    INVALID_REQUEST, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED (4+, before that INVALID_PRODUCER_EPOCH),
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16 = 0
    ongoing_txn_producer_id: int64 = field(versions="6+", default=-1)
    ongoing_txn_producer_epoch: int16 = field(versions="6+", default=-1)


@struct
class AddPartitionsToTxnTopic:
    """Partitions of a topic."""

    name: str = ""
    partitions: list[int32] = []


@struct
class AddPartitionsToTxnTransaction:
    """Partitions that join a transaction, or with `verify_only` are checked to be in it."""

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = []


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """Partitions join a transaction. Producers send up to version 3; 4 and 5 are for brokers among themselves, many
    transactions at once.
    """

    transactions: list[AddPartitionsToTxnTransaction] = field(versions="4+", default=[])
    v3_and_below_transactional_id: str = field(versions="0-3", default="")
    v3_and_below_producer_id: int64 = field(versions="0-3", default=0)
    v3_and_below_producer_epoch: int16 = field(versions="0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(versions="0-3", default=[])


@struct
class AddPartitionsToTxnPartitionResult:
    """Result of one partition.

    Errors: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED (2+, before that INVALID_PRODUCER_EPOCH),
    INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS, OPERATION_NOT_ATTEMPTED, UNKNOWN_TOPIC_OR_PARTITION,
    TRANSACTION_ABORTABLE (5+), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """

    partition_index: int32 = 0
    partition_error_code: int16 = 0


@struct
class AddPartitionsToTxnTopicResult:
    """The outcomes of a topic's partitions."""

    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


@struct
class AddPartitionsToTxnResult:
    """The outcomes of one transaction."""

    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


@message(key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """One outcome per partition. The error at the top, for brokers only, is CLUSTER_AUTHORIZATION_FAILED."""

    throttle_time_ms: int32 = 0
    error_code: int16 = field(versions="4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(versions="4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(versions="0-3", default=[])


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """The offsets of a group join a transaction: the partition of `__consumer_offsets` that will hold them."""

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    group_id: str = ""


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """Whether the offsets may be committed with the transaction.

    Errors: as AddPartitionsToTxn has for a partition, and INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = 0


@message(key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    """Commit the transaction, or abort it. From version 5 on each transaction has its own epoch (KIP-890).

    Not Kafka's: the `reason` of an administrator who ends it in its producer's place, for the audit log.
    """

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    committed: bool = False
    reason: str | None = field(versions="3+", tag=10_002, default=None)


@message(key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """Whether the outcome is decided; markers may still be missing.

    Errors: INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED (2+, before that
    INVALID_PRODUCER_EPOCH), CONCURRENT_TRANSACTIONS, TRANSACTION_ABORTABLE (4+), COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = field(versions="5+", default=-1)  # the identity for the next transaction
    producer_epoch: int16 = field(versions="5+", default=-1)
