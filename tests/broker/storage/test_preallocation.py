"""Files that grow take room on the disk ahead of what is written, without being any longer; the rest is given back."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.broker.storage import local_disk
from fencepost.broker.storage.descriptors import Descriptors
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.broker.storage.preallocation import ROOM_BYTES, SMALLEST_WITH_ROOM_BYTES, preallocate

BLOCK_BYTES = 512
"""Of `st_blocks`, whatever the file system's are."""


@pytest.fixture
def disk() -> Iterator[LocalDisk]:
    disk = LocalDisk(Descriptors(8))
    yield disk
    disk.close()


class Taken:
    """What was asked for, as position and length in bytes, and whether it is granted."""

    def __init__(self, *, is_granted: bool = True) -> None:
        self.asked: list[tuple[int, int]] = []
        self._is_granted = is_granted

    def __call__(self, descriptor: int, position: int, length_bytes: int) -> bool:
        self.asked.append((position, length_bytes))
        return self._is_granted


def is_supported(path: Path) -> bool:
    with path.open("wb") as file:
        return preallocate(file.fileno(), 0, ROOM_BYTES)


def bring_to_disk(path: Path) -> None:
    """What was written has blocks now."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def test_room_is_taken_behind_the_end_and_given_back(disk: LocalDisk, tmp_path: Path) -> None:
    has_room = is_supported(tmp_path / "another")
    path = tmp_path / "file"
    file = disk.open(str(path))
    file.append(bytes(SMALLEST_WITH_ROOM_BYTES))
    file.append(b"a", b"b")
    size_bytes = SMALLEST_WITH_ROOM_BYTES + 2
    assert path.stat().st_size == file.size_bytes == size_bytes
    if has_room:
        # The pages written before may have no blocks yet.
        assert path.stat().st_blocks * BLOCK_BYTES >= ROOM_BYTES
    bring_to_disk(path)
    file.release_room()
    assert path.stat().st_size == file.size_bytes == size_bytes
    assert path.stat().st_blocks * BLOCK_BYTES < size_bytes + ROOM_BYTES // 2
    assert path.read_bytes() == bytes(SMALLEST_WITH_ROOM_BYTES) + b"ab"


def test_a_large_file_takes_room_once_for_many_appends(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = Taken()
    monkeypatch.setattr(local_disk, "preallocate", taken)
    file = disk.open(str(tmp_path / "file"))
    file.append(bytes(SMALLEST_WITH_ROOM_BYTES))
    assert taken.asked == []
    part_bytes = ROOM_BYTES // 8
    for _ in range(1 + 8):
        file.append(bytes(part_bytes))
    first_end = SMALLEST_WITH_ROOM_BYTES + part_bytes
    assert taken.asked == [(first_end, ROOM_BYTES + part_bytes)]
    file.append(b"as long as before", bytes(part_bytes - 17))
    second_end = first_end + ROOM_BYTES + part_bytes
    assert taken.asked[1:] == [(second_end, ROOM_BYTES + part_bytes)]


def test_a_file_that_was_cut_takes_room_anew(disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Taken()
    monkeypatch.setattr(local_disk, "preallocate", taken)
    file = disk.open(str(tmp_path / "file"))
    file.append(bytes(SMALLEST_WITH_ROOM_BYTES + 2))
    file.truncate(SMALLEST_WITH_ROOM_BYTES)
    file.append(b"a")
    first_end = SMALLEST_WITH_ROOM_BYTES + 2
    assert taken.asked == [(first_end, ROOM_BYTES + first_end), (SMALLEST_WITH_ROOM_BYTES + 1, ROOM_BYTES + 1)]


def test_an_append_that_failed_gives_its_room_back(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(str(tmp_path / "file"))
    file.append(bytes(SMALLEST_WITH_ROOM_BYTES + 1))

    def fail(descriptor: int, content: bytes, position: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fail)
        with pytest.raises(StorageError, match="No space left"):
            file.append(b"lost")
    bring_to_disk(tmp_path / "file")
    assert (tmp_path / "file").stat().st_blocks * BLOCK_BYTES < SMALLEST_WITH_ROOM_BYTES + ROOM_BYTES // 2


def test_where_there_is_no_room_to_take_a_file_grows_as_it_is_written(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = Taken(is_granted=False)
    monkeypatch.setattr(local_disk, "preallocate", taken)
    file = disk.open(str(tmp_path / "file"))
    file.append(bytes(SMALLEST_WITH_ROOM_BYTES))
    for _ in range(3):
        file.append(b"a")
    file.release_room()
    assert len(taken.asked) == 1, "what a file system does not have is asked for again"
    assert (tmp_path / "file").stat().st_size == SMALLEST_WITH_ROOM_BYTES + 3


def test_a_pipe_cannot_be_preallocated(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        assert not preallocate(writing, 0, ROOM_BYTES)
    finally:
        os.close(reading)
        os.close(writing)
