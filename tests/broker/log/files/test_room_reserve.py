"""The reserve of disk space: taken where there is room, released once, and no error if there is none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fencepost.broker.log.files.room_reserve import RESERVE_BYTES, RoomReserve
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from tests.support.captured_events import capture_logs


def test_what_was_taken_is_released_once(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    reserve = RoomReserve(LocalDisk(), str(path))
    reserve.take()
    reserve.take()
    assert path.stat().st_size == RESERVE_BYTES
    with capture_logs() as lines:
        assert reserve.release()
        assert not reserve.release()
    assert not path.exists()
    assert [line["event"] for line in lines] == ["log_start_reserve_used"]


def test_a_reserve_that_is_too_small_is_taken_anew(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    path.write_bytes(bytes(10))
    RoomReserve(LocalDisk(), str(path)).take()
    assert path.stat().st_size == RESERVE_BYTES


def test_on_a_full_disk_nothing_is_taken_and_nothing_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = LocalDisk()

    def full(path: str, *_about: object, **_options: object) -> None:
        raise StorageError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(disk, "write_file", full)
    reserve = RoomReserve(disk, str(tmp_path / "reserve"))
    reserve.take()
    assert not reserve.release()
