"""A release of a checkout that is not ready is refused in a sentence: tag, date, forgotten notes, changed files."""

from __future__ import annotations

import datetime as dt
import subprocess
from pathlib import Path

import pytest

from scripts.releasing.conditions import notes_for, notes_refusals, refusals

TODAY = dt.date(2026, 11, 30)
READY = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-30\n\n- New.\n\n## [1.2.2] - 2026-11-01\n\n- Old.\n"


def committed(root: Path) -> Path:
    (root / "pyproject.toml").write_text('[project]\nname = "one"\nversion = "1.2.3"\n')
    (root / "CHANGELOG.md").write_text(READY)
    for arguments in (
        ("init", "--quiet"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "One"),
    ):
        subprocess.run(["git", "-C", str(root), *arguments], check=True)
    return root


def test_a_commit_with_its_tag_and_dated_notes_is_ready(tmp_path: Path) -> None:
    assert refusals(committed(tmp_path), "v1.2.3", TODAY) == []


def test_another_tag_and_changed_files_are_named(tmp_path: Path) -> None:
    root = committed(tmp_path)
    (root / "forgotten.py").touch()
    assert refusals(root, "v1.2.4", TODAY) == [
        "the tag is v1.2.4, and that of the version here is v1.2.3",
        "the working tree differs from its commit in 1 files, such as forgotten.py",
    ]


def test_a_version_that_another_commit_was_released_as_is_refused(tmp_path: Path) -> None:
    root = committed(tmp_path)
    git = ("git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run([*git, "tag", "-a", "v1.2.3", "-m", "One"], check=True)
    assert refusals(root, "v1.2.3", TODAY) == []
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "Two"], check=True)
    (refusal,) = refusals(root, "v1.2.3", TODAY)
    assert refusal.startswith("v1.2.3 is already the tag of ")
    assert refusal.endswith(", another commit: set the next version, or check out v1.2.3")


@pytest.mark.parametrize(
    ("before", "after", "refusal"),
    [
        ("[1.2.3]", "[1.2.1]", "CHANGELOG.md has no section [1.2.3]"),
        ("- New.", "", "CHANGELOG.md has no section [1.2.3]"),
        ("[1.2.3] - 2026-11-30", "[1.2.3]", "has no date"),
        ("[1.2.3] - 2026-11-30", "[1.2.3] - soon", "has no date"),
        ("[1.2.3] - 2026-11-30", "[1.2.3] - 2026-12-01", "is of 2026-12-01, which is to come"),
        ("[Unreleased]\n", "[Unreleased]\n\n- Forgotten.\n", "has lines under Unreleased"),
    ],
)
def test_notes_that_are_not_ready_are_named(before: str, after: str, refusal: str) -> None:
    (found,) = notes_refusals(READY.replace(before, after), "1.2.3", TODAY)
    assert refusal in found


def test_links_of_the_notes_lead_into_the_repository_at_the_tag() -> None:
    changelog = READY.replace("- New.", "- [New](docs/new.md#here).")
    assert notes_for(changelog, "1.2.3", None) == "- [New](docs/new.md#here)."
    assert (
        notes_for(changelog, "1.2.3", "https://host/a/b") == "- [New](https://host/a/b/blob/v1.2.3/docs/new.md#here)."
    )
