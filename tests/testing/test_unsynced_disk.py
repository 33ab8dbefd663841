"""The disk of a broker for tests: what a crash takes away, and what it leaves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from fencepost.broker.storage.disk import LogFile, StorageError
from fencepost.testing.unsynced_disk import UnsyncedDisk


async def test_a_loss_takes_what_no_sync_has_reached(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_bytes(b"there ")
    disk = UnsyncedDisk()
    files = [disk.open(str(before)), disk.open(str(after))]
    files[0].append(b"synced ")
    await disk.sync(files)
    for file in files:
        file.append(b"lost")
    disk.lose_unsynced()
    assert (before.read_bytes(), after.read_bytes()) == (b"there synced ", b"")
    with pytest.raises(StorageError, match="the broker has crashed"):
        disk.open(str(tmp_path / "third"))


async def test_a_loss_leaves_what_was_cut_or_written_as_a_whole(tmp_path: Path) -> None:
    disk = UnsyncedDisk()
    cut = disk.open(str(tmp_path / "cut"))
    cut.append(b"0123456789")
    await disk.sync([cut])
    cut.truncate(4)
    disk.write_file(str(tmp_path / "whole"), b"whole", durable=False)
    deleted = disk.open(str(tmp_path / "deleted"))
    deleted.append(b"x")
    disk.delete(deleted.path)
    disk.lose_unsynced()
    assert sorted(os.listdir(tmp_path)) == ["cut", "whole"]
    assert (tmp_path / "cut").read_bytes() == b"0123"


async def test_a_sync_that_ends_the_disk_never_ends(tmp_path: Path) -> None:
    disk = UnsyncedDisk()
    file = disk.open(str(tmp_path / "log"))
    asked: list[Sequence[LogFile]] = []

    def end(files: Sequence[LogFile]) -> bool:
        asked.append(files)
        disk.lose_unsynced()
        return True

    disk.before_sync = end
    assert disk.sync([file]).done()
    file.append(b"lost")
    assert not disk.sync([file]).done()
    assert asked == [[file]]
    assert (tmp_path / "log").read_bytes() == b""
