"""What transaction coordinators have written to `__transaction_state`, as transactions with a beginning and an end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.stored.transaction_state import (
    TransactionLogValue,
    decode_transaction_log_key,
    decode_transaction_log_value,
)
from tests.simulation.invariants.history import PartitionHistory, PartitionTransaction
from tests.simulation.invariants.stored_log import StoredBatch

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
STATE_NAMES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
COMPLETE = (COMPLETE_COMMIT, COMPLETE_ABORT)


class StateRecord(NamedTuple):
    """One record about a transactional id. value: None for a tombstone. partition: of `__transaction_state`."""

    order: int
    at_s: float
    partition: int
    offset: int
    timestamp_ms: int
    transactional_id: str
    value: TransactionLogValue | None

    @property
    def state(self) -> int | None:
        return None if self.value is None else self.value.transaction_status

    @property
    def producer(self) -> tuple[int, int] | None:
        return None if self.value is None else (self.value.producer_id, self.value.producer_epoch)

    @property
    def client(self) -> tuple[int, int] | None:
        """The pair of the newest session; it differs from the producer's once a session has kept the transaction."""
        if self.value is None or self.value.next_producer_epoch < 0:
            return self.producer
        return self.value.next_producer_id, self.value.next_producer_epoch

    @property
    def is_kept(self) -> bool:
        """Whether the record has two pairs."""
        return self.value is not None and self.value.next_producer_epoch >= 0

    def __str__(self) -> str:
        where = (
            f"__transaction_state-{self.partition} offset {self.offset} at {self.at_s:.4f} s: {self.transactional_id}"
        )
        if self.value is None:
            return f"{where} forgotten"
        value = self.value
        partitions = " ".join(sorted(str(name) for name in partitions_of(value)))
        return (
            f"{where} {STATE_NAMES[value.transaction_status]} producer {value.producer_id} epoch "
            f"{value.producer_epoch} version {value.client_transaction_version} [{partitions}]"
        )


@dataclass(eq=False)
class Transaction:
    """One transaction as its coordinator decided on it.

    producer_epoch: of its data; the records from Prepare on have one more in transaction version 2.
    partitions:     all that ever joined it.
    timeout_ms:     the longest that it ever had.
    kept_by:        the pair of the newest session that has kept it (KIP-939), if one has.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    opened: StateRecord
    partitions: set[TopicPartition] = field(default_factory=set)
    timeout_ms: int = 0
    kept_by: tuple[int, int] | None = None
    prepared: StateRecord | None = None
    completed: StateRecord | None = None

    @property
    def client(self) -> tuple[int, int]:
        """The pair that may end it."""
        return self.kept_by or (self.producer_id, self.producer_epoch)

    @property
    def is_committed(self) -> bool | None:
        """The decision; None while there is none."""
        return None if self.prepared is None else self.prepared.state == PREPARE_COMMIT

    @property
    def is_version_2(self) -> bool:
        """Whether an epoch is this transaction's alone.

        A time-out or a fence ends it in the cluster's version, whatever version its client uses.
        """
        value = self.opened.value
        return value is not None and value.client_transaction_version >= 2

    def __str__(self) -> str:
        return f"{self.opened}; {self.prepared or 'not decided'}; {self.completed or 'not complete'}"


class TransactionLog:
    """All partitions of `__transaction_state`.

    records:      by transactional id, in the order of their appends.
    transactions: by transactional id, likewise.
    owners:       the transactional id of every producer id that a record names.
    """

    def __init__(self) -> None:
        self.records: dict[str, list[StateRecord]] = {}
        self.transactions: dict[str, list[Transaction]] = {}
        self.owners: dict[int, str] = {}
        self._of_batches: dict[StoredBatch, list[StateRecord]] = {}

    def append(self, history: PartitionHistory, batch: StoredBatch) -> None:
        """Take in a batch."""
        if batch not in self._of_batches:
            self._of_batches[batch] = list(_state_records(history, batch))
        for record in self._of_batches[batch]:
            self._append(record)

    def rebuild(self, histories: Iterable[PartitionHistory]) -> None:
        """Become what these logs hold, after one of them has lost its end."""
        self.records, self.transactions, self.owners = {}, {}, {}
        batches = [(batch.order, history, batch) for history in histories for batch in history.batches]
        for _, history, batch in sorted(batches, key=lambda item: item[0]):
            self.append(history, batch)

    def _append(self, record: StateRecord) -> None:
        transactional_id, value = record.transactional_id, record.value
        self.records.setdefault(transactional_id, []).append(record)
        if value is None:
            return
        for producer_id in (value.producer_id, value.next_producer_id):
            if producer_id >= 0:
                self.owners.setdefault(producer_id, transactional_id)
        transactions = self.transactions.setdefault(transactional_id, [])
        current = transactions[-1] if transactions and transactions[-1].completed is None else None
        state = value.transaction_status
        if state == ONGOING:
            if current is None or current.prepared is not None:
                current = Transaction(transactional_id, value.producer_id, value.producer_epoch, record)
                transactions.append(current)
            current.partitions |= partitions_of(value)
            current.timeout_ms = max(current.timeout_ms, value.transaction_timeout_ms)
            if record.is_kept:
                current.kept_by = record.client
        elif state in PREPARED:
            if current is None or current.prepared is not None:
                # Version 2 can abort nothing; no data has its epoch.
                current = Transaction(transactional_id, value.producer_id, value.producer_epoch - 1, record)
                transactions.append(current)
            current.prepared = record
            current.partitions |= partitions_of(value)
        elif state in COMPLETE and current is not None:
            current.completed = record

    # Questions

    def of_batch(self, batch: StoredBatch) -> list[StateRecord]:
        """The records of a batch that was taken in."""
        return self._of_batches[batch]

    def last(self, transactional_id: str) -> StateRecord | None:
        records = self.records.get(transactional_id)
        return records[-1] if records else None

    def current(self, transactional_id: str) -> Transaction | None:
        """The transaction that is not complete."""
        transactions = self.transactions.get(transactional_id)
        return transactions[-1] if transactions and transactions[-1].completed is None else None

    def all(self) -> Iterator[Transaction]:
        for transactions in self.transactions.values():
            yield from transactions

    def of_data(self, batch: StoredBatch) -> Transaction | None:
        """The transaction that a batch of data was written in: the last one opened before with its producer."""
        for transaction in reversed(self.transactions.get(self.owners.get(batch.producer_id, ""), ())):
            producer = transaction.producer_id, transaction.producer_epoch
            if transaction.opened.order < batch.order and producer == (batch.producer_id, batch.producer_epoch):
                return transaction
        return None

    def of_part(self, part: PartitionTransaction) -> list[Transaction]:
        """The transactions that what a partition has between two markers was written in; usually one.

        Version 1 has many transactions in one epoch. What came when the partition had the marker of the last one
        already, as a write does that nobody verified, belongs to none: nobody ever decides on it.
        """
        found: dict[Transaction, None] = {}
        for batch in part.batches:
            transaction = self.of_data(batch)
            if transaction is None:
                continue
            prepared, ended = transaction.prepared, part.marker_before
            if prepared is None or ended is None or ended.order < prepared.order:
                found[transaction] = None
        return list(found)

    def of_marker(self, batch: StoredBatch) -> Transaction | None:
        """The transaction that a marker ends: the last one decided before with its producer."""
        producer = batch.producer_id, batch.producer_epoch
        for transaction in reversed(self.transactions.get(self.owners.get(batch.producer_id, ""), ())):
            prepared = transaction.prepared
            if prepared is not None and prepared.order < batch.order and prepared.producer == producer:
                return transaction
        return None

    def states_between(self, transactional_id: str, after_order: int, until_order: int) -> set[int | None]:
        """All states that a transactional id was in from one moment to another; None where it was not known."""
        before: int | None = None
        states: set[int | None] = set()
        for record in self.records.get(transactional_id, ()):
            if record.order <= after_order:
                before = record.state
            elif record.order <= until_order:
                states.add(record.state)
        return states | {before}


def _state_records(history: PartitionHistory, batch: StoredBatch) -> Iterator[StateRecord]:
    """The records of a batch of `__transaction_state`."""
    for record in batch.records:
        transactional_id = None if record.key is None else decode_transaction_log_key(record.key)
        if transactional_id is not None:
            value = None if record.value is None else decode_transaction_log_value(record.value)
            yield StateRecord(
                batch.order,
                batch.at_s,
                history.topic_partition.partition,
                record.offset,
                record.timestamp_ms,
                transactional_id,
                value,
            )


def partitions_of(value: TransactionLogValue) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic, partition)
        for topic in value.transaction_partitions or ()
        for partition in topic.partition_ids
    )
