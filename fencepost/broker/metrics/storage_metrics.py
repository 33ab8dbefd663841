"""Counts of syncs, and the traffic of deleted logs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.durability.flusher import Syncable
from fencepost.broker.log.log_types import LogTraffic
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metrics.histogram import Histogram


class SyncMetrics:
    """Durations and bytes of syncs; the observer of the flusher, which ends them in order."""

    def __init__(self) -> None:
        self.durations = Histogram()
        self.synced_bytes = 0
        self.failed_count = 0
        self._under_way: deque[tuple[float, int]] = deque()  # when each sync began, and the bytes in it
        self._synced: dict[PartitionLog, int] = {}  # each log's appended bytes that are synced, or being synced

    def sync_began(self, logs: Sequence[Syncable]) -> None:
        began_s, syncing_bytes = time.perf_counter(), 0
        for log in logs:
            if isinstance(log, PartitionLog) and not log.is_deleted:
                appended_bytes = log.traffic.appended_bytes
                syncing_bytes += max(0, appended_bytes - self._synced.get(log, 0))
                self._synced[log] = appended_bytes
        self._under_way.append((began_s, syncing_bytes))

    def sync_ended(self, *, is_failed: bool) -> None:
        if not self._under_way:
            return  # it began before this observed
        began_s, synced_bytes = self._under_way.popleft()
        self.durations.add(time.perf_counter() - began_s)
        if is_failed:
            self.failed_count += 1
        else:
            self.synced_bytes += synced_bytes

    def forget(self, log: PartitionLog) -> None:
        """Drop a log that is deleted or served elsewhere."""
        self._synced.pop(log, None)


class DepartedTraffic:
    """The traffic of the logs of deleted topics: counts over all topics must not fall when one is deleted."""

    def __init__(self, directory: LogDirectory, syncs: SyncMetrics) -> None:
        self.total = LogTraffic()
        self._directory = directory
        self._syncs = syncs

    def topic_deleted(self, topic: TopicMetadata) -> None:
        """Take over the counts of a topic whose logs are about to be deleted."""
        for topic_partition in topic.partitions():
            log = self._directory.get(topic_partition)
            if log is not None:
                self.total = LogTraffic(*map(sum, zip(self.total, log.traffic, strict=True)))
                self._syncs.forget(log)
