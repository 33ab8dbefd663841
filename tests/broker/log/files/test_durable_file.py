"""A small file is replaced as a whole: the old one stays until the new one is on the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.log.files.durable_file import replace_durably
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk


async def test_the_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    disk, path = LocalDisk(), tmp_path / "file"
    await replace_durably(disk, str(path), b"first")
    await replace_durably(disk, str(path), b"second")
    assert path.read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["file"]
    disk.close()


async def test_the_name_follows_the_content_and_the_folder_follows_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, path = LocalDisk(), tmp_path / "file"
    steps: list[str] = []
    real_sync, real_rename = disk.sync, disk.rename

    async def sync(files: Sequence[Any], directories: Sequence[str] = ()) -> None:
        steps.append(f"sync {len(files)} files and {list(directories)}")
        await real_sync(files, directories)

    def rename(source: str, target: str) -> None:
        steps.append(f"rename to {os.path.basename(target)}")
        real_rename(source, target)

    monkeypatch.setattr(disk, "sync", sync)
    monkeypatch.setattr(disk, "rename", rename)
    await replace_durably(disk, str(path), b"content")
    assert steps == ["sync 1 files and []", "rename to file", f"sync 0 files and [{str(tmp_path)!r}]"]
    disk.close()


async def test_after_a_failure_the_old_file_is_there_and_takes_no_more_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, path = LocalDisk(), tmp_path / "file"
    path.write_bytes(b"old")

    async def fail(*_about: object) -> None:
        raise StorageError(errno.EIO, "planted", str(path))

    monkeypatch.setattr(disk, "sync", fail)
    with pytest.raises(StorageError, match="planted"):
        await replace_durably(disk, str(path), b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    disk.close()
