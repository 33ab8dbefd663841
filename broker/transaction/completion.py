"""One prepared transaction on its way to complete: its markers are sent, again and again if need be, until every
partition has its own.
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
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.transaction.markers import MarkerChannel, TransactionMarker
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

MARKERS_PER_SLICE = 96
"""A transaction of more partitions sends its markers in slices of this size, between which others are served."""
MARKERS_PER_WEIGHT = 8
"""This many markers more count as one transaction more, where it is limited how many are completed in a turn."""

# The partition took the marker, or never will and need not: it is done with.
DELIVERED_OR_UNDELIVERABLE = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION},
)
# Somebody newer owns the producer id there: this coordinator has been deposed and must not end anything.
COORDINATOR_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
# Passing troubles of a partition. Whatever else comes back is retried too, but with an error in the log.
_PASSING = frozenset(
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
    """What all completions of a coordinator work with.

    channel: the way to the partitions.
    turns:   how many transactions that had to wait for the disk are completed in one turn of the event loop; one with
             many partitions counts as several.
    ended:   called once a completion is over, in the same step; also when it was given up.
    """

    runtime: CoordinatorRuntime[TransactionShard]
    channel: MarkerChannel
    turns: PerTurnLimiter
    clock: Clock
    ended: Callable[[Completion], None]


class Completion:
    """Sends the markers of one prepared transaction, then appends the record that completes it.

    partition:   of `__transaction_state`, in which the transaction is kept.
    transaction: as prepared; all its partitions get a marker, also those that had one before a restart: a repeated
                 marker is harmless.
    refusal:     why it was given up.
    A partition that is out of reach is tried for ever; only a partition that was deleted is left out. After an
    unforeseen failure everything is done again from the beginning.
    Source: Kafka's TransactionMarkerChannelManager and TransactionMarkerRequestCompletionHandler.
    """

    refusal: ErrorCode | None = None
    _is_given_up = False
    _task: asyncio.Task[None] | None = None  # where something has to be waited for
    _over: asyncio.Future[None] | None = None  # where somebody waits for the end

    def __init__(
        self,
        means: CompletionContext,
        partition: CoordinatorPartition[TransactionShard],
        transaction: TransactionMetadata,
    ) -> None:
        self.transaction = transaction
        self.partition = partition
        self._means = means

    async def wait(self, timeout_s: float) -> bool:
        """Wait until it is over; False if that takes longer than `timeout_s`."""
        if self._over is None:
            self._over = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait((self._over,), timeout=timeout_s)
        return bool(done)

    @property
    def weight(self) -> int:
        """As how many transactions of few partitions it counts in the turn that it is begun in."""
        return weight_of(min(len(self.transaction.partitions), MARKERS_PER_SLICE))

    @property
    def partition_index(self) -> int:
        """The partition of `__transaction_state` that the transaction is kept in."""
        return self.partition.index

    def give_up(self) -> None:
        """Send nothing more and append nothing: the partition is another coordinator's from now on."""
        self._is_given_up = True
        if self._task is not None:
            self._task.cancel()
        else:
            self._resolve_waiters()

    async def cancel(self) -> None:
        self.give_up()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def begin(self) -> None:
        """Complete the transaction, in this step where nothing has to be waited for. To be called once."""
        if self._is_given_up:
            return
        rest = None
        try:
            rest = self._complete()
        except CoordinatorRefusal as refusal:
            self._note(refusal)
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
                on_failure=lambda error: self._means.runtime.fail(partition, error),
            )

    async def _run(self, rest: Coroutine[Any, Any, None]) -> None:
        pause_s = FIRST_RETRY_PAUSE_S
        try:
            while True:
                try:
                    return await rest
                except CoordinatorRefusal as refusal:
                    return self._note(refusal)
                except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                    self._failed(error)
                rest = self._complete_again(pause_s)
                pause_s = min(2 * pause_s, LONGEST_FAILURE_PAUSE_S)
        finally:
            self._end()

    async def _complete_again(self, pause_s: float) -> None:
        """From the beginning, after a failure. Raises CoordinatorRefusal."""
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

    def _note(self, refusal: CoordinatorRefusal) -> None:
        """Say why it ends before its time: the partition was given up or its disk failed. The coordinator
        that loads it next finds the prepared transaction in the log."""
        transactional_id = self.transaction.transactional_id
        log.warning("transaction_completion_given_up", transactional_id=transactional_id, error=refusal.error.name)
        self.refusal = refusal.error

    def _end(self) -> None:
        self._resolve_waiters()
        self._means.ended(self)

    def _resolve_waiters(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _complete(self) -> Coroutine[Any, Any, None] | None:
        """Do all that can be done in this step; returns what is left, which is mostly nothing where the page cache
        counts as durable. Raises CoordinatorRefusal.
        """
        partition = self.partition
        if partition.state is not PartitionState.ACTIVE or not partition.is_durable:
            return self._complete_when_durable()
        shares = self._shares()
        if len(shares) != 1 or len(shares[0]) > MARKERS_PER_SLICE:
            return self._complete_in(shares)
        begun = self._send(shares[0])
        if not isinstance(begun, eager.Finished) or not _is_all_done(shares[0], begun.result):
            return self._complete_in(shares, begun)
        return self._append_completion()

    async def _complete_when_durable(self) -> None:
        await self._means.runtime.durable(self.partition.index)  # the commit point: no marker leaves before it
        await self._means.turns.acquire(self.weight)  # many may have waited for the same
        self._require_ownership()
        await self._complete_in(self._shares())

    async def _complete_in(
        self,
        shares: Sequence[Collection[TopicPartition]],
        begun: eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]] | None = None,
    ) -> None:
        """begun: of a single share, where it was sent already."""
        if len(shares) == 1:
            await self._deliver(shares[0], begun)
        else:
            await self._deliver_all(shares)
        rest = self._append_completion()
        if rest is not None:
            await rest

    def _shares(self) -> Sequence[Collection[TopicPartition]]:
        # In one order everywhere, so that what happens does not depend on how sets are hashed.
        return self._means.channel.destinations(sorted(self.transaction.partitions))

    def _append_completion(self) -> Coroutine[Any, Any, None] | None:
        """Nobody waits for this record itself: a reply that depends on it waits for the log, and without it the markers
        are sent again. Where the log refuses the record, returns what is left to do: append it later.

        Raises CoordinatorRefusal where the partition is no longer this coordinator's.
        """
        means, partition = self._means, self.partition
        decision = partition.shard.decide_completion(self.transaction.transactional_id, now_ms=means.clock.now_ms())
        try:
            means.runtime.submit_decision(partition, decision)
        except CoordinatorRefusal as refusal:
            self._require_ownership()
            return self._append_completion_again(refusal)
        return None

    async def _append_completion_again(self, refusal: CoordinatorRefusal) -> None:
        """The markers are written and durable; only the record is left. Raises CoordinatorRefusal as above.

        A refusal passes: a limit is raised, a disk has room again. Until then nobody can use the transactional id.
        """
        means, partition = self._means, self.partition
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
            await means.turns.acquire()  # many may have been refused together
            self._require_ownership()
            decision = partition.shard.decide_completion(transactional_id, now_ms=means.clock.now_ms())
            try:
                means.runtime.submit_decision(partition, decision)
            except CoordinatorRefusal:
                self._require_ownership()
                continue
            log.info("transaction_completion_appended", transactional_id=transactional_id)
            return

    async def _deliver_all(self, shares: Sequence[Collection[TopicPartition]]) -> None:
        """Side by side: a node that does not answer must not keep the transaction open in the partitions of others."""
        deliveries = [asyncio.create_task(self._deliver(share)) for share in shares]
        try:
            await asyncio.gather(*deliveries)
        finally:
            for delivery in deliveries:
                delivery.cancel()

    async def _deliver(
        self,
        remaining: Collection[TopicPartition],
        begun: eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]] | None = None,
    ) -> None:
        """Send the markers of some of the partitions until each has its own. Raises CoordinatorRefusal.

        begun: where they were sent for the first time already.
        """
        if len(remaining) > MARKERS_PER_SLICE:
            await self._deliver_in_slices(sorted(remaining))
            return
        pause_s = FIRST_RETRY_PAUSE_S
        for attempt in count(1):
            outcome = await (self._send(remaining) if begun is None else begun)
            self._require_ownership()
            remaining = self._undelivered(remaining, outcome, attempt)
            if not remaining:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_RETRY_PAUSE_S)
            await self._means.turns.acquire(weight_of(len(remaining)))  # the same may keep many from their markers
            self._require_ownership()
            begun = None

    async def _deliver_in_slices(self, partitions: Sequence[TopicPartition]) -> None:
        """As `_deliver`, a slice after another, while others are served. The slices wait for the disk together.

        Before each slice the partition of `__transaction_state` must still be this coordinator's: elsewhere the
        transaction may be complete already, and its producer at the next one, which no old marker may end.
        """
        loop = asyncio.get_running_loop()
        deliveries: list[asyncio.Task[None]] = []
        try:
            for start in range(0, len(partitions), MARKERS_PER_SLICE):
                share = partitions[start : start + MARKERS_PER_SLICE]
                await self._means.turns.acquire(weight_of(len(share)))
                self._require_ownership()
                for earlier in deliveries:
                    if earlier.done():
                        earlier.result()  # raises what ends the whole: after a refusal no slice follows
                delivery = eager.start(self._deliver(share), loop)
                if not isinstance(delivery, eager.Finished):
                    deliveries.append(delivery)
            await asyncio.gather(*deliveries)
        finally:
            for delivery in deliveries:
                delivery.cancel()
            # Awaited: what failed besides the first is known to its task alone.
            await asyncio.gather(*deliveries, return_exceptions=True)

    def _require_ownership(self) -> None:
        """A partition that was given up while this waited, or loaded anew, is no longer for this to change; nor is a
        transaction that is not as it was prepared. Raises CoordinatorRefusal."""
        partition, transaction = self.partition, self.transaction
        if (
            self._means.runtime.partition(partition.index) is not partition
            or partition.shard.transactions.get(transaction.transactional_id) is not transaction
        ):
            raise CoordinatorRefusal(ErrorCode.NOT_COORDINATOR)

    def _send(self, partitions: Collection[TopicPartition]) -> eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]]:
        transaction = self.transaction
        return self._means.channel.send(
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
            if error not in DELIVERED_OR_UNDELIVERABLE and not self._means.channel.is_deleted(topic_partition):
                refused.setdefault(error, []).append(topic_partition)
        if str(attempt).strip("0") == "1":  # the first, the tenth, the hundredth and so on
            for error, concerned in refused.items():
                self._tell_of_refused_markers(error, concerned, attempt)
        return sorted(chain.from_iterable(refused.values()))

    def _tell_of_refused_markers(self, error: ErrorCode, concerned: Sequence[TopicPartition], attempt: int) -> None:
        """In one line, however many partitions it concerns; the line names the first of them."""
        note = log.warning if error in _PASSING else log.error
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
    """As how many transactions of few partitions so many markers count."""
    return 1 + marker_count // MARKERS_PER_WEIGHT


def _is_all_done(partitions: Collection[TopicPartition], outcome: Mapping[TopicPartition, ErrorCode]) -> bool:
    return len(outcome) == len(partitions) and DELIVERED_OR_UNDELIVERABLE.issuperset(outcome.values())
