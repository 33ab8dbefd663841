"""Service of the transaction coordinator: finds the shard, delays requests while a transaction ends, and completes
prepared transactions.

The rules are in `shard`, `metadata` and `state_machine`; this module holds the parts that need the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Protocol, TypeVar

from fencepost.broker.config import Settings
from fencepost.broker.coordination.internal_topic import InternalTopicLoader
from fencepost.broker.coordination.runtime import (
    CoordinatorPartition,
    CoordinatorRefusal,
    CoordinatorRuntime,
    Decision,
    LoadTimes,
    PartitionState,
    partition_for_key,
)
from fencepost.broker.hosting.placement import SingleNodePlacement
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel import eager
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.per_turn_limiter import PerTurnLimiter
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.transaction.completion import COORDINATOR_FENCED, Completion, CompletionContext
from fencepost.broker.transaction.coordinator_reload import MAXIMUM_EPOCH, CoordinatorReload
from fencepost.broker.transaction.limits import limits_of, version_of
from fencepost.broker.transaction.markers import LocalMarkerChannel, MarkerChannel
from fencepost.broker.transaction.metadata import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TWO_PHASE_COMMIT_TIMEOUT_MS,
    Producer,
    TransactionMetadata,
)
from fencepost.broker.transaction.names import is_matched
from fencepost.broker.transaction.producer_ids import ProducerIds
from fencepost.broker.transaction.shard import ForcedEnd, ProducerReply, TransactionShard
from fencepost.broker.transaction.sink_tasks import SinkTasks
from fencepost.broker.transaction.state_machine import CONCURRENT, TransactionVersion
from fencepost.protocol.errors import ErrorCode

COMPLETIONS = Place("beginning of the completions of transactions", Policy.FAIL_PARTITION)

COMPLETIONS_PER_TURN = 32
"""Bound on completions started in one turn of the event loop; the rest wait for the next turn."""

ReplyT = TypeVar("ReplyT", ErrorCode, ProducerReply)
AnswerT = TypeVar("AnswerT")
TransactionPartition = CoordinatorPartition[TransactionShard]


class TransactionObserver(Protocol):
    """Sees transactions end, for metrics. It raises nothing."""

    def completed(self, prepared: TransactionMetadata, forced: ForcedEnd | None) -> None:
        """Note that all markers of a transaction are written, and its Complete record.

        forced: the coordinator's reason for the abort; None if its client ended it, or if that was before a restart.
        """
        ...


class TransactionService:
    """The coordinator of all transactional ids whose partition of `__transaction_state` is hosted here.

    Methods return error codes; none raises for a client's mistake. A reply is returned when everything it was computed
    from is durable. A request that meets a transaction whose markers are being written waits for it, up to
    `add.partitions.to.txn.retry.backoff.max.ms`, before it gets CONCURRENT_TRANSACTIONS: clients retry that error only
    after a pause that is much longer than the markers take.
    observer: sees each transaction that is complete; None unless metrics are served.
    two_phase_ids: globs of ids whose sources can be asked; they are two-phase by name, too.
    sink_tasks: the open transactions of Spark's sinks, set before `start`; None if no topic may decide about them.
    """

    observer: TransactionObserver | None = None
    two_phase_ids: tuple[str, ...] = ()
    sink_tasks: SinkTasks | None = None

    def __init__(
        self,
        topics: Topics,
        producer_ids: ProducerIds,
        settings: Settings,
        clock: Clock,
        *,
        markers: MarkerChannel | None = None,
    ) -> None:
        self._topics = topics
        self._producer_ids = producer_ids
        self._settings = settings
        self._clock = clock
        self._limits = limits_of(settings)
        self._runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            "transaction",
            make_shard=self._make_shard,
            clock=clock,
            applied=self._complete_prepared,
            only_latest_count=True,
        )
        self._state_topic = InternalTopicLoader(
            TRANSACTION_STATE_TOPIC, topics, self._runtime, coordinator="transaction", resigned=self._resigned
        )
        self._completions: dict[str, Completion] = {}
        self._completion_context = CompletionContext(
            self._runtime,
            LocalMarkerChannel(topics, clock) if markers is None else markers,
            PerTurnLimiter(COMPLETIONS_PER_TURN),
            clock,
            self._completion_ended,
        )
        self._new_completions: deque[Completion] = deque()  # to begin in the event loop's next turns
        self._coordinator_reload = CoordinatorReload(self._reload_in_higher_epoch)
        topics.on_deleted.append(self._topic_deleted)

    def set_transaction_version(self, transaction_version: int) -> None:
        """Set the level of the cluster feature; open transactions keep their version."""
        self._limits.transaction_version = version_of(transaction_version)

    # Start and stop

    async def start(self) -> None:
        """Reserve producer ids and begin to load `__transaction_state`. Transactions that were prepared before the last
        stop complete once their partition is loaded.
        """
        await self._producer_ids.start()
        self._limits.lowest_producer_id = self._producer_ids.lowest
        self._state_topic.start()

    async def ensure_loaded(self) -> None:
        """Wait until every partition answers requests, or could not be loaded."""
        await self._state_topic.ensure_loaded()

    async def close(self) -> None:
        """Stop. Prepared transactions complete after the next start."""
        self._coordinator_reload.close()
        for completion in list(self._completions.values()):
            await completion.cancel()
        self._completions.clear()
        await self._state_topic.close()
        await self._runtime.close()
        await self._producer_ids.close()

    @property
    def is_available(self) -> bool:
        """Whether `__transaction_state` exists; the first transactional producer creates it."""
        return self._state_topic.partition_count > 0

    async def ensure_available(self) -> None:
        """Create `__transaction_state` if it does not exist, and wait until all its partitions have been loaded.

        Raises StorageError.
        """
        if not self.is_available:
            await self._topics.ensure_internal(TRANSACTION_STATE_TOPIC)
        await self.ensure_loaded()

    def _topic_deleted(self, metadata: TopicMetadata) -> None:
        if metadata.name == TRANSACTION_STATE_TOPIC:
            self._state_topic.topic_deleted()

    def _resigned(self, index: int) -> None:
        """Abandon the completions of a partition: its next leader finds the prepared transactions in its log."""
        for transactional_id, completion in list(self._completions.items()):
            if completion.partition_index == index:
                completion.abandon()
                del self._completions[transactional_id]

    def _make_shard(self, index: int) -> TransactionShard:
        return TransactionShard(
            limits=self._limits, take_producer_id=self._producer_ids.take, sink_tasks=self.sink_tasks
        )

    # Requests

    async def init_producer_id(
        self,
        transactional_id: str | None,
        *,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        two_phase_commit: bool = False,
        keep_prepared_transaction: bool = False,
        guard: bool = False,
        forced: bool = False,
    ) -> ProducerReply:
        """Give a producer its id and epoch. Without a transactional id it gets a new producer id, which is not stored.

        producer_id, producer_epoch: the producer's own id and epoch (KIP-360); both or neither.
        two_phase_commit:            its transactions get no time-out (KIP-939); also by name, see `is_two_phase`.
        keep_prepared_transaction:   an open transaction of an earlier session is left to this one; else it is aborted
                                     first.
        guard:                       a later session cannot abort an open transaction without naming its pair.
        forced:                      abort a guarded one all the same: an administrator's request.
        Source: Kafka's TransactionCoordinator.handleInitProducerId.
        """
        if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH):
            return ProducerReply(ErrorCode.INVALID_REQUEST)
        if transactional_id is None:
            if two_phase_commit or keep_prepared_transaction:
                return ProducerReply(ErrorCode.INVALID_REQUEST)
            fresh = self._producer_ids.take()
            if fresh is None:
                return ProducerReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return ProducerReply(ErrorCode.NONE, fresh, 0)
        if not transactional_id:
            return ProducerReply(ErrorCode.INVALID_REQUEST)
        if two_phase_commit and not self._settings.transaction_two_phase_commit_enable:
            return ProducerReply(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if two_phase_commit or self.is_two_phase(transactional_id):
            timeout_ms = TWO_PHASE_COMMIT_TIMEOUT_MS
        elif not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            return ProducerReply(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        try:
            await self.ensure_available()
        except StorageError:
            return ProducerReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        expected = None if producer_id == NO_PRODUCER_ID else Producer(producer_id, producer_epoch)

        def decide(shard: TransactionShard) -> Decision[ProducerReply]:
            return shard.decide_init_producer_id(
                transactional_id,
                timeout_ms=timeout_ms,
                expected=expected,
                now_ms=self._clock.now_ms(),
                keep_prepared=keep_prepared_transaction,
                guard=guard,
                forced=forced,
            )

        return await self._decide(transactional_id, decide, ProducerReply)

    def is_two_phase(self, transactional_id: str) -> bool:
        """Whether the operator has made a transactional id two-phase by its name, for clients without KIP-939."""
        settings = self._settings
        return settings.transaction_two_phase_commit_enable and (
            is_matched(settings.fencepost_two_phase_transactional_ids, transactional_id)
            or is_matched(self.two_phase_ids, transactional_id)
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        *,
        version: TransactionVersion,
    ) -> eager.MaybeAwaitable[ErrorCode]:
        """Add partitions to the producer's transaction: all of them or none."""

        def decide(shard: TransactionShard) -> Decision[ErrorCode]:
            return shard.decide_add_partitions(
                transactional_id, producer, partitions, version=version, now_ms=self._clock.now_ms()
            )

        return self._decide(transactional_id, decide, _error_alone)

    async def add_offsets(self, transactional_id: str, producer: Producer, group_id: str) -> ErrorCode:
        """Add the partition of `__consumer_offsets` that holds a group's offsets to the producer's transaction.

        The topic is created if it is missing, but not for a producer that would be refused anyway.
        """
        metadata = self._topics.metadata.get(CONSUMER_OFFSETS_TOPIC)
        if metadata is None:
            error = await self._may_add(transactional_id, producer)
            if error is not ErrorCode.NONE:
                return error
            try:
                metadata = await self._topics.ensure_internal(CONSUMER_OFFSETS_TOPIC)
            except StorageError:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, partition_for_key(group_id, metadata.partition_count))
        return await self.add_partitions(transactional_id, producer, (partition,), version=TransactionVersion.V1)

    def _may_add(self, transactional_id: str, producer: Producer) -> eager.MaybeAwaitable[ErrorCode]:
        """Return the result of `add_partitions` in version 1 for a partition that is not in the transaction yet."""
        unknown = (TopicPartition(CONSUMER_OFFSETS_TOPIC, -1),)

        def decide(shard: TransactionShard) -> Decision[ErrorCode]:
            decision = shard.decide_add_partitions(
                transactional_id, producer, unknown, version=TransactionVersion.V1, now_ms=self._clock.now_ms()
            )
            return Decision(decision.reply)  # without the records

        return self._decide(transactional_id, decide, _error_alone)

    def is_partition_confirmed(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> bool:
        """Whether a partition is certainly in the producer's open transaction. False means unknown."""
        partition_count = self._state_topic.partition_count
        if not partition_count:
            return False
        shard = self._runtime.durable_shard(partition_for_key(transactional_id, partition_count))
        return shard is not None and shard.is_partition_confirmed(
            transactional_id, producer_id, producer_epoch, partition
        )

    def owns(self, producer_id: int) -> bool:
        """Whether a producer id belongs to a transactional id of a partition that is loaded here."""
        active = PartitionState.ACTIVE
        partitions = self._runtime.partitions()
        return any(one.state is active and producer_id in one.shard.owned_producer_ids for one in partitions)

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]]:
        """Whether partitions are in the producer's open transaction."""
        try:
            index = self._index(transactional_id)
            shard = self._runtime.durable_shard(index)
        except CoordinatorRefusal as refusal:
            return eager.Finished(dict.fromkeys(partitions, refusal.error))
        if shard is not None:
            return eager.Finished(shard.verify_partitions(transactional_id, producer, partitions))
        return self._verify_when_durable(index, transactional_id, producer, partitions)

    async def _verify_when_durable(
        self, index: int, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        try:
            return await self._runtime.query(
                index, lambda shard: shard.verify_partitions(transactional_id, producer, partitions)
            )
        except CoordinatorRefusal as refusal:
            return dict.fromkeys(partitions, refusal.error)

    def end_transaction(
        self, transactional_id: str, producer: Producer, *, committed: bool, version: TransactionVersion
    ) -> eager.MaybeAwaitable[ProducerReply]:
        """Commit or abort the producer's transaction. Once this returns NONE, the outcome is durable; completion sends
        the markers.
        """

        def decide(shard: TransactionShard) -> Decision[ProducerReply]:
            return shard.decide_end_transaction(
                transactional_id, producer, committed=committed, version=version, now_ms=self._clock.now_ms()
            )

        return self._decide(transactional_id, decide, ProducerReply)

    async def abort_by_administrator(self, transactional_id: str) -> ErrorCode:
        """Abort the open transaction of an id and fence its producer. Once this returns NONE, that is durable.

        Refuses as `TransactionShard.decide_abort`, and with a coordinator's errors.
        """
        try:
            return await self._runtime.execute(
                self._index(transactional_id),
                lambda shard: shard.decide_abort(transactional_id, now_ms=self._clock.now_ms()),
            )
        except CoordinatorRefusal as refusal:
            return refusal.error

    async def end_by_check_back(
        self, transactional_id: str, producer: Producer, start_ms: int, *, committed: bool
    ) -> ErrorCode:
        """End an open transaction as its source has answered. Once this returns NONE, that is durable.

        Refuses as `TransactionShard.decide_check_back`, and with a coordinator's errors.
        """
        try:
            return await self._runtime.execute(
                self._index(transactional_id),
                lambda shard: shard.decide_check_back(
                    transactional_id, producer, start_ms, committed=committed, now_ms=self._clock.now_ms()
                ),
            )
        except CoordinatorRefusal as refusal:
            return refusal.error

    def _decide(
        self,
        transactional_id: str,
        decide: Callable[[TransactionShard], Decision[ReplyT]],
        refused: Callable[[ErrorCode], ReplyT],
    ) -> eager.MaybeAwaitable[ReplyT]:
        """Decide; on CONCURRENT_TRANSACTIONS wait for the completion and decide again.

        refused: makes the reply for an error.
        """
        try:
            index = self._index(transactional_id)
            execution = self._runtime.execute_eagerly(index, decide)
        except CoordinatorRefusal as refusal:
            return eager.Finished(refused(refusal.error))
        if isinstance(execution, eager.Finished) and _error_of(execution.result) is not CONCURRENT:
            return execution
        return _or_refusal(self._decide_until_ended(execution, index, transactional_id, decide), refused)

    async def _decide_until_ended(
        self,
        execution: eager.MaybeAwaitable[ReplyT],
        index: int,
        transactional_id: str,
        decide: Callable[[TransactionShard], Decision[ReplyT]],
    ) -> ReplyT:
        reply = await execution
        if _error_of(reply) is not CONCURRENT:
            return reply
        loop = asyncio.get_running_loop()
        give_up_at_s = loop.time() + self._settings.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while _error_of(reply) is CONCURRENT:
            # Two producers of one id may fence each other repeatedly, each time with another completion.
            remaining_s = give_up_at_s - loop.time()
            if remaining_s <= 0:
                return reply
            completion = self._completions.get(transactional_id)
            if completion is not None:
                if not await completion.wait(remaining_s):
                    return reply
            elif self._is_prepared(index, transactional_id):
                return reply  # its markers were refused: only a reload can complete it
            else:
                await asyncio.sleep(0)
            reply = await self._runtime.execute_eagerly(index, decide)
        return reply

    def _is_prepared(self, index: int, transactional_id: str) -> bool:
        metadata = self._runtime.partition(index).shard.transactions.get(transactional_id)
        return metadata is not None and metadata.state.is_prepared

    def _index(self, transactional_id: str) -> int:
        partition_count = self._state_topic.partition_count
        if not partition_count:
            raise CoordinatorRefusal(ErrorCode.NOT_COORDINATOR)
        return partition_for_key(transactional_id, partition_count)

    # Views for administrators

    @property
    def is_loading(self) -> bool:
        """Whether a partition of `__transaction_state` does not answer requests yet."""
        return any(partition.is_loading for partition in self._runtime.partitions())

    @property
    def offline_partitions(self) -> list[int]:
        """Partitions of `__transaction_state` that answer no request any more, after a failure."""
        return self._runtime.offline_partitions()

    @property
    def load_times(self) -> LoadTimes:
        return self._runtime.load_times

    def known(self) -> list[TransactionMetadata]:
        """Return all transactions of the partitions that answer requests."""
        found: list[TransactionMetadata] = []
        for partition in self._runtime.partitions():
            if partition.state is PartitionState.ACTIVE:
                found += partition.shard.transactions.values()
        return found

    def completing(self, transactional_id: str) -> bool:
        """Whether the markers of a transaction are being written."""
        return transactional_id in self._completions

    def is_coordinator_of(self, transactional_id: str) -> bool:
        """Whether this node coordinates an id, or will when its partition is loaded."""
        partition_count = self._state_topic.partition_count
        if not partition_count:
            return False
        partition = TopicPartition(TRANSACTION_STATE_TOPIC, partition_for_key(transactional_id, partition_count))
        return self._topics.placement.is_local(partition)

    def find(self, transactional_id: str) -> TransactionMetadata | ErrorCode:
        """Return one transaction. Refuses: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND, and a coordinator's errors."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        try:
            shard = self._runtime.partition(self._index(transactional_id)).shard
        except CoordinatorRefusal as refusal:
            return refusal.error
        return shard.transactions.get(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

    def transactions(self) -> list[TransactionMetadata]:
        """Return all transactions of this coordinator.

        Raises CoordinatorRefusal while one of its partitions is loading, or one of the topic's has no leader: a list of
        all nodes' transactions would miss those of that partition.
        """
        if not self._topics.has_leaders(TRANSACTION_STATE_TOPIC):
            raise CoordinatorRefusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        found: list[TransactionMetadata] = []
        for partition in self._runtime.partitions():
            if partition.state is not PartitionState.OFFLINE:
                found += self._runtime.partition(partition.index).shard.transactions.values()
        return found

    # Completion

    def _complete_prepared(self, partition: TransactionPartition) -> None:
        shard = partition.shard
        if not shard.prepared_without_completion:
            return
        if not self._new_completions:
            # Not now: the replies to the EndTxn requests leave first.
            asyncio.get_running_loop().call_soon(self._begin_completions)
        for transactional_id in shard.take_prepared():
            completion = self._completions[transactional_id] = Completion(
                self._completion_context, partition, shard.transactions[transactional_id]
            )
            self._new_completions.append(completion)

    @COMPLETIONS.catches_itself
    def _begin_completions(self) -> None:
        """Begin up to COMPLETIONS_PER_TURN completions; leave the rest to the next turn."""
        completions = self._new_completions
        weight = 0
        while completions and weight < COMPLETIONS_PER_TURN:
            completion = completions.popleft()
            weight += completion.weight
            try:
                completion.begin()
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                partition = completion.partition
                COMPLETIONS.failed(
                    error,
                    concerns=partition.log.topic_partition,
                    on_failure=partial(self._runtime.fail, partition),
                )
        if completions:
            asyncio.get_running_loop().call_soon(self._begin_completions)

    def _completion_ended(self, completion: Completion) -> None:
        transactional_id = completion.transaction.transactional_id
        if self._completions.get(transactional_id) is not completion:
            return
        del self._completions[transactional_id]
        forced_ends = completion.partition.shard.forced_ends
        forced = forced_ends.pop(transactional_id, None) if forced_ends else None
        refusal = completion.refusal
        if self.observer is not None and refusal is None:
            self.observer.completed(completion.transaction, forced)
        if refusal is None and not self._coordinator_reload.refusal_count:
            return
        coordinator_partition = TopicPartition(TRANSACTION_STATE_TOPIC, completion.partition_index)
        if refusal is None:
            self._coordinator_reload.completed(coordinator_partition)
        elif refusal in COORDINATOR_FENCED and isinstance(self._topics.placement, SingleNodePlacement):
            self._coordinator_reload.refused(coordinator_partition, refusal)

    def _reload_in_higher_epoch(self, coordinator_partition: TopicPartition, step: int) -> None:
        partition_log = self._topics.log(coordinator_partition)
        if partition_log is not None:
            partition_log.leader_epoch = min(partition_log.leader_epoch + step, MAXIMUM_EPOCH)
            self._state_topic.reload(partition_log)


def _error_of(reply: ErrorCode | ProducerReply) -> ErrorCode:
    return reply.error if isinstance(reply, ProducerReply) else reply


def _error_alone(error: ErrorCode) -> ErrorCode:
    return error


async def _or_refusal(execution: Awaitable[AnswerT], refused: Callable[[ErrorCode], AnswerT]) -> AnswerT:
    try:
        return await execution
    except CoordinatorRefusal as refusal:
        return refused(refusal.error)
