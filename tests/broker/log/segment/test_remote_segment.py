"""Logs some of whose segments are not on this node: what is known without them, and when they are fetched."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import uuid
from collections.abc import Awaitable
from pathlib import Path

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.compaction.cleaner import LogCleaning, dirty_range
from fencepost.broker.log.directory.last_leader_state import ArrivingLog, LastLeaderState
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.reads.time_search import Searches, searched_at_once
from fencepost.broker.log.segment.remote_segment import (
    RemoteSegment,
    RemoteSegmentMetadata,
    SegmentNotLocalError,
    open_fetched,
)
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.log.segment.transaction_index import TransactionIndexEntry
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import iterate_batches, read_records
from tests.support.log_world import NOW_MS, ORDERS, LogWorld

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)
COMPACTED = LogConfig(segment_bytes=400, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
FETCHED_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


class FolderStore:
    """Sealed segments in a folder. fetched: the base offsets that were asked for, in order.

    comes: set unless what is asked for has to wait.
    """

    def __init__(self, world: LogWorld) -> None:
        self.world = world
        self.folder = f"{world.path}.store"
        os.makedirs(self.folder)
        self.fetched: list[int] = []
        self.log_starts: dict[TopicPartition, int] = {}
        self.comes = asyncio.Event()
        self.comes.set()
        self.fails = False
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def take(self, log: PartitionLog) -> list[RemoteSegmentMetadata]:
        """Move the files of all sealed segments into the folder; transaction indexes are copied."""
        sealed = []
        for segment in log.segments.sealed:
            for suffix in FETCHED_SUFFIXES:
                if os.path.exists(path := segment.files.path(suffix)):
                    (shutil.copy if suffix == ".txnindex" else shutil.move)(path, self.folder)
            following = log.segments.next_base_offset(segment)
            assert following is not None
            sealed.append(
                RemoteSegmentMetadata(
                    segment.base_offset,
                    following,
                    segment.size_bytes,
                    segment.newest_record_ms,
                    segment.transactions.exists,
                    log.leader_epoch,
                    uuid.uuid4(),
                )
            )
        return sealed

    def fetch(self, topic_partition: TopicPartition, sealed: RemoteSegmentMetadata) -> Awaitable[None]:
        task = self._tasks.get(sealed.base_offset)
        if task is None:
            self.fetched.append(sealed.base_offset)
            task = self._tasks[sealed.base_offset] = asyncio.ensure_future(self._fetch(topic_partition, sealed))
        return asyncio.shield(task)

    def fetch_part(self, topic_partition: TopicPartition, segment: RemoteSegment, part: int) -> Awaitable[None]:
        return self.fetch(topic_partition, segment.sealed)

    def note_read(self, topic_partition: TopicPartition, segment: RemoteSegment, position: int, end: int) -> None:
        """Nothing is evicted."""

    async def _fetch(self, topic_partition: TopicPartition, sealed: RemoteSegmentMetadata) -> None:
        await self.comes.wait()
        if self.fails:
            raise StorageError("the store is empty")
        log = self.world.logs.get(topic_partition)
        assert log is not None
        self._copy(sealed.base_offset, log.files.directory)
        (stand_in,) = (segment for segment in log.segments if segment.base_offset == sealed.base_offset)
        log.exchange(stand_in, open_fetched(log.files, sealed, log.config.index_interval_bytes))

    def _copy(self, base_offset: int, directory: str) -> None:
        for suffix in FETCHED_SUFFIXES:
            if os.path.exists(path := f"{self.folder}/{base_offset:020d}{suffix}"):
                shutil.copy2(path, directory)

    async def store_log_starts(self, log_starts: dict[TopicPartition, int]) -> None:
        self.log_starts |= log_starts


class RemoteSegmentWorld(LogWorld):
    """A log whose sealed segments are moved away while it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.store = FolderStore(self)

    async def reopen(self, *, log_start_offset: int = 0, keeps_tail: bool = True) -> PartitionLog:
        """Close the log, move what is sealed away, and open it as one that another node has led."""
        log = self.orders
        epochs = log.files.read_epochs()
        if not keeps_tail:
            log.roll(self.clock.now_ms())
            await log.flushed()
        await self.stop()
        sealed = self.store.take(log)
        sealed_end = sealed[-1].end_offset
        for name in os.listdir(log.files.directory):
            is_kept = name.startswith(f"{sealed_end:020d}") or name.endswith((".txnindex", ".metadata", "checkpoint"))
            if not is_kept or (not keeps_tail and name.endswith(".log")):
                os.remove(f"{log.files.directory}/{name}")
        self.disk.close()
        self.disk = LocalDisk()
        self.logs = LogDirectory(self.path, disk=self.disk, clock=self.clock, remote_store=self.store)
        await self.logs.open(lambda _: self.config, lambda _: None)
        last_state = LastLeaderState(sealed_end, log_start_offset)
        errors = await self.logs.serve([ArrivingLog(ORDERS, self.config, epochs.latest + 1, last_state, sealed)])
        assert errors == {}
        return self.orders

    @property
    def remote_offsets(self) -> list[int]:
        return [segment.base_offset for segment in self.orders.segments if isinstance(segment, RemoteSegment)]


@pytest.fixture
async def remote(tmp_path: Path) -> RemoteSegmentWorld:
    world = RemoteSegmentWorld(str(tmp_path / "logs"))
    await world.start()
    return world


async def write(world: LogWorld, count: int = 20, config: LogConfig = SMALL) -> PartitionLog:
    """Write records of one second each, which fill several segments."""
    log = world.create(config)
    for number in range(count):
        world.append(b"%d" % number * 30, key=b"%d" % (number % 3), timestamp_ms=NOW_MS + number * 1000)
    await log.flushed()
    assert len(log.segments) > 4
    return log


def values(log: PartitionLog, offset: int, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> list[int]:
    """The offsets of the records that one read finds."""
    read = log.read(offset, 10_000, isolation=isolation)
    assert read.error is ErrorCode.NONE
    return [record.offset for batch in iterate_batches(read.records) for record in read_records(batch)]


async def all_values(log: PartitionLog, isolation: Isolation) -> list[int]:
    """The offsets of all records, read as a client does that waits while nothing comes."""
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.bound(isolation):
        batches = list(iterate_batches(log.read(offset, 10_000, isolation=isolation).records))
        found += [record.offset for batch in batches for record in read_records(batch)]
        if batches:
            offset = batches[-1].header.last_offset + 1
        else:
            await asyncio.sleep(0)
    return found


async def test_a_remote_segment_counts_as_a_local_one(remote: RemoteSegmentWorld) -> None:
    before = await write(remote)
    size_bytes, epochs = before.size_bytes, list(before.epochs.starts)
    log = await remote.reopen()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 20, 20)
    assert log.size_bytes == size_bytes
    assert list(log.epochs.starts)[: len(epochs)] == epochs
    assert len(remote.remote_offsets) > 3
    assert remote.store.fetched == []


async def test_a_tail_that_is_empty_begins_where_the_sealed_segments_end(remote: RemoteSegmentWorld) -> None:
    await write(remote)
    log = await remote.reopen(keeps_tail=False)
    assert (log.log_start_offset, log.log_end_offset) == (0, 20)
    assert remote.append(b"next").base_offset == 20


async def test_a_read_finds_nothing_until_the_segment_is_here_and_watchers_are_notified(
    remote: RemoteSegmentWorld,
) -> None:
    await write(remote)
    log = await remote.reopen()
    notified = asyncio.Event()
    log.add_watcher(notified.set)
    remote.store.comes.clear()
    for _ in range(3):
        assert values(log, 0) == []
    assert remote.store.fetched == [0], "the segment is asked for once"
    await asyncio.sleep(0)
    assert not notified.is_set()
    remote.store.comes.set()
    await notified.wait()
    assert values(log, 0)[0] == 0
    assert 0 not in remote.remote_offsets
    assert len(remote.remote_offsets) > 2, "other segments stay remote"


async def test_all_records_are_read_in_the_end(remote: RemoteSegmentWorld) -> None:
    await write(remote)
    log = await remote.reopen()
    assert await all_values(log, Isolation.READ_UNCOMMITTED) == list(range(20))
    assert remote.remote_offsets == []


async def test_the_tail_is_read_without_a_fetch(remote: RemoteSegmentWorld) -> None:
    await write(remote)
    log = await remote.reopen()
    assert values(log, log.segments.active.base_offset)
    assert remote.store.fetched == []


async def test_a_replay_does_not_take_a_part_for_the_whole(remote: RemoteSegmentWorld) -> None:
    await write(remote)
    log = await remote.reopen()
    with pytest.raises(SegmentNotLocalError) as raised:
        log.read(0, 1000, isolation=Isolation.LOG_END)
    await raised.value.fetch()
    assert log.read(0, 1000, isolation=Isolation.LOG_END).records


async def test_aborted_records_of_remote_segments_stay_invisible(remote: RemoteSegmentWorld) -> None:
    log = remote.create(SMALL)
    aborted = []
    for number in range(12):
        result = remote.append(b"x" * 60, producer_id=7, producer_epoch=number, base_sequence=0, is_transactional=True)
        if number % 2:
            aborted.append(result.base_offset)
        remote.append(b"plain" * 20)
        assert remote.end_transaction(7, number + 1, committed=not number % 2) is ErrorCode.NONE
    await log.flushed()
    expected = log.read(0, 10_000, isolation=Isolation.READ_COMMITTED)
    log = await remote.reopen()
    assert await all_values(log, Isolation.READ_UNCOMMITTED) == list(range(log.log_end_offset))
    again = log.read(0, 10_000, isolation=Isolation.READ_COMMITTED)
    assert bytes(again.records) == bytes(expected.records)
    assert again.aborted_transactions == expected.aborted_transactions
    offsets = {entry.first_offset for segment in log.segments for entry in _entries(segment)}
    assert offsets == set(aborted)


def _entries(segment: Segment) -> list[TransactionIndexEntry]:
    index = segment.transactions.index
    return [index[slot] for slot in range(len(index))]


async def test_producers_are_recognised_by_the_snapshot_at_the_sealed_end(remote: RemoteSegmentWorld) -> None:
    log = remote.create(SMALL)
    for sequence in range(20):
        remote.append(b"x" * 60, producer_id=3, producer_epoch=0, base_sequence=sequence)
    await log.flushed()
    await remote.reopen()
    again = remote.append(b"x" * 60, producer_id=3, producer_epoch=0, base_sequence=19)
    assert (again.error, again.is_duplicate, again.base_offset) == (ErrorCode.NONE, True, 19)
    following = remote.append(b"y", producer_id=3, producer_epoch=0, base_sequence=20)
    assert (following.error, following.base_offset) == (ErrorCode.NONE, 20)


async def test_a_search_for_a_time_fetches_the_one_segment_that_has_it(remote: RemoteSegmentWorld) -> None:
    await write(remote)
    log = await remote.reopen()
    found = await Searches().finish(log.offset_for_timestamp(NOW_MS + 7_500, isolation=Isolation.READ_UNCOMMITTED))
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (8, NOW_MS + 8_000)
    assert len(remote.store.fetched) == 1


async def test_a_search_reports_that_a_segment_cannot_be_fetched(remote: RemoteSegmentWorld) -> None:
    await write(remote)
    log = await remote.reopen()
    remote.store.fails = True
    with pytest.raises(StorageError, match="the store is empty"):
        await Searches().finish(log.offset_for_timestamp(NOW_MS, isolation=Isolation.READ_UNCOMMITTED))
    with pytest.raises(StorageError, match="not on this node"):
        searched_at_once(log.offset_for_timestamp(NOW_MS, isolation=Isolation.READ_UNCOMMITTED))


async def test_the_header_of_a_batch_in_a_remote_segment_is_not_known(remote: RemoteSegmentWorld) -> None:
    await write(remote)
    log = await remote.reopen()
    assert log.header_at(0) is None
    assert log.header_at(19) is not None


async def test_retention_deletes_remote_segments_by_size_and_by_age(remote: RemoteSegmentWorld) -> None:
    await write(remote)
    log = await remote.reopen()
    remote.clock.time_ms = NOW_MS + 10_500
    log.configure(dataclasses.replace(SMALL, retention_ms=5_000))
    log.sweep(remote.clock.now_ms())
    assert log.log_start_offset == 0, "the store may not have the segments yet"
    log.deletable_end = log.segments.active.base_offset
    log.sweep(remote.clock.now_ms())
    assert 0 < log.log_start_offset <= 5
    assert log.segments.first.base_offset == log.log_start_offset
    log.configure(dataclasses.replace(SMALL, retention_bytes=0))
    log.sweep(remote.clock.now_ms())
    assert log.log_start_offset == log.deletable_end, "the active segment, which has been rolled, is not stored yet"
    assert remote.store.fetched == []


async def test_deleted_records_are_stored_before_the_answer(remote: RemoteSegmentWorld) -> None:
    await write(remote)
    await remote.reopen()
    assert await remote.logs.delete_records({ORDERS: 7}) == {ORDERS: ErrorCode.NONE}
    assert remote.store.log_starts == {ORDERS: 7}
    log = remote.orders
    assert log.read(6, 1000, isolation=Isolation.READ_UNCOMMITTED).error is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_compaction_fetches_what_it_cleans(remote: RemoteSegmentWorld) -> None:
    await write(remote, config=COMPACTED)
    log = await remote.reopen()
    dirty = dirty_range(log, 0, remote.clock.now_ms())
    assert dirty.is_due
    await LogCleaning(log, dirty, now_ms=remote.clock.now_ms()).run()
    kept = await all_values(log, Isolation.READ_UNCOMMITTED)
    assert kept[-3:] == [17, 18, 19]
    assert len(kept) < 10


async def test_a_sweep_leaves_remote_segments_alone(remote: RemoteSegmentWorld) -> None:
    await write(remote)
    log = await remote.reopen()
    for _ in range(3):
        log.sweep(remote.clock.now_ms())
    assert not log.is_offline
    assert remote.store.fetched == []
    await remote.stop()
