"""One prepared transaction on its way to complete: its markers are sent, again and again if need be, until every
partition has its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

import structlog

from broker import eager
from broker.clock import Clock
from broker.coordinator import CoordinatorPartition, CoordinatorRefusal, CoordinatorRuntime
from broker.topic_partition import TopicPartition
from broker.transaction.coordinator import TransactionShard
from broker.transaction.markers import MarkerChannel, TransactionMarker
from broker.transaction.metadata import TransactionMetadata
from broker.transaction.state_machine import PREPARE_COMMIT
from broker.turnstile import Turnstile
from protocol.errors import ErrorCode

log = structlog.get_logger(__name__)

FIRST_RETRY_PAUSE_S = 0.02
LONGEST_RETRY_PAUSE_S = 1.0

# The partition took the marker, or never will and need not: it is done with.
_DONE = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION},
)
# Somebody newer owns the producer id there: this coordinator has been deposed and must not end anything.
DEPOSED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
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


class Completion:
    """Sends the markers of one prepared transaction, then appends the record that completes it.

    transaction: as prepared; all its partitions get a marker, also those that had one before a restart: a repeated
                 marker is harmless.
    channel:     the way to the partitions.
    turns:       how many transactions that had to wait for the disk are completed in one turn of the event loop.
    ended:       called once it is over, in the same step; also when it was given up.
    A partition that is out of reach is tried for ever; only a partition that was deleted is left out.
    Source: Kafka's TransactionMarkerChannelManager and TransactionMarkerRequestCompletionHandler.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionShard],
        partition: CoordinatorPartition[TransactionShard],
        transaction: TransactionMetadata,
        *,
        channel: MarkerChannel,
        turns: Turnstile,
        clock: Clock,
        ended: Callable[[Completion], None],
    ) -> None:
        self.transaction = transaction
        self._runtime = runtime
        self._partition = partition
        self._channel = channel
        self._turns = turns
        self._clock = clock
        self._ended = ended
        self.refusal: ErrorCode | None = None  # why it was given up
        self._loop = asyncio.get_running_loop()
        self._is_given_up = False
        self._task: asyncio.Task[None] | None = None  # where something has to be waited for
        self._over: asyncio.Future[None] | None = None  # where somebody waits for the end

    async def wait(self, timeout_s: float) -> bool:
        """Wait until it is over; False if that takes longer than `timeout_s`."""
        if self._over is None:
            self._over = self._loop.create_future()
        done, _ = await asyncio.wait((self._over,), timeout=timeout_s)
        return bool(done)

    @property
    def partition_index(self) -> int:
        """The partition of `__transaction_state` that the transaction is kept in."""
        return self._partition.index

    def give_up(self) -> None:
        """Send nothing more and append nothing: the partition is another coordinator's from now on."""
        self._is_given_up = True
        if self._task is not None:
            self._task.cancel()
        else:
            self._tell_that_it_is_over()

    async def cancel(self) -> None:
        self.give_up()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def begin(self) -> None:
        """Complete the transaction, in this step where nothing has to be waited for. To be called once."""
        if self._is_given_up:
            return
        started = eager.start(self._run(), self._loop)
        if not isinstance(started, eager.Finished):
            self._task = started

    async def _run(self) -> None:
        try:
            await self._complete()
        except CoordinatorRefusal as refusal:
            # The partition was given up or its disk failed: whoever loads it next finds the prepared transaction in the
            # log.
            log.warning(
                "transaction_completion_given_up",
                transactional_id=self.transaction.transactional_id,
                error=refusal.error.name,
            )
            self.refusal = refusal.error
        except Exception:
            log.exception("transaction_completion_failed", transactional_id=self.transaction.transactional_id)
        finally:
            self._tell_that_it_is_over()
            self._ended(self)

    def _tell_that_it_is_over(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def _complete(self) -> None:
        transaction = self.transaction
        durable = self._runtime.durable(self._partition.index)
        if not isinstance(durable, eager.Finished):
            await durable  # the commit point: no marker leaves before it
            await self._turns.enter()  # many may have waited for the same
        # In one order everywhere, so that what happens does not depend on how sets are hashed.
        shares = self._channel.destinations(sorted(transaction.partitions))
        if len(shares) == 1:
            await self._deliver(shares[0])
        else:
            await self._deliver_all(shares)
        # Nobody waits for this record itself: a reply that depends on it waits for the log, and without it the markers
        # are sent again.
        self._runtime.submit(
            self._partition.index,
            lambda shard: shard.decide_completion(transaction.transactional_id, now_ms=self._clock.now_ms()),
        )

    async def _deliver_all(self, shares: Sequence[Collection[TopicPartition]]) -> None:
        """Side by side: a node that does not answer must not keep the transaction open in the partitions of others."""
        deliveries = [asyncio.create_task(self._deliver(share)) for share in shares]
        try:
            await asyncio.gather(*deliveries)
        finally:
            for delivery in deliveries:
                delivery.cancel()

    async def _deliver(self, remaining: Collection[TopicPartition]) -> None:
        """Send the markers of some of the partitions until each has its own. Raises CoordinatorRefusal."""
        pause_s = FIRST_RETRY_PAUSE_S
        while True:
            begun = self._channel.send(self._marker(remaining))
            outcome = begun.result if isinstance(begun, eager.Finished) else await begun
            remaining = self._undelivered(remaining, outcome)
            self._insist_on_ownership()
            if not remaining:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_RETRY_PAUSE_S)
            self._insist_on_ownership()

    def _insist_on_ownership(self) -> None:
        """A partition that was given up while this waited, or loaded anew, is no longer for this to change."""
        if self._runtime.partition(self._partition.index) is not self._partition:
            raise CoordinatorRefusal(ErrorCode.NOT_COORDINATOR)

    def _marker(self, partitions: Collection[TopicPartition]) -> TransactionMarker:
        transaction = self.transaction
        return TransactionMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            committed=transaction.state is PREPARE_COMMIT,
            coordinator_epoch=self._partition.coordinator_epoch,
            transaction_version=transaction.client_transaction_version,
            partitions=partitions,
        )

    def _undelivered(
        self, partitions: Collection[TopicPartition], outcome: Mapping[TopicPartition, ErrorCode]
    ) -> frozenset[TopicPartition]:
        """The partitions to try again. Raises CoordinatorRefusal when this coordinator has been deposed."""
        if len(outcome) == len(partitions) and _DONE.issuperset(outcome.values()):
            return frozenset()
        return frozenset(
            topic_partition
            for topic_partition in partitions
            if not self._is_done(topic_partition, outcome.get(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR))
        )

    def _is_done(self, topic_partition: TopicPartition, error: ErrorCode) -> bool:
        if error in _DONE:
            return True
        if error in DEPOSED:
            raise CoordinatorRefusal(error)
        if self._channel.is_deleted(topic_partition):
            return True
        note = log.warning if error in _PASSING else log.error
        note(
            "marker_refused",
            transactional_id=self.transaction.transactional_id,
            producer_id=self.transaction.producer_id,
            producer_epoch=self.transaction.producer_epoch,
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            error=error.name,
        )
        return False
