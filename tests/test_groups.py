"""Tests that share a server run in one of the processes of `pytest --dist loadgroup`: else each would start its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.support.broker_process import ROOT

SHARING = """
import os
import pytest


@pytest.fixture(scope="module")
def server():
    return os.getpid()


@pytest.mark.parametrize("number", range(6))
def test_shared(server, number):
    assert server == os.getpid()


@pytest.mark.xdist_group("named")
@pytest.mark.parametrize("number", range(6))
def test_named(number):
    pass
"""


def test_tests_that_share_a_fixture_of_their_module_or_a_named_group_run_in_one_process(tmp_path: Path) -> None:
    for name in ("test_one.py", "test_other.py"):
        (tmp_path / name).write_text(SHARING, encoding="utf-8")
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "--numprocesses", "2", "--dist", "loadgroup"]
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *options, f"--rootdir={tmp_path}", "--confcutdir", tmp_path, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    processes = defaultdict(set)
    for process, group in re.findall(r"\[(gw\d)\].* PASSED .*@(\w+)", finished.stdout):
        processes[group].add(process)
    assert {group: len(found) for group, found in processes.items()} == {"test_one": 1, "test_other": 1, "named": 1}


def test_the_folders_that_the_script_names_have_all_tests_of_their_markers() -> None:
    """Other folders are not searched: to collect all tests takes half a minute in each process."""
    text = (ROOT / "scripts" / "test").read_text(encoding="utf-8")
    (braces,) = re.findall(r"tests/\{([\w,]+)\}", text)
    (languages,) = re.findall(r'-m "compat and not long"((?: tests/\w+)+)\n\}', text)
    folders = {"integration|spark": set(braces.split(",")), "compat": set(re.findall(r"tests/(\w+)", languages))}
    for markers, named in folders.items():
        marked = re.compile(rf"\bmark\.({markers})\b")
        paths = [
            path for path in (ROOT / "tests").rglob("test_*.py") if marked.search(path.read_text(encoding="utf-8"))
        ]
        found = {path.relative_to(ROOT / "tests").parts[0] for path in paths} - {"test_groups.py"}
        assert found - named == set(), markers
