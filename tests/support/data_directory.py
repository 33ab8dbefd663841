"""Damaging and inspecting the data directory of a stopped broker, in few words."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from fencepost.broker.config import Settings
from fencepost.broker.inspection.problems import DirectoryProblem
from fencepost.broker.inspection.repair import Repair, RepairedPartition
from fencepost.broker.inspection.verification import Report, Verification
from fencepost.broker.log.partition_log import Isolation, PartitionLog
from fencepost.broker.storage.disk import Disk
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.record_batch import BatchHeader, iterate_batches, read_header, read_records
from tests.support.log_world import LogWorld, ManualClock, content_of, overwrite


def batches_of(path: str) -> list[tuple[int, BatchHeader]]:
    """The batches of an undamaged log file, each with its position."""
    content = content_of(path)
    found, position = [], 0
    while position < len(content):
        header = read_header(content, position)
        found.append((position, header))
        position += header.size_bytes
    return found


def flip(path: str, position: int, bit: int = 1) -> None:
    """Turn bits of one byte over."""
    overwrite(path, position, bytes([content_of(path)[position] ^ bit]))


def tree(path: str) -> dict[str, tuple[bytes, int]]:
    """Every file with its content and the time of its last change."""
    return {
        str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in Path(path).rglob("*")
        if file.is_file()
    }


def copied(path: str, target: str) -> str:
    """A copy of a data directory, in place of one that was there."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(path, target)
    return target


async def crashed(world: LogWorld) -> str:
    """What a kill -9 leaves."""
    await world.orders.flushed()
    world.disk.unlock(f"{world.path}/.lock")
    world.disk.close()
    return world.path


async def verify(path: str) -> Report:
    return await Verification(path, Settings(log_dirs=path), ManualClock()).run()


async def problems_of(path: str) -> list[DirectoryProblem]:
    return [problem for one in (await verify(path)).partitions for problem in one.problems]


async def repair(
    path: str, *, accept_loss: bool = False, cut: bool = False, disk: Disk | None = None
) -> list[RepairedPartition]:
    own_disk = LocalDisk()
    try:
        repairing = Repair(
            path, disk or own_disk, Settings(log_dirs=path), ManualClock(), accept_loss=accept_loss, cut=cut
        )
        return (await repairing.run())[1]
    finally:
        own_disk.close()


async def served(path: str) -> tuple[PartitionLog, dict[int, bytes | None]]:
    """Start the logs of a directory; the log of ORDERS, stopped again, and all records that it served, by offset."""
    world = LogWorld(path)
    await world.start()
    partition_log = world.orders
    records = {} if partition_log.is_offline else records_of(partition_log)
    await world.stop()
    return partition_log, records


def records_of(partition_log: PartitionLog) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    offset = partition_log.log_start_offset
    while (read := partition_log.read(offset, 1 << 20, isolation=Isolation.LOG_END)).records:
        for batch in iterate_batches(read.records):
            found.update((record.offset, record.value) for record in read_records(batch))
            offset = batch.header.last_offset + 1
    return found


def log_paths(path: str) -> Sequence[str]:
    directory = f"{path}/orders-0"
    return [f"{directory}/{name}" for name in sorted(os.listdir(directory)) if name.endswith(".log")]
