"""Syncs are counted in their order, with the bytes that each has made durable; deleted topics keep their counts."""

from __future__ import annotations

from pathlib import Path

from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metrics.storage_metrics import DepartedTraffic, SyncMetrics
from tests.support.log_world import ORDERS, LogWorld


async def test_a_sync_has_the_bytes_that_none_before_it_had(tmp_path: Path) -> None:
    world = LogWorld(str(tmp_path))
    await world.start()
    log = world.create()
    metrics = SyncMetrics()
    world.append(b"first")
    first_bytes = log.traffic.appended_bytes
    metrics.sync_began([log])
    world.append(b"second")
    metrics.sync_began([log])
    metrics.sync_ended(is_failed=False)
    assert metrics.synced_bytes == first_bytes > 0
    metrics.sync_ended(is_failed=True)
    assert (metrics.synced_bytes, metrics.failed_count, metrics.durations.count) == (first_bytes, 1, 2)
    await world.stop()


def test_a_sync_that_began_before_this_observed_is_not_counted() -> None:
    metrics = SyncMetrics()
    metrics.sync_ended(is_failed=False)
    metrics.sync_ended(is_failed=True)
    assert (metrics.synced_bytes, metrics.failed_count, metrics.durations.count) == (0, 0, 0)


async def test_the_counts_of_a_deleted_topic_stay(tmp_path: Path) -> None:
    world = LogWorld(str(tmp_path))
    await world.start()
    log = world.create()
    world.append(b"record")
    departed = DepartedTraffic(world.logs, SyncMetrics())
    departed.topic_deleted(TopicMetadata("nothing", bytes(16), 3))
    assert departed.total.appended_count == 0
    departed.topic_deleted(TopicMetadata(ORDERS.topic, bytes(range(16)), 1))
    assert departed.total == log.traffic
    await world.stop()
