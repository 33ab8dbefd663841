"""Share coordinator of this broker: stores the states of records durably, in `__share_group_state`.

Source: KIP-932; Kafka's ShareCoordinatorService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fencepost.broker.config import Settings
from fencepost.broker.coordination.internal_topic import InternalTopicLoader
from fencepost.broker.coordination.runtime import (
    CoordinatorRefusal,
    CoordinatorRuntime,
    Decision,
    PartitionState,
    ReplyT,
    partition_for_key,
)
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import SHARE_GROUP_STATE_TOPIC, TopicPartition
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.share.shard import SharePartitionKey, ShareState, ShareStateShard
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode

log = get_logger(__name__)

SHARE_STATE_REMOVAL = Place("removal of the share state of a deleted topic", Policy.RETRY)
PRUNING = Place("pruning of share state", Policy.RETRY)
PRUNE_TIMER = Place("timer of the pruning of share state", Policy.RETRY)

PRUNE_INTERVAL_MS = 300_000


class ShareCoordinator:
    """Asynchronous service around the share coordinator's shards: those of the partitions that are led here."""

    def __init__(self, topics: Topics, settings: Settings, clock: Clock) -> None:
        self.on_waiting: Callable[[], None] | None = None  # called if one more share partition has waiting copies
        self._topics = topics
        self._clock = clock
        updates_per_snapshot = settings.share_coordinator_snapshot_update_records_per_snapshot
        self._runtime: CoordinatorRuntime[ShareStateShard] = CoordinatorRuntime(
            "share",
            make_shard=lambda _: ShareStateShard(updates_per_snapshot, self._has_waiting),
            clock=clock,
        )
        self._state_topic = InternalTopicLoader(SHARE_GROUP_STATE_TOPIC, topics, self._runtime, coordinator="share")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._prune_timer: asyncio.TimerHandle | None = None

    # Life

    def start(self) -> None:
        """Begin to load every partition of `__share_group_state`, as soon as the topic exists."""
        self._topics.on_deleted.append(self._topic_deleted)
        self._state_topic.start()
        self._prune_later()

    async def ensure_loaded(self) -> None:
        """Wait until every partition answers, or could not be loaded."""
        await self._state_topic.ensure_loaded()

    async def ensure_available(self) -> None:
        """Create `__share_group_state` if it is missing, and wait until it is loaded. Raises StorageError."""
        await self._topics.ensure_internal(SHARE_GROUP_STATE_TOPIC)
        await self.ensure_loaded()

    async def close(self) -> None:
        self._topics.on_deleted.remove(self._topic_deleted)
        if self._prune_timer is not None:
            self._prune_timer.cancel()
        for task in self._tasks:
            task.cancel()
        await self._state_topic.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runtime.close()

    def _topic_deleted(self, topic: TopicMetadata) -> None:
        for partition in self._runtime.partitions():
            forget = partial(self._forget_topic, partition.index, topic.topic_id)
            self._keep(SHARE_STATE_REMOVAL.start_retrying(forget, concerns=topic.name))

    async def _forget_topic(self, index: int, topic_id: bytes) -> None:
        try:
            await self._runtime.execute_in_parts(index, lambda shard, keys: shard.delete_topic(topic_id, keys))
        except CoordinatorRefusal as refusal:
            log.debug("share_state_of_deleted_topic_kept", partition=index, error=refusal.error.name)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Dead letters

    def _has_waiting(self) -> None:
        if self.on_waiting is not None:
            self.on_waiting()

    @property
    def is_loading(self) -> bool:
        return any(partition.is_loading for partition in self._runtime.partitions())

    def waiting(self) -> list[SharePartitionKey]:
        """The share partitions here with records that wait for a dead-letter topic."""
        active = (one for one in self._runtime.partitions() if one.state is PartitionState.ACTIVE)
        return [key for partition in active for key in partition.shard.waiting]

    # State

    def execute(
        self, key: SharePartitionKey, decide: Callable[[ShareStateShard], Decision[ReplyT]]
    ) -> Awaitable[ReplyT]:
        """Decide about a share partition, and wait until that is durable. Raises CoordinatorRefusal."""
        return self._runtime.execute(self._index(key), decide)

    def execute_without_wait(
        self, key: SharePartitionKey, decide: Callable[[ShareStateShard], Decision[ReplyT]]
    ) -> ReplyT:
        """Decide about a share partition in this step; `durable` waits for the disk. Raises CoordinatorRefusal."""
        return self._runtime.execute_without_wait(self._index(key), decide)

    async def durable(self, key: SharePartitionKey) -> None:
        """Wait until everything written is durable. Raises CoordinatorRefusal."""
        await self._runtime.durable(self._index(key))

    async def state(self, key: SharePartitionKey) -> ShareState | None:
        """Return the stored state, once it is durable; None if there is none. Raises CoordinatorRefusal."""
        return await self._runtime.query(self._index(key), lambda shard: shard.state(key))

    def partition_of(self, key: SharePartitionKey) -> TopicPartition | None:
        """The partition that holds the state of a share partition; None while the topic does not exist."""
        if not self._state_topic.partition_count:
            return None
        return TopicPartition(SHARE_GROUP_STATE_TOPIC, self._index(key))

    def _index(self, key: SharePartitionKey) -> int:
        """Raises CoordinatorRefusal."""
        if not self._state_topic.partition_count:
            raise CoordinatorRefusal(ErrorCode.NOT_COORDINATOR)
        return partition_for_key(key.coordinator_key, self._state_topic.partition_count)

    # Tidying

    def _prune_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._prune_timer = loop.call_later(PRUNE_INTERVAL_MS / 1000, PRUNE_TIMER.callback(self._prune_now))

    def _prune_now(self) -> None:
        self._prune_later()  # first, so that a failure does not end the timer
        self._keep(PRUNING.start(self._prune_all()))

    async def _prune_all(self) -> None:
        for partition in list(self._runtime.partitions()):
            if partition.state is PartitionState.ACTIVE and partition.log.log_end_offset:
                try:
                    await self.prune(partition.index)
                except (CoordinatorRefusal, StorageError) as error:
                    log.warning("share_state_not_pruned", partition=partition.index, reason=str(error))
                except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                    PRUNING.failed(error, concerns=partition.log.topic_partition)

    async def prune(self, index: int) -> None:
        """Delete superseded records of a partition. Raises CoordinatorRefusal, StorageError."""
        partition = self._runtime.partition(index)
        now_ms = self._clock.now_ms()
        written_before_ms = now_ms - PRUNE_INTERVAL_MS
        await self._runtime.execute_in_parts(
            index,
            lambda shard, keys: shard.snapshot_cold(written_before_ms, partition.log.log_end_offset, now_ms, keys),
            is_patient=False,
        )
        # Everything is durable now, so records before the snapshots may go.
        first_needed_offset = partition.shard.first_needed_offset(partition.log.high_watermark)
        if first_needed_offset > partition.log.log_start_offset:
            await self._topics.delete_records({partition.log.topic_partition: first_needed_offset})
