"""Which error codes a broker may answer with: those that the API declares, less those that came with later versions,
and for the requests to a transaction coordinator those of the state. Data, written down from what Kafka's brokers do,
not from this broker's tables.

A retriable code leaves no durable change, or one that a repetition does not notice. UNKNOWN_SERVER_ERROR is allowed
nowhere: it would be a bug that was caught too late to have a name.
Source: Kafka's TransactionCoordinator, ProducerAppendInfo, LogValidator, GroupCoordinatorService; KIP-98, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from fencepost.broker.handlers import APIS
from fencepost.broker.transaction.state_machine import TransactionState
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode

E = ErrorCode


class Absent(Enum):
    """The state of a transactional id that the coordinator does not know."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
StateBefore = TransactionState | Absent

Codes = frozenset[ErrorCode]


def _codes(*errors: ErrorCode) -> Codes:
    return frozenset(errors)


OK = _codes(E.NONE)
COORDINATOR_AWAY = _codes(E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)
NO_ID_AT_HAND = _codes(E.COORDINATOR_LOAD_IN_PROGRESS)
WRONG_PRODUCER = _codes(E.INVALID_PRODUCER_ID_MAPPING, E.PRODUCER_FENCED)
CONCURRENT = _codes(E.CONCURRENT_TRANSACTIONS)
INVALID_STATE = _codes(E.INVALID_TXN_STATE)

_EMPTY, _ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT, _COMPLETE_COMMIT, _COMPLETE_ABORT, _KEPT = TransactionState
_PREPARED = (_PREPARE_COMMIT, _PREPARE_ABORT)
_COMPLETE = (_COMPLETE_COMMIT, _COMPLETE_ABORT)

# A request and state -> what the coordinator may answer when it decides in that state.
Cells = Mapping[StateBefore, Codes]


def _cells(*, absent: Codes, empty: Codes, ongoing: Codes, prepared: Codes, complete: Codes, kept: Codes) -> Cells:
    return {
        ABSENT: absent,
        _EMPTY: empty,
        _ONGOING: ongoing,
        **dict.fromkeys(_PREPARED, prepared),
        **dict.fromkeys(_COMPLETE, complete),
        _KEPT: kept,
    }


INIT_PRODUCER_ID_CELLS: Cells = _cells(
    absent=OK | NO_ID_AT_HAND,
    empty=OK | NO_ID_AT_HAND | _codes(E.PRODUCER_FENCED),
    ongoing=CONCURRENT | NO_ID_AT_HAND | _codes(E.PRODUCER_FENCED),
    prepared=CONCURRENT,
    complete=OK | NO_ID_AT_HAND | _codes(E.PRODUCER_FENCED),
    kept=CONCURRENT | NO_ID_AT_HAND | _codes(E.PRODUCER_FENCED),
)
INIT_AND_KEEP_CELLS: Cells = _cells(
    absent=OK | NO_ID_AT_HAND,
    empty=OK | NO_ID_AT_HAND | _codes(E.PRODUCER_FENCED),
    ongoing=OK | NO_ID_AT_HAND | _codes(E.PRODUCER_FENCED),
    prepared=CONCURRENT,
    complete=OK | NO_ID_AT_HAND | _codes(E.PRODUCER_FENCED),
    kept=OK | NO_ID_AT_HAND | _codes(E.PRODUCER_FENCED),
)
ADD_CELLS: Cells = _cells(
    absent=_codes(E.INVALID_PRODUCER_ID_MAPPING),
    empty=OK | WRONG_PRODUCER,
    ongoing=OK | WRONG_PRODUCER,
    prepared=CONCURRENT,
    complete=OK | WRONG_PRODUCER,
    kept=INVALID_STATE | WRONG_PRODUCER,
)
VERIFY_CELLS: Cells = _cells(
    absent=_codes(E.INVALID_PRODUCER_ID_MAPPING),
    empty=WRONG_PRODUCER | _codes(E.TRANSACTION_ABORTABLE),
    ongoing=OK | WRONG_PRODUCER | _codes(E.TRANSACTION_ABORTABLE),
    prepared=CONCURRENT | WRONG_PRODUCER,
    complete=WRONG_PRODUCER | _codes(E.TRANSACTION_ABORTABLE),
    kept=INVALID_STATE | WRONG_PRODUCER,
)
END_VERSION_1_CELLS: Cells = _cells(
    absent=_codes(E.INVALID_PRODUCER_ID_MAPPING),
    empty=INVALID_STATE | WRONG_PRODUCER,
    ongoing=OK | WRONG_PRODUCER,
    prepared=CONCURRENT | WRONG_PRODUCER,
    complete=OK | INVALID_STATE | WRONG_PRODUCER,
    kept=OK | WRONG_PRODUCER,
)
END_VERSION_2_CELLS: Cells = _cells(
    absent=_codes(E.INVALID_PRODUCER_ID_MAPPING),
    empty=OK | INVALID_STATE | WRONG_PRODUCER | NO_ID_AT_HAND,
    ongoing=OK | WRONG_PRODUCER | NO_ID_AT_HAND,
    prepared=CONCURRENT,
    complete=OK | INVALID_STATE | WRONG_PRODUCER | NO_ID_AT_HAND,
    kept=OK | WRONG_PRODUCER | NO_ID_AT_HAND,
)

FIRST_INIT_PRODUCER_ID_THAT_KEEPS = 6

# Said before the coordinator looks at the transactional id at all.
INIT_PRODUCER_ID_BEFORE = COORDINATOR_AWAY | _codes(
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    E.CLUSTER_AUTHORIZATION_FAILED,
    E.INVALID_REQUEST,
    E.UNSUPPORTED_VERSION,
    E.INVALID_TRANSACTION_TIMEOUT,
)
ADD_PARTITIONS_BEFORE = COORDINATOR_AWAY | _codes(
    E.INVALID_REQUEST,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    E.TOPIC_AUTHORIZATION_FAILED,
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.OPERATION_NOT_ATTEMPTED,
)
ADD_OFFSETS_BEFORE = COORDINATOR_AWAY | _codes(
    E.INVALID_REQUEST, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.GROUP_AUTHORIZATION_FAILED
)
END_TXN_BEFORE = COORDINATOR_AWAY | _codes(E.INVALID_REQUEST, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


# Codes that came with a version of a request.
SINCE_VERSION: Mapping[ApiKey, Mapping[ErrorCode, int]] = {
    ApiKey.PRODUCE: {E.TRANSACTION_ABORTABLE: 11, E.CONCURRENT_TRANSACTIONS: 12, E.UNKNOWN_TOPIC_ID: 13},
    ApiKey.TXN_OFFSET_COMMIT: {
        E.COORDINATOR_LOAD_IN_PROGRESS: 2,
        E.TRANSACTION_ABORTABLE: 4,
        E.GROUP_ID_NOT_FOUND: 6,
        E.UNKNOWN_TOPIC_ID: 6,
        E.STALE_MEMBER_EPOCH: 6,
    },
    ApiKey.FETCH: {E.UNKNOWN_TOPIC_ID: 13, E.INCONSISTENT_TOPIC_ID: 13, E.FETCH_SESSION_TOPIC_ID_ERROR: 13},
    ApiKey.OFFSET_COMMIT: {E.GROUP_ID_NOT_FOUND: 9, E.STALE_MEMBER_EPOCH: 9, E.UNKNOWN_TOPIC_ID: 10},
    ApiKey.OFFSET_FETCH: {E.UNSTABLE_OFFSET_COMMIT: 7, E.STALE_MEMBER_EPOCH: 9, E.UNKNOWN_TOPIC_ID: 10},
    ApiKey.DESCRIBE_GROUPS: {E.GROUP_ID_NOT_FOUND: 6},
    ApiKey.LIST_TRANSACTIONS: {E.INVALID_REGULAR_EXPRESSION: 2},
    ApiKey.INIT_PRODUCER_ID: {E.PRODUCER_FENCED: 4},
    ApiKey.ADD_PARTITIONS_TO_TXN: {E.PRODUCER_FENCED: 2},
    ApiKey.ADD_OFFSETS_TO_TXN: {E.PRODUCER_FENCED: 2},
    ApiKey.END_TXN: {E.PRODUCER_FENCED: 2},
}
_UNSUPPORTED_COMPRESSION_UP_TO_PRODUCE = 6  # version 7 knows zstd, the newest codec

FIRST_BATCH_VERSION_OF_ADD_PARTITIONS = 4
FIRST_END_TXN_OF_VERSION_2 = 5


def decided_in(api: ApiKey, version: int, state: StateBefore) -> Codes:
    """What a coordinator may answer that decides in `state`, in the dialect of the current versions. Raises KeyError
    for a request that no transaction coordinator serves.
    """
    match api:
        case ApiKey.INIT_PRODUCER_ID:
            if version >= FIRST_INIT_PRODUCER_ID_THAT_KEEPS:
                return INIT_PRODUCER_ID_CELLS[state] | INIT_AND_KEEP_CELLS[state]
            return INIT_PRODUCER_ID_CELLS[state]
        case ApiKey.ADD_OFFSETS_TO_TXN:
            return ADD_CELLS[state]
        case ApiKey.ADD_PARTITIONS_TO_TXN:
            if version >= FIRST_BATCH_VERSION_OF_ADD_PARTITIONS:
                return ADD_CELLS[state] | VERIFY_CELLS[state]
            return ADD_CELLS[state]
        case ApiKey.END_TXN:
            return (END_VERSION_2_CELLS if version >= FIRST_END_TXN_OF_VERSION_2 else END_VERSION_1_CELLS)[state]
    raise KeyError(api)


_BEFORE: Mapping[ApiKey, Codes] = {
    ApiKey.INIT_PRODUCER_ID: INIT_PRODUCER_ID_BEFORE,
    ApiKey.ADD_OFFSETS_TO_TXN: ADD_OFFSETS_BEFORE,
    ApiKey.ADD_PARTITIONS_TO_TXN: ADD_PARTITIONS_BEFORE,
    ApiKey.END_TXN: END_TXN_BEFORE,
}


def allowed_errors(api: ApiKey, version: int, state_before: StateBefore | None = None) -> Codes:
    """The error codes that a reply may carry anywhere.

    state_before: of the transactional id that the request names, at the moment when the coordinator decides; ABSENT
                  when the coordinator does not know the id, None when the caller does not know the state: then what any
                  state allows. A request that meets a transaction between Prepare and Complete, and InitProducerId in
                  Ongoing, wait for Complete and are decided again in whatever state they find; so for those all of it
                  is allowed.
    Raises KeyError for an API that is not listed: list it.
    """
    if api in _BEFORE:
        errors = _BEFORE[api]
        for state in _states_of_decision(api, state_before):
            errors |= decided_in(api, version, state)
        if api is ApiKey.ADD_PARTITIONS_TO_TXN and version >= FIRST_BATCH_VERSION_OF_ADD_PARTITIONS:
            errors |= OK | _codes(E.CLUSTER_AUTHORIZATION_FAILED)  # of the whole request; then each its own
    else:
        errors = APIS[api].errors
        if api is ApiKey.PRODUCE and version <= _UNSUPPORTED_COMPRESSION_UP_TO_PRODUCE:
            errors |= _codes(E.UNSUPPORTED_COMPRESSION_TYPE)
    known = frozenset(error for error in errors if version >= SINCE_VERSION.get(api, {}).get(error, 0))
    if E.PRODUCER_FENCED in errors - known:
        known |= _codes(E.INVALID_PRODUCER_EPOCH)  # KIP-588: older versions say it that way
    return known


def _states_of_decision(api: ApiKey, state_before: StateBefore | None) -> tuple[StateBefore, ...]:
    if state_before is None:
        return (ABSENT, *TransactionState)
    if state_before in _PREPARED or (api is ApiKey.INIT_PRODUCER_ID and state_before is _ONGOING):
        return tuple(TransactionState)
    return (state_before,)


def error_codes(response: object) -> Iterator[ErrorCode]:
    """Every error code in a response, wherever it stands, each partition's own among them."""
    for name in getattr(type(response), "__slots__", ()):
        value = getattr(response, name)
        if name in _ERROR_FIELDS:
            yield ErrorCode(value)
        elif isinstance(value, list | tuple):
            for item in value:
                yield from error_codes(item)
        elif hasattr(type(value), "__slots__"):
            yield from error_codes(value)


_ERROR_FIELDS = frozenset({"error_code", "partition_error_code", "topic_config_error_code"})
