"""DescribeLogDirs and AlterReplicaLogDirs: one directory, and what lies in it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from tests.support.handler_context import NOW_MS, HandlerBroker, batch, open_broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        await opened.create_topic("orders", 2)
        await opened.create_topic("other", 1)
        yield opened


async def describe(
    broker: HandlerBroker, topics: list[DescribableLogDirTopic] | None, version: int = 5
) -> DescribeLogDirsResult:
    response = await broker.call(DescribeLogDirsRequest(topics=topics), version)
    assert response.error_code == 0
    (found,) = response.results
    assert isinstance(found, DescribeLogDirsResult)
    return found


def sizes(found: DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in found.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
async def test_the_sizes_of_all_partitions(broker: HandlerBroker, tmp_path: Path, version: int) -> None:
    sent = batch(b"value")
    log = broker.log("orders", 1)
    log.append(memoryview(sent), now_ms=NOW_MS)
    await log.flushed()
    found = await describe(broker, None, version)
    assert found.log_dir == str(tmp_path)
    assert sizes(found) == {("orders", 0): 0, ("orders", 1): len(sent), ("other", 0): 0}
    assert not any(partition.is_future_key for topic in found.topics for partition in topic.partitions)


async def test_only_requested_partitions_that_are_here_are_described(broker: HandlerBroker) -> None:
    asked = [
        DescribableLogDirTopic(topic="orders", partitions=[0, 9]),
        DescribableLogDirTopic(topic="nowhere", partitions=[0]),
    ]
    assert sizes(await describe(broker, asked)) == {("orders", 0): 0}
    assert sizes(await describe(broker, [])) == {}


async def test_the_volume_is_that_of_the_file_system(broker: HandlerBroker, tmp_path: Path) -> None:
    volume = os.statvfs(tmp_path)
    found = await describe(broker, [])
    assert found.total_bytes == volume.f_blocks * volume.f_frsize
    assert 0 < found.usable_bytes <= found.total_bytes


async def test_a_volume_that_cannot_be_measured_is_reported(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise StorageError("no such device")

    monkeypatch.setattr(LocalDisk, "volume", gone)
    found = await describe(broker, [])
    assert (found.error_code, found.total_bytes, found.usable_bytes) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)


async def move(broker: HandlerBroker, path: str, topic: str, *partitions: int, version: int = 2) -> list[ErrorCode]:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
    (answered,) = (await broker.call(request, version)).results
    assert answered.topic_name == topic
    assert [partition.partition_index for partition in answered.partitions] == list(partitions)
    return [ErrorCode(partition.error_code) for partition in answered.partitions]


@pytest.mark.parametrize("version", [1, 2])
async def test_partitions_are_where_they_are(broker: HandlerBroker, tmp_path: Path, version: int) -> None:
    assert await move(broker, str(tmp_path), "orders", 0, 9, version=version) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await move(broker, "/elsewhere", "orders", 0, version=version) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert await move(broker, str(tmp_path), "n" * 214, 0, version=version) == [ErrorCode.INVALID_TOPIC_EXCEPTION]


async def test_each_partition_is_answered_once_and_its_last_directory_counts(
    broker: HandlerBroker, tmp_path: Path
) -> None:
    def directory(path: str, *partitions: int) -> AlterReplicaLogDir:
        return AlterReplicaLogDir(path, [AlterReplicaLogDirTopic("orders", list(partitions))])

    request = AlterReplicaLogDirsRequest(
        dirs=[
            directory("/elsewhere", 0, 1),
            directory(str(tmp_path), 0),
            AlterReplicaLogDir(str(tmp_path), [AlterReplicaLogDirTopic("other", [])]),
        ]
    )
    (answered,) = (await broker.call(request)).results
    assert answered.topic_name == "orders"
    assert {one.partition_index: ErrorCode(one.error_code) for one in answered.partitions} == {
        0: ErrorCode.NONE,
        1: ErrorCode.LOG_DIR_NOT_FOUND,
    }
