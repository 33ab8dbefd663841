"""The example service of docs/two-phase.md, killed with SIGKILL at its lines and at those of the library.

After each kill the service is started once more, and both sides must hold the same orders, each once.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fencepost.testing.process import ProcessBroker

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "docs" / "examples" / "two_phase" / "order_service.py"
ORDERS = ["tea", "milk", "bread"]


def names_of(database: Path) -> list[str]:
    """The orders of a run: the topic has those of all runs."""
    return [f"{database.stem}-{order}" for order in ORDERS]


def run(broker: Any, database: Path, *, kill_at: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.two_phase.killed_at",
            str(kill_at),
            str(PROGRAM),
            broker.bootstrap_servers,
            str(database),
            *names_of(database),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def assert_whole(broker: Any, database: Path) -> None:
    """Both sides have each order of the run once."""
    connection = sqlite3.connect(database)
    in_database = [name for (name,) in connection.execute("SELECT name FROM orders ORDER BY name")]
    connection.close()
    in_topic = [record.value.decode() for record in broker.records("orders")]
    own = [name for name in in_topic if name in names_of(database)]
    assert in_database == sorted(own) == sorted(names_of(database)), database.stem


def check_kills(broker: Any, directory: Path, every: int) -> None:
    """Kill at each line whose number is a multiple of `every`; each time with a new database."""
    broker.topic("orders")
    done = run(broker, directory / "whole.sqlite", kill_at=0)
    assert done.returncode == 0, done.stderr
    lines = int(done.stdout)
    assert lines > 60, "the lines of three transactions"
    killed = 0
    for kill_at in range(1, lines + 1, every):
        database = directory / f"{kill_at}.sqlite"
        done = run(broker, database, kill_at=kill_at)
        assert done.returncode == -9, done.stderr
        killed += 1
        again = run(broker, database, kill_at=0)
        assert again.returncode == 0, f"killed at {kill_at}: {again.stderr}"
        assert_whole(broker, database)
    assert killed == len(range(1, lines + 1, every))


@pytest.mark.integration
@pytest.mark.timeout(180)
def test_the_service_is_whole_wherever_it_is_killed(fencepost: Any, tmp_path: Path) -> None:
    check_kills(fencepost, tmp_path, every=13)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_service_is_whole_at_every_line(fencepost: Any, tmp_path: Path) -> None:
    check_kills(fencepost, tmp_path, every=1)


@pytest.mark.integration
@pytest.mark.timeout(180)
def test_the_service_is_whole_when_the_broker_is_killed_between(
    fencepost_process: ProcessBroker, tmp_path: Path
) -> None:
    broker = fencepost_process
    broker.topic("orders")
    done = run(broker, tmp_path / "whole.sqlite", kill_at=0)
    lines = int(done.stdout)
    for kill_at in (lines // 3, lines // 2, lines - 8):
        database = tmp_path / f"{kill_at}.sqlite"
        assert run(broker, database, kill_at=kill_at).returncode == -9
        broker.kill()
        broker.restart()
        assert run(broker, database, kill_at=0).returncode == 0
        assert_whole(broker, database)
