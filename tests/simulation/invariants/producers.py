"""Invariants 9 and 10: a producer's identity is unique, and a replaced producer changes nothing."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_offsets import TxnOffsetCommitRequest
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from tests.simulation.invariants.evidence import Evidence
from tests.simulation.invariants.history import PartitionHistory
from tests.simulation.invariants.invariant import Invariant, Violation
from tests.simulation.invariants.stored_log import StoredBatch
from tests.simulation.invariants.transaction_log import StateRecord
from tests.simulation.trace import Exchange
from tests.support.allowed_replies import error_codes

RESERVED_EPOCH = 32767
END_TXN_VERSION_2 = 5


class _Identity(NamedTuple):
    producer_id: int
    producer_epoch: int


class UniqueIdentities(Invariant):
    """9. A (producer id, epoch) is handed to at most one producer session, except to identical retries; producer ids
    are unique for ever.
    """

    number = 9

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._handed: dict[_Identity, tuple[Hashable, Exchange]] = {}
        self._owners: dict[int, tuple[Hashable, object]] = {}

    def answered(self, exchange: Exchange) -> Iterable[Violation]:
        request, response = exchange.request, exchange.response
        if isinstance(request, InitProducerIdRequest):
            if response.error_code == ErrorCode.NONE:
                identity = _Identity(response.producer_id, response.producer_epoch)
                expected = _Identity(request.producer_id, request.producer_epoch)
                # Only a producer that names the identity before may get the same one again.
                session: Hashable = exchange.number
                if request.transactional_id is not None and expected.producer_id >= 0:
                    session = request.transactional_id, expected
                owner: Hashable = exchange.number if request.transactional_id is None else request.transactional_id
                yield from self._handed_out(identity, session, owner, exchange)
        elif (
            isinstance(request, EndTxnRequest)
            and exchange.version >= END_TXN_VERSION_2
            and response.error_code == ErrorCode.NONE
        ):
            identity = _Identity(response.producer_id, response.producer_epoch)
            session = request.transactional_id, _Identity(request.producer_id, request.producer_epoch)
            yield from self._handed_out(identity, session, request.transactional_id, exchange)

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        if history.topic_partition.topic != TRANSACTION_STATE_TOPIC:
            return
        for record in self.evidence.transactions.of_batch(batch):
            if record.value is not None:
                for producer_id in (record.value.producer_id, record.value.next_producer_id):
                    if producer_id >= 0:
                        yield from self._owned(producer_id, record.transactional_id, record)

    def _handed_out(
        self, identity: _Identity, session: Hashable, owner: Hashable, exchange: Exchange
    ) -> Iterator[Violation]:
        first_session, first = self._handed.setdefault(identity, (session, exchange))
        if first_session != session:
            yield self.violation(
                f"producer {identity.producer_id} epoch {identity.producer_epoch} was handed out twice", first, exchange
            )
        if not 0 <= identity.producer_epoch < RESERVED_EPOCH or identity.producer_id < 0:
            yield self.violation(f"a client was given {identity}", exchange)
        yield from self._owned(identity.producer_id, owner, exchange)

    def _owned(self, producer_id: int, owner: Hashable, evidence: object) -> Iterator[Violation]:
        first_owner, first = self._owners.setdefault(producer_id, (owner, evidence))
        if first_owner != owner:
            yield self.violation(f"producer id {producer_id} belongs to two producers", first, evidence)


class FencedProducers(Invariant):
    """10. After InitProducerId has returned an epoch, no request with a lower one changes anything: neither the
    coordinator's state nor partitions nor offsets.

    A session that keeps a transaction fences at the coordinator alone: partitions take records of the session before
    until the transaction ends, and its markers have that session's producer id.
    """

    number = 10

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._current: dict[str, tuple[_Identity, Exchange]] = {}
        self._retired: dict[int, Exchange] = {}
        self._answered_order: dict[Exchange, int] = {}

    def answered(self, exchange: Exchange) -> Iterable[Violation]:
        request = exchange.request
        if isinstance(request, InitProducerIdRequest):
            if exchange.response.error_code == ErrorCode.NONE and request.transactional_id is not None:
                self._begin_session(request.transactional_id, exchange)
            return
        actor = _actor(request)
        if actor is None or set(error_codes(exchange.response)) != {ErrorCode.NONE}:
            return
        reason = self._refusal(*actor)
        if reason is not None and self.evidence.sent_order[exchange.number] >= self._answered_order[reason]:
            yield self.violation("a fenced producer was obeyed", exchange, reason)

    def _begin_session(self, transactional_id: str, exchange: Exchange) -> None:
        response = exchange.response
        self._answered_order[exchange] = self.evidence.order
        identity = _Identity(response.producer_id, response.producer_epoch)
        known = self._current.get(transactional_id)
        if known is not None and identity.producer_id in self._retired:
            return  # an old reply that was read late
        if known is None or identity.producer_id != known[0].producer_id or identity > known[0]:
            self._current[transactional_id] = identity, exchange
            for producer_id, owner in self.evidence.transactions.owners.items():
                if owner == transactional_id and self._is_older(transactional_id, producer_id, identity.producer_id):
                    self._retired.setdefault(producer_id, exchange)

    def _is_older(self, transactional_id: str, producer_id: int, than: int) -> bool:
        """Whether the coordinator used one producer id before another."""
        seen = [record.producer for record in self.evidence.transactions.records.get(transactional_id, ())]
        ids = [producer[0] for producer in seen if producer is not None]
        return producer_id in ids and than in ids and ids.index(producer_id) < ids.index(than)

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        if history.topic_partition.topic == TRANSACTION_STATE_TOPIC:
            for record in self.evidence.transactions.of_batch(batch):
                yield from self._check_record(record)
            return
        if batch.producer_id < 0 or (batch.is_control and batch.base_offset not in history.ended_by):
            return  # a repeated marker ends nothing and so changes nothing
        transactional_id = self.evidence.transactions.owners.get(batch.producer_id)
        if transactional_id is None:
            return
        reason = self._refusal(transactional_id, batch.producer_id, batch.producer_epoch)
        if reason is not None and not self._is_kept(batch):
            yield self.violation(f"{history} took a batch of a fenced producer", batch, reason)

    def _check_record(self, record: StateRecord) -> Iterator[Violation]:
        if record.producer is None:
            self._current.pop(record.transactional_id, None)  # forgotten: it begins again, with a new producer id
            return
        assert record.client is not None
        reason = self._refusal(record.transactional_id, *record.client)
        if reason is not None:
            yield self.violation("the coordinator acted for a fenced producer", record, reason)

    def _is_kept(self, batch: StoredBatch) -> bool:
        """Whether a batch belongs to a transaction that a later session has kept."""
        log = self.evidence.transactions
        transaction = log.of_marker(batch) if batch.is_control else log.of_data(batch)
        return (
            transaction is not None
            and transaction.kept_by is not None
            and (batch.is_control or transaction.prepared is None)
        )

    def _refusal(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Exchange | None:
        """The exchange after which nothing of this producer was to happen any more, if there was one."""
        if producer_id in self._retired:
            return self._retired[producer_id]
        current = self._current.get(transactional_id)
        if current is not None and producer_id == current[0].producer_id and producer_epoch < current[0].producer_epoch:
            return current[1]
        return None


def _actor(request: Any) -> tuple[str, int, int] | None:
    """The producer that requests a change: transactional id, producer id and epoch."""
    if isinstance(request, AddPartitionsToTxnRequest):
        if request.transactions:
            return None  # a broker asks for many; what it writes then is looked at where it is written
        return (
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
    if isinstance(request, AddOffsetsToTxnRequest | EndTxnRequest | TxnOffsetCommitRequest):
        return request.transactional_id, request.producer_id, request.producer_epoch
    return None
