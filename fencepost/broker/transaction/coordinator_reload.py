"""Reload of a single node's coordinator under a higher epoch, after a partition refused its markers for a newer one.

In a cluster the newer epoch is that of the new coordinator. A single node has no successor: an administrator sent the
newer epoch, in WriteTxnMarkers. Apache Kafka then leaves the transaction prepared while the partition remembers that
epoch. Here the coordinator reloads its partition of `__transaction_state` under a higher epoch, as after an election,
and sends the markers again; with growing pauses and steps, until they are accepted.
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
    """Schedules reloads of partitions of `__transaction_state`.

    reload:        reloads the partition in an epoch that is higher by a step, which may be 0.
    refusal_count: refusals of each partition's markers since they were last accepted.
    """

    def __init__(self, reload: Callable[[TopicPartition, int], None]) -> None:
        self._reload = reload
        self.refusal_count: dict[TopicPartition, int] = {}
        self._timers: dict[TopicPartition, asyncio.TimerHandle] = {}

    def refused(self, coordinator_partition: TopicPartition, error: ErrorCode) -> None:
        """Schedule a reload after a refused marker: TRANSACTION_COORDINATOR_FENCED, or INVALID_PRODUCER_EPOCH, which no
        higher epoch cures, but time may.
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
        reload = REELECTION.callback(
            self._pause_is_over,
            concerns=coordinator_partition,
            on_failure=lambda _: self.refused(coordinator_partition, error),
        )
        self._timers[coordinator_partition] = asyncio.get_running_loop().call_later(
            pause_s, reload, coordinator_partition, step
        )

    def _pause_is_over(self, coordinator_partition: TopicPartition, step: int) -> None:
        del self._timers[coordinator_partition]
        self._reload(coordinator_partition, step)

    def completed(self, coordinator_partition: TopicPartition) -> None:
        """Forget refusals: a partition accepted markers again."""
        self.refusal_count.pop(coordinator_partition, None)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
