"""Invariants 11, 17, 19 and 20: what transaction coordinators write, and what they make of it after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fencepost.broker.coordination.runtime import PartitionState
from fencepost.broker.coordination.shard import RecordOrigin
from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC
from fencepost.broker.transaction.limits import TransactionLimits
from fencepost.broker.transaction.metadata import TransactionMetadata
from fencepost.broker.transaction.shard import TransactionShard
from tests.simulation.broker import SimulatedBroker
from tests.simulation.invariants.evidence import Evidence
from tests.simulation.invariants.history import PartitionHistory
from tests.simulation.invariants.invariant import Invariant, Violation
from tests.simulation.invariants.stored_log import StoredBatch
from tests.simulation.invariants.transaction_log import (
    COMPLETE,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    STATE_NAMES,
    StateRecord,
    partitions_of,
)

LAST_EPOCH = 32767
TWO_PHASE_COMMIT_TIMEOUT_MS = 2_147_483_647
TIME_OUT_GRACE_MS = 15_000
"""How late a transaction may be aborted: the interval of the job in Kafka, and its work."""

MAY_FOLLOW: dict[int | None, tuple[int | None, ...]] = {
    None: (EMPTY,),
    EMPTY: (EMPTY, ONGOING, PREPARE_ABORT, None),
    ONGOING: (ONGOING, PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (COMPLETE_COMMIT,),
    PREPARE_ABORT: (COMPLETE_ABORT,),
    COMPLETE_COMMIT: (EMPTY, ONGOING, PREPARE_ABORT, None),
    COMPLETE_ABORT: (EMPTY, ONGOING, PREPARE_ABORT, None),
}


class LegalTransitions(Invariant):
    """11. State transitions are those of the table only; a CompleteX record is always preceded by the matching
    PrepareX; PrepareCommit is never followed by PrepareAbort of the same transaction.
    """

    number = 11

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._last: dict[str, StateRecord] = {}

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        if history.topic_partition.topic != TRANSACTION_STATE_TOPIC:
            return
        for record in self.evidence.transactions.of_batch(batch):
            before = self._last.get(record.transactional_id)
            if before is None and record.transactional_id in self.evidence.world.aged:
                self._last[record.transactional_id] = record
                continue
            problem = _problem(None if before is None or before.value is None else before, record)
            if problem is not None:
                yield self.violation(problem, before, record)
            self._last[record.transactional_id] = record

    def rewound(self, history: PartitionHistory) -> Iterable[Violation]:
        if history.topic_partition.topic == TRANSACTION_STATE_TOPIC:
            records = self.evidence.transactions.records
            self._last = {transactional_id: found[-1] for transactional_id, found in records.items()}
        return ()


def _problem(before: StateRecord | None, record: StateRecord) -> str | None:
    """Why a record may not follow another; None when it may."""
    old_state = None if before is None else before.state
    if record.state not in MAY_FOLLOW[old_state]:
        names = ["no state" if state is None else STATE_NAMES[state] for state in (old_state, record.state)]
        return f"{record.transactional_id} went from {names[0]} to {names[1]}"
    new, old = record.value, None if before is None else before.value
    if new is None:
        return None
    partitions = partitions_of(new)
    if record.state in (EMPTY, *COMPLETE) and partitions:
        return "a transaction that is over has partitions"
    if old is None:
        return None if new.producer_epoch == 0 else "a new transactional id does not begin with epoch 0"
    is_same = (new.producer_id, new.producer_epoch) == (old.producer_id, old.producer_epoch)
    is_next = (new.producer_id, new.producer_epoch) == (old.producer_id, min(old.producer_epoch + 1, LAST_EPOCH))
    if record.state == EMPTY:
        is_rotated = new.producer_id != old.producer_id and new.producer_epoch == 0
        return None if is_same or is_next or is_rotated else "InitProducerId led to another producer"
    assert before is not None
    if record.state == ONGOING:
        if not is_same:
            return "adding partitions changed the producer"
        if before.is_kept and not record.is_kept:
            return "a kept transaction is not kept any more"
        if old.transaction_status == ONGOING:
            if not partitions >= partitions_of(old):
                return "an open transaction has lost a partition"
            if new.transaction_start_timestamp_ms != old.transaction_start_timestamp_ms:
                return "an open transaction began anew"
        if record.is_kept:
            if old.transaction_status != ONGOING or partitions != partitions_of(old):
                return "a session that keeps a transaction changed its partitions"
            if new.transaction_timeout_ms < old.transaction_timeout_ms:
                return "a session that keeps a transaction shortened its time"
            if not _follows(record.client, before.client):
                return "a session that keeps a transaction got no pair of its own"
        return None
    if record.state in PREPARED:
        if before.is_kept and not (is_next and record.is_kept and _follows(record.client, before.client, or_same=True)):
            return "the end of a kept transaction has another pair than the next one"
        if new.client_transaction_version >= 2 and not is_next:
            return "a transaction of version 2 ends without the next epoch"
        if not is_same and not is_next:
            return "the end of a transaction changed the producer"
        if old.transaction_status == ONGOING and partitions != partitions_of(old):
            return "the end of a transaction changed its partitions"
        return None
    expected = (old.producer_id, old.producer_epoch)
    if old.next_producer_id >= 0:
        expected = old.next_producer_id, max(old.next_producer_epoch, 0)
    return None if record.producer == expected else "a transaction is complete with another producer than announced"


def _follows(new: tuple[int, int] | None, old: tuple[int, int] | None, *, or_same: bool = False) -> bool:
    """Whether one pair is the next after another: the next epoch, or epoch 0 of another producer id."""
    assert new is not None
    assert old is not None
    return (or_same and new == old) or new == (old[0], old[1] + 1) or (new[0] != old[0] and new[1] == 0)


class ReplayedCoordinators(Invariant):
    """17. Reloading the coordinator from the log at any prefix yields a legal state, and always the same one."""

    number = 17

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        """The state at a prefix of the log is the last record of every id: each must be legal by itself."""
        if history.topic_partition.topic != TRANSACTION_STATE_TOPIC:
            return
        for record in self.evidence.transactions.of_batch(batch):
            value = record.value
            if value is None:
                continue
            state = value.transaction_status
            problems = [
                problem
                for problem, holds in (
                    ("the state has no meaning", 0 <= state < len(STATE_NAMES)),
                    ("there is no producer id", value.producer_id >= 0),
                    ("the epoch is out of range", 0 <= value.producer_epoch <= LAST_EPOCH),
                    (
                        "partitions are null in another state than Empty",
                        (value.transaction_partitions is None) == (state == EMPTY),
                    ),
                    (
                        "a transaction has no beginning",
                        state in (EMPTY, *COMPLETE) or value.transaction_start_timestamp_ms >= 0,
                    ),
                    (
                        "there is a next producer id before the decision",
                        state in PREPARED or value.next_producer_id < 0 or (state == ONGOING and record.is_kept),
                    ),
                    ("an exhausted epoch has no next producer id", self._can_go_on(record)),
                )
                if not holds
            ]
            for problem in problems:
                yield self.violation(problem, record)

    def _can_go_on(self, record: StateRecord) -> bool:
        value = record.value
        assert value is not None
        if value.producer_epoch < LAST_EPOCH:
            return True
        return value.transaction_status in PREPARED and (
            value.next_producer_id >= 0 or value.client_transaction_version < 2
        )

    def restarted(self, broker: SimulatedBroker) -> Iterable[Violation]:
        return self._check(broker)

    def settled(self) -> Iterable[Violation]:
        for broker in self.evidence.world.brokers.values():
            if broker.is_running:
                yield from self._check(broker)

    def _check(self, broker: SimulatedBroker) -> Iterator[Violation]:
        for partition in broker.node.services.transactions._runtime.partitions():
            history = self.evidence.histories.get((broker.node_id, partition.log.topic_partition))
            if history is None or partition.state is not PartitionState.ACTIVE:
                continue
            live = partition.shard.transactions
            first, second = self._replay(history), self._replay(history)
            if first.transactions != second.transactions:
                yield self.violation(f"two replays of {history} differ", first.transactions, second.transactions)
            last: dict[str, StateRecord] = {
                transactional_id: records[-1]
                for transactional_id, records in self.evidence.transactions.records.items()
                if records[-1].partition == partition.index and records[-1].value is not None
            }
            for transactional_id in sorted(last.keys() | live.keys()):
                metadata, record = live.get(transactional_id), last.get(transactional_id)
                if metadata != first.transactions.get(transactional_id) or not _says(record, metadata):
                    yield self.violation(
                        f"what the coordinator knows of {transactional_id} is not what its log says",
                        metadata,
                        record,
                    )

    def _replay(self, history: PartitionHistory) -> TransactionShard:
        shard = TransactionShard(limits=TransactionLimits(), take_producer_id=lambda: None)
        for batch in history.batches:
            for record in batch.records:
                if record.key is not None:
                    shard.apply(record.key, record.value, RecordOrigin(record.offset, record.timestamp_ms))
        return shard


def _says(record: StateRecord | None, metadata: TransactionMetadata | None) -> bool:
    """Whether a live transaction has the state, producer and partitions of the last record about it."""
    if record is None or record.value is None or metadata is None:
        return record is None and metadata is None
    value = record.value
    return (
        metadata.state.display_name == STATE_NAMES[value.transaction_status]
        and tuple(metadata.producer) == record.producer
        and tuple(metadata.client) == record.client
        and metadata.partitions == partitions_of(value)
    )


class EveryTransactionEnds(Invariant):
    """19. With all brokers up, and no partition of `__transaction_state` offline after a failure, every PrepareX
    reaches CompleteX, and every open transaction that may time out ends within its time-out and 10 s.
    """

    number = 19

    def observe(self) -> Iterable[Violation]:
        served_since_s = self.evidence.served_since_s
        brokers = self.evidence.world.brokers
        if len(served_since_s) < len(brokers):
            return
        if any(
            broker.is_running and broker.node.services.transactions.offline_partitions for broker in brokers.values()
        ):
            return  # until the operator starts it again
        ready_ms = self.evidence.now_ms - round((self.evidence.now_s - max(served_since_s.values())) * 1000)
        for transaction in self.evidence.transactions.all():
            value = transaction.opened.value
            if transaction.prepared is not None or value is None:
                continue
            if self.evidence.transactions.current(transaction.transactional_id) is not transaction:
                continue
            if transaction.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
                continue
            due_ms = max(value.transaction_start_timestamp_ms + transaction.timeout_ms, ready_ms)
            if self.evidence.now_ms > due_ms + TIME_OUT_GRACE_MS + 2 * self.evidence.clock_spread_s * 1000:
                yield self.violation(f"{transaction.transactional_id} should have timed out", transaction)

    def settled(self) -> Iterable[Violation]:
        for transactional_id in self.evidence.transactions.transactions:
            current = self.evidence.transactions.current(transactional_id)
            if current is not None and current.prepared is not None:
                yield self.violation(f"{transactional_id} never became complete", current)


class RepeatsChangeNothing(Invariant):
    """20. A second delivery of WriteTxnMarkers, EndTxn, AddPartitionsToTxn or Produce (version 2) changes nothing after
    the first: an epoch opens one transaction, ends one, and writes once to a partition.
    """

    number = 20

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        if history.topic_partition.topic == TRANSACTION_STATE_TOPIC:
            for record in self.evidence.transactions.of_batch(batch):
                yield from self._check_record(record)
        elif batch.is_transactional and not batch.is_control:
            part = history.transaction_of[batch.base_offset]
            if part.batches[0] is not batch:
                return
            transaction = self.evidence.transactions.of_data(batch)
            if transaction is None or not transaction.is_version_2:
                return
            for other in history.transactions:
                if other is not part and (other.producer_id, other.producer_epoch) == (
                    part.producer_id,
                    part.producer_epoch,
                ):
                    yield self.violation(f"one transaction of version 2 began twice in {history}", other, part)

    def _check_record(self, record: StateRecord) -> Iterator[Violation]:
        transactions = self.evidence.transactions.transactions[record.transactional_id]
        if not transactions or record.state not in (ONGOING, *PREPARED):
            return
        newest = transactions[-1]
        for other in transactions[:-1]:
            is_same = (other.producer_id, other.producer_epoch) == (newest.producer_id, newest.producer_epoch)
            if is_same and other.is_version_2 and newest.is_version_2 and newest.opened.state == ONGOING:
                yield self.violation("one epoch of version 2 has two transactions", other, newest)
