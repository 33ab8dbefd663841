"""Which error codes a broker may answer with: per request and version, and for the requests to a transaction
coordinator per state, too. Data, written down from what Kafka's brokers do, not from this broker's tables.

A retriable code leaves no durable change, or one that a repetition does not notice. UNKNOWN_SERVER_ERROR is allowed
nowhere: it would be a bug that was caught too late to have a name.
Source: Kafka's TransactionCoordinator, ProducerAppendInfo, LogValidator, GroupCoordinatorService; KIP-98, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

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

# Produce never answers with the transaction coordinator's own PRODUCER_FENCED or with COORDINATOR errors: clients take
# them for something else there.
PRODUCE = OK | _codes(
    E.CORRUPT_MESSAGE,
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.NOT_LEADER_OR_FOLLOWER,
    E.REQUEST_TIMED_OUT,
    E.MESSAGE_TOO_LARGE,
    E.INVALID_TOPIC_EXCEPTION,
    E.RECORD_LIST_TOO_LARGE,
    E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.INVALID_REQUIRED_ACKS,
    E.TOPIC_AUTHORIZATION_FAILED,
    E.INVALID_TIMESTAMP,
    E.OUT_OF_ORDER_SEQUENCE_NUMBER,
    E.UNKNOWN_PRODUCER_ID,
    E.INVALID_PRODUCER_EPOCH,
    E.INVALID_TXN_STATE,
    E.INVALID_PRODUCER_ID_MAPPING,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    E.KAFKA_STORAGE_ERROR,
    E.INVALID_RECORD,
    E.INVALID_REQUEST,  # the transactional id is empty
    E.OPERATION_NOT_ATTEMPTED,  # the coordinator's node has not heard of the topic of another partition yet
)
TXN_OFFSET_COMMIT = (
    OK
    | COORDINATOR_AWAY
    | CONCURRENT
    | _codes(
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.OFFSET_METADATA_TOO_LARGE,
        E.ILLEGAL_GENERATION,
        E.INVALID_GROUP_ID,
        E.UNKNOWN_MEMBER_ID,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.GROUP_AUTHORIZATION_FAILED,
        E.INVALID_PRODUCER_EPOCH,
        E.INVALID_TXN_STATE,
        E.INVALID_PRODUCER_ID_MAPPING,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        E.FENCED_INSTANCE_ID,
        E.INVALID_REQUEST,  # the transactional id is empty
    )
)
WRITE_TXN_MARKERS = OK | _codes(
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.NOT_LEADER_OR_FOLLOWER,
    E.REQUEST_TIMED_OUT,
    E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.CLUSTER_AUTHORIZATION_FAILED,
    E.INVALID_PRODUCER_EPOCH,
    E.TRANSACTION_COORDINATOR_FENCED,
    E.KAFKA_STORAGE_ERROR,
)
_PARTITION_AWAY = _codes(
    E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_LEADER_OR_FOLLOWER, E.KAFKA_STORAGE_ERROR, E.TOPIC_AUTHORIZATION_FAILED
)
_LEADER_EPOCH = _codes(E.FENCED_LEADER_EPOCH, E.UNKNOWN_LEADER_EPOCH)
_GROUP_MEMBER = (
    OK
    | COORDINATOR_AWAY
    | _codes(
        E.INVALID_GROUP_ID,
        E.GROUP_AUTHORIZATION_FAILED,
        E.UNKNOWN_MEMBER_ID,
        E.FENCED_INSTANCE_ID,
    )
)

_ALTERED_CONFIGS = OK | _codes(
    E.CLUSTER_AUTHORIZATION_FAILED,
    E.INVALID_CONFIG,
    E.INVALID_REQUEST,
    E.INVALID_TOPIC_EXCEPTION,
    E.KAFKA_STORAGE_ERROR,
    E.TOPIC_AUTHORIZATION_FAILED,
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.UNSUPPORTED_VERSION,
)

_FIXED_QUORUM = OK | _codes(
    E.UNSUPPORTED_VERSION, E.INCONSISTENT_CLUSTER_ID, E.INVALID_REQUEST, E.CLUSTER_AUTHORIZATION_FAILED
)
_WITHOUT_AUTHORIZER = OK | _codes(E.SECURITY_DISABLED, E.INVALID_REQUEST, E.CLUSTER_AUTHORIZATION_FAILED)
_WITHOUT_TOKENS = OK | _codes(
    E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, E.DELEGATION_TOKEN_AUTH_DISABLED, E.INVALID_PRINCIPAL_TYPE
)
_SHARE_SESSION = (
    OK
    | _PARTITION_AWAY
    | _codes(
        E.COORDINATOR_NOT_AVAILABLE,
        E.GROUP_AUTHORIZATION_FAILED,
        E.INVALID_RECORD_STATE,
        E.INVALID_REQUEST,
        E.INVALID_SHARE_SESSION_EPOCH,
        E.SHARE_SESSION_NOT_FOUND,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.UNKNOWN_TOPIC_ID,
        E.UNSUPPORTED_VERSION,
    )
)
_SHARE_OFFSETS = (
    OK
    | COORDINATOR_AWAY
    | _codes(
        E.GROUP_AUTHORIZATION_FAILED,
        E.GROUP_ID_NOT_FOUND,
        E.INVALID_GROUP_ID,
        E.NON_EMPTY_GROUP,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNSUPPORTED_VERSION,
    )
)
_SHARE_STATE = (
    OK | COORDINATOR_AWAY | _codes(E.INVALID_REQUEST, E.UNKNOWN_TOPIC_OR_PARTITION, E.CLUSTER_AUTHORIZATION_FAILED)
)

# Requests whose answer does not depend on the state of a transactional id that the request names.
STATELESS: Mapping[ApiKey, Codes] = {
    ApiKey.PRODUCE: PRODUCE,
    ApiKey.FETCH: OK
    | _PARTITION_AWAY
    | _LEADER_EPOCH
    | _codes(
        E.OFFSET_OUT_OF_RANGE,
        E.CORRUPT_MESSAGE,
        E.FETCH_SESSION_ID_NOT_FOUND,
        E.INVALID_FETCH_SESSION_EPOCH,
        E.FETCH_SESSION_TOPIC_ID_ERROR,
        E.UNKNOWN_TOPIC_ID,
        E.INCONSISTENT_TOPIC_ID,
    ),
    ApiKey.LIST_OFFSETS: OK
    | _PARTITION_AWAY
    | _LEADER_EPOCH
    | _codes(E.CORRUPT_MESSAGE, E.OFFSET_NOT_AVAILABLE, E.UNSUPPORTED_VERSION, E.INVALID_REQUEST),
    ApiKey.METADATA: OK
    | _codes(
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.LEADER_NOT_AVAILABLE,
        E.INVALID_TOPIC_EXCEPTION,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.INVALID_REPLICATION_FACTOR,
        E.UNKNOWN_TOPIC_ID,
    ),
    ApiKey.OFFSET_COMMIT: _GROUP_MEMBER
    | _codes(
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.OFFSET_METADATA_TOO_LARGE,
        E.ILLEGAL_GENERATION,
        E.REBALANCE_IN_PROGRESS,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.GROUP_ID_NOT_FOUND,
        E.UNKNOWN_TOPIC_ID,
        E.STALE_MEMBER_EPOCH,
    ),
    ApiKey.OFFSET_FETCH: _GROUP_MEMBER
    | _codes(
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.UNSTABLE_OFFSET_COMMIT,
        E.UNKNOWN_TOPIC_ID,
        E.STALE_MEMBER_EPOCH,
        E.GROUP_ID_NOT_FOUND,
    ),
    ApiKey.OFFSET_DELETE: OK
    | COORDINATOR_AWAY
    | _codes(
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.INVALID_GROUP_ID,
        E.GROUP_AUTHORIZATION_FAILED,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.GROUP_ID_NOT_FOUND,
        E.NON_EMPTY_GROUP,
        E.GROUP_SUBSCRIBED_TO_TOPIC,
    ),
    ApiKey.FIND_COORDINATOR: OK
    | _codes(
        E.COORDINATOR_NOT_AVAILABLE,
        E.INVALID_REQUEST,
        E.INVALID_GROUP_ID,
        E.GROUP_AUTHORIZATION_FAILED,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    ApiKey.JOIN_GROUP: _GROUP_MEMBER
    | _codes(
        E.INCONSISTENT_GROUP_PROTOCOL,
        E.INVALID_SESSION_TIMEOUT,
        E.REBALANCE_IN_PROGRESS,
        E.MEMBER_ID_REQUIRED,
        E.GROUP_MAX_SIZE_REACHED,
    ),
    ApiKey.SYNC_GROUP: _GROUP_MEMBER
    | _codes(E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS, E.INCONSISTENT_GROUP_PROTOCOL),
    ApiKey.HEARTBEAT: _GROUP_MEMBER | _codes(E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS),
    ApiKey.LEAVE_GROUP: _GROUP_MEMBER,
    ApiKey.DESCRIBE_GROUPS: OK
    | COORDINATOR_AWAY
    | _codes(E.GROUP_AUTHORIZATION_FAILED, E.INVALID_GROUP_ID, E.GROUP_ID_NOT_FOUND),
    ApiKey.LIST_GROUPS: OK | COORDINATOR_AWAY,
    ApiKey.DELETE_GROUPS: OK
    | COORDINATOR_AWAY
    | _codes(E.INVALID_GROUP_ID, E.GROUP_AUTHORIZATION_FAILED, E.NON_EMPTY_GROUP, E.GROUP_ID_NOT_FOUND),
    ApiKey.API_VERSIONS: OK | _codes(E.UNSUPPORTED_VERSION, E.INVALID_REQUEST),
    ApiKey.CREATE_TOPICS: OK
    | _codes(
        E.TOPIC_ALREADY_EXISTS,
        E.INVALID_TOPIC_EXCEPTION,
        E.INVALID_PARTITIONS,
        E.INVALID_REPLICATION_FACTOR,
        E.INVALID_REPLICA_ASSIGNMENT,
        E.INVALID_CONFIG,
        E.INVALID_REQUEST,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.REQUEST_TIMED_OUT,
        E.THROTTLING_QUOTA_EXCEEDED,
        E.KAFKA_STORAGE_ERROR,
    ),
    ApiKey.CREATE_PARTITIONS: OK
    | _codes(
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.INVALID_PARTITIONS,
        E.INVALID_REPLICA_ASSIGNMENT,
        E.INVALID_REQUEST,
        E.INVALID_TOPIC_EXCEPTION,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.REQUEST_TIMED_OUT,
        E.THROTTLING_QUOTA_EXCEEDED,
        E.KAFKA_STORAGE_ERROR,
    ),
    ApiKey.DELETE_TOPICS: OK
    | _codes(
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.INVALID_TOPIC_EXCEPTION,
        E.INVALID_REQUEST,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.TOPIC_DELETION_DISABLED,
        E.UNKNOWN_TOPIC_ID,
        E.REQUEST_TIMED_OUT,
        E.THROTTLING_QUOTA_EXCEEDED,
        E.KAFKA_STORAGE_ERROR,
    ),
    ApiKey.DELETE_RECORDS: OK
    | _PARTITION_AWAY
    | _codes(E.OFFSET_OUT_OF_RANGE, E.POLICY_VIOLATION, E.INVALID_TOPIC_EXCEPTION),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: OK | _PARTITION_AWAY | _LEADER_EPOCH,
    ApiKey.DESCRIBE_CONFIGS: OK
    | _codes(
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.INVALID_TOPIC_EXCEPTION,
        E.INVALID_REQUEST,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.CLUSTER_AUTHORIZATION_FAILED,
    ),
    ApiKey.DESCRIBE_CLUSTER: OK | _codes(E.MISMATCHED_ENDPOINT_TYPE, E.UNSUPPORTED_ENDPOINT_TYPE),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: OK
    | _codes(E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_TOPIC_EXCEPTION, E.TOPIC_AUTHORIZATION_FAILED, E.INVALID_REQUEST),
    ApiKey.WRITE_TXN_MARKERS: WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT: TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_PRODUCERS: OK | _PARTITION_AWAY | _codes(E.INVALID_TOPIC_EXCEPTION),
    ApiKey.LIST_TRANSACTIONS: OK | COORDINATOR_AWAY | _codes(E.INVALID_REGULAR_EXPRESSION),
    ApiKey.DESCRIBE_TRANSACTIONS: OK
    | COORDINATOR_AWAY
    | _codes(E.INVALID_REQUEST, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.TRANSACTIONAL_ID_NOT_FOUND),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _GROUP_MEMBER
    | _codes(
        E.FENCED_MEMBER_EPOCH,
        E.GROUP_ID_NOT_FOUND,
        E.GROUP_MAX_SIZE_REACHED,
        E.INVALID_REGULAR_EXPRESSION,
        E.INVALID_REQUEST,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.UNRELEASED_INSTANCE_ID,
        E.UNSUPPORTED_ASSIGNOR,
        E.UNSUPPORTED_VERSION,
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: OK
    | COORDINATOR_AWAY
    | _codes(E.GROUP_AUTHORIZATION_FAILED, E.INVALID_GROUP_ID, E.GROUP_ID_NOT_FOUND, E.TOPIC_AUTHORIZATION_FAILED),
    ApiKey.SHARE_GROUP_HEARTBEAT: OK
    | COORDINATOR_AWAY
    | _codes(
        E.FENCED_MEMBER_EPOCH,
        E.GROUP_AUTHORIZATION_FAILED,
        E.GROUP_ID_NOT_FOUND,
        E.GROUP_MAX_SIZE_REACHED,
        E.INVALID_REQUEST,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.UNKNOWN_MEMBER_ID,
        E.UNSUPPORTED_VERSION,
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: OK
    | COORDINATOR_AWAY
    | _codes(
        E.GROUP_AUTHORIZATION_FAILED,
        E.INVALID_GROUP_ID,
        E.GROUP_ID_NOT_FOUND,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.UNSUPPORTED_VERSION,
    ),
    ApiKey.STREAMS_GROUP_HEARTBEAT: OK
    | COORDINATOR_AWAY
    | _codes(
        E.FENCED_MEMBER_EPOCH,
        E.GROUP_AUTHORIZATION_FAILED,
        E.GROUP_ID_NOT_FOUND,
        E.GROUP_MAX_SIZE_REACHED,
        E.INVALID_REQUEST,
        E.STREAMS_INVALID_TOPOLOGY,
        E.STREAMS_INVALID_TOPOLOGY_EPOCH,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.UNKNOWN_MEMBER_ID,
        E.UNSUPPORTED_VERSION,
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: OK
    | COORDINATOR_AWAY
    | _codes(
        E.GROUP_AUTHORIZATION_FAILED,
        E.INVALID_GROUP_ID,
        E.GROUP_ID_NOT_FOUND,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.UNSUPPORTED_VERSION,
    ),
    ApiKey.SHARE_FETCH: _SHARE_SESSION | _codes(E.SHARE_SESSION_LIMIT_REACHED, E.CORRUPT_MESSAGE),
    ApiKey.SHARE_ACKNOWLEDGE: _SHARE_SESSION,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: OK
    | COORDINATOR_AWAY
    | _codes(E.GROUP_AUTHORIZATION_FAILED, E.NOT_LEADER_OR_FOLLOWER, E.UNSUPPORTED_VERSION),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _SHARE_STATE | _codes(E.FENCED_STATE_EPOCH),
    ApiKey.READ_SHARE_GROUP_STATE: _SHARE_STATE | _codes(E.FENCED_LEADER_EPOCH),
    ApiKey.WRITE_SHARE_GROUP_STATE: _SHARE_STATE | _codes(E.FENCED_LEADER_EPOCH, E.FENCED_STATE_EPOCH),
    ApiKey.DELETE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _SHARE_STATE,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _SHARE_OFFSETS | _codes(E.FENCED_STATE_EPOCH),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _SHARE_OFFSETS,
    ApiKey.ALTER_CONFIGS: _ALTERED_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _ALTERED_CONFIGS,
    ApiKey.LIST_CONFIG_RESOURCES: OK | _codes(E.UNSUPPORTED_VERSION, E.CLUSTER_AUTHORIZATION_FAILED),
    ApiKey.DESCRIBE_LOG_DIRS: OK | _codes(E.KAFKA_STORAGE_ERROR, E.CLUSTER_AUTHORIZATION_FAILED),
    ApiKey.ALTER_REPLICA_LOG_DIRS: OK
    | _PARTITION_AWAY
    | _codes(E.LOG_DIR_NOT_FOUND, E.REPLICA_NOT_AVAILABLE, E.INVALID_TOPIC_EXCEPTION, E.CLUSTER_AUTHORIZATION_FAILED),
    ApiKey.ELECT_LEADERS: OK
    | _codes(
        E.ELECTION_NOT_NEEDED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.PREFERRED_LEADER_NOT_AVAILABLE,
        E.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        E.INVALID_REQUEST,
        E.CLUSTER_AUTHORIZATION_FAILED,
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: OK
    | _codes(
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.INVALID_REPLICA_ASSIGNMENT,
        E.INVALID_REPLICATION_FACTOR,
        E.NO_REASSIGNMENT_IN_PROGRESS,
        E.KAFKA_STORAGE_ERROR,
        E.CLUSTER_AUTHORIZATION_FAILED,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: OK | _codes(E.CLUSTER_AUTHORIZATION_FAILED),
    ApiKey.DESCRIBE_QUORUM: OK | _codes(E.UNKNOWN_TOPIC_OR_PARTITION, E.CLUSTER_AUTHORIZATION_FAILED),
    ApiKey.UNREGISTER_BROKER: OK
    | _codes(E.BROKER_ID_NOT_REGISTERED, E.INVALID_REQUEST, E.CLUSTER_AUTHORIZATION_FAILED),
    ApiKey.ADD_RAFT_VOTER: _FIXED_QUORUM | _codes(E.DUPLICATE_VOTER),
    ApiKey.REMOVE_RAFT_VOTER: _FIXED_QUORUM | _codes(E.VOTER_NOT_FOUND),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: OK
    | _codes(E.INVALID_REQUEST, E.UNSUPPORTED_VERSION, E.CLUSTER_AUTHORIZATION_FAILED),
    ApiKey.ALTER_CLIENT_QUOTAS: OK
    | _codes(E.INVALID_REQUEST, E.UNSUPPORTED_VERSION, E.KAFKA_STORAGE_ERROR, E.CLUSTER_AUTHORIZATION_FAILED),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: OK
    | _codes(E.RESOURCE_NOT_FOUND, E.DUPLICATE_RESOURCE, E.CLUSTER_AUTHORIZATION_FAILED),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: OK
    | _codes(
        E.DUPLICATE_RESOURCE,
        E.UNACCEPTABLE_CREDENTIAL,
        E.UNSUPPORTED_SASL_MECHANISM,
        E.RESOURCE_NOT_FOUND,
        E.KAFKA_STORAGE_ERROR,
        E.CLUSTER_AUTHORIZATION_FAILED,
    ),
    ApiKey.UPDATE_FEATURES: OK
    | _codes(E.INVALID_UPDATE_VERSION, E.KAFKA_STORAGE_ERROR, E.CLUSTER_AUTHORIZATION_FAILED),
    ApiKey.DESCRIBE_ACLS: _WITHOUT_AUTHORIZER,
    ApiKey.CREATE_ACLS: _WITHOUT_AUTHORIZER,
    ApiKey.DELETE_ACLS: _WITHOUT_AUTHORIZER,
    ApiKey.CREATE_DELEGATION_TOKEN: _WITHOUT_TOKENS,
    ApiKey.RENEW_DELEGATION_TOKEN: _WITHOUT_TOKENS,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _WITHOUT_TOKENS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _WITHOUT_TOKENS,
    ApiKey.SASL_HANDSHAKE: OK | _codes(E.ILLEGAL_SASL_STATE, E.UNSUPPORTED_SASL_MECHANISM),
    ApiKey.SASL_AUTHENTICATE: OK | _codes(E.ILLEGAL_SASL_STATE, E.SASL_AUTHENTICATION_FAILED),
}

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
# Codes that a version brought and that replace none: they are not in the sets above.
_BROUGHT: Mapping[ApiKey, Codes] = {
    ApiKey.PRODUCE: _codes(E.TRANSACTION_ABORTABLE, E.CONCURRENT_TRANSACTIONS, E.UNKNOWN_TOPIC_ID),
    ApiKey.TXN_OFFSET_COMMIT: _codes(
        E.TRANSACTION_ABORTABLE, E.GROUP_ID_NOT_FOUND, E.UNKNOWN_TOPIC_ID, E.STALE_MEMBER_EPOCH
    ),
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
        errors = STATELESS[api] | _BROUGHT.get(api, frozenset())
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
