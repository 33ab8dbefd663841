"""One call for the syncs of many files: what it tells counts only where the system can be trusted to tell all, and
where it has little else to write; everything else is synced file by file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.broker.storage import file_system_sync
from fencepost.broker.storage.descriptors import Descriptors
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.file_system_sync import (
    MOST_UNWRITTEN_BYTES_PER_FILE,
    REFUSED_BEFORE_WRITE_BACK,
    reliable_file_system,
)
from fencepost.broker.storage.local_disk import LocalDisk, LocalFile

UNWRITTEN = "MemTotal: 1 kB\nDirty: {:>12} kB\nWriteback: {:>8} kB\nWritebackTmp: 999999 kB\n"


class System:
    """A Linux that tells all, on which each sync of a file system or a file is noted, and fails on demand."""

    def __init__(self, directory: Path) -> None:
        self.shared_sync_count = 0
        self.files_synced: list[str] = []
        self.shared_sync_fails = False
        self.failing_file: str | None = None
        self.release = "6.18.44-generic"
        self.has_syncfs = True
        self.memory_path = directory / "meminfo"
        self.mounts_path = directory / "mountinfo"
        self.has_unwritten(0)
        self.is_mounted_as("ext4", os.stat(directory).st_dev)

    def has_unwritten(self, dirty_bytes: int, writeback_bytes: int = 0) -> None:
        self.memory_path.write_text(UNWRITTEN.format(dirty_bytes // 1024, writeback_bytes // 1024))

    def is_mounted_as(self, kind: str, device: int) -> None:
        other = "22 1 0:5 / /dev rw,nosuid shared:2 - devtmpfs udev rw\n"
        this = f"25 1 {os.major(device)}:{os.minor(device)} / / rw,relatime shared:1 - {kind} /dev/root rw\n"
        self.mounts_path.write_text(other + this)

    def c_function(self, name: str) -> Callable[[int], int] | None:
        return self._syncfs if self.has_syncfs else None

    def _syncfs(self, descriptor: int) -> int:
        self.shared_sync_count += 1
        return -1 if self.shared_sync_fails else 0

    def fdatasync(self, descriptor: int) -> None:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        self.files_synced.append(name)
        if name == self.failing_file:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    machine = tmp_path / "machine"
    machine.mkdir()
    system = System(machine)
    monkeypatch.setattr(file_system_sync, "c_function", system.c_function)
    monkeypatch.setattr(file_system_sync, "MEMORY_PATH", str(system.memory_path))
    monkeypatch.setattr(file_system_sync, "MOUNTS_PATH", str(system.mounts_path))
    monkeypatch.setattr(os, "fdatasync", system.fdatasync)
    uname = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((uname[0], uname[1], system.release, uname[3], uname[4])))
    return system


@pytest.fixture
def disk(system: System) -> Iterator[LocalDisk]:
    local_disk = LocalDisk(Descriptors(64))
    yield local_disk
    local_disk.close()


def written(disk: LocalDisk, directory: Path, *names: str) -> list[LocalFile]:
    files = []
    for name in names:
        file = disk.open(str(directory / name))
        assert isinstance(file, LocalFile)
        file.append(b"content")
        files.append(file)
    return files


async def test_several_files_are_synced_by_one_call(disk: LocalDisk, system: System, tmp_path: Path) -> None:
    await disk.sync(written(disk, tmp_path, "a", "b", "c"))
    assert (system.shared_sync_count, system.files_synced) == (1, [])


async def test_one_file_is_synced_by_itself(disk: LocalDisk, system: System, tmp_path: Path) -> None:
    await disk.sync(written(disk, tmp_path, "a"))
    assert (system.shared_sync_count, system.files_synced) == (0, ["a"])


async def test_after_a_failed_file_system_sync_the_files_own_syncs_find_the_failed_ones(
    disk: LocalDisk, system: System, tmp_path: Path
) -> None:
    files = written(disk, tmp_path, "a", "b", "c")
    system.shared_sync_fails = True
    system.failing_file = "b"
    with pytest.raises(StorageError) as raised:
        await disk.sync(files)
    assert raised.value.paths == {str(tmp_path / "b")}
    assert system.files_synced == ["a", "b", "c"]


async def test_a_file_system_error_of_other_files_is_not_taken_for_a_failure(
    disk: LocalDisk, system: System, tmp_path: Path
) -> None:
    files = written(disk, tmp_path, "a", "b")
    system.shared_sync_fails = True
    await disk.sync(files)
    assert system.files_synced == ["a", "b"]


async def test_a_failure_that_was_reported_once_is_not_missed_by_later_syncs(
    disk: LocalDisk, system: System, tmp_path: Path
) -> None:
    """The system writes all files in the first sync, and never tells of them again."""
    files = written(disk, tmp_path, "a", "b", "c", "d")
    system.shared_sync_fails = True
    system.failing_file = "c"
    first, second = disk.sync(files[:2]), disk.sync(files[2:])
    await first
    system.shared_sync_fails = False
    with pytest.raises(StorageError) as raised:
        await second
    assert raised.value.paths == {str(tmp_path / "c")}
    await disk.sync(files[:2])
    assert system.shared_sync_count == 1
    assert sorted(system.files_synced) == ["a", "a", "b", "b", "c", "d"]


MOST_FOR_TWO_BYTES = 2 * MOST_UNWRITTEN_BYTES_PER_FILE


@pytest.mark.parametrize(
    ("dirty_bytes", "writeback_bytes", "is_shared"),
    [
        (MOST_FOR_TWO_BYTES, 0, True),
        (MOST_FOR_TWO_BYTES // 2, MOST_FOR_TWO_BYTES // 2, True),
        (MOST_FOR_TWO_BYTES + 1024, 0, False),
        (0, MOST_FOR_TWO_BYTES + 1024, False),
        (MOST_FOR_TWO_BYTES // 2 + 1024, MOST_FOR_TWO_BYTES // 2, False),
    ],
)
async def test_no_sync_waits_for_the_unwritten_bytes_of_other_files(
    disk: LocalDisk, system: System, tmp_path: Path, dirty_bytes: int, writeback_bytes: int, is_shared: bool
) -> None:
    files = written(disk, tmp_path, "a", "b")
    system.has_unwritten(dirty_bytes, writeback_bytes)
    await disk.sync(files)
    assert system.shared_sync_count == int(is_shared)
    assert sorted(system.files_synced) == ([] if is_shared else ["a", "b"])


async def test_more_files_are_worth_a_longer_wait(disk: LocalDisk, system: System, tmp_path: Path) -> None:
    files = written(disk, tmp_path, "a", "b", "c")
    system.has_unwritten(3 * MOST_UNWRITTEN_BYTES_PER_FILE)
    await disk.sync(files)
    await disk.sync(files[:2])
    assert (system.shared_sync_count, sorted(system.files_synced)) == (1, ["a", "b"])


async def test_where_there_are_many_syncs_the_rest_is_written_while_they_go_on(
    disk: LocalDisk, system: System, tmp_path: Path
) -> None:
    directory = tmp_path / "partition"
    directory.mkdir()
    files = written(disk, directory, "a", "b")
    disk.delete(str(directory))  # which another partition's files do not notice
    system.has_unwritten(MOST_FOR_TWO_BYTES + 1024)
    for _ in range(2 * REFUSED_BEFORE_WRITE_BACK):
        await disk.sync(files)
    disk.close()  # after what was begun
    assert system.shared_sync_count == 2
    assert len(system.files_synced) == 4 * REFUSED_BEFORE_WRITE_BACK


@pytest.mark.parametrize("text", ["", "Dirty: 0 kB\n", "Dirty: many kB\nWriteback: 0 kB\n"])
async def test_an_unreadable_amount_of_unwritten_bytes_counts_as_large(
    disk: LocalDisk, system: System, tmp_path: Path, text: str
) -> None:
    files = written(disk, tmp_path, "a", "b")
    system.memory_path.write_text(text)
    await disk.sync(files)
    assert sorted(system.files_synced) == ["a", "b"]


async def test_a_file_that_was_there_before_is_first_synced_by_itself(
    disk: LocalDisk, system: System, tmp_path: Path
) -> None:
    (tmp_path / "old").write_bytes(b"from a process that crashed")
    files = written(disk, tmp_path, "old", "a", "b")
    await disk.sync(files)
    assert (system.shared_sync_count, system.files_synced) == (1, ["old"])
    await disk.sync(files)
    assert (system.shared_sync_count, system.files_synced) == (2, ["old"])


async def test_directories_are_synced_by_themselves(
    disk: LocalDisk, system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: directories.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    await disk.sync(written(disk, tmp_path, "a", "b"), [str(tmp_path)])
    assert (system.shared_sync_count, system.files_synced, directories) == (1, [], [str(tmp_path)])


def is_reliable(directory: Path) -> bool:
    found = reliable_file_system(str(directory), os.stat(directory).st_dev)
    if found is not None:
        found.close()
    return found is not None


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("6.1.0", True),
        ("6.18.44-fc-v669", True),
        ("10.0", True),
        ("6.0.19", False),
        ("5.15.0-91-generic", False),
        ("2.6.39", False),
        ("unknown", False),
    ],
)
def test_only_a_linux_that_reports_every_failure_is_trusted(
    system: System, tmp_path: Path, release: str, expected: bool
) -> None:
    system.release = release
    assert is_reliable(tmp_path) is expected


@pytest.mark.parametrize("kind", ["xfs", "btrfs", "overlay", "tmpfs", "nfs4", "ext3"])
def test_only_file_systems_known_to_wait_for_the_device_are_trusted(system: System, tmp_path: Path, kind: str) -> None:
    assert is_reliable(tmp_path)
    system.is_mounted_as(kind, os.stat(tmp_path).st_dev)
    assert not is_reliable(tmp_path)


def test_nothing_is_trusted_that_is_not_there(system: System, tmp_path: Path) -> None:
    device = os.stat(tmp_path).st_dev
    before = len(os.listdir("/proc/self/fd"))
    assert reliable_file_system(str(tmp_path), device + 1) is None
    assert reliable_file_system(str(tmp_path / "missing"), device) is None
    system.memory_path.unlink()
    assert not is_reliable(tmp_path)
    system.mounts_path.write_text("")
    assert not is_reliable(tmp_path)
    system.mounts_path.unlink()
    assert not is_reliable(tmp_path)
    system.has_syncfs = False
    assert not is_reliable(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_file_system_under_the_tests_is_synced_where_it_is_trusted(tmp_path: Path) -> None:
    found = reliable_file_system(str(tmp_path), os.stat(tmp_path).st_dev)
    (tmp_path / "file").write_bytes(b"content")
    assert found is None or found.sync()
    if found is not None:
        found.close()
