"""Copies of dead letters that wait though no member reads their partition, as after a crash: the node that keeps the
state asks the leader of the partition to continue them.

Members load a share partition when they fetch from it. The leader does not know of states that it has not loaded; the
share coordinator does. Nothing runs while no copy waits.
"""

from __future__ import annotations

import asyncio
from typing import Final

from fencepost.broker.hosting.peers import Peers, PeerUnreachable
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.share.coordinator import ShareCoordinator
from fencepost.broker.share.shard import SharePartitionKey
from fencepost.broker.share.share_partitions import ServedSharePartitions
from fencepost.broker.share.state_requests import SUMMARY, StateRequests
from fencepost.protocol.messages.share_state import ReadShareStatePartition

log = get_logger(__name__)

ROUND = Place("round over waiting copies of dead letters", Policy.RETRY)
ROUND_TIMER = Place("timer of the rounds over waiting copies", Policy.RETRY)
CONTINUATION = Place("continuation of waiting copies", Policy.RETRY)

ROUND_S: Final = 5.0
MOST_KEYS: Final = 100
"""Of one round."""


class WaitingCopies:
    """peers: the channel to the other nodes; None for a node that is alone."""

    def __init__(
        self, topics: Topics, coordinator: ShareCoordinator, served: ServedSharePartitions, peers: Peers | None
    ) -> None:
        self._topics = topics
        self._coordinator = coordinator
        self._served = served
        self._requests = None if peers is None else StateRequests(peers)
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loading: set[SharePartitionKey] = set()

    def start(self) -> None:
        self._coordinator.on_waiting = self._round_later
        self._round_later()

    async def close(self) -> None:
        self._coordinator.on_waiting = None
        if self._timer is not None:
            self._timer.cancel()
        await end_tasks(*self._tasks)
        if self._requests is not None:
            await self._requests.close()

    # On the node that keeps the state

    def _round_later(self) -> None:
        if self._timer is None:
            self._timer = self._next_round()

    def _next_round(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(ROUND_S, ROUND_TIMER.callback(self._begin_round))

    def _begin_round(self) -> None:
        # First: no error of this round may end the rounds.
        self._timer = timer = self._next_round()
        keys = self._coordinator.waiting()
        if not keys and not self._coordinator.is_loading:
            timer.cancel()
            self._timer = None
        for key in keys[:MOST_KEYS]:
            self._keep(ROUND.start(self._ask(key), concerns=key))

    async def _ask(self, key: SharePartitionKey) -> None:
        topic = self._topics.metadata.get_by_id(key.topic_id)
        if topic is None:
            return
        leader = self._topics.placement.leader(TopicPartition(topic.name, key.partition))
        if self._requests is None or self._topics.placement.is_local(TopicPartition(topic.name, key.partition)):
            self.continue_copies(key)
        elif leader is not None:
            try:
                await self._requests.ask(SUMMARY, leader.node_id, key, ReadShareStatePartition(key.partition))
            except PeerUnreachable as unreachable:
                log.debug("leader_not_asked_to_copy", group_id=key.group_id, reason=str(unreachable))

    # On the node that leads the partition

    def continue_copies(self, key: SharePartitionKey) -> None:
        """Load a share partition that is led here, which continues its copies; do nothing if it is not."""
        served = self._served.loaded(key)
        if served is not None:
            served.continue_copies()
        elif key not in self._loading:
            self._loading.add(key)
            self._keep(CONTINUATION.start(self._load(key), concerns=key))

    async def _load(self, key: SharePartitionKey) -> None:
        try:
            topic = self._topics.metadata.get_by_id(key.topic_id)
            partition_log = None if topic is None else self._topics.log(TopicPartition(topic.name, key.partition))
            if partition_log is not None:
                await self._served.get(key, partition_log)  # a refusal is met again in the next round
        finally:
            self._loading.discard(key)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
