"""The machine's file system behind the seam: appends that fail leave nothing behind, descriptors are bounded, syncs
tell who failed."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import mmap
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.storage.descriptors import Descriptors
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.file_slice import FileSlice
from fencepost.broker.storage.local_disk import COPIED_BYTES, SMALLEST_MAPPED_BYTES, LocalDisk


@pytest.fixture
def disk() -> Iterator[LocalDisk]:
    local_disk = LocalDisk(Descriptors(8))
    yield local_disk
    local_disk.close()


@pytest.fixture
def file_by_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose own sync is not trusted."""
    monkeypatch.setattr("fencepost.broker.storage.local_disk.reliable_file_system", lambda path, device: None)


def test_what_was_appended_is_read_back_from_any_position(disk: LocalDisk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "file"))
    file.append(b"abc", memoryview(b"defg"), bytearray(b"h"))
    file.append(b"ij")
    assert file.size_bytes == 10
    assert bytes(file.read(2, 4)) == b"cdef"
    assert bytes(file.read(8, 100)) == b"ij"
    assert bytes(file.read(10, 1)) == b""


MANY_BYTES = 2 * SMALLEST_MAPPED_BYTES


@pytest.mark.parametrize("position", [0, 1, 4_095, 4_096, 300_000])
@pytest.mark.parametrize("length_bytes", [1, SMALLEST_MAPPED_BYTES - 1, SMALLEST_MAPPED_BYTES, MANY_BYTES])
def test_a_read_for_sending_returns_the_same_bytes_as_a_plain_read(
    disk: LocalDisk, tmp_path: Path, position: int, length_bytes: int
) -> None:
    file = disk.open(str(tmp_path / "file"))
    file.append(random.Random(position).randbytes(MANY_BYTES + 100))
    piece = bytes(file.read_to_send(position, length_bytes))
    expected = bytes(file.read(position, length_bytes))
    assert piece == expected or (len(piece) == COPIED_BYTES and expected.startswith(piece))
    assert b"".join(FileSlice(file, position, len(expected)).pieces()) == expected


def test_much_that_is_read_to_be_sent_is_not_copied_and_outlives_the_file(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(str(tmp_path / "file"))
    content = bytes(range(256)) * (MANY_BYTES // 256)
    file.append(content)
    monkeypatch.delattr(os, "pread")
    before = len(os.listdir("/proc/self/fd"))
    piece = file.read_to_send(1, MANY_BYTES - 2)
    file.close()
    disk.delete(str(tmp_path / "file"))
    assert bytes(piece) == content[1:-1]
    del piece
    assert len(os.listdir("/proc/self/fd")) == before - 1  # the file's own


def test_much_is_read_where_the_system_does_not_map_it(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoPages(mmap.mmap):
        def madvise(self, *advice: int) -> None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    file = disk.open(str(tmp_path / "file"))
    file.append(bytes(MANY_BYTES))
    monkeypatch.setattr(mmap, "mmap", NoPages)
    lengths = [len(piece) for piece in FileSlice(file, 0, MANY_BYTES).pieces()]
    assert sum(lengths) == MANY_BYTES
    assert max(lengths) < SMALLEST_MAPPED_BYTES


def test_where_descriptors_are_scarce_little_is_copied_at_a_time(tmp_path: Path) -> None:
    descriptors = Descriptors(256)
    disk = LocalDisk(descriptors)
    file = disk.open(str(tmp_path / "file"))
    file.append(bytes(MANY_BYTES))
    descriptors.connected(200)
    assert len(file.read_to_send(0, MANY_BYTES)) == COPIED_BYTES
    disk.close()


def test_a_disk_that_fails_behind_pages_is_an_error_of_the_read(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int, length_bytes: int, position: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = disk.open(str(tmp_path / "file"))
    file.append(bytes(MANY_BYTES))
    real_madvise = mmap.mmap.madvise

    class PagesBehindTheEnd(mmap.mmap):
        """As of a bad sector: there is nothing that the system could bring into memory."""

        def madvise(self, *advice: int) -> None:
            os.truncate(tmp_path / "file", 0)
            real_madvise(self, *advice)

    monkeypatch.setattr(mmap, "mmap", PagesBehindTheEnd)
    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        file.read_to_send(0, MANY_BYTES)


def test_pages_that_are_lost_before_they_are_sent_fail_the_sending_and_not_the_process(
    disk: LocalDisk, tmp_path: Path
) -> None:
    file = disk.open(str(tmp_path / "file"))
    file.append(bytes(MANY_BYTES))
    piece = file.read_to_send(0, MANY_BYTES)
    os.truncate(tmp_path / "file", 0)
    near, far = socket.socketpair()
    with near, far, pytest.raises(OSError, match="Bad address"):
        near.send(piece)


def test_an_existing_file_is_continued_at_its_end(disk: LocalDisk, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    file = disk.open(str(tmp_path / "file"))
    file.append(b"def")
    assert (tmp_path / "file").read_bytes() == b"abcdef"


def test_more_files_than_the_limit_stay_usable_with_few_descriptors(disk: LocalDisk, tmp_path: Path) -> None:
    disk.open(str(tmp_path / "first")).close()  # what is kept open of a file system, whatever files it has
    before = len(os.listdir("/proc/self/fd"))
    files = [disk.open(str(tmp_path / str(number))) for number in range(50)]
    for round_number in range(3):
        for file in files:
            file.append(bytes([round_number]))
    assert len(os.listdir("/proc/self/fd")) - before <= 4
    for file in files:
        assert bytes(file.read(0, 10)) == b"\x00\x01\x02"


@pytest.mark.parametrize("lost", [[b"lost lost"], [b"lost ", b"lost"]], ids=["one buffer", "two buffers"])
def test_a_failed_append_is_cut_back_and_says_where_and_why(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: list[bytes]
) -> None:
    file = disk.open(str(tmp_path / "file"))
    file.append(b"kept")
    real_pwrite = os.pwrite

    def write_a_part_at_first(descriptor: int, content: bytes, position: int) -> int:
        if position == 4:
            return real_pwrite(descriptor, bytes(content)[:3], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, position: real_pwrite(fd, bytes(buffers[0])[:3], position))
    monkeypatch.setattr(os, "pwrite", write_a_part_at_first)
    with pytest.raises(StorageError, match="No space left") as raised:
        file.append(*lost)
    monkeypatch.undo()
    assert raised.value.errno == errno.ENOSPC
    assert raised.value.paths == {str(tmp_path / "file")}
    assert file.size_bytes == 4
    assert (tmp_path / "file").read_bytes() == b"kept"
    file.append(b" after")
    assert (tmp_path / "file").read_bytes() == b"kept after"


@pytest.mark.parametrize("buffers", [[b"abcdef"], [b"abc", b"def"]], ids=["one buffer", "two buffers"])
def test_a_short_write_is_finished(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffers: list[bytes]
) -> None:
    file = disk.open(str(tmp_path / "file"))
    real_pwrite = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, position: real_pwrite(fd, bytes(buffers[0])[:2], position))
    monkeypatch.setattr(os, "pwrite", lambda fd, content, position: real_pwrite(fd, bytes(content)[:1], position))
    file.append(*buffers)
    assert file.size_bytes == 6
    assert (tmp_path / "file").read_bytes() == b"abcdef"


def test_a_small_file_is_replaced_as_a_whole(disk: LocalDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    assert disk.read_file(path) is None
    disk.write_file(path, b"one", durable=True)
    disk.write_file(path, b"two", durable=False)
    assert disk.read_file(path) == b"two"
    assert disk.list(str(tmp_path)) == ["checkpoint"]


def test_directories_are_made_listed_renamed_and_deleted_with_what_they_hold(disk: LocalDisk, tmp_path: Path) -> None:
    directory = str(tmp_path / "a" / "b")
    disk.make_directory(directory)
    disk.make_directory(directory)
    disk.open(f"{directory}/file").append(b"x")
    disk.rename(directory, str(tmp_path / "c"))
    assert disk.list(str(tmp_path)) == ["a", "c"]
    assert disk.exists(str(tmp_path / "c" / "file"))
    disk.delete(str(tmp_path / "c"))
    disk.delete(str(tmp_path / "c"))
    assert disk.list(str(tmp_path)) == ["a"]
    assert disk.list(str(tmp_path / "nowhere")) == ()


def test_a_path_through_a_file_is_a_storage_error_with_the_path(disk: LocalDisk, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file/below"):
        disk.open(str(tmp_path / "file" / "below"))


@pytest.mark.usefixtures("file_by_file")
async def test_a_sync_covers_each_file_and_directory_once(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More files than the disk keeps open: sync threads open some of them again."""
    synced: list[tuple[str, str]] = []

    def recorded(name: str, call: Callable[[int], None]) -> Callable[[int], None]:
        def record(descriptor: int) -> None:
            synced.append((name, os.readlink(f"/proc/self/fd/{descriptor}")))
            call(descriptor)

        return record

    monkeypatch.setattr(os, "fdatasync", recorded("fdatasync", os.fdatasync))
    monkeypatch.setattr(os, "fsync", recorded("fsync", os.fsync))
    files = [disk.open(str(tmp_path / str(number))) for number in range(10)]
    for file in files:
        file.append(b"x")
    assert not synced
    await disk.sync(files, [str(tmp_path)])
    await disk.sync([])
    assert sorted(synced) == [
        *(("fdatasync", str(tmp_path / str(number))) for number in range(10)),
        ("fsync", str(tmp_path)),
    ]


async def test_writing_back_is_a_hint_that_never_fails(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    class Library:
        def syncfs(self, descriptor: int) -> int:
            written.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            return -1

    await disk.write_back(str(tmp_path))
    await disk.write_back(str(tmp_path / "missing"))
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library())
    await disk.write_back(str(tmp_path))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    await disk.write_back(str(tmp_path))
    assert written == [str(tmp_path)]
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_file_closed_while_it_is_synced_gives_its_descriptor_back_afterwards(
    disk: LocalDisk, tmp_path: Path
) -> None:
    file = disk.open(str(tmp_path / "file"))
    file.append(b"x")
    sync = disk.sync([file])
    before = len(os.listdir("/proc/self/fd"))
    file.close()
    await sync
    assert len(os.listdir("/proc/self/fd")) < before
    with pytest.raises(StorageError, match="closed"):
        file.append(b"y")


@pytest.mark.usefixtures("file_by_file")
async def test_a_sync_of_more_files_than_the_limit_keeps_few_of_them_open(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    most = 0
    synced: list[str] = []
    fdatasync = os.fdatasync

    def counted(descriptor: int) -> None:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")))
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted)
    files = [disk.open(str(tmp_path / str(number))) for number in range(60)]
    for file in files:
        file.append(b"content")
    await asyncio.gather(disk.sync(files[:40]), disk.sync(files[40:]))
    assert sorted(synced, key=int) == [str(number) for number in range(60)]
    threads = 4
    assert most - before <= 4 + 2 * threads  # each has its own file open, and what it lists here
    for file in files:
        file.append(b"more")
    assert len(os.listdir("/proc/self/fd")) - before <= 4


async def test_a_file_that_is_deleted_while_it_waits_for_its_sync_needs_none(disk: LocalDisk, tmp_path: Path) -> None:
    files = [disk.open(str(tmp_path / str(number))) for number in range(10)]
    for file in files:
        file.append(b"content")
    syncing = disk.sync(files)
    for number, file in enumerate(files):
        file.close()
        disk.delete(str(tmp_path / str(number)))
    await syncing


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Sync threads open no file before this is set."""
    may_open = threading.Event()
    open_file = os.open

    def open_later(*arguments: Any, **keywords: Any) -> int:
        if threading.current_thread() is not threading.main_thread():
            assert may_open.wait(timeout=30)
        return open_file(*arguments, **keywords)

    monkeypatch.setattr(os, "open", open_later)
    yield may_open
    may_open.set()


@pytest.mark.parametrize("is_renamed", [False, True], ids=["deleted", "renamed"])
async def test_a_file_that_goes_under_another_handle_while_it_is_synced_needs_no_sync(
    disk: LocalDisk, tmp_path: Path, held_back: threading.Event, is_renamed: bool
) -> None:
    path = tmp_path / "00.index"
    path.write_bytes(b"index")
    syncing = disk.sync([disk.open(str(path))])
    if is_renamed:
        disk.rename(str(path), str(tmp_path / "00.index.deleted"))
    else:
        disk.delete(str(path))
    held_back.set()
    await syncing
    # The failure is dropped after the sync: a later sync of the missing file does not report it.
    path.write_bytes(b"another")
    file = disk.open(str(path))
    path.unlink()
    with pytest.raises(StorageError, match="cannot sync"):
        await disk.sync([file])


async def test_a_missing_file_that_was_not_closed_fails_the_sync(disk: LocalDisk, tmp_path: Path) -> None:
    files = [disk.open(str(tmp_path / str(number))) for number in range(10)]
    for file in files:
        file.append(b"content")
    assert not files[0].is_open  # type: ignore[attr-defined]
    os.unlink(tmp_path / "0")
    with pytest.raises(StorageError, match="No such file") as raised:
        await disk.sync(files)
    assert raised.value.paths == {str(tmp_path / "0")}


def no_descriptor_for(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next `count` files that are opened find no descriptor left."""
    left = iter(range(count))
    real_open = os.open

    def refused(*arguments: Any, **named: Any) -> int:
        if next(left, None) is not None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real_open(*arguments, **named)

    monkeypatch.setattr(os, "open", refused)


def test_where_no_descriptor_is_left_files_that_are_not_used_give_theirs(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [disk.open(str(tmp_path / str(number))) for number in range(3)]
    no_descriptor_for(1, monkeypatch)
    disk.open(str(tmp_path / "new")).append(b"content")
    assert (tmp_path / "new").read_bytes() == b"content"
    assert sum(file.is_open for file in files) == 0  # type: ignore[attr-defined]
    no_descriptor_for(1, monkeypatch)
    disk.write_file(str(tmp_path / "small"), b"content", durable=True)
    files[0].append(b"back")
    no_descriptor_for(1, monkeypatch)
    assert disk.read_file(str(tmp_path / "small")) == b"content"


def test_where_no_file_can_give_one_the_error_says_so(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_descriptor_for(1, monkeypatch)
    with pytest.raises(StorageError, match="Too many open files"):
        disk.open(str(tmp_path / "new"))


async def test_a_sync_waits_until_there_is_a_descriptor(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_descriptor_for(5, monkeypatch)
    await disk.sync([], [str(tmp_path)])
    monkeypatch.setattr("fencepost.broker.storage.sync_threads.LONGEST_WAIT_FOR_DESCRIPTOR_S", 0.0)
    no_descriptor_for(1, monkeypatch)
    with pytest.raises(StorageError, match="Too many open files"):
        await disk.sync([], [str(tmp_path)])


async def test_a_file_that_cannot_be_opened_does_not_keep_others_from_being_synced(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, there = disk.open(str(tmp_path / "gone")), disk.open(str(tmp_path / "there"))
    gone.close()
    there.append(b"x")
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    with pytest.raises(StorageError, match="closed") as raised:
        await disk.sync([gone, there])
    assert raised.value.paths == {str(tmp_path / "gone")}
    assert synced == [1]


@pytest.mark.usefixtures("file_by_file")
async def test_a_failed_sync_names_the_paths_that_failed(
    disk: LocalDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [disk.open(str(tmp_path / str(number))) for number in range(3)]
    for number, file in enumerate(files):
        file.append(b"x" * number)
    real_fdatasync = os.fdatasync

    def fail_on_one_byte(descriptor: int) -> None:
        if os.fstat(descriptor).st_size == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real_fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", fail_on_one_byte)
    with pytest.raises(StorageError, match="cannot sync") as raised:
        await disk.sync(files, [str(tmp_path / "missing")])
    assert raised.value.paths == {str(tmp_path / "1"), str(tmp_path / "missing")}


def test_cutting_a_file_leaves_the_time_of_its_last_write(disk: LocalDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a")
    file.append(b"abc")
    file.set_last_write_ms(1_000)
    file.truncate(2)
    assert file.last_write_ms() == 1_000
    file.append(b"d")
    assert file.last_write_ms() > 1_000
