"""WriteTxnMarkers: markers that a coordinator sends to partition leaders (KIP-98, KIP-1228)."""

from fencepost.protocol.schema import field, int8, int16, int32, int64, message, struct


@struct
class WritableTxnMarkerTopic:
    """Partitions of a topic."""

    name: str = ""
    partition_indexes: list[int32] = []


@struct
class WritableTxnMarker:
    """The outcome of a transaction, for those of its partitions that this broker leads. Result: True committed, False
    aborted.
    """

    producer_id: int64 = 0
    producer_epoch: int16 = 0
    transaction_result: bool = False
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: int32 = 0
    transaction_version: int8 = field(versions="2+", default=0)  # 2 means that the epoch counts transactions (KIP-1228)


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    """Write the markers of ended transactions. Repeating it does no harm.

    Not Kafka's: the `reason` of an administrator, for the audit log.
    """

    markers: list[WritableTxnMarker] = []
    reason: str | None = field(versions="1+", tag=10_002, default=None)


@struct
class WritableTxnMarkerPartitionResult:
    """Result of one marker.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH,
    TRANSACTION_COORDINATOR_FENCED, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, CLUSTER_AUTHORIZATION_FAILED.
    """

    partition_index: int32 = 0
    error_code: int16 = 0


@struct
class WritableTxnMarkerTopicResult:
    """The outcomes of a topic's partitions."""

    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


@struct
class WritableTxnMarkerResult:
    """The outcomes of one transaction, known by its producer id."""

    producer_id: int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    """One outcome per marker. It is the one reply without a throttle time."""

    markers: list[WritableTxnMarkerResult] = []
