"""Verification: a partition's leader asks the coordinator whether a transaction may write there, before it appends
(KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from fencepost.broker.kernel import eager
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.transaction.metadata import Producer
from fencepost.broker.transaction.service import TransactionService
from fencepost.broker.transaction.state_machine import TransactionVersion
from fencepost.protocol.errors import ErrorCode


class TransactionVerifier:
    """Asks the coordinator on behalf of the leader of a partition, before the first write of a transaction there.

    waiting: futures by transactional id, resolved once the last Produce that waited for its verification has appended:
             keeps the requests of a producer in order.
    """

    def __init__(self, transactions: TransactionService) -> None:
        self.waiting: dict[str, asyncio.Future[None]] = {}
        self._transactions = transactions

    def is_confirmed(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic_partition: TopicPartition
    ) -> bool:
        """Whether `verify`, without adding, would return NONE in this step; false if the caller has to call it."""
        return self._transactions.is_partition_confirmed(transactional_id, producer_id, producer_epoch, topic_partition)

    def verify(
        self,
        *,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic_partitions: Sequence[TopicPartition],
        add: bool,
    ) -> eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]]:
        """Verify that each partition is in the producer's open transaction; return the coordinator's error codes.

        add: whether missing partitions are added, as in transaction version 2, which opens the transaction if need be.
             Otherwise they must have been added before: TRANSACTION_ABORTABLE if not.
        Also INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR. Source: Kafka's AddPartitionsToTxnManager.
        """
        transactions = self._transactions
        if not transactions.is_available:
            return eager.Finished(dict.fromkeys(topic_partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        producer = Producer(producer_id, producer_epoch)
        if not add:
            return transactions.verify_partitions(transactional_id, producer, topic_partitions)
        addition = transactions.add_partitions(
            transactional_id, producer, topic_partitions, version=TransactionVersion.V2
        )
        if isinstance(addition, eager.Finished):
            return eager.Finished(dict.fromkeys(topic_partitions, addition.result))
        return _for_each(addition, topic_partitions)


async def _for_each(
    addition: Awaitable[ErrorCode], topic_partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    return dict.fromkeys(topic_partitions, await addition)
