"""State machine of transactions: one table for each transaction version. Pure. `metadata.fence` checks the producer
before.

Version 1 is the protocol of KIP-98: the epoch lasts as long as the session. Version 2 is the second part of KIP-890:
every end of a transaction raises the epoch, so that nothing sent late can reach into the next transaction. An
operation's version is that of the request; the coordinator's own operations (time-outs, fencing) have the version of
the cluster feature `transaction.version`.
Source: Kafka's TransactionState, TransactionCoordinator and TransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final

from fencepost.protocol.errors import ErrorCode


class TransactionVersion(IntEnum):
    """Version of the epoch rules. Transaction log records, markers and the feature level carry the number; V1 is 0."""

    V1 = 0
    V2 = 2


class TransactionState(IntEnum):
    """States, with Kafka's stored numbers and the names that its admin tools show.

    KEPT is stored as ONGOING with the pair of the session that kept the transaction, and shown as ONGOING.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    KEPT = 6  # open; a later session may end it, and do nothing else with it (KIP-939)

    @property
    def display_name(self) -> str:
        return _DISPLAY_NAMES[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and its markers are being sent."""
        return self is PREPARE_COMMIT or self is PREPARE_ABORT

    @property
    def is_open(self) -> bool:
        """Whether the transaction has begun and its outcome is not decided."""
        return self is ONGOING or self is KEPT


class TableAction(Enum):
    """Result of a cell that is neither a next state nor a refusal."""

    ACKNOWLEDGE = "acknowledge"  # already so: success, nothing is written
    IGNORE = "ignore"  # nothing to do
    FORGET = "forget"  # a tombstone is written and the transactional id is unknown from then on


class TransactionEvent(Enum):
    """Events of a transaction. The two RETRY events exist in version 2 only: the request carries the epoch before the
    current one.
    """

    __hash__ = object.__hash__  # Enum's hash is a Python function, and each decision looks up events

    INIT_PRODUCER_ID = "InitProducerId"
    INIT_AND_KEEP = "InitProducerId (keep the prepared transaction)"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    VERIFY_PARTITIONS = "AddPartitionsToTxn (verify only)"
    END_COMMIT = "EndTxn (commit)"
    END_ABORT = "EndTxn (abort)"
    RETRY_COMMIT = "EndTxn (commit) again"
    RETRY_ABORT = "EndTxn (abort) again"
    TIME_OUT = "time-out"
    MARKERS_WRITTEN = "markers written"
    EXPIRE = "expiry"


TransactionCell = TransactionState | ErrorCode | TableAction

# Python 3.11 takes ten times as long to look up a member in its enum class as in this module.
TRANSACTION_VERSION_1: Final = TransactionVersion.V1
TRANSACTION_VERSION_2: Final = TransactionVersion.V2
ADD_PARTITIONS: Final = TransactionEvent.ADD_PARTITIONS
END_COMMIT: Final = TransactionEvent.END_COMMIT
END_ABORT: Final = TransactionEvent.END_ABORT

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
KEPT = TransactionState.KEPT

CONCURRENT: Final = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
FENCED = ErrorCode.PRODUCER_FENCED
ACKNOWLEDGE: Final = TableAction.ACKNOWLEDGE
IGNORE = TableAction.IGNORE
FORGET = TableAction.FORGET

_DISPLAY_NAMES: Mapping[TransactionState, str] = {
    EMPTY: "Empty",
    ONGOING: "Ongoing",
    PREPARE_COMMIT: "PrepareCommit",
    PREPARE_ABORT: "PrepareAbort",
    COMPLETE_COMMIT: "CompleteCommit",
    COMPLETE_ABORT: "CompleteAbort",
    KEPT: "Ongoing",
}
DISPLAY_NAMES = frozenset(_DISPLAY_NAMES.values())

TransactionTableRow = tuple[
    TransactionCell,
    TransactionCell,
    TransactionCell,
    TransactionCell,
    TransactionCell,
    TransactionCell,
    TransactionCell,
]
Table = Mapping[TransactionEvent, TransactionTableRow]

# A cell is the next state, the error code that refuses, or an action. In the two PREPARE columns Kafka holds a pending
# CompleteX in memory and answers CONCURRENT_TRANSACTIONS; here nothing is pending, the prepared state itself gives that
# answer. INIT_PRODUCER_ID in ONGOING and KEPT fences: the open transaction is aborted, then the request is decided again.
# fmt: off
VERSION_1: Table = {
    #                                   EMPTY            ONGOING          PREPARE_COMMIT   PREPARE_ABORT    COMPLETE_COMMIT  COMPLETE_ABORT   KEPT
    TransactionEvent.INIT_PRODUCER_ID:  (EMPTY,           PREPARE_ABORT,   CONCURRENT,      CONCURRENT,      EMPTY,           EMPTY,           PREPARE_ABORT),
    TransactionEvent.INIT_AND_KEEP:     (EMPTY,           KEPT,            CONCURRENT,      CONCURRENT,      EMPTY,           EMPTY,           KEPT),
    TransactionEvent.ADD_PARTITIONS:    (ONGOING,         ONGOING,         CONCURRENT,      CONCURRENT,      ONGOING,         ONGOING,         INVALID),
    TransactionEvent.VERIFY_PARTITIONS: (ABORTABLE,       ACKNOWLEDGE,     CONCURRENT,      CONCURRENT,      ABORTABLE,       ABORTABLE,       INVALID),
    TransactionEvent.END_COMMIT:        (INVALID,         PREPARE_COMMIT,  CONCURRENT,      CONCURRENT,      ACKNOWLEDGE,     INVALID,         PREPARE_COMMIT),
    TransactionEvent.END_ABORT:         (INVALID,         PREPARE_ABORT,   CONCURRENT,      CONCURRENT,      INVALID,         ACKNOWLEDGE,     PREPARE_ABORT),
    TransactionEvent.TIME_OUT:          (IGNORE,          PREPARE_ABORT,   IGNORE,          IGNORE,          IGNORE,          IGNORE,          PREPARE_ABORT),
    TransactionEvent.MARKERS_WRITTEN:   (IGNORE,          IGNORE,          COMPLETE_COMMIT, COMPLETE_ABORT,  IGNORE,          IGNORE,          IGNORE),
    TransactionEvent.EXPIRE:            (FORGET,          IGNORE,          IGNORE,          IGNORE,          FORGET,          FORGET,          IGNORE),
}
VERSION_2: Table = {
    #                                   EMPTY            ONGOING          PREPARE_COMMIT   PREPARE_ABORT    COMPLETE_COMMIT  COMPLETE_ABORT   KEPT
    TransactionEvent.INIT_PRODUCER_ID:  (EMPTY,           PREPARE_ABORT,   CONCURRENT,      CONCURRENT,      EMPTY,           EMPTY,           PREPARE_ABORT),
    TransactionEvent.INIT_AND_KEEP:     (EMPTY,           KEPT,            CONCURRENT,      CONCURRENT,      EMPTY,           EMPTY,           KEPT),
    TransactionEvent.ADD_PARTITIONS:    (ONGOING,         ONGOING,         CONCURRENT,      CONCURRENT,      ONGOING,         ONGOING,         INVALID),
    TransactionEvent.VERIFY_PARTITIONS: (ABORTABLE,       ACKNOWLEDGE,     CONCURRENT,      CONCURRENT,      ABORTABLE,       ABORTABLE,       INVALID),
    TransactionEvent.END_COMMIT:        (INVALID,         PREPARE_COMMIT,  CONCURRENT,      CONCURRENT,      INVALID,         INVALID,         PREPARE_COMMIT),
    TransactionEvent.END_ABORT:         (PREPARE_ABORT,   PREPARE_ABORT,   CONCURRENT,      CONCURRENT,      PREPARE_ABORT,   PREPARE_ABORT,   PREPARE_ABORT),
    TransactionEvent.RETRY_COMMIT:      (FENCED,          FENCED,          CONCURRENT,      CONCURRENT,      ACKNOWLEDGE,     INVALID,         FENCED),
    TransactionEvent.RETRY_ABORT:       (FENCED,          FENCED,          CONCURRENT,      CONCURRENT,      INVALID,         ACKNOWLEDGE,     FENCED),
    TransactionEvent.TIME_OUT:          (IGNORE,          PREPARE_ABORT,   IGNORE,          IGNORE,          IGNORE,          IGNORE,          PREPARE_ABORT),
    TransactionEvent.MARKERS_WRITTEN:   (IGNORE,          IGNORE,          COMPLETE_COMMIT, COMPLETE_ABORT,  IGNORE,          IGNORE,          IGNORE),
    TransactionEvent.EXPIRE:            (FORGET,          IGNORE,          IGNORE,          IGNORE,          FORGET,          FORGET,          IGNORE),
}
# fmt: on
TABLES: Mapping[TransactionVersion, Table] = {TransactionVersion.V1: VERSION_1, TransactionVersion.V2: VERSION_2}

# Allowed transitions in any version: a check on the tables and on every record that is written.
ALLOWED_PREVIOUS: Mapping[TransactionState, frozenset[TransactionState]] = {
    EMPTY: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    ONGOING: frozenset({ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_COMMIT: frozenset({ONGOING, KEPT}),
    PREPARE_ABORT: frozenset({ONGOING, KEPT, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    KEPT: frozenset({ONGOING, KEPT}),
}

# A prepared transaction answers these events before fencing: its completion may change even the producer id, so the
# request may turn out to be the owner's. EndTxn of version 1 and verification are fenced first, as in Kafka.
ANSWERED_CONCURRENT_BEFORE_FENCING: Mapping[TransactionVersion, frozenset[TransactionEvent]] = {
    TransactionVersion.V1: frozenset(
        {TransactionEvent.INIT_PRODUCER_ID, TransactionEvent.INIT_AND_KEEP, TransactionEvent.ADD_PARTITIONS}
    ),
    TransactionVersion.V2: frozenset(
        {
            TransactionEvent.INIT_PRODUCER_ID,
            TransactionEvent.INIT_AND_KEEP,
            TransactionEvent.ADD_PARTITIONS,
            TransactionEvent.END_COMMIT,
            TransactionEvent.END_ABORT,
            TransactionEvent.RETRY_COMMIT,
            TransactionEvent.RETRY_ABORT,
        }
    ),
}


def lookup(version: TransactionVersion, event: TransactionEvent, state: TransactionState) -> TransactionCell:
    """Return the cell of `event` in `state`."""
    return TABLES[version][event][state]
