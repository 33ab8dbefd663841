"""`./scripts/test` runs its parts in order or alone and says how long each step took; `.ci/run` runs them in CI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.locks import ROOT

PARTS = ["units", "simulation", "clients", "languages", "soak"]
FAKE = """#!/usr/bin/env bash
call="$(basename "$0") $*"
echo "$call" >> "$LOG"
if [ -n "${FAILING:-}" ] && [[ "$call" == $FAILING* ]]; then exit 3; fi
"""


class Checkout:
    """A checkout whose environment is set up with programs that only remember how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.log.touch()
        shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / ".ci", folder / ".ci")
        for name in ("requirements.lock", "pyproject.toml"):
            (folder / name).write_text("")
        programs = folder / ".venv" / "bin"
        tools = folder / "tools"
        for place, names in (
            (programs, ("python", "ruff", "mypy", "lint-imports", "pytest", "fencepost")),
            (tools, ("chromium", "sudo", "apt-get")),
        ):
            place.mkdir(parents=True)
            for name in names:
                (place / name).write_text(FAKE)
                (place / name).chmod(0o755)
        wanted = subprocess.run(["cksum"], input="", capture_output=True, text=True, check=True).stdout.strip()
        (folder / ".venv" / ".locked-test").write_text(f"{wanted} {folder}\n")

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if name != "CI"}
        path = f"{self.folder / 'tools'}:{os.environ['PATH']}"
        return subprocess.run(
            [str(self.folder / command[0]), *command[1:]],
            env=inherited | {"PATH": path, "LOG": str(self.log)} | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def called(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def rows(output: str) -> list[tuple[str, str, str]]:
    """Part, outcome and step of each row of the table at the end."""
    _, _, table = output.rpartition("seconds  outcome  step\n")
    found = re.findall(r"^(\w+) +\d+  (passed|failed) {3}(.+)$", table, re.MULTILINE)
    return [(part, outcome, step) for part, outcome, step in found]


def test_all_parts_run_in_order_and_their_seconds_are_a_table(checkout: Checkout) -> None:
    done = checkout.run("scripts/test")
    assert done.returncode == 0, done.stderr
    table = rows(done.stdout)
    assert list(dict.fromkeys(part for part, _, _ in table)) == PARTS
    assert {outcome for _, outcome, _ in table} == {"passed"}
    assert len(table) == len(checkout.called())
    assert re.search(r"^== types: passed after \d+ s$", done.stdout, re.MULTILINE)
    assert re.search(r"^total +\d+$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_runs_alone(checkout: Checkout, part: str) -> None:
    done = checkout.run("scripts/test", "--part", part)
    assert done.returncode == 0, done.stderr
    assert {row[0] for row in rows(done.stdout)} == {part}


@pytest.mark.parametrize("arguments", [("--part", "soak", "units"), ("--part", "soak", "--part", "units")])
def test_several_parts_run_in_the_order_of_their_names(checkout: Checkout, arguments: tuple[str, ...]) -> None:
    checkout.run("scripts/test", *arguments)
    called = checkout.called()
    assert called[0].startswith("fencepost soak")
    assert called[-1].startswith("pytest")


def test_the_folder_of_a_soak_is_removed_only_if_nothing_was_found(checkout: Checkout, tmp_path: Path) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    checkout.run("scripts/test", "--part", "soak", TMPDIR=str(temporary))
    assert list(temporary.iterdir()) == []
    checkout.run("scripts/test", "--part", "soak", TMPDIR=str(temporary), FAILING="fencepost soak")
    assert len(list(temporary.iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--part", "unit"), "there is no part 'unit'"),
        (("--part", "units", "-k", "fetch"), "there is no part '-k'"),
        (("--part",), "--part needs a name"),
    ],
)
def test_a_wrong_part_is_refused_with_the_names_of_the_parts(
    checkout: Checkout, arguments: tuple[str, ...], problem: str
) -> None:
    refused = checkout.run("scripts/test", *arguments)
    assert refused.returncode == 2
    assert refused.stderr == f"fencepost: {problem}; the parts are {' '.join(PARTS)}\n"
    assert checkout.called() == []


def test_the_first_failure_ends_the_run_of_a_person(checkout: Checkout) -> None:
    failed = checkout.run("scripts/test", FAILING="mypy")
    assert failed.returncode == 1
    assert checkout.called()[-1] == "mypy "
    assert failed.stdout.endswith("\nfailed:\n  types\n")


def test_ci_runs_all_steps_and_names_those_that_failed_at_the_end(checkout: Checkout) -> None:
    failed = checkout.run("scripts/test", FAILING="pytest", CI="true")
    assert failed.returncode == 1
    assert checkout.called()[-1].startswith("fencepost soak")
    table = rows(failed.stdout)
    names = [step for _, outcome, step in table if outcome == "failed"]
    assert len(names) == 3
    assert failed.stdout.endswith("\nfailed:\n" + "".join(f"  {name}\n" for name in names))


def test_other_arguments_go_to_pytest(checkout: Checkout) -> None:
    checkout.run("scripts/test", "tests/protocol", "-k", "fetch")
    assert checkout.called() == ["pytest tests/protocol -k fetch"]


@pytest.mark.parametrize("part", PARTS)
def test_ci_installs_a_browser_and_kcat_only_for_parts_that_need_them(checkout: Checkout, part: str) -> None:
    # A PATH on which neither is found, if the machine has them in folders of their own or not.
    (checkout.folder / "tools" / "chromium").unlink()
    bare = checkout.folder / "bare"
    bare.mkdir()
    for name in ("bash", "env", "dirname", "basename", "cat", "cksum", "id", "mktemp", "rm"):
        (bare / name).symlink_to(str(shutil.which(name)))
    done = checkout.run(".ci/run", "--part", part, PATH=f"{checkout.folder / 'tools'}:{bare}")
    assert done.returncode == 0, done.stderr
    installed = [one.split()[-2:] for one in checkout.called() if one.startswith("apt-get install")]
    packages = {word for words in installed for word in words} & {"chromium", "kcat"}
    assert packages == {"clients": {"chromium", "kcat"}, "languages": {"kcat"}}.get(part, set())
    assert {row[0] for row in rows(done.stdout)} == {part}
