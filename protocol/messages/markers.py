"""markers"""

from protocol.schema import field, int8, int16, int32, int64, message, struct


@struct
class WritableTxnMarkerTopic:
    """WritableTxnMarkerTopic."""

    name: str = ""
    partition_indexes: list[int32] = []


@struct
class WritableTxnMarker:
    """WritableTxnMarker."""

    producer_id: int64 = 0
    producer_epoch: int16 = 0
    transaction_result: bool = False
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: int32 = 0
    transaction_version: int8 = field(versions="2+", default=0)


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    """WriteTxnMarkersRequest."""

    markers: list[WritableTxnMarker] = []


@struct
class WritableTxnMarkerPartitionResult:
    """WritableTxnMarkerPartitionResult."""

    partition_index: int32 = 0
    error_code: int16 = 0


@struct
class WritableTxnMarkerTopicResult:
    """WritableTxnMarkerTopicResult."""

    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


@struct
class WritableTxnMarkerResult:
    """WritableTxnMarkerResult."""

    producer_id: int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


@message(key=27, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    """WriteTxnMarkersResponse."""

    markers: list[WritableTxnMarkerResult] = []
