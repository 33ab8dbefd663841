"""DescribeTransactions and ListTransactions: transactions of a coordinator, for administrators (KIP-664)."""

from fencepost.protocol.schema import field, int16, int32, int64, message, struct


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """Ask for the state of transactional ids."""

    transactional_ids: list[str] = []


@struct
class TopicData:
    """Partitions of a topic that are part of the transaction."""

    topic: str = ""
    partitions: list[int32] = []


@struct
class DescribeTransactionsTransactionState:
    """The state of a transactional id. The start is -1 when no transaction is open.

    Errors: TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """

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
    """One state per transactional id."""

    throttle_time_ms: int32 = 0
    transaction_states: list[DescribeTransactionsTransactionState] = []


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """Ask for the transactional ids of this coordinator; empty filters let everything through.

    duration_filter: only transactions open for longer than this, in milliseconds; -1 for any.
    transactional_id_pattern: a regular expression; None for any (KIP-1152).
    """

    state_filters: list[str] = []
    producer_id_filters: list[int64] = []
    duration_filter: int64 = field(versions="1+", default=-1)
    transactional_id_pattern: str | None = field(versions="2+", default=None)


@struct
class ListTransactionsTransactionState:
    """A transactional id and its state."""

    transactional_id: str = ""
    producer_id: int64 = 0
    transaction_state: str = ""


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """The transactional ids that passed, and the state filters unknown to this broker.

    Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, INVALID_REGULAR_EXPRESSION.
    """

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[ListTransactionsTransactionState] = []
