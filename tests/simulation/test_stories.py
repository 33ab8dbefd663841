"""A few worlds with every commit, those that ever failed, and that a seed decides everything.

Each in its own process, as for people: the order of sets follows PYTHONHASHSEED, which the entry point fixes.
`./scripts/test` lives through hundreds.
"""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from tests.simulation.script import write_script
from tests.simulation.search import known_seeds

TIMEOUT_S = 500
"""Far more than they take, also on a machine that does much else."""

ON_AN_ENGINE = "1"
"""A seed whose brokers are on an engine."""

pytestmark = pytest.mark.timeout(TIMEOUT_S + 60)


def _simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_the_world_that_stands_for_those_on_an_engine_is_one() -> None:
    assert write_script(random.Random(f"{ON_AN_ENGINE} script")).engine is not None


def test_some_worlds_keep_every_promise() -> None:
    finished = _simulate("--seeds", "1-4")
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_worlds_that_failed_once_keep_every_promise_now() -> None:
    assert len(set(known_seeds())) == len(known_seeds())
    finished = _simulate("--known")
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.mark.parametrize("seed", ["2", ON_AN_ENGINE])
def test_a_seed_decides_everything_that_happens_in_its_world(seed: str) -> None:
    first, second = _simulate("--seed", seed, "--digest"), _simulate("--seed", seed, "--digest")
    assert first.returncode == second.returncode == 0, first.stdout + first.stderr
    assert first.stdout == second.stdout


def test_worlds_of_two_seeds_differ() -> None:
    assert _simulate("--seed", "2", "--digest").stdout != _simulate("--seed", "3", "--digest").stdout
