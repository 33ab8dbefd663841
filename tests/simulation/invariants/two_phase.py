"""Invariants 26 to 31: transactions that take part in a two-phase commit (KIP-939).

T is the pair that wrote a transaction's records, C the pair of the newest session. They differ once a session has kept
what the one before had open.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.check_back.records import AUDIT_TOPIC
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest
from fencepost.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from tests.simulation.invariants.evidence import Evidence
from tests.simulation.invariants.history import PartitionHistory
from tests.simulation.invariants.invariant import Invariant, Violation
from tests.simulation.invariants.stored_log import StoredBatch
from tests.simulation.invariants.transaction_log import (
    COMPLETE,
    ONGOING,
    PREPARE_COMMIT,
    PREPARED,
    STATE_NAMES,
    StateRecord,
    Transaction,
    partitions_of,
)
from tests.simulation.trace import Exchange

TWO_PHASE_COMMIT_TIMEOUT_MS = 2_147_483_647
END_TXN_VERSION_2 = 5
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

Pair = tuple[int, int]


class _StateLogInvariant(Invariant, ABC):
    """Looks at each record of `__transaction_state` together with the one before it about the same id."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._last: dict[str, StateRecord] = {}

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        if history.topic_partition.topic != TRANSACTION_STATE_TOPIC:
            return
        for record in self.evidence.transactions.of_batch(batch):
            before = self._last.get(record.transactional_id)
            yield from self.followed(before, record)
            self._last[record.transactional_id] = record

    def rewound(self, history: PartitionHistory) -> Iterable[Violation]:
        if history.topic_partition.topic == TRANSACTION_STATE_TOPIC:
            self._last = {name: found[-1] for name, found in self.evidence.transactions.records.items()}
        return ()

    @abstractmethod
    def followed(self, before: StateRecord | None, record: StateRecord) -> Iterator[Violation]:
        """What is wrong with a record after the one before it of the same transactional id."""


class PairsOfTheirOwn(_StateLogInvariant):
    """26. No pair of producer id and epoch is given to two sessions: a session that keeps a transaction has one above
    all pairs of that id before, and in version 2 has the next one when the transaction ends.
    """

    number = 26

    def followed(self, before: StateRecord | None, record: StateRecord) -> Iterator[Violation]:
        client = record.client
        if client is None or before is None or before.value is None:
            return
        is_end = record.state in PREPARED and before.state == ONGOING and before.is_kept
        if (record.is_kept and record.state == ONGOING) or (is_end and _is_version_2(record)):
            for earlier in self.evidence.transactions.records[record.transactional_id]:
                if earlier is record:
                    return
                if client in (earlier.client, earlier.producer):
                    yield self.violation("a session was given a pair that another one has, or had", earlier, record)
                    return


class KeptAsItWas(_StateLogInvariant):
    """27. A kept transaction stays as it was, and open, until its newest session ends it, a session that does not keep
    begins, or an administrator or the time that its client set ends it. Meanwhile administrators are shown the pair
    that wrote it.
    """

    number = 27

    def answered(self, exchange: Exchange) -> Iterable[Violation]:
        if not isinstance(exchange.request, DescribeTransactionsRequest):
            return
        for found in exchange.response.transaction_states:
            records = _seen(self.evidence, exchange, found.transactional_id)
            if found.error_code or not records or not all(record.is_kept for record in records):
                continue
            shown = found.transaction_state, (found.producer_id, found.producer_epoch)
            if shown not in [(STATE_NAMES[record.state or 0], record.producer) for record in records]:
                yield self.violation("a kept transaction is shown as another one", exchange, *records)

    def followed(self, before: StateRecord | None, record: StateRecord) -> Iterator[Violation]:
        old, new = (None if before is None else before.value), record.value
        if before is None or old is None or old.transaction_status != ONGOING:
            return
        if new is None:
            yield self.violation("an open transaction was forgotten", before)
            return
        if record.is_kept and record.state == ONGOING:
            if partitions_of(new) != partitions_of(old) or record.producer != before.producer:
                yield self.violation("who keeps a transaction changed what it has written", before, record)
            if new.transaction_start_timestamp_ms != old.transaction_start_timestamp_ms:
                yield self.violation("who keeps a transaction made it begin anew", before, record)
            if new.transaction_timeout_ms < old.transaction_timeout_ms:
                yield self.violation("who keeps a transaction shortened its time", before, record)
        elif before.is_kept and record.state == ONGOING:
            yield self.violation("a kept transaction went on", before, record)
        elif before.is_kept and not _causes(self.evidence, before, record):
            yield self.violation("a kept transaction was ended by nobody who may", before, record)


class MarkersAboveTheData(_StateLogInvariant):
    """28. The markers of a kept transaction, and of every one of version 2, have the producer id of its data and a
    higher epoch; every pair that is given later is above all pairs that were given for that producer id.
    """

    number = 28

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        yield from super().appended(history, batch)
        ended = history.ended_by.get(batch.base_offset)
        if batch.marker is None or ended is None:
            return
        transaction = self.evidence.transactions.of_marker(batch)
        is_above = transaction is not None and (transaction.kept_by is not None or transaction.is_version_2)
        if is_above and batch.producer_epoch <= max(part.producer_epoch for part in ended.batches):
            yield self.violation(f"a marker in {history} fences nobody who wrote", ended, batch)

    def followed(self, before: StateRecord | None, record: StateRecord) -> Iterator[Violation]:
        if before is None or record.client is None:
            return
        for pair in (before.client, before.producer):
            if pair is not None and pair[0] == record.client[0] and record.client < pair:
                yield self.violation("a pair is below one that was given before", before, record)
                return


class NeverEndedByTime(_StateLogInvariant):
    """29. A transaction of a two-phase commit is never ended by time, however much of it passes, and never
    forgotten. What a check-back ends has a decision in the audit before it.
    """

    number = 29

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._decided: set[str] = set()

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        if history.topic_partition.topic == AUDIT_TOPIC:
            self._decided.update(_decided_in(batch))
        yield from super().appended(history, batch)

    def followed(self, before: StateRecord | None, record: StateRecord) -> Iterator[Violation]:
        if before is None or before.state != ONGOING or not _is_two_phase(self.evidence, record.transactional_id):
            return
        is_decided = record.transactional_id in self._decided or bool(_causes(self.evidence, before, record))
        if record.state is None or (record.state in PREPARED and not is_decided):
            yield self.violation("a transaction of a two-phase commit was ended unasked", before, record)


def _decided_in(batch: StoredBatch) -> Iterator[str]:
    """The ids of the decisions in the audit; strangers write there, too."""
    for record in batch.records:
        try:
            value = json.loads(record.value or b"")
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value.get("event") == "decision":
            yield str(value.get("id"))


class OneAnswer(Invariant):
    """30. Who was answered "committed" for a pair finds all of its records, who "aborted" none, and no later answer
    differs; the pair that may end a transaction is never fenced meanwhile; and what an application's database has
    decided is what the log has, unless an administrator overruled it.
    """

    number = 30

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._answers: dict[tuple[str, int, int], tuple[bool, Exchange]] = {}

    def answered(self, exchange: Exchange) -> Iterable[Violation]:
        request = exchange.request
        if not isinstance(request, EndTxnRequest):
            return
        error = exchange.response.error_code
        if error == ErrorCode.NONE and exchange.version >= END_TXN_VERSION_2:
            key = request.transactional_id, request.producer_id, request.producer_epoch
            committed, first = self._answers.setdefault(key, (request.committed, exchange))
            if committed != request.committed:
                yield self.violation("one pair was answered two outcomes", first, exchange)
        elif error in FENCED and self._was_the_newest(exchange, request):
            yield self.violation("the newest session was fenced", exchange)

    def _was_the_newest(self, exchange: Exchange, request: EndTxnRequest) -> bool:
        """Whether the pair could end the transaction, or had just ended it, from the question to the answer."""
        pair = request.producer_id, request.producer_epoch
        records = _seen(self.evidence, exchange, request.transactional_id)
        return bool(records) and all(self._is_newest(record, pair, exchange.version) for record in records)

    def _is_newest(self, record: StateRecord, pair: Pair, version: int) -> bool:
        if record.state == ONGOING:
            return record.client == pair
        return version < END_TXN_VERSION_2 and record.state in (*PREPARED, *COMPLETE) and record.client == pair

    def settled(self) -> Iterable[Violation]:
        for name, ledger in self.evidence.world.ledgers.items():
            decided: set[Transaction] = set()
            for decision in ledger.decisions:
                transactional_id, producer = decision.token
                transaction = self._open_at(transactional_id, producer, decision.at_s)
                if transaction is None or transaction.prepared is None:
                    if not ledger.was_overruled_before(transactional_id, decision.at_s):
                        yield self.violation(f"{name} has decided on a transaction that is not in the log", decision)
                    continue
                decided.add(transaction)
                if not transaction.is_committed and not ledger.may_be_overruled(
                    transactional_id, transaction.prepared.at_s
                ):
                    yield self.violation(f"{name} has committed, its transaction is aborted", decision, transaction)
            for transactional_id, transactions in self.evidence.transactions.transactions.items():
                if not transactional_id.startswith(name):
                    continue
                for transaction in transactions:
                    if transaction.is_committed and transaction not in decided:
                        yield self.violation(f"{name} has not committed, and its transaction was", transaction)

    def _open_at(self, transactional_id: str, pair: Pair, at_s: float) -> Transaction | None:
        """The transaction that this pair had written, and that was not decided at that time."""
        for transaction in self.evidence.transactions.transactions.get(transactional_id, ()):
            if (
                (transaction.producer_id, transaction.producer_epoch) == pair
                and transaction.opened.at_s <= at_s
                and (transaction.prepared is None or transaction.prepared.at_s >= at_s)
            ):
                return transaction
        return None


class OnlyTheCurrentPair(_StateLogInvariant):
    """31. An InitProducerId that expects another pair than the newest session's changes nothing while a transaction is
    open.
    """

    number = 31

    def followed(self, before: StateRecord | None, record: StateRecord) -> Iterator[Violation]:
        if before is None or before.state != ONGOING or record.state not in (ONGOING, *PREPARED):
            return
        is_keep = record.state == ONGOING and record.is_kept and record.client != before.client
        if record.state == ONGOING and not is_keep:
            return
        stale = [
            exchange
            for exchange in _sent(self.evidence, record)
            if isinstance(exchange.request, InitProducerIdRequest)
            and _expected(exchange.request) not in (None, before.client)
        ]
        if not stale:
            return
        if is_keep:
            is_caused = any(
                isinstance(exchange.request, InitProducerIdRequest)
                and exchange.request.keep_prepared_txn
                and _expected(exchange.request) in (None, before.client)
                for exchange in _sent(self.evidence, record)
            )
        else:
            is_caused = bool(_causes(self.evidence, before, record))
        if not is_caused:
            yield self.violation("a session that is not the newest was obeyed", before, record, *stale)


# What may have led to a record


def _sent(evidence: Evidence, record: StateRecord) -> list[Exchange]:
    """The requests about an id that may have been under way when the record was written."""
    may_repeat = evidence.world.network.repeat_probability > 0
    return [
        exchange
        for exchange in evidence.requests_about(record.transactional_id)
        if may_repeat or exchange.answered_s is None or exchange.answered_s >= record.at_s
    ]


def _seen(evidence: Evidence, exchange: Exchange, transactional_id: str) -> list[StateRecord]:
    """The records that a coordinator may have answered from: the last one before the question, and those until now.

    Empty if another node led the partition of the id meanwhile: a deposed coordinator knows only earlier ones.
    """
    records = evidence.transactions.records.get(transactional_id, ())
    sent_order = evidence.sent_order[exchange.number]
    earlier = [record for record in records if record.order <= sent_order][-1:]
    if not earlier:
        return []
    partition = TopicPartition(TRANSACTION_STATE_TOPIC, earlier[0].partition)
    if evidence.is_led_elsewhere(exchange.node_id, partition) or evidence.moved_since(partition, exchange.sent_s):
        return []
    return [*earlier, *(record for record in records if record.order > sent_order)]


def _causes(evidence: Evidence, before: StateRecord, record: StateRecord) -> list[object]:
    """Everything that may have ended an open transaction in this way."""
    old, new = before.value, record.value
    assert old is not None
    assert new is not None
    committed = record.state == PREPARE_COMMIT
    causes: list[object] = []
    for exchange in _sent(evidence, record):
        request = exchange.request
        if isinstance(request, EndTxnRequest):
            if request.committed == committed and (request.producer_id, request.producer_epoch) == before.client:
                causes.append(exchange)
        elif not committed and not request.keep_prepared_txn and _expected(request) in (None, before.client):
            causes.append(exchange)
    if not committed and not _is_two_phase(evidence, record.transactional_id):
        due_ms = old.transaction_start_timestamp_ms + old.transaction_timeout_ms
        if new.transaction_last_update_timestamp_ms >= due_ms:
            causes.append("its time is over")
    return causes


def _is_two_phase(evidence: Evidence, transactional_id: str) -> bool:
    """Whether the open transaction, or the one that has just been decided, was ever without a time-out."""
    transactions = evidence.transactions.transactions.get(transactional_id, ())
    return len(transactions) > 0 and transactions[-1].timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS


def _expected(request: InitProducerIdRequest) -> Pair | None:
    return None if request.producer_id < 0 else (request.producer_id, request.producer_epoch)


def _is_version_2(record: StateRecord) -> bool:
    return record.value is not None and record.value.client_transaction_version >= 2
