"""A start that does not wait for all logs: what clients meet until each is open, and that nothing is lost."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import SystemClock
from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.log.directory import log_opening
from fencepost.broker.log.directory.directory_files import CLEAN_SHUTDOWN_FILE
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.recovery import recovery
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.storage.disk import LogFile, StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.broker.transaction.markers import TransactionMarker, write_markers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import Record, build_batch
from tests.support.captured_events import capture_logs
from tests.support.log_world import NOW_MS

FIRST, SECOND, THIRD = (TopicPartition("orders", partition) for partition in range(3))


class FussyDisk(LocalDisk):
    """Refuses to list directories of some name."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = ""
        self.error = errno.EIO

    def list(self, path: str) -> Sequence[str]:
        if self.refused and path.endswith(self.refused):
            raise StorageError(self.error, os.strerror(self.error), path)
        return super().list(path)


class Broker:
    """Topics over a directory, each start of which leaves all logs for later that it may."""

    def __init__(self, directory: Path, *, opening_logs_ms: int = 0) -> None:
        self.directory = directory
        self.disk = FussyDisk()
        self.settings = Settings(
            fencepost_start_opening_logs_ms=opening_logs_ms,
            transaction_state_log_num_partitions=2,
            offsets_topic_num_partitions=2,
        )
        self.store = InMemoryMetadataStore()

    async def start(self) -> Topics:
        self.logs = LogDirectory(str(self.directory), disk=self.disk, clock=SystemClock())
        self.topics = Topics(self.store, self.logs, self.settings)
        await self.topics.open()
        return self.topics

    async def stop(self) -> None:
        await self.topics.close()
        await self.logs.close()

    async def restart(self, *, crash: bool = False) -> Topics:
        if crash:
            await self.topics.close()
            self.disk.close()
            before, self.disk = self.disk, FussyDisk()
            self.disk.refused, self.disk.error = before.refused, before.error
        else:
            await self.stop()
        return await self.start()

    async def with_orders(self) -> Broker:
        """Three partitions, with 1, 2 and 3 records."""
        topics = await self.start()
        await topics.create("orders", 3, {})
        for count, name in enumerate((FIRST, SECOND, THIRD), 1):
            for _ in range(count):
                await self.append(name)
        return self

    async def append(self, name: TopicPartition) -> None:
        log = self.topics.log(name)
        assert log is not None
        batch = memoryview(build_batch([Record(0, NOW_MS, None, b"v")]))
        assert log.append(batch, now_ms=NOW_MS).error is ErrorCode.NONE
        await log.flushed()

    def end_offsets(self) -> list[int | None]:
        return [
            None if (log := self.topics.log(name)) is None else log.high_watermark for name in (FIRST, SECOND, THIRD)
        ]


async def test_after_a_clean_stop_a_log_is_opened_at_its_first_use(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    topics = await broker.restart()
    assert topics.is_unopened(SECOND)
    log = topics.log(SECOND)
    assert log is not None
    assert log.high_watermark == 2
    assert not topics.is_unopened(SECOND)
    assert topics.is_unopened(FIRST)
    await broker.stop()


async def test_after_a_crash_a_request_is_refused_until_its_log_is_recovered(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    topics = await broker.restart(crash=True)
    assert topics.log(THIRD) is None
    assert topics.error_of_absent_log(THIRD) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert topics.error_of_absent_log(TopicPartition("orders", 3)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await broker.topics.ensure_opened()
    assert broker.end_offsets() == [1, 2, 3]
    await broker.stop()


async def test_a_marker_for_a_log_that_is_not_open_yet_is_to_be_sent_again(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    topics = await broker.restart(crash=True)
    missing = TopicPartition("orders", 3)
    marker = TransactionMarker(7, 0, True, 0, 1, (THIRD, missing))
    assert await write_markers(topics, [marker], NOW_MS) == [
        {THIRD: ErrorCode.NOT_LEADER_OR_FOLLOWER, missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    ]
    await broker.topics.ensure_opened()
    (outcome,) = await write_markers(topics, [marker], NOW_MS)
    assert outcome[THIRD] is ErrorCode.NONE
    await broker.stop()


async def test_the_size_of_a_log_is_known_before_it_is_open(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    opened = await broker.logs.sizes_bytes(lambda name: name.topic == "orders")
    assert 0 < opened[FIRST] == opened[SECOND] / 2 == opened[THIRD] / 3
    topics = await broker.restart(crash=True)
    assert topics.is_unopened(FIRST)
    assert await broker.logs.sizes_bytes(lambda name: name.topic == "orders") == opened
    await broker.topics.ensure_opened()
    broker.disk.refused = "orders-1"
    await broker.restart()
    unopened = await broker.logs.sizes_bytes(lambda name: name != THIRD)
    assert unopened == {FIRST: opened[FIRST]}, "what cannot be read is left out"
    await broker.stop()


async def test_the_rest_is_opened_in_the_background(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    with capture_logs() as logs:
        await broker.restart()
        await broker.topics.ensure_opened()
    assert [entry.get("unopened") for entry in logs if entry["event"] == "logs_opened"] == [3, None]
    assert broker.end_offsets() == [1, 2, 3]
    await broker.stop()


async def test_a_start_with_time_enough_leaves_nothing(tmp_path: Path) -> None:
    broker = await Broker(tmp_path, opening_logs_ms=60_000).with_orders()
    topics = await broker.restart(crash=True)
    assert not any(topics.is_unopened(name) for name in (FIRST, SECOND, THIRD))
    assert broker.end_offsets() == [1, 2, 3]
    await broker.stop()


async def test_the_coordinators_topics_are_never_left(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    await broker.topics.ensure_internal(TRANSACTION_STATE_TOPIC)
    topics = await broker.restart(crash=True)
    assert all(topics.log(TopicPartition(TRANSACTION_STATE_TOPIC, partition)) for partition in range(2))
    assert topics.is_unopened(FIRST)
    await broker.stop()


async def test_a_deferred_log_stays_clean_over_a_second_clean_stop(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    await broker.restart()
    await broker.restart()
    assert broker.end_offsets() == [1, 2, 3]
    await broker.stop()
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


async def test_a_stop_is_not_clean_while_logs_are_left_that_a_crash_left(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    await broker.restart(crash=True)
    broker.topics._background_opening._is_closing = True  # the stop comes before any has been opened
    await broker.stop()
    assert not (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
    await broker.start()
    await broker.topics.ensure_opened()
    assert broker.end_offsets() == [1, 2, 3]
    await broker.stop()


async def test_deleted_records_stay_deleted_when_the_log_was_never_opened_in_between(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    assert await broker.logs.delete_records({THIRD: 2}) == {THIRD: ErrorCode.NONE}
    await broker.restart()
    assert broker.topics.log(FIRST) is not None
    assert await broker.topics.delete_records({FIRST: 1}) == {FIRST: ErrorCode.NONE}
    await broker.restart(crash=True)
    await broker.topics.ensure_opened()
    starts = [log.log_start_offset for name in (FIRST, SECOND, THIRD) if (log := broker.topics.log(name))]
    assert starts == [1, 0, 2]
    await broker.stop()


async def test_a_topic_can_be_deleted_and_made_anew_before_its_logs_were_opened(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    topics = await broker.restart(crash=True)
    assert await topics.delete("orders") is ErrorCode.NONE
    assert await topics.create("orders", 3, {}) == (ErrorCode.NONE, None)
    await broker.topics.ensure_opened()
    assert broker.end_offsets() == [0, 0, 0]
    topics = await broker.restart(crash=True)
    await broker.topics.ensure_opened()
    assert broker.end_offsets() == [0, 0, 0]
    await broker.stop()


async def test_a_topic_can_grow_before_its_logs_were_opened(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    topics = await broker.restart(crash=True)
    assert await topics.add_partitions("orders", 4) == (ErrorCode.NONE, None)
    assert topics.log(TopicPartition("orders", 3)) is not None
    await broker.topics.ensure_opened()
    assert broker.end_offsets() == [1, 2, 3]
    await broker.stop()


async def test_a_directory_that_vanished_while_the_broker_was_down_is_noticed_at_once(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    await broker.stop()
    shutil.rmtree(tmp_path / str(SECOND))
    topics = await broker.start()
    log = topics.log(SECOND)
    assert log is not None
    assert log.is_offline
    await broker.topics.ensure_opened()
    await broker.stop()


async def test_a_stray_directory_is_neither_served_nor_taken_over(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    await broker.stop()
    shutil.copytree(tmp_path / str(FIRST), tmp_path / "strange-0")
    with capture_logs() as logs:
        topics = await broker.start()
        error, _ = await topics.create("strange", 1, {})
        assert error is ErrorCode.KAFKA_STORAGE_ERROR
        await broker.topics.ensure_opened()
    assert [entry["topic"] for entry in logs if entry["event"] == "stray_partition_found"] == ["strange"]
    error, _ = await topics.create("strange", 1, {})
    assert error is ErrorCode.KAFKA_STORAGE_ERROR
    assert topics.log(TopicPartition("strange", 0)) is None
    await broker.stop()


async def test_a_log_that_the_disk_does_not_read_is_offline_and_the_others_are_served(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    broker.disk.refused = str(SECOND)
    with capture_logs() as logs:
        await broker.restart(crash=True)
        await broker.topics.ensure_opened()
    assert [entry["partition"] for entry in logs if entry["event"] == "partition_went_offline"] == [1]
    log = broker.topics.log(SECOND)
    assert log is not None
    assert log.is_offline
    assert await broker.logs.sizes_bytes(lambda name: name == SECOND) == {}, "nothing is known of its size"
    broker.disk.refused = ""
    await broker.restart(crash=True)
    await broker.topics.ensure_opened()
    assert broker.end_offsets() == [1, 2, 3]
    await broker.stop()


async def test_a_log_that_lacks_a_descriptor_is_reported_and_opened_at_its_next_use(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    broker.disk.refused = str(SECOND)
    broker.disk.error = errno.EMFILE
    with capture_logs() as logs:
        topics = await broker.restart(crash=True)
        await broker.topics.ensure_opened()
    assert [entry["partition"] for entry in logs if entry["event"] == "partition_not_opened"] == [1]
    assert broker.end_offsets() == [1, None, 3]
    assert topics.error_of_absent_log(SECOND) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.disk.refused = ""
    assert topics.log(SECOND) is None
    await broker.topics.ensure_opened()
    assert broker.end_offsets() == [1, 2, 3]
    await broker.stop()


async def test_recovered_records_are_durable_before_they_are_read(tmp_path: Path) -> None:
    broker = await Broker(tmp_path).with_orders()
    await broker.topics.close()
    broker.disk.close()
    synced: list[str] = []
    is_opening = True

    class WatchedDisk(FussyDisk):
        async def sync(self, files: Sequence[LogFile], directories: Sequence[str] = ()) -> None:
            for file in files if is_opening else ():
                name = Path(file.path).parent.name
                assert broker.topics.log(TopicPartition("orders", int(name.rpartition("-")[2]))) is None, name
            await super().sync(files, directories)
            synced.extend(file.path for file in files)

    broker.disk = WatchedDisk()
    await broker.start()
    await broker.topics.ensure_opened()
    is_opening = False
    assert sum(path.endswith(".log") for path in synced) == 3
    assert broker.end_offsets() == [1, 2, 3]
    broker.topics._background_opening._is_closing = True
    await broker.stop()


async def test_others_get_their_turn_while_a_log_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await Broker(tmp_path).with_orders()
    for _ in range(30):
        await broker.append(FIRST)
    monkeypatch.setattr(log_opening, "SLICE_S", 0.0)
    monkeypatch.setattr(recovery, "STEP_BATCHES", 1)
    topics = await broker.restart(crash=True)
    turn_count = 0
    while topics.log(FIRST) is None:
        await asyncio.sleep(0)
        turn_count += 1
    assert turn_count > 30
    await topics.ensure_opened()
    assert broker.end_offsets() == [31, 2, 3]
    await broker.stop()
