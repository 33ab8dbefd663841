"""A small file that the disk cannot read takes nothing offline, and what another place knows better counts."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from fencepost.broker.log.files.segment_checksums import SegmentChecksums
from fencepost.broker.log.partition_log import Isolation
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from tests.support.captured_events import capture_logs
from tests.support.log_world import ORDERS, LogWorld, content_of, replace

LOG_STARTS = "log-start-offset-checkpoint"
OF_THE_DIRECTORY = ("recovery-point-offset-checkpoint", LOG_STARTS, "cleaner-offset-checkpoint")
OF_THE_PARTITION = (
    "leader-epoch-checkpoint",
    "partition.metadata",
    "segment-checksums",
    "recovery-mark",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000020.snapshot",
)


async def written(world: LogWorld) -> None:
    """A log of 30 records in two segments, with every kind of file beside it."""
    log = world.create()
    for number in range(18):
        world.append(b"v", producer_id=1, producer_epoch=0, base_sequence=number)
    world.append(b"a", producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.end_transaction(2, 1, committed=False)
    log.roll(world.clock.now_ms())
    for number in range(18, 28):
        world.append(b"v", producer_id=1, producer_epoch=0, base_sequence=number)
    await log.flushed()
    log.files.write_recovery_mark(b"")
    log.files.write_epochs_anew(log.epochs).close()
    await world.logs.delete_records({ORDERS: 5})
    replace(f"{world.path}/cleaner-offset-checkpoint", b"0\n0\n")


def failing(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Let the disk fail to read files of a name, until they are written anew."""
    read_file, write_file = LocalDisk.read_file, LocalDisk.write_file
    unreadable = {name}

    def read(disk: LocalDisk, path: str) -> bytes | None:
        if os.path.basename(path) in unreadable:
            raise StorageError(number, f"cannot read {path}: {os.strerror(number)}", path)
        return read_file(disk, path)

    def write(disk: LocalDisk, path: str, content: bytes, *, durable: bool) -> None:
        unreadable.discard(os.path.basename(path))
        write_file(disk, path, content, durable=durable)

    monkeypatch.setattr(LocalDisk, "read_file", read)
    monkeypatch.setattr(LocalDisk, "write_file", write)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("name", [*OF_THE_DIRECTORY, *OF_THE_PARTITION])
async def test_a_small_file_that_the_disk_cannot_read_takes_nothing_offline_and_hides_what_was_hidden(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch, name: str, crash: bool
) -> None:
    await written(world)
    if not crash:
        await world.stop()
    failing(monkeypatch, name, errno.EIO)
    log = await world.restart(crash=True)
    assert not log.is_offline
    assert (log.log_start_offset, log.log_end_offset) == (5, 30)
    fetched = log.read(5, 1 << 20, isolation=Isolation.READ_COMMITTED)
    assert fetched.error is ErrorCode.NONE
    assert world.append(b"v", producer_id=1, producer_epoch=0, base_sequence=27).is_duplicate
    world.append(b"v")
    await log.flushed()
    log = await world.restart(crash=True)
    assert (log.is_offline, log.log_start_offset, log.log_end_offset) == (False, 5, 31)


async def test_a_disk_without_descriptors_is_no_damage(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    await written(world)
    failing(monkeypatch, LOG_STARTS, errno.EMFILE)
    with pytest.raises(StorageError):
        await world.restart(crash=True)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("content", [None, b"0\n0\n", b"0\n1\norders 0 3\n", b"damaged", b"\xff\0"])
async def test_a_log_start_that_went_back_in_the_checkpoint_is_an_error_and_hides_what_was_hidden(
    world: LogWorld, content: bytes | None, crash: bool
) -> None:
    await written(world)
    if not crash:
        await world.stop()
    path = f"{world.path}/{LOG_STARTS}"
    os.remove(path)
    if content is not None:
        replace(path, content)
    with capture_logs() as lines:
        log = await world.restart(crash=True)
    assert log.log_start_offset == 5
    [line] = [line for line in lines if line["event"] == "log_start_went_back"]
    assert (line["path"], line["offset"], line["log_level"]) == (path, 5, "error")
    await world.stop()
    assert content_of(path) == b"0\n1\norders 0 5\n"
    with capture_logs() as lines:
        log = await world.restart(crash=True)
    assert log.log_start_offset == 5
    assert "log_start_went_back" not in [line["event"] for line in lines]


async def test_a_checkpoint_that_is_ahead_of_the_list_counts(world: LogWorld) -> None:
    await written(world)
    replace(f"{world.path}/{LOG_STARTS}", b"0\n1\norders 0 7\n")
    with capture_logs() as lines:
        assert (await world.restart(crash=True)).log_start_offset == 7
    assert "log_start_went_back" not in [line["event"] for line in lines]


async def test_the_noted_log_start_outlives_the_tidying_of_its_list(world: LogWorld) -> None:
    await written(world)
    checksums = world.orders.files.checksums
    for number in range(200):
        checksums.add({f"{number:020d}.snapshot": None}).close()
    checksums.tidy(())
    fresh = SegmentChecksums(world.disk, world.orders.files.directory)
    assert fresh.log_start_offset == 5


async def test_records_that_were_deleted_by_retention_since_make_a_noted_log_start_needless(world: LogWorld) -> None:
    await written(world)
    await world.logs.delete_records({ORDERS: 25})
    world.clock.time_ms += 1
    world.logs.sweep(world.clock.now_ms())
    await world.stop()
    os.remove(f"{world.path}/{LOG_STARTS}")
    assert (await world.restart(crash=True)).log_start_offset == 25


async def test_the_leader_epoch_does_not_fall_when_its_checkpoint_is_lost(world: LogWorld) -> None:
    log = world.create()
    log.leader_epoch = 3
    world.append(b"v")
    world.append(b"w")
    await log.flushed()
    await world.stop()
    os.remove(f"{world.path}/orders-0/leader-epoch-checkpoint")
    with capture_logs() as lines:
        log = await world.restart(crash=True)
    assert log.leader_epoch == 3
    assert "leader_epochs_corrupt" in [line["event"] for line in lines]
    epochs: Any = log.epochs
    assert epochs.epoch_at(1) == 3


async def test_an_empty_log_that_does_not_begin_at_0_keeps_its_offsets_without_its_topic_id(world: LogWorld) -> None:
    log = world.create()
    for _ in range(4):
        world.append(b"v")
    await log.flushed()
    log.roll(world.clock.now_ms())
    await world.logs.delete_records({ORDERS: 4})
    world.logs.sweep(world.clock.now_ms())
    await world.stop()
    replace(f"{world.path}/orders-0/partition.metadata", b"")
    log = await world.restart(crash=True)
    assert (log.is_offline, log.log_start_offset, log.log_end_offset) == (False, 4, 4)
