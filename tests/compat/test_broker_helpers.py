"""Tests in other languages with a broker of their own, which the helpers of docs/examples start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.broker_helpers import HELPERS, suite_of
from tests.compat.harness import ROOT
from tests.support.conditions import until

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400), pytest.mark.parametrize("language", HELPERS)]

LIMIT_S = 200


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """A file in which each started program notes its process; the programs are those of this checkout."""
    return tmp_path / "started"


@pytest.fixture
def environment(tmp_path: Path, started: Path) -> Iterator[dict[str, str]]:
    program = tmp_path / "fencepost"
    program.write_text(f'#!/bin/sh\necho $$ >> {started}\nexec {sys.executable} -m fencepost "$@"\n')
    program.chmod(0o755)
    yield {**os.environ, "FENCEPOST": str(program)}
    until(lambda: not any(map(is_alive, processes(started))), timeout_s=30)


def processes(started: Path) -> list[int]:
    return [int(line) for line in started.read_text().split()] if started.exists() else []


def is_alive(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run(language: str, suite: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        suite_of(language, suite),
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def test_the_tests_of_the_example_pass_with_one_program_for_all(
    language: str, environment: dict[str, str], started: Path
) -> None:
    finished = run(language, "Orders", environment)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "sixteen minutes took" in finished.stdout
    assert len(processes(started)) == 1


def test_a_failed_test_shows_the_brokers_view_and_a_fault_that_never_fired_fails_one(
    language: str, environment: dict[str, str]
) -> None:
    finished = run(language, "Failing", environment)
    said = finished.stdout + finished.stderr
    assert finished.returncode != 0, said
    assert "never fired: no such request came" in said
    assert "there is no API 'EndTransaction'" in said
    assert "there is no topic 'orders'" in said
    assert "topic orders-0: offsets 0 to 1" in said, "the view of the broker of the test that has read the wrong value"
    # Two tests pass with a topic of the same name, for each has a broker of its own.
    for name in ("wrong", "neverFired", "refused", "waited"):
        assert outcome_of(name, said) == "failed", said
    for name in ("first", "second", "many"):
        assert outcome_of(name, said) == "passed", said


def outcome_of(name: str, said: str) -> str:
    """The outcome of a test by the words and signs of all test runners here."""
    passed = (f"{name}(Broker) ✔", f"PASS: TestFailing/{name}", f"✔ {name}", f"{name} ... ok")
    failed = (f"{name}(Broker) ✘", f"FAIL: TestFailing/{name}", f"✖ {name}", f"{name} ... FAILED")
    return "passed" if any(one in said for one in passed) else "failed" if any(one in said for one in failed) else ""


def test_the_program_ends_with_a_test_runner_that_is_killed(
    language: str, environment: dict[str, str], started: Path
) -> None:
    with subprocess.Popen(suite_of(language, "Orders"), cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) as runner:
        until(lambda: processes(started) or runner.poll() is not None)
        runner.kill()
    until(lambda: not any(map(is_alive, processes(started))), timeout_s=30)


def test_a_program_that_is_not_there_is_named(language: str, environment: dict[str, str], tmp_path: Path) -> None:
    finished = run(language, "Orders", {**environment, "FENCEPOST": str(tmp_path / "absent")})
    said = finished.stdout + finished.stderr
    assert finished.returncode != 0
    assert str(tmp_path / "absent") in said
    assert "FENCEPOST" in said
