"""Reads of a log that cannot be read: an error for a consumer, an exception for a replay."""

from __future__ import annotations

import errno

import pytest

from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.segment.batch_scan import DamagedLogError
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from tests.broker.supervision.planting import raising
from tests.support.log_world import LogWorld

FAILURES = [
    (DamagedLogError("no batch begins there"), ErrorCode.CORRUPT_MESSAGE, False),
    (StorageError(errno.EIO, "a bad sector"), ErrorCode.KAFKA_STORAGE_ERROR, True),
]


@pytest.mark.parametrize(("failure", "error", "is_offline"), FAILURES)
async def test_a_consumer_gets_an_error_and_no_records(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch, failure: Exception, error: ErrorCode, is_offline: bool
) -> None:
    log = world.create()
    world.append(b"v")
    await log.flushed()
    monkeypatch.setattr(LogSegments, "read", raising(failure))
    found = log.read(0, 1_000, isolation=Isolation.READ_UNCOMMITTED)
    assert (found.error, bytes(found.records), found.slice) == (error, b"", None)
    assert log.is_offline is is_offline


@pytest.mark.parametrize(("failure", "error", "is_offline"), FAILURES)
async def test_a_replay_does_not_take_a_part_for_the_whole(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch, failure: Exception, error: ErrorCode, is_offline: bool
) -> None:
    log = world.create()
    world.append(b"v")
    monkeypatch.setattr(LogSegments, "read", raising(failure))
    with pytest.raises(type(failure)):
        log.read(0, 1_000, isolation=Isolation.LOG_END)
    assert log.is_offline is is_offline


async def test_a_slice_of_a_deleted_segment_that_cannot_be_sent_leaves_the_log_online(world: LogWorld) -> None:
    log = world.create()
    world.append(b"v" * 300_000)
    await log.flushed()
    found = log.read(0, 1_000_000, isolation=Isolation.READ_UNCOMMITTED, is_lazy=True)
    assert found.slice is not None
    assert found.slice.failed is not None
    found.slice.failed(StorageError(errno.EBADF, "closed"))
    assert not log.is_offline
    found.slice.failed(StorageError(errno.EIO, "a bad sector"))
    assert log.is_offline
