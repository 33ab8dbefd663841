"""The sweep of a log directory: many logs in portions, so that no client waits for them; flushes come in time."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.storage.disk import StorageError
from tests.support.log_world import NOW_MS, TOPIC_ID, LogWorld


async def test_many_logs_are_swept_in_portions_and_each_once_in_a_round(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.broker.log.directory.log_sweep.FEWEST_SWEPT_LOGS", 2)
    monkeypatch.setattr(world.logs._sweep._unswept, "per_turn_count", 2)
    swept: list[TopicPartition] = []
    monkeypatch.setattr(PartitionLog, "sweep", lambda log, *_: swept.append(log.topic_partition))
    partitions = [TopicPartition("many", index) for index in range(11)]
    for partition in partitions:
        world.logs.create(partition, TOPIC_ID, world.config)
    counts = []
    for _ in range(6):
        world.logs.sweep(world.clock.now_ms(), sweeps_per_round=3)
        for _ in range(10):
            await asyncio.sleep(0)
        counts.append(len(swept))
    assert counts == [4, 8, 11, 15, 19, 22]
    assert sorted(swept[:11]) == sorted(swept[11:]) == partitions


async def test_flushes_that_are_due_do_not_wait_for_the_turn_of_their_log(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.broker.log.directory.log_sweep.FEWEST_SWEPT_LOGS", 1)
    log = world.create(LogConfig(flush_interval_messages=1000, flush_ms=5000))
    for index in range(5):
        world.logs.create(TopicPartition("many", index), TOPIC_ID, world.config)
    world.append(b"a")
    world.logs.sweep(world.clock.now_ms() + 5000, sweeps_per_round=6)
    await world.logs._flusher.drain()
    assert log.durability.recovery_point == 1


async def test_flushes_of_many_logs_are_looked_for_in_turns(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.logs._sweep._unflushed, "per_turn_count", 2)
    asked: list[int] = []
    monkeypatch.setattr(PartitionLog, "flush_by_time", lambda log, now_ms: asked.append(log.topic_partition.partition))
    config = LogConfig(flush_interval_messages=1000, flush_ms=5000)
    for index in range(5):
        world.logs.create(TopicPartition("many", index), TOPIC_ID, config)
    counts = []
    world.logs.sweep(NOW_MS)
    for _ in range(3):
        counts.append(len(asked))
        await asyncio.sleep(0)
    assert counts == [2, 4, 5]
    assert sorted(asked) == list(range(5))
    world.logs.sweep(NOW_MS)
    await world.stop()  # the rest goes with the stop
    await asyncio.sleep(0)
    assert len(asked) == 7
    await world.start()


async def test_deleted_directories_go_one_in_a_turn_and_one_that_cannot_be_deleted_does_not_stop_the_others(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = [TopicPartition("many", index) for index in range(3)]
    for partition in partitions:
        world.logs.create(partition, TOPIC_ID, world.config)
        world.logs.delete(partition)
    delete, asked = world.disk.delete, list[str]()

    def refuse_first(path: str) -> None:
        asked.append(path)
        if len(asked) == 1:
            raise StorageError("broken")
        delete(path)

    monkeypatch.setattr(world.disk, "delete", refuse_first)
    world.logs.sweep(NOW_MS)
    counts = []
    for _ in range(3):
        counts.append(len(asked))
        await asyncio.sleep(0)
    assert counts == [1, 2, 3]
    assert [name for name in world.disk.list(world.path) if name.endswith("-delete")] == [asked[0].rpartition("/")[2]]
