"""One process at a time has a folder."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from fencepost.soak.single_instance import alone_in


def is_locked(folder: Path) -> bool:
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_a_folder_is_created_and_locked_until_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with alone_in(folder):
        assert is_locked(folder)
    assert not is_locked(folder)


def test_the_lock_ends_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="broken"), alone_in(tmp_path):
        raise ValueError("broken")
    assert not is_locked(tmp_path)
