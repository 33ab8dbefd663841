"""Producers: idempotent ones and transactional ones of both versions, each with the rules of its library.

Source: Kafka's TransactionManager; librdkafka's rdkafka_txnmgr.c; KIP-98, KIP-360, KIP-447, KIP-890.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.history.writer import Call, ClientHistory, SendCall
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from fencepost.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Record
from tests.simulation.client import Disconnected
from tests.simulation.clients.cluster import GROUP, TRANSACTION, Cluster
from tests.simulation.clients.libraries import Library, Reaction
from tests.simulation.clients.sending import Batch, BatchSender, Identity

MAXIMUM_BLOCK_S: Final = 40.0


class Abortable(Exception):  # noqa: N818  # what applications meet and deal with
    """The transaction can only be aborted."""


class Fatal(Exception):  # noqa: N818  # what applications meet and deal with
    """This producer can do nothing any more."""


@dataclass(frozen=True)
class GroupMembership:
    """The identity with which offsets are committed."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""


class Producer:
    """A producer without transactions.

    is_idempotent: whether its batches have sequence numbers; otherwise retries make duplicates.
    Batches that are lost, with all behind them, cost an idempotent producer its id: the next ones have another, as
    nobody knows what became of them.
    """

    def __init__(
        self,
        cluster: Cluster,
        library: Library,
        history: ClientHistory,
        *,
        transactional_id: str | None = None,
        is_idempotent: bool = True,
        acks: int = -1,
        now_ms: Callable[[], int],
    ) -> None:
        self.identity = Identity()
        self._cluster = cluster
        self._library = library
        self._history = history
        self._transactional_id = transactional_id
        self._is_idempotent = is_idempotent
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._failure: tuple[Reaction, str] | None = None
        self._sender = BatchSender(
            cluster,
            library,
            self.identity,
            transactional_id=transactional_id,
            ready=self._ready,
            failed=self._fail,
            acks=acks,
        )

    def send(
        self,
        topic_partition: TopicPartition,
        values: Sequence[str],
        *,
        key: str | None = None,
        inputs: Sequence[str] = (),
        is_recorded: bool = True,
    ) -> None:
        """One batch to a partition. is_recorded: whether the history tells of it."""
        now_ms = self._now_ms()
        records = [
            Record(index, now_ms, None if key is None else key.encode(), value.encode())
            for index, value in enumerate(values)
        ]
        calls: list[SendCall] = []
        if is_recorded:
            topic, partition = topic_partition
            calls = [self._history.send(topic, value, partition, inputs) for value in values]
        batch = Batch(topic_partition, records, calls, self._loop.time())
        if self._failure is None:
            self._sender.queue(batch)
        else:
            batch.given_up(self._failure[1])

    async def start(self) -> None:
        """Get a producer id, unless it needs none. Raises Fatal."""
        if self._is_idempotent:
            await self._init_producer_id()

    async def flush(self) -> None:
        """Wait until everything was accepted, or given up."""
        await self._sender.drained()
        if self._failure is not None:
            self._failure = None
            self._sender.start_over(new_sequences=True)
            await self.start()

    def close(self) -> None:
        """Give up whatever is under way."""
        self._sender.close()
        self._cluster.close()

    async def _ready(self, topic_partitions: Sequence[TopicPartition]) -> bool:
        return True

    def _fail(self, reaction: Reaction, reason: str) -> None:
        if self._failure is None or reaction is Reaction.FAIL:
            self._failure = reaction, reason
        self._sender.fail(reason)

    async def _init_producer_id(self, *, keeps_identity: bool = False, timeout_ms: int = 60_000) -> None:
        """Raises Fatal."""

        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.identity.producer_id if keeps_identity else NO_PRODUCER_ID,
            producer_epoch=self.identity.producer_epoch if keeps_identity else NO_PRODUCER_EPOCH,
        )
        await self._initialize(request, self._library.init_producer_id_version)

    async def _initialize(self, request: InitProducerIdRequest, version: int) -> Any:
        """Begin with the identity in the response, which is returned. Raises Abortable and Fatal."""

        async def attempt() -> Any:
            if self._transactional_id is None:
                return await self._cluster.send(self._cluster.any_node(), request, version)
            return await self._cluster.ask_coordinator(TRANSACTION, self._transactional_id, request, version)

        response, _ = await self._finish_once_more(
            ApiKey.INIT_PRODUCER_ID, attempt, lambda response: response.error_code
        )
        self.identity.producer_id = response.producer_id
        self.identity.producer_epoch = response.producer_epoch
        self._sender.start_over(new_sequences=True)
        return response

    async def _finish_once_more(
        self,
        api: ApiKey,
        attempt: Callable[[], Awaitable[Any]],
        error_of: Callable[[Any], int],
        call: Call | None = None,
        *,
        find: tuple[int, str] | None = None,
    ) -> tuple[Any, bool]:
        """Ask until there is an answer that counts: the response, and whether an earlier attempt may have worked.

        call: gets the outcome.
        find: the coordinator to look for again when it has moved; the transaction's, unless given.
        Raises Abortable and Fatal.
        """
        is_ambiguous = False
        deadline_s = self._loop.time() + MAXIMUM_BLOCK_S
        while True:
            reason = "no answer"
            try:
                response = await attempt()
            except Disconnected:
                is_ambiguous = True
            else:
                error = ErrorCode(error_of(response))
                if error is ErrorCode.NONE:
                    if call is not None:
                        call.ok()
                    return response, is_ambiguous
                reason = error.name
                reaction = self._library.reaction(api, error)
                if reaction is Reaction.FIND:
                    # The record may be in the log all the same.
                    is_ambiguous = True
                    self._cluster.forget_coordinator(*(find or (TRANSACTION, self._transactional_id or "")))
                elif reaction is not Reaction.RETRY:
                    self._refused(reaction, reason, call, is_ambiguous=is_ambiguous)
            if self._loop.time() > deadline_s:
                self._refused(Reaction.FAIL, f"timed out after {reason}", call, is_ambiguous=True)
            await self._cluster.back_off()

    def _refused(self, reaction: Reaction, reason: str, call: Call | None, *, is_ambiguous: bool) -> None:
        """Raises Abortable or Fatal."""
        if call is not None:
            if is_ambiguous:
                call.unknown(reason)
            else:
                call.fail(reason)
        self._fail(reaction, reason)
        if reaction is Reaction.FAIL:
            raise Fatal(reason)
        raise Abortable(reason)


class TransactionalProducer(Producer):
    """A producer with transactions: `start`, then `begin`, `send`, `send_offsets`, and `commit` or `abort`.

    transaction_timeout_ms: after which the coordinator aborts.
    """

    def __init__(
        self,
        cluster: Cluster,
        library: Library,
        history: ClientHistory,
        transactional_id: str,
        *,
        transaction_timeout_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(cluster, library, history, transactional_id=transactional_id, now_ms=now_ms)
        self.transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._partitions: dict[TopicPartition, None] = {}
        self._groups: dict[str, None] = {}

    @property
    def _is_implicit(self) -> bool:
        """Whether partitions join the transaction by being written to."""
        return self._library.transaction_version == 2

    async def start(self) -> None:
        """Get the producer id, and fence its earlier owner. Raises Fatal."""
        try:
            await self._init_producer_id(timeout_ms=self._transaction_timeout_ms)
        except Abortable as error:
            raise Fatal(str(error)) from None

    def begin(self) -> None:
        """A new transaction; nothing is sent for that."""
        self._history.begin()

    async def flush(self) -> None:
        """Wait until everything was accepted. Raises Abortable and Fatal."""
        await self._sender.drained()
        self._raise_failure()

    async def send_offsets(
        self, membership: GroupMembership, offsets: Iterable[tuple[str, int, int]], *, inputs: Sequence[str] = ()
    ) -> None:
        """Have offsets of a group committed with the transaction. Raises Abortable and Fatal."""
        self._raise_failure()
        offsets = list(offsets)
        call = self._history.send_offsets(membership.group_id, offsets, inputs)
        if not self._is_implicit and membership.group_id not in self._groups:
            try:
                await self._add_offsets(membership.group_id)
            except (Abortable, Fatal) as error:
                call.fail(str(error))
                raise
        self._groups[membership.group_id] = None
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for topic, partition, offset in offsets:
            by_topic.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=membership.group_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            generation_id_or_member_epoch=membership.generation_id,
            member_id=membership.member_id,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in by_topic.items()],
        )
        await self._finish_once_more(
            ApiKey.TXN_OFFSET_COMMIT,
            lambda: self._cluster.ask_coordinator(
                GROUP, membership.group_id, request, self._library.txn_offset_commit_version
            ),
            lambda response: _first_error(
                partition.error_code for topic in response.topics for partition in topic.partitions
            ),
            call,
            find=(GROUP, membership.group_id),
        )

    async def commit(self) -> None:
        """Raises Abortable and Fatal; the transaction may be committed after a Fatal."""
        await self.flush()
        await self._end(committed=True)

    async def abort(self) -> None:
        """Raises Fatal."""
        if self._failure is not None and self._failure[0] is Reaction.FAIL:
            raise Fatal(self._failure[1])
        self._sender.fail("aborted")
        await self._sender.drained()
        needs_new_epoch = (self._sender.has_gap or self._failure is not None) and not self._is_implicit
        try:
            await self._end(committed=False)
            if needs_new_epoch:
                await self._init_producer_id(keeps_identity=True, timeout_ms=self._transaction_timeout_ms)
        except Abortable as error:
            raise Fatal(str(error)) from None

    async def _end(self, *, committed: bool) -> None:
        call = self._history.commit() if committed else self._history.abort()
        if not self._partitions and not self._groups:
            call.ok()
            self._start_over()
            return
        await self._request_end(call, committed=committed)
        self._start_over()

    async def _request_end(self, call: Call | None, *, committed: bool) -> None:
        """Raises Abortable and Fatal."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            committed=committed,
        )
        response, _ = await self._finish_once_more(
            ApiKey.END_TXN,
            lambda: self._cluster.ask_coordinator(
                TRANSACTION, self.transactional_id, request, self._library.end_txn_version
            ),
            lambda response: response.error_code,
            call,
        )
        if self._is_implicit:
            self.identity.producer_id = response.producer_id
            self.identity.producer_epoch = response.producer_epoch

    def _start_over(self) -> None:
        self._failure = None
        self._partitions.clear()
        self._groups.clear()
        self._sender.start_over(new_sequences=self._is_implicit)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            reaction, reason = self._failure
            raise Fatal(reason) if reaction is Reaction.FAIL else Abortable(reason)

    # Adding to the transaction

    async def _ready(self, topic_partitions: Sequence[TopicPartition]) -> bool:
        missing = [partition for partition in topic_partitions if partition not in self._partitions]
        if missing and not self._is_implicit:
            try:
                await self._add_partitions(missing)
            except (Abortable, Fatal):
                return False
        self._partitions.update(dict.fromkeys(missing))
        return True

    async def _add_partitions(self, topic_partitions: Sequence[TopicPartition]) -> None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in topic_partitions:
            by_topic.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=partitions) for topic, partitions in by_topic.items()
            ],
        )
        await self._finish_once_more(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            lambda: self._cluster.ask_coordinator(
                TRANSACTION, self.transactional_id, request, self._library.add_version
            ),
            lambda response: _first_error(
                result.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            ),
        )

    async def _add_offsets(self, group_id: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            group_id=group_id,
        )
        await self._finish_once_more(
            ApiKey.ADD_OFFSETS_TO_TXN,
            lambda: self._cluster.ask_coordinator(
                TRANSACTION, self.transactional_id, request, self._library.add_version
            ),
            lambda response: response.error_code,
        )


def _first_error(codes: Iterable[int]) -> int:
    """The first that is not NONE; one that merely says that others failed only where there is no other."""
    errors = [code for code in codes if code != ErrorCode.NONE]
    return min(errors, key=lambda code: code == ErrorCode.OPERATION_NOT_ATTEMPTED, default=int(ErrorCode.NONE))
