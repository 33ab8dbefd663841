"""What a trial cluster needs of its machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fencepost.soak import trial_services
from fencepost.soak.trial_services import TrialError, closed_to

SOMEBODY = 65_533
"""A user and a group who own nothing here."""


@pytest.fixture
def open_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that all may enter. Those above it do not matter here."""
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    found = Path.resolve
    monkeypatch.setattr(Path, "resolve", lambda path: _Below(found(path), tmp_path))
    return folder


class _Below:
    """A path whose parents end above a folder."""

    def __init__(self, path: Path, top: Path) -> None:
        self._path = path
        self.parents = [one for one in path.parents if top in one.parents]

    def stat(self) -> os.stat_result:
        return self._path.stat()

    def __str__(self) -> str:
        return str(self._path)


def test_the_folder_that_a_user_may_not_enter_is_found(open_folder: Path) -> None:
    (open_folder / "closed" / "below").mkdir(parents=True)
    assert closed_to(open_folder / "closed" / "below", SOMEBODY, SOMEBODY) is None
    (open_folder / "closed").chmod(0o700)
    assert closed_to(open_folder / "closed" / "below", SOMEBODY, SOMEBODY) == open_folder / "closed"
    assert closed_to(open_folder / "closed" / "below", os.geteuid(), SOMEBODY) is None
    (open_folder / "closed").chmod(0o710)
    assert closed_to(open_folder / "closed" / "below", SOMEBODY, (open_folder / "closed").stat().st_gid) is None


@pytest.mark.parametrize(
    ("closed", "said"),
    [
        ("data", "below which its data are: name a directory that all may enter, such as /tmp/try"),
        ("programs", "below which its programs are: install fencepost in a folder that all may enter"),
    ],
)
def test_what_is_said_of_a_closed_folder_helps(open_folder: Path, closed: str, said: str) -> None:
    for name in ("data", "programs"):
        (open_folder / name).mkdir(mode=0o700 if name == closed else 0o755)
    with pytest.raises(TrialError, match=said) as refusal:
        trial_services._require_way("nobody", SOMEBODY, SOMEBODY, open_folder / "data", open_folder / "programs")
    assert f"may not enter {open_folder / closed}, " in str(refusal.value)
