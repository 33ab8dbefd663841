"""Topics of many partitions come, grow and go while others are served, and nothing waits for the disk on the loop."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.hosting import hosted_logs
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import SystemClock
from fencepost.broker.kernel.sliced_work import run_to_end
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.log_directory import CHECKPOINT_INTERVAL_MS, LogDirectory
from fencepost.broker.log.files import checkpoints
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import Record, build_batch
from tests.support.log_world import replace

COUNT = 50


class Hosted:
    """Topics over a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = InMemoryMetadataStore()

    async def start(self) -> None:
        self.disk = LocalDisk()
        self.logs = LogDirectory(str(self.directory), disk=self.disk, clock=SystemClock())
        self.topics = Topics(self.store, self.logs, Settings())
        await self.topics.open()

    async def crash_and_start(self) -> None:
        await self.topics.close()
        self.disk.close()
        await self.start()

    async def stop(self) -> None:
        await self.topics.close()
        await self.logs.close()
        self.disk.close()

    def log(self, partition: int) -> PartitionLog | None:
        return self.topics.log(TopicPartition("one", partition))

    def directories(self) -> int:
        return sum(name.startswith("one-") and not name.endswith("-delete") for name in os.listdir(self.directory))


@pytest.fixture
async def hosted(tmp_path: Path) -> AsyncIterator[Hosted]:
    hosted = Hosted(tmp_path)
    await hosted.start()
    yield hosted
    await hosted.stop()


@contextmanager
def most_in_one_turn(monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[Callable[[], int]]:
    """How often methods of the log directory are called at most between two turns of other work."""
    count = most = 0

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal count, most
            count += 1
            most = max(most, count)
            return original(*arguments, **named)

        return call

    async def others() -> None:
        nonlocal count
        while True:
            await asyncio.sleep(0)
            count = 0

    with monkeypatch.context() as patched:
        for name in names:
            patched.setattr(LogDirectory, name, counted(getattr(LogDirectory, name)))
        turns = asyncio.ensure_future(others())
        yield lambda: most
        turns.cancel()


async def test_few_logs_are_made_and_deleted_at_a_stretch(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    with most_in_one_turn(monkeypatch, "create", "delete") as most:
        assert (await hosted.topics.create("one", COUNT, {}))[0] is ErrorCode.NONE
        assert (await hosted.topics.add_partitions("one", 2 * COUNT))[0] is ErrorCode.NONE
        assert await hosted.topics.delete("one") is ErrorCode.NONE
        assert 0 < most() <= hosted_logs.CHANGED_PER_TURN


async def test_the_growth_of_a_topic_is_decided_a_part_at_a_time(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_logs, "LED_TOGETHER", COUNT // 5)
    assert (await hosted.topics.create("one", 1, {}))[0] is ErrorCode.NONE
    with most_in_one_turn(monkeypatch, "has_directory") as most:
        assert (await hosted.topics.add_partitions("one", COUNT))[0] is ErrorCode.NONE
        assert 0 < most() <= COUNT // 5
    assert all(hosted.log(partition) is not None for partition in range(COUNT))


async def test_a_topic_is_there_with_all_its_partitions_or_not_at_all(hosted: Hosted) -> None:
    creating = asyncio.ensure_future(hosted.topics.create("one", COUNT, {}))
    turn_count = 0
    while not creating.done():
        is_there = hosted.topics.metadata.get("one") is not None
        assert [hosted.log(partition) is not None for partition in range(COUNT)] == [is_there] * COUNT
        turn_count += 1
        await asyncio.sleep(0)
    assert turn_count > COUNT / hosted_logs.CHANGED_PER_TURN
    assert hosted.log(COUNT - 1) is not None
    deleting = asyncio.ensure_future(hosted.topics.delete("one"))
    await until(lambda: hosted.topics.metadata.get("one") is None)
    assert all(hosted.log(partition) is None for partition in range(COUNT)), "gone before their files are"
    assert hosted.directories() > 0
    assert not deleting.done()
    assert await deleting is ErrorCode.NONE
    assert hosted.directories() == 0


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # turn by turn
        await asyncio.sleep(0)


async def begin_creation(hosted: Hosted) -> asyncio.Future[Any]:
    """A creation of which a part is done."""
    creating = asyncio.ensure_future(hosted.topics.create("one", COUNT, {}))
    await until(lambda: hosted.directories() > 0)
    assert hosted.topics.metadata.get("one") is None
    return creating


async def test_of_two_creations_of_a_topic_one_is_refused_as_existing(hosted: Hosted) -> None:
    creating = await begin_creation(hosted)
    assert hosted.topics.check_create("one", 1, {})[0] is ErrorCode.NONE, "so it is asked for"
    assert (await hosted.topics.create("one", 1, {}))[0] is ErrorCode.TOPIC_ALREADY_EXISTS
    assert (await creating)[0] is ErrorCode.NONE


async def test_requests_for_a_topic_that_is_being_created_follow_its_creation(hosted: Hosted) -> None:
    creating = await begin_creation(hosted)
    growing = asyncio.ensure_future(hosted.topics.add_partitions("one", 2 * COUNT))
    deleting = asyncio.ensure_future(hosted.topics.delete("one"))
    again = asyncio.ensure_future(hosted.topics.create("one", 3, {}))
    assert (await creating)[0] is (await growing)[0] is await deleting is (await again)[0] is ErrorCode.NONE
    created = hosted.topics.metadata.get("one")
    assert created is not None
    assert (created.partition_count, hosted.directories()) == (3, 3)


async def test_a_creation_goes_on_without_a_waiting_client(hosted: Hosted) -> None:
    creating = await begin_creation(hosted)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert (await hosted.topics.create("one", 1, {}))[0] is ErrorCode.TOPIC_ALREADY_EXISTS
    assert hosted.log(COUNT - 1) is not None


async def test_a_stop_waits_for_a_creation(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path)
    await hosted.start()
    await begin_creation(hosted)
    await hosted.stop()
    assert hosted.directories() == COUNT


async def test_settings_that_change_meanwhile_reach_the_new_logs(hosted: Hosted) -> None:
    creating = await begin_creation(hosted)
    object.__setattr__(hosted.topics._settings, "log_segment_bytes", 12_345)
    hosted.topics.settings_changed()
    await creating
    logs = [hosted.log(partition) for partition in (0, COUNT - 1)]
    assert [log.config.segment_bytes for log in logs if log is not None] == [12_345, 12_345]


def fail_at_directory(partition: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    make_directory = LocalDisk.make_directory

    def failing(disk: LocalDisk, path: str) -> None:
        if path.endswith(f"-{partition}"):
            raise error
        make_directory(disk, path)

    monkeypatch.setattr(LocalDisk, "make_directory", failing)


@pytest.mark.parametrize("error", [StorageError(28, "No space left on device"), RuntimeError("unforeseen")])
async def test_a_creation_that_fails_half_way_leaves_nothing(
    hosted: Hosted, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at_directory(COUNT - 3, error, monkeypatch)
    with pytest.raises(type(error)):
        await hosted.topics.create("one", COUNT, {})
    assert (hosted.topics.metadata.get("one"), hosted.log(0), hosted.directories()) == (None, None, 0)
    monkeypatch.undo()
    assert (await hosted.topics.create("one", COUNT, {}))[0] is ErrorCode.NONE


class EndOfProcessError(BaseException):
    """Nothing is done about it any more."""


async def test_a_crash_in_the_middle_of_a_creation_is_made_good(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at_directory(COUNT // 2, EndOfProcessError(), monkeypatch)
    with pytest.raises(EndOfProcessError):
        await hosted.topics.create("one", COUNT, {})
    monkeypatch.undo()
    assert 0 < hosted.directories() < COUNT
    await hosted.crash_and_start()
    await hosted.topics.ensure_opened()
    assert all(hosted.log(partition) is not None for partition in range(COUNT))


async def test_a_checkpoint_of_many_partitions_is_put_together_in_steps() -> None:
    offsets = {TopicPartition("one", partition): partition for partition in range(3_500)}
    steps = checkpoints.encode_offsets_in_steps(offsets)
    assert sum(1 for _ in steps) == 4
    assert run_to_end(checkpoints.encode_offsets_in_steps(offsets)) == checkpoints.encode_offsets(offsets)


async def test_a_log_that_is_opened_while_a_checkpoint_is_written_stays_in_it(hosted: Hosted) -> None:
    """What the checkpoint says of it must not be lost: below it records had been deleted."""
    await hosted.topics.create("one", 1, {})
    name = TopicPartition("one", 0)
    log = hosted.logs._logs.pop(name)
    hosted.logs.unopened.add([name])
    hosted.logs.checkpoints.log_starts.offsets[name] = 7
    collecting = hosted.logs.checkpoints.collect_log_starts()
    started = hosted.logs._logs.setdefault(TopicPartition("other", 0), log)
    assert next(collecting, None) is None
    hosted.logs._logs.pop(TopicPartition("other", 0))
    hosted.logs.unopened.discard(name)
    hosted.logs._logs[name] = started
    assert run_to_end(hosted.logs.checkpoints.collect_log_starts()) == {}
    assert run_to_end(collecting) == {name: 7}


# Syncs


class Syncs:
    """Records the threads on which syncs run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._recorded(getattr(os, name)))

    def _recorded(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def call(descriptor: int) -> None:
            self.threads.append(threading.get_ident())
            sync(descriptor)

        return call


async def test_nothing_is_synced_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs(monkeypatch)
    hosted = Hosted(tmp_path)
    await hosted.start()
    topics = hosted.topics
    now_ms = SystemClock().now_ms()

    async def write(partition: int) -> PartitionLog:
        log = hosted.log(partition)
        assert log is not None
        log.configure(dataclasses.replace(log.config, segment_bytes=1_000))
        for _ in range(6):
            batch = build_batch([Record(0, now_ms, b"key", bytes(400))])
            log.append(memoryview(batch), now_ms=now_ms)
            await log.flushed()
        return log

    compacted = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.0"}
    for _ in range(2):  # the second time, the checkpoints name the partitions that are to be made
        assert (await topics.create("one", 3, compacted))[0] is ErrorCode.NONE
        log = await write(0)
        assert len(log.segments) > 2
        await write(1)
        assert await topics.delete_records({TopicPartition("one", 1): 5}) == {TopicPartition("one", 1): ErrorCode.NONE}
        hosted.logs.sweep(now_ms + CHECKPOINT_INTERVAL_MS)
        assert hosted.logs._checkpointing is not None
        await hosted.logs._checkpointing
        await topics.add_partitions("one", 4)
        segment = log.segments.first
        segment.indexes._offset_index = segment.indexes._time_index = None
        replace(segment.files.path(".index"), b"")
        assert segment.indexes.offset_index is not None, "made anew, as a fetch would"
        now_ms += 2 * CHECKPOINT_INTERVAL_MS
        await topics.delete("one")
    assert syncs.threads
    assert threading.get_ident() not in syncs.threads
    await hosted.crash_and_start()
    await hosted.stop()
    assert threading.get_ident() not in syncs.threads, "neither a start nor a stop"


async def test_deleted_records_are_noted_once_for_all_that_wait(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hosted.topics.create("one", 4, {})
    for partition in range(4):
        log = hosted.log(partition)
        assert log is not None
        log.append(memoryview(build_batch([Record(0, 1, None, b"value")])), now_ms=1)
        await log.flushed()
    written: list[str] = []
    rename = LocalDisk.rename

    def recorded(disk: LocalDisk, source: str, target: str) -> None:
        written.append(target)
        rename(disk, source, target)

    monkeypatch.setattr(LocalDisk, "rename", recorded)
    errors = await asyncio.gather(*(hosted.topics.delete_records({TopicPartition("one", n): 1}) for n in range(4)))
    assert [code for each in errors for code in each.values()] == [ErrorCode.NONE] * 4
    assert len(written) <= 2, "one may have been on its way before the others came"
    await hosted.crash_and_start()
    await hosted.topics.ensure_opened()
    logs = [hosted.log(partition) for partition in range(4)]
    assert [log.log_start_offset for log in logs if log is not None] == [1] * 4
