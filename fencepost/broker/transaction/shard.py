"""Shard of the transaction coordinator: the state of one partition of `__transaction_state`, and its decisions. Pure.

A `decide_…` function reads the shard and returns the records to append with the reply; only `apply` changes the shard
(and a decision's `settle` its deadlines), so loading the partition is `apply` over its log. A prepared transaction is
in the log and in `prepared_without_completion`: the service takes it from there, sends its markers and calls
`decide_completion`. Until then, requests about it are answered CONCURRENT_TRANSACTIONS.
Source: Kafka's TransactionCoordinator and TransactionStateManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.broker.coordination.shard import CoordinatorRecord, Decision, RecordOrigin
from fencepost.broker.kernel.deadlines import DeadlinePace, Deadlines
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.transaction.limits import TransactionLimits
from fencepost.broker.transaction.metadata import (
    EXHAUSTED_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    Producer,
    TransactionMetadata,
    fence,
    fence_end,
    from_value,
    new_transaction,
    to_value,
)
from fencepost.broker.transaction.names import expiration_ms
from fencepost.broker.transaction.state_machine import (
    ACKNOWLEDGE,
    ADD_PARTITIONS,
    ANSWERED_CONCURRENT_BEFORE_FENCING,
    COMPLETE_COMMIT,
    CONCURRENT,
    EMPTY,
    END_ABORT,
    END_COMMIT,
    KEPT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSACTION_VERSION_2,
    TableAction,
    TransactionEvent,
    TransactionState,
    TransactionVersion,
    lookup,
)
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.stored.transaction_state import (
    TransactionLogValue,
    decode_transaction_log_key,
    encode_transaction_log_key,
)
from fencepost.protocol.stored.versioned import decode_known

if TYPE_CHECKING:
    from fencepost.broker.transaction.sink_tasks import SinkTasks

log = get_logger(__name__)

MAX_DEADLINES_PER_DECISION = 500
HELD_RETRY_MS = 1_000
"""Until a time-out is tried again for which the decision of a sink has to be read first."""
DEADLINE_RECORDS_BYTES = 16_384
"""Bound of one decision on time-outs and expiry; later turns of the event loop decide the rest."""

_UNKNOWN_ID: Final = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class ForcedEnd(Enum):
    """Why the coordinator aborted a transaction whose client did not ask for it."""

    TIMED_OUT = "timed_out"
    FENCED = "fenced"


class ProducerReply(NamedTuple):
    """Reply to InitProducerId and EndTxn: the producer id and epoch to use from now on, or the error.

    ongoing: the pair whose open transaction the new session has kept, and may end; None without one.
    """

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    ongoing: Producer | None = None

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.producer_epoch)


class TransactionShard:
    """All transactional ids that hash to one partition.

    take_producer_id: returns a new producer id, or None if none is reserved; called only if a decision needs one.
    sink_tasks: takes note of each open transaction, and holds time-outs of those that a sink may have decided.
    """

    def __init__(
        self,
        *,
        limits: TransactionLimits,
        take_producer_id: Callable[[], int | None],
        sink_tasks: SinkTasks | None = None,
    ) -> None:
        self.transactions: dict[str, TransactionMetadata] = {}
        self.prepared_without_completion: dict[
            str, None
        ] = {}  # prepared, and not yet taken by the service; in log order
        self.forced_ends: dict[str, ForcedEnd] = {}  # of aborts whose markers are being written
        self.owned_producer_ids: set[int] = set()
        self._limits = limits
        self._take_producer_id = take_producer_id
        self._sink_tasks = sink_tasks
        self._deadlines: Deadlines[str] = Deadlines()  # time-outs of open transactions, expiry of the others
        self._pace = DeadlinePace(MAX_DEADLINES_PER_DECISION)
        self.next_deadline_ms = self._deadlines.next_ms
        self.clock_moved = self._deadlines.clock_moved

    # Requests

    def decide_init_producer_id(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: Producer | None,
        now_ms: int,
        keep_prepared: bool = False,
        guard: bool = False,
        forced: bool = False,
    ) -> Decision[ProducerReply]:
        """Begin a producer session, or raise the epoch of the current one.

        expected: the producer's own id and epoch (KIP-360); None for a new session, which fences all earlier ones.
        keep_prepared: leave an open transaction to the new session instead of aborting it (KIP-939).
        guard: a later session does not abort the open transaction: it may be late, and the database of its successor
            may have committed. The session that guards aborts an earlier transaction, by its pair.
        forced: abort a guarded transaction all the same.
        Replies CONCURRENT_TRANSACTIONS if a transaction must end first, also if this decision aborts it: then decide
        again once its markers are written. Refuses: PRODUCER_FENCED; COORDINATOR_LOAD_IN_PROGRESS if it needs a
        producer id and none is reserved.
        Source: Kafka's TransactionCoordinator.handleInitProducerId and prepareInitProducerIdTransit.
        """
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            producer_id = self._take_producer_id()
            if producer_id is None:
                return _refuse_producer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return self._reply_with_producer(
                new_transaction(
                    transactional_id, producer_id=producer_id, timeout_ms=timeout_ms, now_ms=now_ms, is_guarded=guard
                )
            )
        version = self._limits.transaction_version
        event = TransactionEvent.INIT_AND_KEEP if keep_prepared else TransactionEvent.INIT_PRODUCER_ID
        cell = lookup(version, event, metadata.state)
        if isinstance(cell, ErrorCode):
            return _refuse_producer(cell)
        if expected is not None and not _is_owner(metadata, expected):
            return _refuse_producer(ErrorCode.PRODUCER_FENCED)
        aborts_guarded = metadata.is_guarded and metadata.state is ONGOING and cell is PREPARE_ABORT
        if aborts_guarded and expected is None and not forced:
            return _refuse_producer(ErrorCode.PRODUCER_FENCED)
        if cell is KEPT:
            return self._keep(metadata, timeout_ms, now_ms)
        if cell is not EMPTY:
            return self._abort_before_session(metadata, now_ms)
        session = self._next_session(metadata, expected)
        if session is None:
            return _refuse_producer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        producer, previous_id = session
        return self._reply_with_producer(
            metadata.initialized(
                producer=producer, previous_producer_id=previous_id, timeout_ms=timeout_ms, now_ms=now_ms, guard=guard
            )
        )

    def _keep(self, metadata: TransactionMetadata, timeout_ms: int, now_ms: int) -> Decision[ProducerReply]:
        """Leave an open transaction to a new session. Every repeat gets a pair of its own: none is given twice."""
        successor = self._successor(metadata.client)
        if successor is None:
            return _refuse_producer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        kept = metadata.kept(client=successor, timeout_ms=timeout_ms, now_ms=now_ms)
        note = partial(
            log.info,
            "transaction_kept",
            transactional_id=metadata.transactional_id,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            client_producer_id=successor.producer_id,
            client_producer_epoch=successor.producer_epoch,
        )
        reply = ProducerReply(NO_ERROR, *successor, ongoing=metadata.producer)
        return Decision(reply, [metadata_record(kept)], settle=note)

    def _abort_before_session(self, metadata: TransactionMetadata, now_ms: int) -> Decision[ProducerReply]:
        """Abort the open transaction of the session before; the new one begins when its markers are written."""
        records = self._abort_records(metadata, now_ms)
        if records is None:
            return _refuse_producer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        reply = ProducerReply(ErrorCode.CONCURRENT_TRANSACTIONS)
        return Decision(reply, records, settle=partial(self._fenced, metadata))

    def _fenced(self, metadata: TransactionMetadata) -> None:
        self._note_forced_end(metadata, ForcedEnd.FENCED)
        log.info(
            "transaction_fenced",
            transactional_id=metadata.transactional_id,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
        )

    def decide_abort(self, transactional_id: str, *, now_ms: int) -> Decision[ErrorCode]:
        """Abort an open transaction for an administrator, and fence its producer.

        Refuses: INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS (the outcome is decided), INVALID_TXN_STATE (no
        transaction is open), COORDINATOR_LOAD_IN_PROGRESS (it needs a producer id and none is reserved).
        """
        metadata, error = self._find(transactional_id)
        if metadata is None:
            return Decision(error)
        if metadata.state.is_prepared:
            return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
        # As at its time-out, only sooner.
        cell = lookup(self._limits.transaction_version, TransactionEvent.TIME_OUT, metadata.state)
        if cell is TableAction.IGNORE:
            return Decision(ErrorCode.INVALID_TXN_STATE)
        records = self._abort_records(metadata, now_ms)
        if records is None:
            return Decision(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return Decision(NO_ERROR, records, settle=partial(self._fenced, metadata))

    def decide_check_back(
        self, transactional_id: str, producer: Producer, start_ms: int, *, committed: bool, now_ms: int
    ) -> Decision[ErrorCode]:
        """End an open transaction as its source has answered: a commit as its newest session would end it, an abort as
        its time-out would.

        producer, start_ms: identity of the transaction that the source was asked about; a pair of version 1 has many.
        Replies NONE also if it was ended so before. Refuses: INVALID_TXN_STATE (it was ended the other way),
        INVALID_PRODUCER_ID_MAPPING (the coordinator has forgotten it), COORDINATOR_LOAD_IN_PROGRESS.
        """
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            return Decision(_UNKNOWN_ID)
        if not metadata.state.is_open:
            return Decision(_ended_as(metadata, start_ms, committed=committed))
        if metadata.producer != producer or metadata.start_ms != start_ms:
            return Decision(_UNKNOWN_ID)
        if not committed:
            records = self._abort_records(metadata, now_ms)
            if records is None:
                return Decision(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return Decision(NO_ERROR, records, settle=partial(self._fenced, metadata))
        decision = self.decide_end_transaction(
            transactional_id,
            metadata.client,
            committed=True,
            version=metadata.client_transaction_version,
            now_ms=now_ms,
        )
        reply = decision.reply
        assert isinstance(reply, ProducerReply)
        return Decision(reply.error, decision.records)

    def _note_forced_end(self, metadata: TransactionMetadata, end: ForcedEnd) -> None:
        if metadata.partitions:  # without partitions it is complete at once
            self.forced_ends[metadata.transactional_id] = end

    def decide_add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        *,
        version: TransactionVersion,
        now_ms: int,
    ) -> Decision[ErrorCode]:
        """Add partitions to the producer's transaction; open one if none is open.

        Refuses: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        Source: Kafka's TransactionCoordinator.handleAddPartitionsToTransaction.
        """
        metadata, error = self._find(transactional_id)
        if metadata is None:
            return Decision(error)
        cell = lookup(version, ADD_PARTITIONS, metadata.state)
        if cell is CONCURRENT:
            return Decision(CONCURRENT)
        error = fence(metadata, producer)
        if error is not NO_ERROR:
            return Decision(error)
        if cell is not ONGOING:
            return Decision(_refusal(cell))
        if metadata.state is ONGOING and metadata.partitions.issuperset(partitions):
            return Decision(NO_ERROR)
        return Decision(
            NO_ERROR, [metadata_record(metadata.with_partitions(partitions, version=version, now_ms=now_ms))]
        )

    def is_partition_confirmed(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> bool:
        """Whether `verify_partitions` would return NONE for this partition."""
        metadata = self.transactions.get(transactional_id)
        return (
            metadata is not None
            and metadata.state is ONGOING
            and metadata.producer_id == producer_id
            and metadata.producer_epoch == producer_epoch
            and partition in metadata.partitions
        )

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether partitions are in the producer's open transaction; changes nothing (KIP-890, first part).

        Per partition: NONE, or TRANSACTION_ABORTABLE if it is not; or for all partitions the error that refuses the
        producer.
        Source: Kafka's TransactionCoordinator.handleVerifyPartitionsInTransaction.
        """
        metadata, error = self._find(transactional_id)
        if metadata is not None:
            error = fence(metadata, producer)
            if error is NO_ERROR:
                cell = lookup(TransactionVersion.V1, TransactionEvent.VERIFY_PARTITIONS, metadata.state)
                if cell is ACKNOWLEDGE:
                    if metadata.partitions.issuperset(partitions):
                        return dict.fromkeys(partitions, NO_ERROR)
                    return {
                        partition: NO_ERROR if partition in metadata.partitions else ErrorCode.TRANSACTION_ABORTABLE
                        for partition in partitions
                    }
                error = _refusal(cell)
        return dict.fromkeys(partitions, error)

    def decide_end_transaction(
        self,
        transactional_id: str,
        producer: Producer,
        *,
        committed: bool,
        version: TransactionVersion,
        now_ms: int,
    ) -> Decision[ProducerReply]:
        """Decide the outcome of the producer's transaction. Once the record is durable, the transaction is committed or
        aborted.

        The reply carries the producer id and epoch after the transaction.
        Refuses: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
        INVALID_TXN_STATE; COORDINATOR_LOAD_IN_PROGRESS if the epoch is exhausted and no new producer id is reserved.
        Source: Kafka's TransactionCoordinator.endTransactionWithTV1 and endTransaction.
        """
        metadata, error = self._find(transactional_id)
        if metadata is None:
            return _refuse_producer(error)
        event = fence_end(metadata, producer, committed=committed, version=version)
        if isinstance(event, ErrorCode):
            # A prepared transaction answers before fencing, if its version says so.
            plain_event = END_COMMIT if committed else END_ABORT
            if metadata.state.is_prepared and plain_event in ANSWERED_CONCURRENT_BEFORE_FENCING[version]:
                event = ErrorCode.CONCURRENT_TRANSACTIONS
            return _refuse_producer(event)
        cell = lookup(version, event, metadata.state)
        if cell is ACKNOWLEDGE:
            return Decision(ProducerReply(NO_ERROR, metadata.producer_id, metadata.producer_epoch))
        if not isinstance(cell, TransactionState):
            return _refuse_producer(_refusal(cell))
        prepared: TransactionMetadata
        if metadata.state is KEPT:
            client = metadata.client
            successor = self._successor(client) if version is TRANSACTION_VERSION_2 else client
            if successor is None:
                return _refuse_producer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            prepared = metadata.kept_prepared(committed=committed, version=version, now_ms=now_ms, successor=successor)
        else:
            next_producer_id = self._next_producer_id(metadata, version)
            if next_producer_id is None:
                return _refuse_producer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            prepared = metadata.prepared(
                committed=committed, version=version, now_ms=now_ms, next_producer_id=next_producer_id
            )
        return Decision(ProducerReply(NO_ERROR, *prepared.completed_producer), _prepare_records(prepared, now_ms))

    # Decisions without a request

    def decide_completion(self, transactional_id: str, *, now_ms: int) -> Decision[None]:
        """Complete a prepared transaction after all its markers."""
        metadata = self.transactions.get(transactional_id)
        if metadata is None or not metadata.state.is_prepared:
            return Decision(None)
        return Decision(None, [metadata_record(metadata.completed(now_ms=now_ms))])

    def decide_deadline(self, now_ms: int) -> Decision[None]:
        """Abort the transactions that have timed out and forget the ids that have expired.

        Each gets a retry deadline; its record, once applied, replaces that.
        Source: Kafka's TransactionCoordinator.abortTimedOutTransactions and
        TransactionStateManager.removeExpiredTransactionalIds.
        """
        records: list[CoordinatorRecord] = []
        taken: list[str] = []
        timed_out: list[TransactionMetadata] = []
        in_doubt: list[TransactionMetadata] = []
        held: list[TransactionMetadata] = []
        moved: dict[str, int | None] = {}
        size_bytes = 0
        version, limits = self._limits.transaction_version, self._limits
        for transactional_id in self._deadlines.due(now_ms, self._pace.most):
            metadata = self.transactions[transactional_id]
            due_records: Collection[CoordinatorRecord] = ()
            retry_ms = None
            if metadata.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS and metadata.state.is_open:
                in_doubt.append(metadata)  # time ends it never
                retry_ms = now_ms + limits.two_phase_warn_age_ms
            elif lookup(version, TransactionEvent.TIME_OUT, metadata.state) is not TableAction.IGNORE:
                retry_ms = now_ms + limits.time_out_retry_ms
                if self._sink_tasks is not None and not self._sink_tasks.may_time_out(metadata):
                    held.append(metadata)
                    retry_ms = now_ms + HELD_RETRY_MS
                elif (fencing := self._abort_records(metadata, now_ms)) is not None:
                    due_records = fencing
                    timed_out.append(metadata)
            elif lookup(version, TransactionEvent.EXPIRE, metadata.state) is TableAction.FORGET:
                retry_ms = now_ms + limits.expiry_interval_ms
                due_records = (CoordinatorRecord(encode_transaction_log_key(transactional_id), None),)
            records += due_records
            taken.append(transactional_id)
            moved[transactional_id] = retry_ms
            size_bytes += _size_bytes(due_records)
            if size_bytes >= DEADLINE_RECORDS_BYTES:
                break
        return Decision(
            None,
            records,
            settle=partial(self._deadlines_settled, moved, timed_out, in_doubt, held, now_ms),
            on_refused=partial(self._pace.refused, self._deadlines, taken, now_ms),
        )

    def _deadlines_settled(
        self,
        moved: dict[str, int | None],
        timed_out: list[TransactionMetadata],
        in_doubt: list[TransactionMetadata],
        held: list[TransactionMetadata],
        now_ms: int,
    ) -> None:
        for transactional_id, retry_ms in moved.items():
            if retry_ms is None:
                self._deadlines.clear(transactional_id)
            else:
                self._deadlines.set(transactional_id, retry_ms)
        self._pace.settled(self._deadlines, now_ms)
        if self._sink_tasks is not None:
            for metadata in held:
                self._sink_tasks.ask(metadata)
        for metadata in timed_out:
            self._note_forced_end(metadata, ForcedEnd.TIMED_OUT)
            log.info(
                "transaction_timed_out",
                transactional_id=metadata.transactional_id,
                producer_id=metadata.producer_id,
                producer_epoch=metadata.producer_epoch,
                timeout_ms=metadata.timeout_ms,
            )
        for metadata in in_doubt:
            log.warning(
                "transaction_in_doubt",
                transactional_id=metadata.transactional_id,
                producer_id=metadata.producer_id,
                producer_epoch=metadata.producer_epoch,
                age_ms=now_ms - metadata.start_ms,
                partitions=len(metadata.partitions),
                remedy="it takes part in a two-phase commit, so time does not end it: let its client recover, or run "
                "`fencepost transactions commit` or `abort` with its id",
            )

    def _abort_records(self, metadata: TransactionMetadata, now_ms: int) -> list[CoordinatorRecord] | None:
        """Return the records that abort an open transaction and fence its producer; None if they need a producer id and
        none is reserved.
        """
        version = self._limits.transaction_version
        if metadata.state is KEPT:
            successor = self._successor(metadata.client)
            if successor is None:
                return None
            return _prepare_records(metadata.kept_fenced(version=version, now_ms=now_ms, successor=successor), now_ms)
        next_producer_id = self._next_producer_id(metadata, version)
        if next_producer_id is None:
            return None
        return _prepare_records(
            metadata.fenced(version=version, now_ms=now_ms, next_producer_id=next_producer_id), now_ms
        )

    # Producer ids

    def _next_session(self, metadata: TransactionMetadata, expected: Producer | None) -> tuple[Producer, int] | None:
        """The producer of the session that begins, and the producer id before it; None if no id is reserved."""
        if expected is not None and expected == metadata.previous_producer:
            # The reply to an earlier request was lost: return the same producer again, not the next one.
            return metadata.producer, metadata.previous_producer_id
        is_replaced = metadata.producer_id < self._limits.lowest_producer_id
        producer = self._fresh() if is_replaced else self._successor(metadata.producer)
        if producer is None:
            return None
        return producer, NO_PRODUCER_ID if expected is None or is_replaced else metadata.producer_id

    def _successor(self, producer: Producer) -> Producer | None:
        """Return the pair after another; None if that takes a new producer id and none is reserved."""
        if producer.producer_epoch < EXHAUSTED_EPOCH:
            return Producer(producer.producer_id, producer.producer_epoch + 1)
        return self._fresh()

    def _fresh(self) -> Producer | None:
        """Return a pair with a new producer id; None if none is reserved."""
        producer_id = self._take_producer_id()
        return None if producer_id is None else Producer(producer_id, 0)

    def _next_producer_id(self, metadata: TransactionMetadata, version: TransactionVersion) -> int | None:
        """Return the producer id that takes over at the end of a transaction: -1 if the current one stays, None if one
        is needed and none is reserved.
        """
        if version is TRANSACTION_VERSION_2 and metadata.producer_epoch >= EXHAUSTED_EPOCH:
            return self._take_producer_id()
        return NO_PRODUCER_ID

    def _find(self, transactional_id: str) -> tuple[TransactionMetadata | None, ErrorCode]:
        if not transactional_id:
            return None, ErrorCode.INVALID_REQUEST
        return self.transactions.get(transactional_id), _UNKNOWN_ID

    def _reply_with_producer(self, metadata: TransactionMetadata) -> Decision[ProducerReply]:
        return Decision(ProducerReply(NO_ERROR, *metadata.producer), [metadata_record(metadata)])

    # Records

    def apply(self, key: bytes, value: bytes | None, origin: RecordOrigin) -> None:
        metadata = self._read_record(key, value, origin)
        if metadata is not None:
            self.apply_decided(metadata, origin.offset, origin.producer_id)

    def apply_decided(self, metadata: TransactionMetadata, _offset: int, _producer_id: int) -> None:
        transactional_id = metadata.transactional_id
        state = metadata.state
        self.transactions[transactional_id] = metadata
        if metadata.producer_id not in self.owned_producer_ids:
            self.owned_producer_ids.add(metadata.producer_id)
        if state is PREPARE_COMMIT or state is PREPARE_ABORT:
            self.prepared_without_completion[transactional_id] = None
            self._deadlines.clear(transactional_id)
            return
        if self.prepared_without_completion:
            self.prepared_without_completion.pop(transactional_id, None)
        is_open = state is ONGOING or state is KEPT
        if is_open and self._sink_tasks is not None and transactional_id[-1:].isdecimal():  # as those of all tasks
            self._sink_tasks.opened(metadata)
        if not is_open:
            self._deadlines.set(transactional_id, expires_ms(metadata, self._limits))
        elif metadata.timeout_ms != TWO_PHASE_COMMIT_TIMEOUT_MS:
            self._deadlines.set(transactional_id, metadata.start_ms + metadata.timeout_ms + 1)
        else:
            self._deadlines.set(transactional_id, metadata.start_ms + self._limits.two_phase_warn_age_ms)

    def _read_record(self, key: bytes, value: bytes | None, origin: RecordOrigin) -> TransactionMetadata | None:
        """Return the state that a record holds; None for an unknown key, or a tombstone, which is applied here.

        Raises DecodeError.
        """
        transactional_id = decode_transaction_log_key(key)
        if transactional_id is None:
            log.warning("transaction_record_skipped", reason="unknown key version", offset=origin.offset)
            return None
        if value is None:
            self._forget(transactional_id)
            return None
        return from_value(transactional_id, decode_known(TransactionLogValue, value))

    def apply_marker(self, producer_id: int, producer_epoch: int, *, committed: bool, offset: int) -> None:
        """Do nothing: no transaction writes to `__transaction_state`."""

    def loaded(self, now_ms: int) -> None:
        """Bound the time-outs of transactions that began by a clock that was ahead: all else is in the log."""
        for transactional_id, metadata in self.transactions.items():
            if metadata.start_ms <= now_ms or not (metadata.state is ONGOING or metadata.state is KEPT):
                continue
            if metadata.timeout_ms != TWO_PHASE_COMMIT_TIMEOUT_MS:
                self._deadlines.set(transactional_id, now_ms + metadata.timeout_ms + 1)

    def take_prepared(self) -> list[str]:
        """Return and clear the prepared transactions: the caller completes them."""
        taken = list(self.prepared_without_completion)
        self.prepared_without_completion.clear()
        return taken

    def _forget(self, transactional_id: str) -> None:
        metadata = self.transactions.pop(transactional_id, None)
        if metadata is not None:
            self.owned_producer_ids.discard(metadata.producer_id)
        self.prepared_without_completion.pop(transactional_id, None)
        self.forced_ends.pop(transactional_id, None)
        self._deadlines.clear(transactional_id)


def expires_ms(metadata: TransactionMetadata, limits: TransactionLimits) -> int:
    """Return when an id without an open transaction expires: a multiple of the interval."""
    kept_ms = limits.transactional_id_expiration_ms
    if limits.expirations_by_name:
        kept_ms = expiration_ms(limits.expirations_by_name, metadata.transactional_id, kept_ms)
    interval_ms = limits.expiry_interval_ms
    return -(-(metadata.last_update_ms + kept_ms) // interval_ms) * interval_ms


def _ended_as(metadata: TransactionMetadata, start_ms: int, *, committed: bool) -> ErrorCode:
    """Whether the last transaction of an id is the one that began at a time, and has this outcome."""
    if metadata.start_ms != start_ms or metadata.state is EMPTY:
        return _UNKNOWN_ID
    is_committed = metadata.state in (PREPARE_COMMIT, COMPLETE_COMMIT)
    return NO_ERROR if is_committed is committed else ErrorCode.INVALID_TXN_STATE


def _is_owner(metadata: TransactionMetadata, expected: Producer) -> bool:
    """Whether the producer `expected` may begin another session.

    The current producer may. Its predecessor may while no transaction is open, if it requested the current epoch itself
    and lost the reply. An open transaction proves that the owner has the current epoch, so any other producer is a
    zombie: it must not abort its successor's transaction. Kafka compares only the producer id and lets it.
    """
    if expected == metadata.client:
        return True
    return not metadata.state.is_open and expected == metadata.previous_producer


def _prepare_records(prepared: TransactionMetadata, now_ms: int) -> list[CoordinatorRecord]:
    """Return the Prepare record; without partitions there are no markers, and the Complete record joins the batch."""
    records = [metadata_record(prepared)]
    if not prepared.partitions:
        records.append(metadata_record(prepared.completed(now_ms=now_ms)))
    return records


def metadata_record(metadata: TransactionMetadata) -> CoordinatorRecord:
    """Encode `metadata` as a record of `__transaction_state`."""
    key = encode_transaction_log_key(metadata.transactional_id)
    return CoordinatorRecord(key, to_value(metadata), metadata)


def _size_bytes(records: Collection[CoordinatorRecord]) -> int:
    return sum(len(record.key) + len(record.value or b"") for record in records)


def _refuse_producer(error: ErrorCode) -> Decision[ProducerReply]:
    return Decision(ProducerReply(error))


def _refusal(cell: TransactionState | ErrorCode | TableAction) -> ErrorCode:
    if not isinstance(cell, ErrorCode):
        raise TypeError(f"the table holds {cell} where only a refusal makes sense")
    return cell
