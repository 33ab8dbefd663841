"""What a lone coordinator does when a partition refuses its markers because of somebody newer: it stands again.

In a cluster that somebody is the new coordinator, and the old one has nothing more to say. A node that is alone has no
successor: the newer epoch was an administrator's, in a WriteTxnMarkers of its own. Apache Kafka then leaves the
transaction prepared for as long as the partition remembers that epoch, whatever the operator does. Here the coordinator
loads its partition of `__transaction_state` again under a higher epoch, as an election would make it do, and the
markers are sent again; more and more rarely, and with larger and larger steps, until they are taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode

log = get_logger(__name__)

REELECTION = Place("reelection of a coordinator", Policy.RETRY)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
LONGEST_STEP_EXPONENT = 30
MAXIMUM_EPOCH = 2**31 - 1


class CoordinatorReload:
    """stand_again: takes the partition over anew, in an epoch that is higher by a step, which may be 0.

    refusal_count: of partitions whose markers were refused and have not been taken since.
    """

    def __init__(self, stand_again: Callable[[TopicPartition, int], None]) -> None:
        self._stand_again = stand_again
        self.refusal_count: dict[TopicPartition, int] = {}
        self._timers: dict[TopicPartition, asyncio.TimerHandle] = {}

    def refused(self, coordinator_partition: TopicPartition, error: ErrorCode) -> None:
        """A marker of this coordinator was refused: TRANSACTION_COORDINATOR_FENCED, or INVALID_PRODUCER_EPOCH, which no
        coordinator's epoch helps against, but time may.
        """
        if coordinator_partition in self._timers:
            return
        refusal_count = self.refusal_count.get(coordinator_partition, 0)
        self.refusal_count[coordinator_partition] = refusal_count + 1
        step = 0
        if error is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            step = 2 ** min(refusal_count, LONGEST_STEP_EXPONENT)
        pause_s = min(FIRST_PAUSE_S * 2 ** min(refusal_count, 10), LONGEST_PAUSE_S)
        log.warning(
            "coordinator_reloaded_in_higher_epoch",
            topic=coordinator_partition.topic,
            partition=coordinator_partition.partition,
            error=error.name,
            pause_s=pause_s,
            reason="a partition has seen a newer epoch, and no other coordinator has it",
        )
        stand_again = REELECTION.callback(
            self._pause_is_over,
            concerns=coordinator_partition,
            on_failure=lambda _: self.refused(coordinator_partition, error),
        )
        self._timers[coordinator_partition] = asyncio.get_running_loop().call_later(
            pause_s, stand_again, coordinator_partition, step
        )

    def _pause_is_over(self, coordinator_partition: TopicPartition, step: int) -> None:
        del self._timers[coordinator_partition]
        self._stand_again(coordinator_partition, step)

    def completed(self, coordinator_partition: TopicPartition) -> None:
        """Markers were taken again."""
        self.refusal_count.pop(coordinator_partition, None)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
