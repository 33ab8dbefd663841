"""Verification: a partition's leader asks the coordinator whether a transaction may write there, before it appends
(KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.topic_partition import TopicPartition
from broker.transaction.metadata import Producer
from broker.transaction.service import TransactionService
from broker.transaction.state_machine import TransactionVersion
from protocol.errors import ErrorCode


class TransactionVerifier:
    """What the leader of a data partition, or of a partition of `__consumer_offsets`, asks before the first write of a
    transaction.
    """

    def __init__(self, transactions: TransactionService) -> None:
        self._transactions = transactions

    async def verify(
        self,
        *,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic_partitions: Sequence[TopicPartition],
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition is in the producer's open transaction, in the coordinator's own error codes.

        add: in transaction version 2 the question is the registration: partitions that are not in the transaction yet
             join it, which also
            opens it. Otherwise they must have been added before: TRANSACTION_ABORTABLE if not.
        Also INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR. Source: Kafka's AddPartitionsToTxnManager.
        """
        producer = Producer(producer_id, producer_epoch)
        if not self._transactions.is_available:
            return dict.fromkeys(topic_partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if add:
            error = await self._transactions.add_partitions(
                transactional_id, producer, topic_partitions, version=TransactionVersion.V2
            )
            return dict.fromkeys(topic_partitions, error)
        return await self._transactions.verify_partitions(transactional_id, producer, topic_partitions)
