"""transaction_admin"""

from protocol.schema import field, int16, int32, int64, message, struct


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """DescribeTransactionsRequest."""

    transactional_ids: list[str] = []


@struct
class TopicData:
    """TopicData."""

    topic: str = ""
    partitions: list[int32] = []


@struct
class DescribeTransactionsTransactionState:
    """DescribeTransactionsTransactionState."""

    error_code: int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int32 = 0
    transaction_start_time_ms: int64 = 0
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    topics: list[TopicData] = []


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """DescribeTransactionsResponse."""

    throttle_time_ms: int32 = 0
    transaction_states: list[DescribeTransactionsTransactionState] = []


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """ListTransactionsRequest."""

    state_filters: list[str] = []
    producer_id_filters: list[int64] = []
    duration_filter: int64 = field(versions="1+", default=-1)
    transactional_id_pattern: str | None = field(versions="2+", default=None)


@struct
class ListTransactionsTransactionState:
    """ListTransactionsTransactionState."""

    transactional_id: str = ""
    producer_id: int64 = 0
    transaction_state: str = ""


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """ListTransactionsResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[ListTransactionsTransactionState] = []
