"""State of one transactional id: its fields, fencing, the transitions of each event, and the stored form. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.transaction.state_machine import (
    ALLOWED_PREVIOUS,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    END_ABORT,
    END_COMMIT,
    KEPT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSACTION_VERSION_1,
    TRANSACTION_VERSION_2,
    TransactionEvent,
    TransactionState,
    TransactionVersion,
)
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.stored.transaction_state import (
    PACKED_NULL_PARTITIONS,
    TransactionLogValue,
    pack_transaction_log_value,
    pack_transaction_partitions,
)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
LAST_EPOCH = 32767  # never given to a client, so that the holder of 32766 can still be fenced
EXHAUSTED_EPOCH = LAST_EPOCH - 1  # the last epoch a client may hold; after it comes a new producer id
TWO_PHASE_COMMIT_TIMEOUT_MS = (
    2_147_483_647  # KIP-939: a transaction with this time-out is only ever ended by its client
)
_STORED_STATES = {state.value: state for state in TransactionState if state is not KEPT}
_MOST_REMEMBERED_SETS = 1_024
_MOST_REMEMBERED_PARTITIONS = 32  # of one transaction
_NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class Producer(NamedTuple):
    """A producer id with an epoch: one session of a producer, or in version 2 one transaction of it."""

    producer_id: int
    producer_epoch: int


class IllegalTransitionError(Exception):
    """Raised before a transition that no table allows is written: a bug in the coordinator."""


class TransactionMetadata(NamedTuple):
    """One transactional id, as in its last record in `__transaction_state`.

    previous_producer_id: the id before the last change of the epoch, if that producer requested the change itself and
        so may retry it; otherwise -1. `previous_producer` follows from it. Kafka holds the last epoch in memory only
        and forgets after a failover which retries are legitimate (KIP-360).
    next_producer_id: the id that takes over at completion because the epoch is exhausted, or belongs to the pair of
        the session that kept the transaction; -1 otherwise.
    next_producer_epoch: the epoch of that pair; -1 without one. Only open and prepared transactions have it.
    is_guarded: whether a new session that does not name the current pair may not abort the open transaction.
    start_ms: time at which the transaction was opened; -1 if there was none.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    start_ms: int = -1
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: TransactionVersion = TransactionVersion.V1
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    is_guarded: bool = False

    @property
    def producer(self) -> Producer:
        """The pair that wrote the records: administrators see it, and the markers carry its id."""
        return Producer(self.producer_id, self.producer_epoch)

    @property
    def client(self) -> Producer:
        """The pair of the newest session: the only one whose requests count."""
        if self.next_producer_epoch >= 0:
            return Producer(self.next_producer_id, self.next_producer_epoch)
        return Producer(self.producer_id, self.producer_epoch)

    @property
    def previous_producer(self) -> Producer | None:
        """The previous producer, if it requested the current epoch itself; a retry of that request gets the same
        answer.
        """
        if self.previous_producer_id == NO_PRODUCER_ID:
            return None
        if self.previous_producer_id != self.producer_id:
            return Producer(self.previous_producer_id, EXHAUSTED_EPOCH)
        return Producer(self.producer_id, self.producer_epoch - 1)

    # Transitions: each returns the metadata that the next record holds

    def initialized(
        self, *, producer: Producer, previous_producer_id: int, timeout_ms: int, now_ms: int, guard: bool = False
    ) -> TransactionMetadata:
        """Begin a producer session (InitProducerId) without an open transaction; `guard` guards those that follow."""
        self._check_transition_to(EMPTY)
        producer_id, producer_epoch = producer
        return TransactionMetadata(
            self.transactional_id,
            producer_id,
            producer_epoch,
            timeout_ms,
            EMPTY,
            last_update_ms=now_ms,
            start_ms=-1,
            partitions=_NO_PARTITIONS,
            previous_producer_id=previous_producer_id,
            next_producer_id=self.next_producer_id,
            client_transaction_version=self.client_transaction_version,
            is_guarded=guard or self.is_guarded,
        )

    def kept(self, *, client: Producer, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """Leave the open transaction to the next session, which may end it and do nothing else with it (KIP-939).

        client: the pair of that session. The time-out only grows: its start is long ago, so a shorter one would abort
        the transaction that the earlier session prepared.
        """
        self._check_transition_to(KEPT)
        return self._replace(
            state=KEPT,
            timeout_ms=max(self.timeout_ms, timeout_ms),
            last_update_ms=now_ms,
            previous_producer_id=NO_PRODUCER_ID,
            next_producer_id=client.producer_id,
            next_producer_epoch=client.producer_epoch,
        )

    def with_partitions(
        self, partitions: Iterable[TopicPartition], *, version: TransactionVersion, now_ms: int
    ) -> TransactionMetadata:
        """Add partitions to the transaction; the first ones open it. The time-out counts from the opening, not from the
        last addition.
        """
        self._check_transition_to(ONGOING)
        is_open = self.state is ONGOING
        producer_id, previous_producer_id = self.producer_id, self.previous_producer_id
        if previous_producer_id != NO_PRODUCER_ID:
            # If it differs, the new id is in use: the owner of the exhausted one has its reply.
            previous_producer_id = producer_id
        return TransactionMetadata(
            self.transactional_id,
            producer_id,
            self.producer_epoch,
            self.timeout_ms,
            ONGOING,
            now_ms,
            self.start_ms if is_open else now_ms,
            self.partitions.union(partitions) if is_open else frozenset(partitions),
            previous_producer_id,
            self.next_producer_id,
            version,
            is_guarded=self.is_guarded,
        )

    def prepared(
        self, *, committed: bool, version: TransactionVersion, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> TransactionMetadata:
        """Decide the outcome at the client's request. Version 2 raises the epoch; an exhausted epoch needs
        `next_producer_id`.
        """
        if version is TRANSACTION_VERSION_2:
            return self._prepared_with_next_epoch(
                committed, version, now_ms, next_producer_id, previous_producer_id=self.producer_id
            )
        state = PREPARE_COMMIT if committed else PREPARE_ABORT
        self._check_transition_to(state)
        return TransactionMetadata(
            self.transactional_id,
            self.producer_id,
            self.producer_epoch,
            self.timeout_ms,
            state,
            now_ms,
            self.start_ms,
            self.partitions,
            self.previous_producer_id,
            self.next_producer_id,
            version,
            is_guarded=self.is_guarded,
        )

    def kept_prepared(
        self, *, committed: bool, version: TransactionVersion, now_ms: int, successor: Producer
    ) -> TransactionMetadata:
        """Decide the outcome of a kept transaction at the request of its newest session.

        successor: the pair of that session after the transaction: in version 1 its own, in version 2 the next one, so
            that a late EndTxn cannot end its next transaction.
        Markers carry the epoch after that of the records in both versions, which fences the session that wrote them.
        """
        is_version_2 = version is TRANSACTION_VERSION_2
        return self._kept_ended(
            committed,
            version,
            now_ms,
            successor,
            previous_producer_id=self.next_producer_id if is_version_2 else NO_PRODUCER_ID,
        )

    def fenced(
        self, *, version: TransactionVersion, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> TransactionMetadata:
        """Abort the open transaction on the coordinator's own account and raise the epoch, which fences its producer.

        In version 2 that producer may recover by aborting, as if it had requested the abort; in version 1 it may not.
        """
        may_recover = version is TRANSACTION_VERSION_2
        return self._prepared_with_next_epoch(
            False,
            version,
            now_ms,
            next_producer_id,
            previous_producer_id=self.producer_id if may_recover else NO_PRODUCER_ID,
        )

    def kept_fenced(self, *, version: TransactionVersion, now_ms: int, successor: Producer) -> TransactionMetadata:
        """Abort a kept transaction on the coordinator's own account; as `fenced`, for its newest session."""
        may_recover = version is TRANSACTION_VERSION_2
        return self._kept_ended(
            False,
            version,
            now_ms,
            successor,
            previous_producer_id=self.next_producer_id if may_recover else NO_PRODUCER_ID,
        )

    def _kept_ended(
        self,
        committed: bool,
        version: TransactionVersion,
        now_ms: int,
        successor: Producer,
        *,
        previous_producer_id: int,
    ) -> TransactionMetadata:
        prepared = self._prepared_with_next_epoch(
            committed, version, now_ms, successor.producer_id, previous_producer_id=previous_producer_id
        )
        return prepared._replace(next_producer_epoch=successor.producer_epoch)

    def _prepared_with_next_epoch(
        self,
        committed: bool,
        version: TransactionVersion,
        now_ms: int,
        next_producer_id: int,
        *,
        previous_producer_id: int,
    ) -> TransactionMetadata:
        state = PREPARE_COMMIT if committed else PREPARE_ABORT
        self._check_transition_to(state)
        is_open = self.state.is_open  # an abort of nothing (version 2) begins and ends here
        return TransactionMetadata(
            self.transactional_id,
            self.producer_id,
            min(self.producer_epoch + 1, LAST_EPOCH),
            self.timeout_ms,
            state,
            now_ms,
            self.start_ms if is_open else now_ms,
            self.partitions if is_open else _NO_PARTITIONS,
            previous_producer_id,
            next_producer_id,
            version,
            is_guarded=self.is_guarded,
        )

    def completed(self, *, now_ms: int) -> TransactionMetadata:
        """Complete the transaction after its markers. The next pair, of an exhausted producer id or of a session that
        kept the transaction, takes over only now: the markers carry the old one.
        """
        state = COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT
        self._check_transition_to(state)
        producer_id, producer_epoch = self.completed_producer
        return TransactionMetadata(
            self.transactional_id,
            producer_id,
            producer_epoch,
            self.timeout_ms,
            state,
            now_ms,
            self.start_ms,
            _NO_PARTITIONS,
            self.previous_producer_id,
            NO_PRODUCER_ID,
            self.client_transaction_version,
            is_guarded=self.is_guarded,
        )

    @property
    def completed_producer(self) -> tuple[int, int]:
        """The producer id and epoch that a prepared transaction will have when it is complete: the reply of EndTxn
        version 5.
        """
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, max(self.next_producer_epoch, 0)
        return self.producer_id, self.producer_epoch

    def _check_transition_to(self, state: TransactionState) -> None:
        """Raises IllegalTransitionError."""
        if self.state not in ALLOWED_PREVIOUS[state]:
            raise IllegalTransitionError(f"{self.transactional_id}: {self.state.display_name} to {state.display_name}")


def new_transaction(
    transactional_id: str, *, producer_id: int, timeout_ms: int, now_ms: int, is_guarded: bool = False
) -> TransactionMetadata:
    """Return the state of a transactional id that is new, or was forgotten."""
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        state=EMPTY,
        last_update_ms=now_ms,
        is_guarded=is_guarded,
    )


# Who may act


def fence(metadata: TransactionMetadata, producer: Producer) -> ErrorCode:
    """Check that a request comes from the newest session: NONE, INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED.

    An epoch that is too new is refused like one that is too old: it was never given out.
    """
    if metadata.next_producer_epoch >= 0:
        if producer == metadata.client:
            return NO_ERROR
        is_known = producer.producer_id in (metadata.producer_id, metadata.next_producer_id)
        return ErrorCode.PRODUCER_FENCED if is_known else ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer.producer_id != metadata.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer.producer_epoch != metadata.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return NO_ERROR


def fence_end(
    metadata: TransactionMetadata, producer: Producer, *, committed: bool, version: TransactionVersion
) -> TransactionEvent | ErrorCode:
    """Return the event of an EndTxn request, or the error that refuses it.

    In version 2 the reply to EndTxn carries the next epoch, so a producer that missed the reply retries with the
    epoch before.
    """
    error = fence(metadata, producer)
    if error is NO_ERROR:
        return END_COMMIT if committed else END_ABORT
    if version is TRANSACTION_VERSION_2 and producer == metadata.previous_producer:
        return TransactionEvent.RETRY_COMMIT if committed else TransactionEvent.RETRY_ABORT
    return error


# The stored form: Kafka's TransactionLogValue, version 1


def to_value(metadata: TransactionMetadata) -> bytes:
    """Encode the record's value. The partitions are null only in state Empty, as in Kafka."""
    partitions = metadata.partitions
    pack_partitions = _pack_remembered if len(partitions) <= _MOST_REMEMBERED_PARTITIONS else _pack_partitions
    return pack_transaction_log_value(
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.timeout_ms,
        ONGOING if metadata.state is KEPT else metadata.state,
        PACKED_NULL_PARTITIONS if metadata.state is EMPTY else pack_partitions(partitions),
        metadata.last_update_ms,
        metadata.start_ms,
        metadata.previous_producer_id,
        metadata.next_producer_id,
        metadata.client_transaction_version,
        metadata.next_producer_epoch,
        metadata.is_guarded,
    )


def from_value(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    """Return the metadata that a record holds. Raises DecodeError for values that are never stored."""
    state = _STORED_STATES.get(value.transaction_status)
    if state is None:
        raise DecodeError(f"{transactional_id!r} is in state {value.transaction_status}, which is never stored")
    partitions = _NO_PARTITIONS
    if value.transaction_partitions:
        partitions = frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions
            for partition in topic.partition_ids
        )
    _check(transactional_id, value, state, partitions)
    is_version_2 = value.client_transaction_version >= TRANSACTION_VERSION_2
    next_producer_epoch = NO_PRODUCER_EPOCH
    if value.next_producer_epoch >= 0 and (state is ONGOING or state.is_prepared):
        next_producer_epoch = value.next_producer_epoch
        if state is ONGOING:
            state = KEPT
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        partitions=partitions,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_transaction_version=TRANSACTION_VERSION_2 if is_version_2 else TRANSACTION_VERSION_1,
        next_producer_epoch=next_producer_epoch,
        is_guarded=value.is_guarded,
    )


def _check(
    transactional_id: str,
    value: TransactionLogValue,
    state: TransactionState,
    partitions: frozenset[TopicPartition],
) -> None:
    """Raises DecodeError. Transitions are not checked: a compacted log does not hold every step."""
    if value.producer_id < 0 or value.producer_epoch < 0:
        reason = f"has the producer id {value.producer_id} with epoch {value.producer_epoch}"
    elif value.previous_producer_id < NO_PRODUCER_ID or value.next_producer_id < NO_PRODUCER_ID:
        reason = f"follows producer id {value.previous_producer_id}, and {value.next_producer_id} follows it"
    elif value.next_producer_epoch < NO_PRODUCER_EPOCH or (
        value.next_producer_epoch >= 0 and value.next_producer_id == NO_PRODUCER_ID
    ):
        reason = f"is followed by epoch {value.next_producer_epoch} of producer id {value.next_producer_id}"
    elif value.transaction_timeout_ms < 0:
        reason = f"has the time-out {value.transaction_timeout_ms} ms"
    elif any(partition < 0 for _, partition in partitions):
        reason = "has written to a partition with a negative number"
    elif partitions and state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT):
        reason = f"is {state.display_name} and has partitions without markers"
    else:
        return
    raise DecodeError(f"{transactional_id!r} {reason}")


def _pack_partitions(partitions: frozenset[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return pack_transaction_partitions(topics)


_pack_remembered = lru_cache(_MOST_REMEMBERED_SETS)(_pack_partitions)
"""A producer's transactions have mostly the same partitions, and each writes them twice."""
