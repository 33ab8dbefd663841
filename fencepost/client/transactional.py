"""Writing records in transactions, or idempotently without: nothing twice, however often a broker is asked again.

It speaks the protocol that all brokers serve: partitions are added by AddPartitionsToTxn, and one epoch has all
transactions (KIP-98). After any error the producer is spent: abort, and make another one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClusterError, RefusedError, UnreachableError
from fencepost.client.view import CoordinatorKind
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from fencepost.protocol.record_batch import Record, build_batch

TIMEOUT_MS: Final = 60_000
PATIENCE_S: Final = 30.0
PAUSE_S: Final = 0.1
HIGHEST_PRODUCE: Final = 11
HIGHEST_ADD: Final = 3
HIGHEST_END: Final = 4
_SEQUENCES: Final = 1 << 31
TEMPORARY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class UnknownOutcomeError(ClusterError):
    """The end of a transaction was asked for, and no answer came: its records may be visible, or not."""


class TransactionalProducer:
    """A producer of one topic. transactional_id: None writes outside of transactions."""

    def __init__(self, cluster: Cluster, topic: str, transactional_id: str | None) -> None:
        self._cluster = cluster
        self._topic = topic
        self._id = transactional_id
        self._identity: tuple[int, int] = (-1, -1)
        self._sequences: dict[int, int] = {}
        self._leaders: dict[int, int] = {}
        self._added: set[int] = set()
        self._attempts = 0

    @property
    def is_open(self) -> bool:
        """Whether a transaction may be open."""
        return bool(self._added)

    async def start(self) -> None:
        """Get an identity. Raises ClusterError."""
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TIMEOUT_MS)
        reply = await self._retried(lambda: self._to_coordinator(request), lambda reply: [reply.error_code])
        self._identity = reply.producer_id, reply.producer_epoch

    async def write(self, by_partition: Mapping[int, Sequence[Record]], codec: Codec) -> None:
        """Write records, for each partition as one batch. Raises ClusterError; some may be written then.

        Offsets of the records do not matter; they are numbered from 0.
        """
        if self._id is not None:
            await self._add(sorted(set(by_partition) - self._added))
        for index, records in by_partition.items():
            await self._write(index, records, codec)

    async def commit(self) -> None:
        """Commit. Raises ClusterError; UnknownOutcomeError if it may have been committed."""
        await self._end(committed=True)

    async def abort(self) -> None:
        """Abort. Raises ClusterError; the broker aborts after TIMEOUT_MS then."""
        await self._end(committed=False)

    async def _end(self, *, committed: bool) -> None:
        if self._id is None or not self._added:
            return
        request = EndTxnRequest(self._id, *self._identity, committed)
        try:
            await self._retried(lambda: self._to_coordinator(request, HIGHEST_END), lambda reply: [reply.error_code])
        except ClusterError as error:
            # A first answer that refuses is certain. Later ones may be about a request that was carried out and lost.
            if isinstance(error, RefusedError) and self._attempts == 1:
                raise
            raise UnknownOutcomeError(str(error)) from error
        self._added.clear()

    async def _add(self, partitions: Sequence[int]) -> None:
        assert self._id is not None
        if not partitions:
            return
        topics = [AddPartitionsToTxnTopic(self._topic, list(partitions))]
        request = AddPartitionsToTxnRequest([], self._id, *self._identity, topics)
        # Before the answer: a request that was lost may have opened the transaction.
        self._added.update(partitions)
        await self._retried(
            lambda: self._to_coordinator(request, HIGHEST_ADD),
            lambda reply: [
                one.partition_error_code
                for topic in reply.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ],
        )

    async def _write(self, index: int, records: Sequence[Record], codec: Codec) -> None:
        sequence = self._sequences.get(index, 0)
        batch = build_batch(
            [one._replace(offset=number) for number, one in enumerate(records)],
            codec=codec,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=sequence,
            is_transactional=self._id is not None,
        )
        data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index, memoryview(batch))])
        request = ProduceRequest(self._id, acks=-1, timeout_ms=10_000, topic_data=[data])

        async def send() -> Any:
            leader = self._leaders.get(index, -1)
            if leader < 0:
                leader = await self._leader(index)
            try:
                reply = await self._cluster.send(request, leader, at_most=HIGHEST_PRODUCE)
            except ClusterError:
                self._leaders.pop(index, None)
                raise
            answer = reply.responses[0].partition_responses[0]
            if answer.error_code:
                self._leaders.pop(index, None)
            return answer

        await self._retried(send, lambda one: [one.error_code], lambda one: one.error_message)
        self._sequences[index] = (sequence + len(records)) % _SEQUENCES

    async def _leader(self, index: int) -> int:
        view = await self._cluster.view([self._topic])
        found = view.topics.get(self._topic)
        if found is None or found.error:
            raise RefusedError(found.error if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {self._topic}")
        self._leaders.update((one.index, one.leader) for one in found.partitions)
        leader = self._leaders.get(index, -1)
        if leader < 0:
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self._topic}-{index}")
        return leader

    async def _to_coordinator(self, request: Any, at_most: int | None = None) -> Any:
        node_id = None
        if self._id is not None:
            node_id = await self._cluster.coordinator(CoordinatorKind.TRANSACTION, self._id)
        return await self._cluster.send(request, node_id, at_most=at_most)

    async def _retried(
        self,
        send: Callable[[], Awaitable[Any]],
        codes_of: Callable[[Any], Sequence[int]],
        message_of: Callable[[Any], str | None] = lambda _: None,
    ) -> Any:
        """Send until the answer is final. The same request twice has one effect: the protocol sees to it."""
        give_up_at_s = time.monotonic() + PATIENCE_S
        self._attempts = 0
        while True:
            self._attempts += 1
            try:
                reply = await send()
                bad = [code for code in codes_of(reply) if code and code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER]
                if not bad:
                    return reply
                failure: ClusterError = RefusedError(bad[0], message_of(reply))
            except (UnreachableError, RefusedError) as error:
                failure = error
            is_final = isinstance(failure, RefusedError) and failure.code not in TEMPORARY
            if is_final or time.monotonic() > give_up_at_s:
                raise failure
            await asyncio.sleep(PAUSE_S)
