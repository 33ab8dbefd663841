"""Completion of a prepared transaction: sends its markers, with retries, until every partition has its own; then
appends the Complete record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from itertools import chain, count
from typing import Any, NamedTuple

from fencepost.broker.coordination.runtime import (
    CoordinatorPartition,
    CoordinatorRefusal,
    CoordinatorRuntime,
    PartitionState,
)
from fencepost.broker.kernel import eager
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.per_turn_limiter import PerTurnLimiter
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.transaction.markers import MARKERS_PER_STEP, MarkerChannel, TransactionMarker
from fencepost.broker.transaction.metadata import TransactionMetadata
from fencepost.broker.transaction.shard import TransactionShard
from fencepost.broker.transaction.state_machine import PREPARE_COMMIT
from fencepost.protocol.errors import ErrorCode

log = get_logger(__name__)

COMPLETION = Place("completion of a transaction", Policy.RETRY)
COMPLETION_TASK = Place("task of a transaction's completion", Policy.FAIL_PARTITION)

FIRST_RETRY_PAUSE_S = 0.02
LONGEST_RETRY_PAUSE_S = 1.0
LONGEST_REFUSAL_PAUSE_S = 10.0
LONGEST_FAILURE_PAUSE_S = 60.0

MARKERS_PER_SLICE = MARKERS_PER_STEP  # a slice for this node is one step
"""A transaction of more partitions sends its markers in slices of this size, between which others are served."""
MARKERS_PER_WEIGHT = 8
"""Each further group of this many markers counts as one more transaction in the bound of completions per turn."""

# The partition has the marker, or can never take it and need not.
DELIVERED_OR_UNDELIVERABLE = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION},
)
# A newer coordinator owns the producer id there: this one is fenced and must end nothing.
COORDINATOR_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
# Temporary errors of a partition. Other errors are retried too, and logged as errors.
RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class CompletionContext(NamedTuple):
    """Dependencies shared by all completions of a coordinator.

    channel: sends markers to their partitions.
    turns:   bounds how many transactions that waited for the disk are completed in one turn of the event loop; one
             with many partitions counts as several.
    ended:   called when a completion ends, in the same step; also when it was abandoned.
    """

    runtime: CoordinatorRuntime[TransactionShard]
    channel: MarkerChannel
    turns: PerTurnLimiter
    clock: Clock
    ended: Callable[[Completion], None]


class Completion:
    """Sends the markers of one prepared transaction, then appends the record that completes it.

    partition:   partition of `__transaction_state` that holds the transaction.
    transaction: prepared transaction. All its partitions get a marker, also those that had one before a restart: a
                 repeated marker is harmless.
    refusal:     reason for an early end.
    An unreachable partition is retried without limit; only a deleted partition is skipped. An unexpected failure
    starts the completion again.
    Source: Kafka's TransactionMarkerChannelManager and TransactionMarkerRequestCompletionHandler.
    """

    refusal: ErrorCode | None = None
    _is_abandoned = False
    _task: asyncio.Task[None] | None = None  # once it has to wait
    _over: asyncio.Future[None] | None = None  # once a request waits for the end

    def __init__(
        self,
        context: CompletionContext,
        partition: CoordinatorPartition[TransactionShard],
        transaction: TransactionMetadata,
    ) -> None:
        self.transaction = transaction
        self.partition = partition
        self._context = context

    async def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended; False if that takes longer than `timeout_s`."""
        if self._over is None:
            self._over = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait((self._over,), timeout=timeout_s)
        return bool(done)

    @property
    def weight(self) -> int:
        """How many transactions of few partitions it counts as, in the turn that begins it."""
        return weight_of(min(len(self.transaction.partitions), MARKERS_PER_SLICE))

    @property
    def partition_index(self) -> int:
        """The partition of `__transaction_state` that holds the transaction."""
        return self.partition.index

    def abandon(self) -> None:
        """Send nothing more and append nothing: another coordinator owns the partition now."""
        self._is_abandoned = True
        if self._task is not None:
            self._task.cancel()
        else:
            self._resolve_waiters()

    async def cancel(self) -> None:
        self.abandon()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def begin(self) -> None:
        """Complete the transaction, in this step if nothing has to wait. Call it once."""
        if self._is_abandoned:
            return
        rest = None
        try:
            rest = self._complete()
        except CoordinatorRefusal as refusal:
            self._log_given_up(refusal)
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)
            rest = self._complete_again(FIRST_RETRY_PAUSE_S)
        if rest is None:
            self._end()
            return
        started = eager.start(self._run(rest), asyncio.get_running_loop())
        if not isinstance(started, eager.Finished):
            self._task = started
            partition = self.partition
            COMPLETION_TASK.watch(
                started,
                concerns=partition.log.topic_partition,
                on_failure=lambda error: self._context.runtime.fail(partition, error),
            )

    async def _run(self, rest: Coroutine[Any, Any, None]) -> None:
        pause_s = FIRST_RETRY_PAUSE_S
        try:
            while True:
                try:
                    return await rest
                except CoordinatorRefusal as refusal:
                    return self._log_given_up(refusal)
                except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                    self._failed(error)
                rest = self._complete_again(pause_s)
                pause_s = min(2 * pause_s, LONGEST_FAILURE_PAUSE_S)
        finally:
            self._end()

    async def _complete_again(self, pause_s: float) -> None:
        """Start again after a failure. Raises CoordinatorRefusal."""
        await asyncio.sleep(pause_s)
        self._require_ownership()
        rest = self._complete()
        if rest is not None:
            await rest

    def _failed(self, error: BaseException) -> None:
        COMPLETION.failed(
            error,
            concerns=self.partition.log.topic_partition,
            transactional_id=self.transaction.transactional_id,
        )

    def _log_given_up(self, refusal: CoordinatorRefusal) -> None:
        """Log and keep the reason for the early end: a resignation, or a failed disk. The next coordinator finds the
        prepared transaction in the log."""
        transactional_id = self.transaction.transactional_id
        log.warning("transaction_completion_given_up", transactional_id=transactional_id, error=refusal.error.name)
        self.refusal = refusal.error

    def _end(self) -> None:
        self._resolve_waiters()
        self._context.ended(self)

    def _resolve_waiters(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _complete(self) -> Coroutine[Any, Any, None] | None:
        """Do the first step; return a coroutine for the rest, or None. If the page cache counts as durable, there is
        mostly no rest. Raises CoordinatorRefusal.
        """
        partition = self.partition
        if partition.state is not PartitionState.ACTIVE or not partition.is_durable:
            return self._complete_when_durable()
        shares = self._destinations()
        if len(shares) != 1 or len(shares[0]) > MARKERS_PER_SLICE:
            return self._complete_in(shares)
        first_send = self._send(shares[0])
        if not isinstance(first_send, eager.Finished) or not _is_all_done(shares[0], first_send.result):
            return self._complete_in(shares, first_send)
        return self._append_completion()

    async def _complete_when_durable(self) -> None:
        await self._context.runtime.durable(self.partition.index)  # the commit point: no marker leaves before it
        await self._context.turns.acquire(self.weight)  # many transactions may have waited for one sync
        self._require_ownership()
        await self._complete_in(self._destinations())

    async def _complete_in(
        self,
        shares: Sequence[Collection[TopicPartition]],
        first_send: eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]] | None = None,
    ) -> None:
        """first_send: results of a single share, if it was sent already."""
        if len(shares) == 1:
            await self._deliver(shares[0], first_send)
        else:
            await self._deliver_all(shares)
        rest = self._append_completion()
        if rest is not None:
            await rest

    def _destinations(self) -> Sequence[Collection[TopicPartition]]:
        # Sorted, so that the order of sends does not depend on set hashing.
        return self._context.channel.group_by_destination(sorted(self.transaction.partitions))

    def _append_completion(self) -> Coroutine[Any, Any, None] | None:
        """Append the Complete record without waiting for it: replies that depend on it wait for the log, and after its
        loss the markers are sent again. If the log refuses the record, return the work that appends it later.

        Raises CoordinatorRefusal if the partition is no longer this coordinator's.
        """
        context, partition = self._context, self.partition
        decision = partition.shard.decide_completion(self.transaction.transactional_id, now_ms=context.clock.now_ms())
        try:
            context.runtime.submit_decision(partition, decision)
        except CoordinatorRefusal as refusal:
            self._require_ownership()
            return self._append_completion_again(refusal)
        return None

    async def _append_completion_again(self, refusal: CoordinatorRefusal) -> None:
        """Retry the Complete record, once all markers are durable. Raises CoordinatorRefusal as above.

        A refusal is temporary: a limit is raised, a disk has room again. Until then the transactional id is blocked.
        """
        context, partition = self._context, self.partition
        transactional_id = self.transaction.transactional_id
        log.warning(
            "transaction_completion_refused",
            transactional_id=transactional_id,
            topic=partition.log.topic_partition.topic,
            partition=partition.index,
            error=refusal.error.name,
            remedy="the record is appended again by itself; look at the limits of the topic, and at its disk",
        )
        pause_s = FIRST_RETRY_PAUSE_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_REFUSAL_PAUSE_S)
            await context.turns.acquire()  # many records may have been refused together
            self._require_ownership()
            decision = partition.shard.decide_completion(transactional_id, now_ms=context.clock.now_ms())
            try:
                context.runtime.submit_decision(partition, decision)
            except CoordinatorRefusal:
                self._require_ownership()
                continue
            log.info("transaction_completion_appended", transactional_id=transactional_id)
            return

    async def _deliver_all(self, shares: Sequence[Collection[TopicPartition]]) -> None:
        """Deliver in parallel: a silent node must not keep the transaction open in the partitions of others."""
        deliveries = [asyncio.create_task(self._deliver(share)) for share in shares]
        try:
            await asyncio.gather(*deliveries)
        finally:
            for delivery in deliveries:
                delivery.cancel()

    async def _deliver(
        self,
        remaining: Collection[TopicPartition],
        first_send: eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]] | None = None,
    ) -> None:
        """Send markers to `remaining` until each partition has its own. Raises CoordinatorRefusal.

        first_send: if the markers were sent already.
        """
        if len(remaining) > MARKERS_PER_SLICE:
            await self._deliver_in_slices(sorted(remaining))
            return
        pause_s = FIRST_RETRY_PAUSE_S
        for attempt in count(1):
            outcome = await (self._send(remaining) if first_send is None else first_send)
            self._require_ownership()
            remaining = self._undelivered(remaining, outcome, attempt)
            if not remaining:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_RETRY_PAUSE_S)
            await self._context.turns.acquire(weight_of(len(remaining)))  # one cause may delay many
            self._require_ownership()
            first_send = None

    async def _deliver_in_slices(self, partitions: Sequence[TopicPartition]) -> None:
        """`_deliver` in slices, between which other requests are served. The slices wait for the disk together.

        Each slice checks the ownership again: elsewhere the transaction may be complete, and its producer in the next
        one, which no old marker may end.
        """
        loop = asyncio.get_running_loop()
        deliveries: list[asyncio.Task[None]] = []
        try:
            for start in range(0, len(partitions), MARKERS_PER_SLICE):
                share = partitions[start : start + MARKERS_PER_SLICE]
                await self._context.turns.acquire(weight_of(len(share)))
                self._require_ownership()
                for earlier in deliveries:
                    if earlier.done():
                        earlier.result()  # raises its refusal: then no slice follows
                delivery = eager.start(self._deliver(share), loop)
                if not isinstance(delivery, eager.Finished):
                    deliveries.append(delivery)
            await asyncio.gather(*deliveries)
        finally:
            # Awaited: only its own task knows of a failure after the first.
            await end_tasks(*deliveries)

    def _require_ownership(self) -> None:
        """Raises CoordinatorRefusal after a resignation or a reload, or if the transaction has changed."""
        partition, transaction = self.partition, self.transaction
        if (
            self._context.runtime.partition(partition.index) is not partition
            or partition.shard.transactions.get(transaction.transactional_id) is not transaction
        ):
            raise CoordinatorRefusal(ErrorCode.NOT_COORDINATOR)

    def _send(self, partitions: Collection[TopicPartition]) -> eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]]:
        transaction = self.transaction
        return self._context.channel.send(
            TransactionMarker(
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                committed=transaction.state is PREPARE_COMMIT,
                coordinator_epoch=self.partition.coordinator_epoch,
                transaction_version=transaction.client_transaction_version,
                partitions=partitions,
            )
        )

    def _undelivered(
        self, partitions: Collection[TopicPartition], outcome: Mapping[TopicPartition, ErrorCode], attempt: int
    ) -> list[TopicPartition]:
        """The partitions to try again. Raises CoordinatorRefusal when this coordinator has been deposed.

        attempt: the number of this attempt, from 1 on.
        """
        if _is_all_done(partitions, outcome):
            return []
        refused: dict[ErrorCode, list[TopicPartition]] = {}
        for topic_partition in partitions:
            error = outcome.get(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if error in COORDINATOR_FENCED:
                raise CoordinatorRefusal(error)
            if error not in DELIVERED_OR_UNDELIVERABLE and not self._context.channel.is_deleted(topic_partition):
                refused.setdefault(error, []).append(topic_partition)
        if str(attempt).strip("0") == "1":  # the first, the tenth, the hundredth and so on
            for error, concerned in refused.items():
                self._log_refused_markers(error, concerned, attempt)
        return sorted(chain.from_iterable(refused.values()))

    def _log_refused_markers(self, error: ErrorCode, concerned: Sequence[TopicPartition], attempt: int) -> None:
        """Log one line per error; it names the first of its partitions."""
        note = log.warning if error in RETRIABLE else log.error
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and attempt == 1:
            note = log.info  # usual after a start, while logs are opened
        note(
            "marker_refused",
            transactional_id=self.transaction.transactional_id,
            producer_id=self.transaction.producer_id,
            producer_epoch=self.transaction.producer_epoch,
            topic=concerned[0].topic,
            partition=concerned[0].partition,
            partitions=len(concerned),
            attempt=attempt,
            error=error.name,
        )


def weight_of(marker_count: int) -> int:
    """Return how many transactions of few partitions `marker_count` markers count as."""
    return 1 + marker_count // MARKERS_PER_WEIGHT


def _is_all_done(partitions: Collection[TopicPartition], outcome: Mapping[TopicPartition, ErrorCode]) -> bool:
    return len(outcome) == len(partitions) and DELIVERED_OR_UNDELIVERABLE.issuperset(outcome.values())
