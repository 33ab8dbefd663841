"""`./scripts/test` runs its parts in order or alone and says how long each step took; `.ci/run` runs them in CI."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.locks import ROOT

PARTS = ["units", "simulation", "clients", "languages", "soak"]
FAKE = """#!/usr/bin/env bash
call="$(basename "$0") $*"
echo "$call" >> "$LOG"
if [ -n "${FAILING:-}" ] && [[ "$call" == $FAILING* ]]; then exit 3; fi
if [ -n "${MEETING:-}" ] && [[ "$call" == $MEETING* ]]; then
    until [ "$(grep -c "^$MEETING" "$LOG")" -ge 4 ]; do sleep 0.05; done
    echo "$(grep -o '[-][-]m.*' <<< "$call") met the others"
fi
if [ -n "${WAITING:-}" ] && [[ "$call" == $WAITING* ]]; then
    trap 'echo "interrupted" >> "$LOG"; kill $!; exit 5' INT
    trap 'echo "terminated" >> "$LOG"; kill $!; exit 6' TERM
    echo "waits"
    echo "waits" >> "$LOG"
    sleep 120 &
    wait
fi
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
        with self.started(*command, **environment) as process:
            output, errors = process.communicate(timeout=60)
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def started(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        inherited = {name: value for name, value in os.environ.items() if name != "CI"}
        path = f"{self.folder / 'tools'}:{os.environ['PATH']}"
        return subprocess.Popen(
            [str(self.folder / command[0]), *command[1:]],
            env=inherited | {"PATH": path, "LOG": str(self.log)} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
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
    # One step soaks services on three kinds of brokers, with a call for each.
    assert len(table) == len(checkout.called()) - 2
    assert len([call for call in checkout.called() if "--two-phase" in call]) == 3
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
    checkout.run("scripts/test", "--part", "soak", TMPDIR=str(temporary), FAILING="fencepost soak --directory")
    assert len(list(temporary.iterdir())) == 4


def test_soaks_run_side_by_side_and_each_has_its_output_and_its_outcome(checkout: Checkout) -> None:
    # Each waits for the others: one after another, the first would never end.
    done = checkout.run("scripts/test", "--part", "soak", MEETING="fencepost soak")
    assert done.returncode == 0, done.stderr
    parts = re.split(r"^== (crashes .+)$", done.stdout, flags=re.MULTILINE)
    met = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert "--machines 3 --fault-interval 2 met" in met["crashes of machines and their stores"]
    assert "--processes 3 --fault-interval 2 met" in met["crashes of single processes of several"]
    assert "--machines 3 --minutes 0.2 --fault-interval 1 --rate 60 met" in met["crashes of a service's database"]
    assert "--minutes 2 met" in met["crashes of one process"]


@pytest.mark.parametrize(
    ("signal_number", "noted", "code"), [(signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)]
)
def test_all_soaks_are_ended_in_order_if_the_run_is(
    checkout: Checkout, tmp_path: Path, signal_number: int, noted: str, code: int
) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    with checkout.started("scripts/test", "--part", "soak", WAITING="fencepost soak", TMPDIR=str(temporary)) as process:
        deadline = time.monotonic() + 60
        while checkout.called().count("waits") < 4:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal_number)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert checkout.called().count(noted) == 4
    assert output.count("\nwaits\n") == 4


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


def test_programs_of_a_run_keep_their_bytecode(checkout: Checkout) -> None:
    (checkout.folder / ".venv" / "bin" / "pytest").write_text('#!/bin/sh\necho "<$PYTHONDONTWRITEBYTECODE>"\n')
    done = checkout.run("scripts/test", "tests/protocol", PYTHONDONTWRITEBYTECODE="1")
    assert done.stdout == "<>\n"


@pytest.mark.parametrize("part", PARTS)
def test_ci_installs_tools_only_for_parts_that_need_them(checkout: Checkout, part: str) -> None:
    # A PATH on which neither is found, if the machine has them in folders of their own or not.
    (checkout.folder / "tools" / "chromium").unlink()
    bare = checkout.folder / "bare"
    bare.mkdir()
    for name in ("bash", "env", "dirname", "basename", "cat", "cksum", "id", "mktemp", "rm"):
        (bare / name).symlink_to(str(shutil.which(name)))
    done = checkout.run(".ci/run", "--part", part, PATH=f"{checkout.folder / 'tools'}:{bare}")
    assert done.returncode == 0, done.stderr
    installed = [one.split() for one in checkout.called() if one.startswith("apt-get install")]
    packages = {word for words in installed for word in words} & {"chromium", "kcat", "pgbouncer"}
    needed = {"clients": {"chromium", "kcat", "pgbouncer"}, "languages": {"kcat"}, "soak": {"pgbouncer"}}
    assert packages == needed.get(part, set())
    assert {row[0] for row in rows(done.stdout)} == {part}
