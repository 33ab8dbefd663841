"""A data directory in use by a broker is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.broker.inspection.directory_lock import exclusive_use
from fencepost.broker.log.directory.directory_files import LOCK_FILE
from fencepost.broker.storage.disk import StorageError


def test_a_second_user_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    with (
        exclusive_use(str(tmp_path), may_create=True),
        pytest.raises(StorageError, match="in use by a broker"),
        exclusive_use(str(tmp_path), may_create=False),
    ):
        pass
    with exclusive_use(str(tmp_path), may_create=False):
        assert (tmp_path / LOCK_FILE).exists()


def test_a_directory_that_was_never_used_is_not_written_to(tmp_path: Path) -> None:
    with exclusive_use(str(tmp_path), may_create=False):
        assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    with pytest.raises(StorageError, match=f"there is no directory {path}"), exclusive_use(path, may_create=True):
        pass
