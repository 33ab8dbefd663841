"""A disk that keeps changes to itself shows what a real one would, and leaves the real one alone."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.broker.inspection.overlay_disk import OverlayDisk
from fencepost.broker.storage.disk import Disk, StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from tests.support.data_directory import tree

DIRECTORIES = ("a", "b")
NAMES = ("one", "two")

paths = st.builds(lambda directory, name: f"{directory}/{name}", st.sampled_from(DIRECTORIES), st.sampled_from(NAMES))
contents = st.binary(max_size=5)


def append(disk: Disk, root: str, path: str, content: bytes) -> None:
    if disk.exists(f"{root}/{path.split('/')[0]}"):
        file = disk.open(f"{root}/{path}")
        file.append(content)
        file.close()


def truncate(disk: Disk, root: str, path: str, content: bytes) -> None:
    if disk.exists(f"{root}/{path}"):
        file = disk.open(f"{root}/{path}")
        file.truncate(min(len(content), file.size_bytes))
        file.close()


def write(disk: Disk, root: str, path: str, content: bytes) -> None:
    if disk.exists(f"{root}/{path.split('/')[0]}"):
        disk.write_file(f"{root}/{path}", content, durable=False)


def delete(disk: Disk, root: str, path: str, _: bytes) -> None:
    disk.delete(f"{root}/{path}")


def delete_directory(disk: Disk, root: str, path: str, _: bytes) -> None:
    disk.delete(f"{root}/{path.split('/')[0]}")


def make_directory(disk: Disk, root: str, path: str, _: bytes) -> None:
    disk.make_directory(f"{root}/{path.split('/')[0]}")


def rename(disk: Disk, root: str, path: str, _: bytes) -> None:
    directory, name = path.split("/")
    if disk.exists(f"{root}/{path}"):
        other = NAMES[1 - NAMES.index(name)]
        disk.rename(f"{root}/{path}", f"{root}/{directory}/{other}")


def rename_directory(disk: Disk, root: str, path: str, _: bytes) -> None:
    directory = path.split("/")[0]
    if disk.exists(f"{root}/{directory}") and not disk.exists(f"{root}/c"):
        disk.rename(f"{root}/{directory}", f"{root}/c")


CALLS: tuple[Callable[[Disk, str, str, bytes], None], ...] = (
    append,
    truncate,
    write,
    delete,
    delete_directory,
    make_directory,
    rename,
    rename_directory,
)


def seen(disk: Disk, root: str) -> dict[str, object]:
    """All that a disk shows."""
    shown: dict[str, object] = {}
    for directory in disk.list(root):
        shown[directory] = list(disk.list(f"{root}/{directory}"))
        for name in disk.list(f"{root}/{directory}"):
            path = f"{root}/{directory}/{name}"
            file = disk.open(path)
            shown[f"{directory}/{name}"] = (disk.read_file(path), bytes(file.read(1, 3)), disk.size_bytes(path))
            assert disk.exists(path)
            file.close()
    return shown


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(CALLS), paths, contents), max_size=12))
def test_the_overlay_behaves_like_a_real_disk(steps: list[tuple[Callable[..., None], str, bytes]]) -> None:
    root = Path(tempfile.mkdtemp())
    real_root, read_root = root / "real", root / "read"
    try:
        for made in (real_root, read_root):
            (made / "a").mkdir(parents=True)
            (made / "a" / "one").write_bytes(b"first")
        before = tree(str(read_root))
        real, overlay = LocalDisk(), OverlayDisk()
        for call, path, content in steps:
            call(real, str(real_root), path, content)
            call(overlay, str(read_root), path, content)
        assert seen(overlay, str(read_root)) == seen(real, str(real_root))
        assert tree(str(read_root)) == before
        real.close()
        overlay.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def test_what_is_no_file_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    with pytest.raises(StorageError, match="directory"):
        OverlayDisk().read_file(str(tmp_path / "directory"))
