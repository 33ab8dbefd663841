"""`./scripts/check` as a contributor runs it, in a small checkout with tools that only remember their arguments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.locks import ROOT

FAKE = """#!/usr/bin/env bash
echo "$(basename "$0") $*" >> "$LOG"
[ "$(basename "$0")" != "${FAILING:-}" ]
"""
FILES = {
    "fencepost/room/thing.py": "ONE = 1\n",
    "tests/room/test_thing.py": "def test_thing(): ...\n",
    "tests/room/test_other.py": "def test_one(): ...\ndef test_two(): ...\n",
    "tests/room/test_spark.py": "import no_such_package\n",
    "tests/elsewhere/test_it.py": "def test_it(): assert False\n",
    "tests/test_tidy.py": "def test_pages_have_no_riddles(): ...\n",
    "docs/page.md": "A page.\n",
    "pyproject.toml": "[tool.pytest.ini_options]\n",
}


class Checkout:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        self.log = folder / "log"
        self.tools = folder / "tools"
        self.tools.mkdir()
        for name in ("ruff", "dmypy", "lint-imports"):
            (self.tools / name).write_text(FAKE)
            (self.tools / name).chmod(0o755)
        for name, text in FILES.items():
            self.write(name, text)
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("add", ".")
        self.commit()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.folder, check=True, timeout=60)

    def commit(self) -> None:
        names = ("-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")
        self.git(*names, "commit", "--quiet", "--no-verify", "--all", "--message", "m")

    def check(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        self.log.write_text("")
        program = (
            "import sys; from pathlib import Path; from scripts.checking.__main__ import main;"
            f"sys.exit(main(sys.argv[1:], Path({str(self.folder)!r}), Path({str(self.tools)!r})))"
        )
        return subprocess.run(
            [sys.executable, "-P", "-c", program, *arguments],
            cwd=self.folder,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "LOG": str(self.log), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )

    def called(self) -> list[str]:
        return sorted(line.split()[0] for line in self.log.read_text().splitlines())


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_without_a_change_nothing_runs(checkout: Checkout) -> None:
    done = checkout.check()
    assert (done.returncode, done.stdout) == (0, "nothing has changed since main\n")
    assert checkout.called() == []


def test_a_change_on_a_branch_or_not_committed_yet_is_checked_with_the_tests_of_its_room(checkout: Checkout) -> None:
    checkout.git("switch", "--quiet", "--create", "branch")
    checkout.write("fencepost/room/thing.py", "ONE = 2\n")
    checkout.commit()
    checkout.write("tests/room/test_new.py", "def test_new(): ...\n")
    done = checkout.check()
    assert done.returncode == 0, done.stdout + done.stderr
    assert checkout.called() == ["dmypy", "lint-imports", "ruff", "ruff"]
    assert "fencepost/room/thing.py tests/room/test_new.py" in checkout.log.read_text()
    assert "5 passed" in done.stdout
    assert (
        "left out: tests in tests/room/test_spark.py that need no_such_package: ./scripts/test tests/room"
        in done.stdout.splitlines()
    )


def test_a_changed_page_needs_no_types_and_layers(checkout: Checkout) -> None:
    checkout.write("docs/page.md", "Another page.\n")
    done = checkout.check()
    assert done.returncode == 0, done.stdout + done.stderr
    assert checkout.called() == []
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(("failing", "step"), [("ruff", "style"), ("lint-imports", "layers"), ("dmypy", "types")])
def test_a_step_that_fails_fails_the_check_after_the_others_have_run(
    checkout: Checkout, failing: str, step: str
) -> None:
    done = checkout.check("fencepost", FAILING=failing)
    assert done.returncode == 1
    assert "4 passed" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"failed: {step}")


def test_a_test_that_fails_fails_the_check(checkout: Checkout) -> None:
    done = checkout.check("tests/elsewhere/test_it.py")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("failed: tests, after")


@pytest.mark.parametrize(("path", "problem"), [("nowhere", "there is no file or folder"), ("/etc", "is not in")])
def test_a_path_that_is_not_in_the_checkout_is_refused(checkout: Checkout, path: str, problem: str) -> None:
    refused = checkout.check(path)
    assert refused.returncode == 2
    assert problem in refused.stderr
    assert checkout.called() == []
