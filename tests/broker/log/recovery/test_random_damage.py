"""Whatever is done to one file of a partition: what is served is what was written, and nothing is lost in silence."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.log.compaction.cleaner import LogCleaning, dirty_range
from fencepost.broker.log.compaction.rewriting import RewritingAbandonedError
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import Isolation, PartitionLog
from fencepost.broker.log.reads.time_search import searched_at_once
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, iterate_batches
from tests.support.captured_events import capture_logs
from tests.support.log_world import NOW_MS, ORDERS, LogWorld, content_of, replace

DAMAGES = 15
BATCHES = 24
CUTS = {"torn_tail_cut", "log_cut_before_valid_batches"}
UNFORESEEN = {"log_unreadable", "background_work_failed"}
SEGMENTS = LogConfig(segment_bytes=1500, index_interval_bytes=200)
ONE_SEGMENT = LogConfig(index_interval_bytes=300)
COMPACTED = LogConfig(
    segment_bytes=1500, index_interval_bytes=200, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
)


async def clean(log: PartitionLog) -> None:
    await LogCleaning(log, dirty_range(log, 0, NOW_MS), now_ms=NOW_MS).run()


async def with_records(world: LogWorld, config: LogConfig) -> PartitionLog:
    """Plain batches and transactions, some of them aborted; partly compacted where the config asks for that."""
    log = world.create(config)
    for number in range(BATCHES):
        key, value = b"key %d" % (number % 5), b"value %d" % number
        if number % 4 == 3:
            world.append(value, producer_id=7, producer_epoch=number, base_sequence=0, is_transactional=True, key=key)
            world.end_transaction(7, number + 1, committed=number % 8 == 3)
        else:
            world.append(value, value, value, key=key, timestamp_ms=NOW_MS - 1000 + number)
    await log.flushed()
    if config.is_compacted:
        await clean(log)
        for _ in range(6):
            world.append(b"later", key=b"key 1")
        await log.flushed()
    return log


def served(log: PartitionLog) -> tuple[dict[int, bytes], bool]:
    """The batches that readers get, by offset; and whether any of them was refused."""
    found: dict[int, bytes] = {}
    was_refused = False
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 300, isolation=Isolation.READ_UNCOMMITTED)
        was_refused |= read.error is not ErrorCode.NONE
        batches = list(iterate_batches(read.records)) if read.error is ErrorCode.NONE else []
        found.update((batch.header.base_offset, bytes(batch.buffer)) for batch in batches)
        offset = batches[-1].header.last_offset + 1 if batches else offset + 1
    return found, was_refused


def damage(chance: random.Random, name: str, content: bytes) -> bytes:
    """One kind of damage at one place, mostly in a header where the file is a log."""
    at = chance.randrange(len(content))
    if name.endswith(".log") and chance.random() < 0.7:
        starts = [0]
        while starts[-1] < len(content):
            length: int = struct.unpack_from(">i", content, starts[-1] + 8)[0]
            starts.append(starts[-1] + length + LENGTH_OVERHEAD_BYTES)
        at = chance.choice(starts[:-1]) + chance.randrange(HEADER_BYTES)
    kind = chance.choice(["bit", "byte", "cut", "repeat", "zeros"])
    if kind == "bit":
        return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
    if kind == "byte":
        return content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]
    if kind == "cut":
        return content[:at]
    if kind == "repeat":
        return content[:at] + content
    return content[:at] + bytes(10) + content[at + chance.randrange(1, 80) :]


async def use(log: PartitionLog) -> None:
    """Everything else that reads a log: it may fail, as a disk may, but not in a way that nobody foresaw."""
    for read in (
        lambda: searched_at_once(log.offset_for_timestamp(NOW_MS - 990, isolation=Isolation.LOG_END)),
        lambda: searched_at_once(log.offset_of_max_timestamp(Isolation.LOG_END)),
        lambda: [log.read(offset, 200, isolation=Isolation.READ_COMMITTED) for offset in range(log.log_end_offset)],
        lambda: log.sweep(NOW_MS),
    ):
        try:
            read()
        except StorageError:
            pass
    if log.config.is_compacted:
        try:
            await clean(log)
        except (RewritingAbandonedError, StorageError):
            pass


def events(logs: Sequence[Any]) -> set[str]:
    return {entry["event"] for entry in logs}


@pytest.mark.parametrize("stop", ["clean", "crash", "crash behind the recovery point"])
@pytest.mark.parametrize("config", [SEGMENTS, ONE_SEGMENT, COMPACTED], ids=["segments", "one segment", "compacted"])
async def test_nothing_false_is_served_and_nothing_is_lost_in_silence(
    world: LogWorld, tmp_path: Path, config: LogConfig, stop: str
) -> None:
    log = await with_records(world, config)
    written, _ = served(log)
    if stop == "clean":
        await world.stop()
    elif stop != "crash":
        await world.logs.checkpoints.write_recovery_points(durable=True)
    kept = str(tmp_path / "kept")
    shutil.copytree(world.path, kept)
    sizes = {entry.name: entry.stat().st_size for entry in os.scandir(f"{kept}/{ORDERS}")}
    names = sorted(name for name, size_bytes in sizes.items() if size_bytes)
    logs_only = [name for name in names if name.endswith(".log")]
    chance = random.Random(f"{stop} {config}")
    for _ in range(DAMAGES):
        name = chance.choice(logs_only if chance.random() < 0.6 else names)
        shutil.rmtree(world.path)
        shutil.copytree(kept, world.path)
        path = f"{world.path}/{ORDERS}/{name}"
        changed = damage(chance, name, content_of(path))
        replace(path, changed)
        with capture_logs() as logs:
            log = await world.restart(crash=True)
            if not log.is_offline:
                found, was_refused = served(log)
                for offset, batch in found.items():
                    assert offset in written
                    prefix_and_format = batch[:17]
                    assert prefix_and_format == written[offset][:17]
                    assert batch == written[offset] or name.endswith(".log")
                lost = [offset for offset in written if offset not in found]
                # A cut exactly where a batch ends, above the recovery point, is what a crash leaves, too.
                is_like_a_crash = stop == "crash" and len(changed) < sizes[name] and name == logs_only[-1]
                assert not lost or was_refused or (stop == "crash" and events(logs) & CUTS) or is_like_a_crash
                assert log.leader_epoch <= 1
                await use(log)
                assert world.append(b"on", key=b"key").error is ErrorCode.NONE
        assert not events(logs) & UNFORESEEN
