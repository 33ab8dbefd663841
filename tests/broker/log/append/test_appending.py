"""The one way into a log: what fails before the write leaves nothing, and what fails after it takes the log offline."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from fencepost.broker.coordination.shard import CoordinatorRecord
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.log.segment.transaction_index_file import TransactionIndexFile
from fencepost.broker.storage.disk import NoRoomError, StorageError
from fencepost.protocol.errors import ErrorCode
from tests.broker.supervision.planting import raising
from tests.support.log_world import NOW_MS, LogWorld


def client(world: LogWorld, _: PartitionLog) -> None:
    world.append(b"v")


def records(_: LogWorld, log: PartitionLog) -> None:
    log.append_records([CoordinatorRecord(b"k", b"v")], now_ms=NOW_MS)


def marker(_: LogWorld, log: PartitionLog) -> None:
    log.append_marker(7, 0, True, 0, 2, NOW_MS)


@pytest.mark.parametrize("write", [client, records, marker])
async def test_a_full_disk_leaves_nothing_of_an_append_and_the_log_online(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch, write: Callable[[LogWorld, PartitionLog], None]
) -> None:
    log = world.create()
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "append", raising(NoRoomError(errno.ENOSPC, "full")))
        with pytest.raises(NoRoomError):
            write(world, log)
    assert (log.log_end_offset, log.is_offline) == (0, False)
    write(world, log)
    await log.flushed()
    assert log.high_watermark == 1


@pytest.mark.parametrize("write", [client, records, marker])
async def test_a_write_that_fails_otherwise_takes_the_log_offline(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch, write: Callable[[LogWorld, PartitionLog], None]
) -> None:
    log = world.create()
    monkeypatch.setattr(Segment, "append", raising(StorageError(errno.EIO, "a bad sector")))
    with pytest.raises(StorageError, match="a bad sector"):
        write(world, log)
    assert log.is_offline
    with pytest.raises(StorageError, match="offline"):
        write(world, log)


@pytest.mark.parametrize("error", [NoRoomError(errno.ENOSPC, "full"), StorageError(errno.EIO, "a bad sector")])
async def test_a_marker_without_its_entry_in_the_transaction_index_takes_the_log_offline(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch, error: StorageError
) -> None:
    log = world.create()
    appended = world.append(b"v", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert appended.error is ErrorCode.NONE
    monkeypatch.setattr(TransactionIndexFile, "append", raising(error))
    with pytest.raises(StorageError) as raised:
        log.append_marker(7, 1, False, 0, 2, NOW_MS)
    assert not isinstance(raised.value, NoRoomError), "the marker was written"
    assert log.is_offline
