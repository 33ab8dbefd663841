"""The type checker's daemon is restarted if it is broken, and left to itself if it takes too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.checking.type_daemon import Types, errors_in, is_broken


def dmypy(folder: Path, script: str) -> Path:
    program = folder / "dmypy"
    program.write_text(f'#!/usr/bin/env bash\necho "$*" >> {folder}/calls\n{script}\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("status", "passed"), [(0, True), (1, False)])
def test_the_answer_of_the_daemon_is_its_status(tmp_path: Path, status: int, passed: bool) -> None:
    types = Types(dmypy(tmp_path, f"echo found; exit {status}"), tmp_path, has_all_packages=True)
    assert types.wait(60) is passed
    assert types.output == "found\n"
    assert (tmp_path / "calls").read_text().splitlines() == ["run --timeout 10800 --"]


def test_a_broken_daemon_is_killed_and_started_again_once(tmp_path: Path) -> None:
    types = Types(dmypy(tmp_path, "echo Daemon crashed!; exit 2"), tmp_path, has_all_packages=True)
    assert types.wait(60) is False
    calls = [call.split()[0] for call in (tmp_path / "calls").read_text().splitlines()]
    assert calls == ["run", "kill", "run"]
    assert types.output == "Daemon crashed!\n"


def test_an_answer_that_takes_too_long_is_not_waited_for(tmp_path: Path) -> None:
    types = Types(dmypy(tmp_path, "exec sleep 600"), tmp_path, has_all_packages=True)
    assert types.wait(-1.0) is None


def test_a_syntax_error_is_no_broken_daemon() -> None:
    assert is_broken(2, "Daemon crashed!\nTraceback (most recent call last):")
    assert not is_broken(2, "a.py:1: error: Invalid syntax  [syntax]")
    assert not is_broken(1, "")


def test_errors_in_files_whose_packages_are_missing_are_left_out() -> None:
    output = "a.py:1: error: one  [x]\na.py:1: note: see\nb.py:2: error: two  [y]\nFound 2 errors in 2 files\n"
    assert errors_in(output, lambda path: path == "a.py") == output.splitlines()[:2]
