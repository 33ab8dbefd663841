"""Verification by coordinators on other nodes: AddPartitionsToTxn, one request per node in flight, with all queued
verifications.

Source: KIP-890; Kafka's AddPartitionsToTxnManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fencepost.broker.coordination.runtime import partition_for_key
from fencepost.broker.hosting.peers import Peers, PeerUnreachable, received_error
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel import eager
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.transaction.remote_markers import by_topic
from fencepost.broker.transaction.service import TransactionService
from fencepost.broker.transaction.verification import TransactionVerifier
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

log = get_logger(__name__)

REMOTE_VERIFICATION = Place("verification with another node", Policy.RETRY)

ADD_PARTITIONS_TO_TXN_VERSION = 5
"""The coordinator answers with the newest error codes; the partition leader translates them for its client."""

VerificationErrors = dict[TopicPartition, ErrorCode]


class RemoteTransactionVerifier(TransactionVerifier):
    """Asks the coordinator of each transaction, here or on the node that leads its partition of `__transaction_state`.

    Beside the coordinator's errors: COORDINATOR_NOT_AVAILABLE while its partition has no leader, NETWORK_EXCEPTION if
    the coordinator's action is unknown, or a later verification of the transaction replaced this one,
    INVALID_PRODUCER_EPOCH if a newer epoch was verified meanwhile, CLUSTER_AUTHORIZATION_FAILED if the other node does
    not accept this one as a broker. The result may be outdated: the guard at the append detects later markers.
    """

    def __init__(
        self, transactions: TransactionService, topics: Topics, peers: Peers, *, request_timeout_ms: int
    ) -> None:
        super().__init__(transactions)
        self._topics = topics
        self._peers = peers
        self._request_timeout_s = request_timeout_ms / 1000
        self._queues: dict[int, _NodeVerificationQueue] = {}

    def is_confirmed(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic_partition: TopicPartition
    ) -> bool:
        metadata = self._topics.metadata.get(TRANSACTION_STATE_TOPIC)
        if metadata is None:
            return False
        coordinator = TopicPartition(
            TRANSACTION_STATE_TOPIC, partition_for_key(transactional_id, metadata.partition_count)
        )
        return self._topics.placement.is_local(coordinator) and super().is_confirmed(
            transactional_id, producer_id, producer_epoch, topic_partition
        )

    def verify(
        self,
        *,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic_partitions: Sequence[TopicPartition],
        add: bool,
    ) -> eager.MaybeAwaitable[VerificationErrors]:
        metadata = self._topics.metadata.get(TRANSACTION_STATE_TOPIC)
        if metadata is None:
            return eager.Finished(dict.fromkeys(topic_partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        placement = self._topics.placement
        coordinator = TopicPartition(
            TRANSACTION_STATE_TOPIC, partition_for_key(transactional_id, metadata.partition_count)
        )
        if placement.is_local(coordinator):
            return super().verify(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                topic_partitions=topic_partitions,
                add=add,
            )
        leader = placement.leader(coordinator)
        if leader is None:
            return eager.Finished(dict.fromkeys(topic_partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if not transactional_id:
            return eager.Finished(dict.fromkeys(topic_partitions, ErrorCode.INVALID_REQUEST))
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not add,
            topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic(topic_partitions).items()
            ],
        )
        return self._queue(leader.node_id).verify(transaction, topic_partitions)

    async def close(self) -> None:
        """Cancel all requests."""
        await asyncio.gather(*(queue.close() for queue in self._queues.values()))

    def _queue(self, node_id: int) -> _NodeVerificationQueue:
        queue = self._queues.get(node_id)
        if queue is None:
            queue = self._queues[node_id] = _NodeVerificationQueue(node_id, self._peers, self._request_timeout_s)
        return queue


class _QueuedVerification:
    """A verification queued for one node, and the future of its result."""

    __slots__ = ("answered", "topic_partitions", "transaction")

    def __init__(
        self,
        transaction: AddPartitionsToTxnTransaction,
        topic_partitions: Sequence[TopicPartition],
        answered: asyncio.Future[VerificationErrors],
    ) -> None:
        self.transaction = transaction
        self.topic_partitions = topic_partitions
        self.answered = answered

    def refuse(self, error: ErrorCode) -> None:
        self.answer({}, error)

    def answer(self, outcome: VerificationErrors, otherwise: ErrorCode) -> None:
        if not self.answered.done():
            self.answered.set_result({name: outcome.get(name, otherwise) for name in self.topic_partitions})


class _NodeVerificationQueue:
    """Queue of verifications for one node, by transactional id: of each transaction only the newest."""

    def __init__(self, node_id: int, peers: Peers, request_timeout_s: float) -> None:
        self._node_id = node_id
        self._peers = peers
        self._request_timeout_s = request_timeout_s
        self._queued: dict[str, _QueuedVerification] = {}
        self._verifying: asyncio.Task[None] | None = None

    async def verify(
        self, transaction: AddPartitionsToTxnTransaction, partitions: Sequence[TopicPartition]
    ) -> VerificationErrors:
        earlier = self._queued.get(transaction.transactional_id)
        if earlier is not None:
            newer_by = transaction.producer_epoch - earlier.transaction.producer_epoch
            if transaction.producer_id != earlier.transaction.producer_id:
                newer_by = (
                    0  # epochs of two producer ids say nothing about each other: the coordinator knows which counts
                )
            if newer_by < 0:
                return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_EPOCH)
            earlier.refuse(ErrorCode.INVALID_PRODUCER_EPOCH if newer_by else ErrorCode.NETWORK_EXCEPTION)
        loop = asyncio.get_running_loop()
        queued = _QueuedVerification(transaction, partitions, loop.create_future())
        self._queued[transaction.transactional_id] = queued
        if self._verifying is None or self._verifying.done():
            self._verifying = REMOTE_VERIFICATION.start(
                self._verify_all(), concerns=f"node {self._node_id}", on_failure=lambda _: self._refuse_all()
            )
        try:
            return await queued.answered
        finally:
            if self._queued.get(transaction.transactional_id) is queued:
                del self._queued[transaction.transactional_id]

    async def close(self) -> None:
        await end_tasks(self._verifying)

    async def _verify_all(self) -> None:
        while self._queued:
            batch, self._queued = list(self._queued.values()), {}
            try:
                response: AddPartitionsToTxnResponse = await self._peers.request(
                    self._node_id,
                    AddPartitionsToTxnRequest(transactions=[queued.transaction for queued in batch]),
                    ADD_PARTITIONS_TO_TXN_VERSION,
                    self._request_timeout_s,
                )
                self._answer(batch, response)
            except PeerUnreachable as error:
                log.warning(
                    "verifications_not_answered", node_id=self._node_id, transactions=len(batch), reason=str(error)
                )
                for queued in batch:
                    queued.refuse(ErrorCode.NETWORK_EXCEPTION)
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                REMOTE_VERIFICATION.failed(error, concerns=f"node {self._node_id}")
                for queued in batch:
                    queued.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _refuse_all(self) -> None:
        """The asking task has failed: refuse every queued transaction; clients try again."""
        for queued in list(self._queued.values()):
            queued.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _answer(self, batch: Sequence[_QueuedVerification], response: AddPartitionsToTxnResponse) -> None:
        error = received_error(response.error_code)
        if error is not ErrorCode.NONE:
            log.error("verifications_refused", node_id=self._node_id, error=error.name)
            for queued in batch:
                # An old coordinator that cannot verify cannot refuse; but it has not added partitions.
                is_unknown = error is ErrorCode.UNSUPPORTED_VERSION and queued.transaction.verify_only
                queued.refuse(ErrorCode.NONE if is_unknown else error)
            return
        outcomes = {
            result.transactional_id: {
                TopicPartition(topic.name, partition.partition_index): received_error(partition.partition_error_code)
                for topic in result.topic_results
                for partition in topic.results_by_partition
            }
            for result in response.results_by_transaction
        }
        for queued in batch:
            # Partitions missing in the response are not confirmed; the client may retry.
            queued.answer(outcomes.get(queued.transaction.transactional_id, {}), ErrorCode.NETWORK_EXCEPTION)
