"""Loader of a coordinator's internal topic: loads partitions that this broker leads, and unloads those it loses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fencepost.broker.coordination.runtime import CoordinatorRuntime
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.image import TopicMetadata

log = get_logger(__name__)

AFTER_LOAD = Place("what follows the loading of a coordinator's partition", Policy.RETRY)


class InternalTopicLoader:
    """Loads every partition of one topic that is led here into a runtime, as soon as the topic exists.

    coordinator:     its name in log events.
    loaded:          called with a partition's index after its load; the load ends with this call.
    resigned:        called with a partition's index after this broker has resigned from it.
    partition_count: 0 while the topic does not exist.
    """

    def __init__(
        self,
        name: str,
        topics: Topics,
        runtime: CoordinatorRuntime[Any],
        *,
        coordinator: str,
        loaded: Callable[[int], Awaitable[None]] | None = None,
        resigned: Callable[[int], None] | None = None,
    ) -> None:
        self.partition_count = 0
        self._name = name
        self._topics = topics
        self._runtime = runtime
        self._coordinator = coordinator
        self._loaded = loaded
        self._gave_up = resigned
        self._loading: set[asyncio.Task[None]] = set()
        self._finishing: set[asyncio.Task[None]] = set()
        runtime.reload = self.reload

    def start(self) -> None:
        """Begin to load the partitions that exist."""
        self._topics.on_created.append(self._created)
        self._topics.on_led.append(self._led)
        self._topics.on_resigned.append(self._resigned)
        topic = self._topics.metadata.get(self._name)
        if topic is not None:
            self._load(topic)

    def reload(self, partition_log: PartitionLog) -> None:
        """Give a partition up and load it from its log, in the leader epoch that the log has now."""
        self._resigned(partition_log.topic_partition)
        self._load_partition(partition_log)

    def topic_deleted(self) -> None:
        """Resign from all partitions of the deleted topic."""
        for index in range(self.partition_count):
            self._resign(index)
        self.partition_count = 0
        self._loading.clear()

    async def ensure_loaded(self) -> None:
        """Wait until every partition answers requests, or could not be loaded."""
        while self._loading:
            await asyncio.wait(self._loading)

    async def close(self) -> None:
        """Stop watching the topic and cancel its loads. The runtime keeps its partitions."""
        if self._created in self._topics.on_created:
            self._topics.on_created.remove(self._created)
            self._topics.on_led.remove(self._led)
            self._topics.on_resigned.remove(self._resigned)
        loading = [*self._loading, *self._finishing]
        await end_tasks(*loading)

    def _created(self, topic: TopicMetadata) -> None:
        if topic.name == self._name:
            self._load(topic)

    def _load(self, topic: TopicMetadata) -> None:
        self.partition_count = topic.partition_count
        for index in range(topic.partition_count):
            topic_partition = TopicPartition(topic.name, index)
            partition_log = self._topics.log(topic_partition)
            if partition_log is not None:
                self._load_partition(partition_log)
            elif self._topics.placement.is_local(topic_partition):
                log.error("coordinator_partition_missing", coordinator=self._coordinator, partition=index)

    def _load_partition(self, partition_log: PartitionLog) -> None:
        index = partition_log.topic_partition.partition
        task = self._runtime.load(index, partition_log, coordinator_epoch=partition_log.leader_epoch)
        if self._loaded is not None:
            task = AFTER_LOAD.start(
                self._finish(task, self._loaded, index),
                concerns=partition_log.topic_partition,
                on_failure=lambda _: self._finish_later(index, partition_log.topic_partition),
            )
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    async def _finish(self, loading: asyncio.Task[None], loaded: Callable[[int], Awaitable[None]], index: int) -> None:
        await asyncio.wait((loading,))
        if not loading.cancelled() and loading.exception() is None:
            await loaded(index)

    def _finish_later(self, index: int, topic_partition: TopicPartition) -> None:
        """Retry `loaded` in the background: the broker answers requests meanwhile."""
        assert self._loaded is not None
        task = AFTER_LOAD.start_retrying(partial(self._finish_once_more, self._loaded, index), concerns=topic_partition)
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    async def _finish_once_more(self, loaded: Callable[[int], Awaitable[None]], index: int) -> None:
        await loaded(index)

    def _led(self, partition_log: PartitionLog) -> None:
        if partition_log.topic_partition.topic == self._name and self.partition_count:
            self._load_partition(partition_log)

    def _resigned(self, topic_partition: TopicPartition) -> None:
        if topic_partition.topic == self._name:
            self._resign(topic_partition.partition)

    def _resign(self, index: int) -> None:
        self._runtime.resign(index)
        if self._gave_up is not None:
            self._gave_up(index)
