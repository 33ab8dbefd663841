"""docs/testing.md: its opening, its recipes and its programs run as they are printed; what it names exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost import AsyncBroker, Broker
from fencepost.testing.plugin import FIXTURES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
TESTS = [block for block in BLOCKS if "def test_" in block or "def till(" in block]
PROGRAMS = [block for block in BLOCKS if block not in TESTS]


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("number", range(len(TESTS)))
def test_its_tests_pass(number: int, tmp_path: Path) -> None:
    helpers = next(block for block in TESTS if "def till(" in block)
    test = TESTS[number]
    if test == helpers:
        assert "def test_" not in test
        return
    (tmp_path / "test_page.py").write_text(test if number == 0 else f"{helpers}\n{test}", encoding="utf-8")
    done = run("-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_its_programs_run(program: str, tmp_path: Path) -> None:
    done = run("-c", program, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("b'tea'\n", "")


def test_the_fixture_for_those_who_come_from_containers_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "testing-migration.md").read_text(encoding="utf-8")
    (fixture,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    test = f"{fixture}\ndef test_it(kafka, fencepost):\n    assert kafka == fencepost.bootstrap_servers\n"
    (tmp_path / "test_page.py").write_text(test, encoding="utf-8")
    done = run("-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_each_fixture_method_and_option_has_a_line() -> None:
    for fixture in FIXTURES:
        assert f"| `{fixture}` |" in PAGE
    methods = re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE)
    assert {"topic", "records", "advance", "fail", "crash_after", "fence"} <= set(methods)
    for method in methods:
        assert callable(getattr(Broker, method))
        assert callable(getattr(AsyncBroker, method)) or method == "crash"
    plugin = (ROOT / "fencepost" / "testing" / "plugin.py").read_text(encoding="utf-8")
    assert set(re.findall(r'"(--fencepost-\w+)"', plugin)) == set(re.findall(r"\| `(--fencepost-\w+)", PAGE))
