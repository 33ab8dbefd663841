"""Drives a transaction shard without a log or an event loop: what it decides is applied at once and kept, so that it
can be replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from fencepost.broker.coordination.shard import CoordinatorRecord, Decision, Parked, RecordOrigin
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.transaction.limits import TransactionLimits
from fencepost.broker.transaction.metadata import NO_PRODUCER_ID, Producer, TransactionMetadata
from fencepost.broker.transaction.shard import TransactionShard, metadata_record
from fencepost.broker.transaction.state_machine import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    KEPT,
    TransactionState,
    TransactionVersion,
)

Reply = TypeVar("Reply")

TRANSACTIONAL_ID = "tx-1"
OUT_0 = TopicPartition("out", 0)
OUT_1 = TopicPartition("out", 1)
TIMEOUT_MS = 60_000
NOW_MS = 1_700_000_000_000
ONE_PAIR = tuple(state for state in TransactionState if state is not KEPT)
"""The states in which a transaction has one pair; `test_kept_cells` is about the other one."""
NOTHING_OPEN = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
"""In these states, a transactional id is forgotten after long enough without use."""


class ShardDriver:
    """A shard with the records that made it.

    producer_ids: the fresh producer ids left; when they run out, none is at hand.
    """

    def __init__(
        self,
        *,
        version: TransactionVersion = TransactionVersion.V2,
        limits: TransactionLimits | None = None,
        producer_ids: Sequence[int] = range(100, 1000),
    ) -> None:
        self.limits = limits or TransactionLimits(transaction_version=version)
        self.producer_ids: Iterator[int] = iter(producer_ids)
        self.records: list[CoordinatorRecord] = []
        self.shard = self.empty_shard()

    def empty_shard(self) -> TransactionShard:
        return TransactionShard(limits=self.limits, take_producer_id=lambda: next(self.producer_ids, None))

    def do(self, decision: Decision[Reply]) -> Reply:
        assert not isinstance(decision.reply, Parked)
        if decision.settle is not None:
            decision.settle()
        for record in decision.records:
            self.apply(record)
        return decision.reply

    def apply(self, record: CoordinatorRecord) -> None:
        offset = len(self.records)
        if record.decoded is None:
            self.shard.apply(record.key, record.value, RecordOrigin(offset, NOW_MS))
        else:
            self.shard.apply_decided(record.decoded, offset, NO_PRODUCER_ID)
        self.records.append(record)

    def put(self, metadata: TransactionMetadata) -> None:
        self.apply(metadata_record(metadata))

    def replayed(self, records: Sequence[CoordinatorRecord] | None = None) -> TransactionShard:
        """A new shard made from the records, as after a restart."""
        shard = self.empty_shard()
        for offset, record in enumerate(self.records if records is None else records):
            shard.apply(record.key, record.value, RecordOrigin(offset, NOW_MS))
        shard.loaded(NOW_MS)
        return shard

    @property
    def transaction(self) -> TransactionMetadata:
        return self.shard.transactions[TRANSACTIONAL_ID]


def transaction_in(
    state: TransactionState,
    *,
    producer: Producer = Producer(7, 5),  # noqa: B008  # immutable
    previous_producer_id: int = 7,
    timeout_ms: int = TIMEOUT_MS,
    version: TransactionVersion = TransactionVersion.V2,
) -> TransactionMetadata:
    """A transaction in a state, with producer 7 at epoch 5 whose owner came from epoch 4 by its own request."""
    is_open = state is TransactionState.ONGOING or state.is_prepared
    return TransactionMetadata(
        transactional_id=TRANSACTIONAL_ID,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        timeout_ms=timeout_ms,
        state=state,
        last_update_ms=NOW_MS,
        start_ms=-1 if state is TransactionState.EMPTY else NOW_MS,
        partitions=frozenset({OUT_0}) if is_open else frozenset(),
        previous_producer_id=previous_producer_id,
        client_transaction_version=version,
    )
