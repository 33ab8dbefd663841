"""What must come up somewhere in enough worlds, or they prove less than they seem to.

A situation is recognised in what passed over the wire, in what brokers logged, or by whoever brought it about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from tests.simulation.trace import Exchange

_CODES: Final = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: (ApiKey.PRODUCE,),
    ErrorCode.INVALID_PRODUCER_EPOCH: (ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT),
    ErrorCode.INVALID_TXN_STATE: (ApiKey.END_TXN,),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (ApiKey.END_TXN,),
    ErrorCode.CONCURRENT_TRANSACTIONS: (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN),
    ErrorCode.PRODUCER_FENCED: (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN, ApiKey.ADD_PARTITIONS_TO_TXN),
    ErrorCode.TRANSACTION_ABORTABLE: (ApiKey.PRODUCE,),
    ErrorCode.UNSTABLE_OFFSET_COMMIT: (ApiKey.OFFSET_FETCH,),
    ErrorCode.ILLEGAL_GENERATION: (ApiKey.TXN_OFFSET_COMMIT,),
    ErrorCode.UNKNOWN_MEMBER_ID: (ApiKey.TXN_OFFSET_COMMIT,),
    ErrorCode.KAFKA_STORAGE_ERROR: (ApiKey.PRODUCE,),
}


def answered(api: ApiKey, error: ErrorCode) -> str:
    """The situation that a request of this kind is answered with this error."""
    return f"{api.name} is answered {error.name}"


SITUATIONS: Final = (*(answered(api, error) for error, apis in _CODES.items() for api in apis),)


def situations(exchanges: Iterable[Exchange]) -> Counter[str]:
    """Which of them come up in what passed over the wire."""
    wanted = {(api, error) for error, apis in _CODES.items() for api in apis}
    reached: Counter[str] = Counter()
    for exchange in exchanges:
        api = ApiKey(exchange.request.api_key)
        for code in set(_error_codes(exchange.response)):
            error = ErrorCode(code)
            if (api, error) in wanted:
                reached[answered(api, error)] += 1
    return reached


def _error_codes(message: Any) -> Iterator[int]:
    """All of them, at any depth."""
    for name in ("error_code", "partition_error_code"):
        code = getattr(message, name, 0)
        if code:
            yield code
    for name in _LISTS:
        for part in getattr(message, name, None) or ():
            yield from _error_codes(part)


_LISTS: Final = (
    "responses",
    "partition_responses",
    "topics",
    "partitions",
    "results_by_topic_v3_and_below",
    "results_by_partition",
)
