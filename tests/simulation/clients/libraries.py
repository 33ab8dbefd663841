"""How client libraries speak and what they make of errors: which versions they send, and when they try again, abort the
transaction, or give up.

Source: Kafka's TransactionManager, ProducerBatch and Sender; librdkafka's rdkafka_txnmgr.c, rdkafka_idempotence.c and
rdkafka_request.c; kafka-python's transaction_manager.py and sender.py; KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode

E = ErrorCode


class Reaction(Enum):
    """What a producer does about an error code."""

    SUCCEED = "takes it for success"
    RETRY = "tries again"
    FIND = "looks for the coordinator or leader, then tries again"
    ABORT = "can only abort the transaction"
    BUMP = "can only abort the transaction, and asks for a new epoch then"
    FAIL = "can do nothing any more"


_R = Reaction
_Reactions = Mapping[tuple[ApiKey, ErrorCode], Reaction]

_COORDINATED = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
)
_ADDING = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN)


def _everywhere(reactions: Mapping[ErrorCode, Reaction], apis: tuple[ApiKey, ...] = _COORDINATED) -> _Reactions:
    return {(api, error): reaction for api in apis for error, reaction in reactions.items()}


_COMMON: _Reactions = {
    **_everywhere(
        {
            E.COORDINATOR_NOT_AVAILABLE: _R.FIND,
            E.NOT_COORDINATOR: _R.FIND,
            E.COORDINATOR_LOAD_IN_PROGRESS: _R.RETRY,
            E.CONCURRENT_TRANSACTIONS: _R.RETRY,
            E.UNKNOWN_TOPIC_OR_PARTITION: _R.RETRY,
            E.INVALID_PRODUCER_EPOCH: _R.FAIL,
            E.PRODUCER_FENCED: _R.FAIL,
            E.INVALID_PRODUCER_ID_MAPPING: _R.FAIL,
            E.INVALID_TXN_STATE: _R.FAIL,
            E.TRANSACTION_ABORTABLE: _R.ABORT,
            E.OPERATION_NOT_ATTEMPTED: _R.ABORT,
        }
    ),
    **_everywhere(
        {
            E.ILLEGAL_GENERATION: _R.ABORT,
            E.UNKNOWN_MEMBER_ID: _R.ABORT,
            E.FENCED_INSTANCE_ID: _R.ABORT,
        },
        (ApiKey.TXN_OFFSET_COMMIT,),
    ),
    **_everywhere(
        {
            E.UNKNOWN_TOPIC_OR_PARTITION: _R.FIND,
            E.UNKNOWN_TOPIC_ID: _R.FIND,
            E.NOT_LEADER_OR_FOLLOWER: _R.FIND,
            E.REQUEST_TIMED_OUT: _R.RETRY,
            E.NOT_ENOUGH_REPLICAS: _R.RETRY,
            E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _R.RETRY,
            E.KAFKA_STORAGE_ERROR: _R.FIND,
            E.CORRUPT_MESSAGE: _R.RETRY,
            E.CONCURRENT_TRANSACTIONS: _R.RETRY,
            E.DUPLICATE_SEQUENCE_NUMBER: _R.SUCCEED,
            E.TRANSACTION_ABORTABLE: _R.ABORT,
            E.OUT_OF_ORDER_SEQUENCE_NUMBER: _R.BUMP,
            E.UNKNOWN_PRODUCER_ID: _R.BUMP,
            E.INVALID_RECORD: _R.ABORT,
            E.MESSAGE_TOO_LARGE: _R.ABORT,
            E.INVALID_TIMESTAMP: _R.ABORT,
        },
        (ApiKey.PRODUCE,),
    ),
}

_JAVA: _Reactions = {
    **_COMMON,
    (ApiKey.PRODUCE, E.OUT_OF_ORDER_SEQUENCE_NUMBER): _R.ABORT,
    (ApiKey.PRODUCE, E.INVALID_PRODUCER_EPOCH): _R.ABORT,
    (ApiKey.PRODUCE, E.INVALID_TXN_STATE): _R.ABORT,
    (ApiKey.PRODUCE, E.PRODUCER_FENCED): _R.FAIL,
    (ApiKey.PRODUCE, E.INVALID_PRODUCER_ID_MAPPING): _R.FAIL,
}

_LIBRDKAFKA: _Reactions = {
    **_COMMON,
    **_everywhere({E.INVALID_PRODUCER_ID_MAPPING: _R.BUMP}, (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN)),
    (ApiKey.ADD_OFFSETS_TO_TXN, E.INVALID_PRODUCER_ID_MAPPING): _R.ABORT,
    (ApiKey.PRODUCE, E.INVALID_PRODUCER_EPOCH): _R.FAIL,
    (ApiKey.PRODUCE, E.INVALID_TXN_STATE): _R.ABORT,
    (ApiKey.PRODUCE, E.PRODUCER_FENCED): _R.ABORT,
    (ApiKey.PRODUCE, E.INVALID_PRODUCER_ID_MAPPING): _R.ABORT,
}

_KAFKA_PYTHON: _Reactions = {
    **_COMMON,
    **_everywhere(
        {E.TRANSACTION_ABORTABLE: _R.FAIL}, (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT)
    ),
    (ApiKey.ADD_OFFSETS_TO_TXN, E.INVALID_PRODUCER_ID_MAPPING): _R.ABORT,
    (ApiKey.PRODUCE, E.INVALID_PRODUCER_EPOCH): _R.BUMP,
    (ApiKey.PRODUCE, E.INVALID_TXN_STATE): _R.FAIL,
    (ApiKey.PRODUCE, E.PRODUCER_FENCED): _R.FAIL,
    (ApiKey.PRODUCE, E.INVALID_PRODUCER_ID_MAPPING): _R.FAIL,
}


@dataclass(frozen=True)
class Library:
    """A producer's dialect.

    transaction_version: 2 adds partitions by writing to them and gets a new epoch with each end (KIP-890); 1 asks
        AddPartitionsToTxn and AddOffsetsToTxn first.
    """

    name: str
    transaction_version: int
    produce_version: int
    init_producer_id_version: int
    add_version: int
    end_txn_version: int
    txn_offset_commit_version: int
    reactions: _Reactions

    def reaction(self, api: ApiKey, error: ErrorCode) -> Reaction:
        """What it does about an error that is not NONE; what a library does not know it cannot survive."""
        return self.reactions.get((api, error), Reaction.FAIL)


JAVA: Final = Library("java", 2, 12, 5, 3, 5, 5, _JAVA)
JAVA_WITH_TOPIC_IDS: Final = Library("java-ids", 2, 13, 5, 3, 5, 5, _JAVA)
JAVA_VERSION_1: Final = Library("java-v1", 1, 11, 5, 3, 4, 4, _JAVA)
LIBRDKAFKA: Final = Library("librdkafka", 1, 10, 4, 0, 1, 3, _LIBRDKAFKA)
KAFKA_PYTHON: Final = Library("kafka-python", 1, 9, 4, 3, 3, 3, _KAFKA_PYTHON)

VERSION_1_LIBRARIES: Final = (JAVA_VERSION_1, LIBRDKAFKA, KAFKA_PYTHON)
VERSION_2_LIBRARIES: Final = (JAVA, JAVA_WITH_TOPIC_IDS)
