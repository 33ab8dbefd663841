"""The example services of docs/two-phase.md, killed with SIGKILL at their lines and at those of the library.

After each kill the service is started once more, and both sides must hold the same orders, each once.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fencepost.testing.process import ProcessBroker
from tests.two_phase.databases import KINDS, Database, postgres_database

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples" / "two_phase"
PROGRAMS = {"sqlite": EXAMPLES / "order_service.py", "postgres": EXAMPLES / "order_service_postgres.py"}
ORDERS = ("tea", "milk", "bread")

_numbers = count(1)


class Run:
    """The orders of one database; the topic has those of all."""

    def __init__(self, broker: Any, database: Database) -> None:
        self.broker = broker
        self.database = database
        self.names = [f"{next(_numbers)}-{order}" for order in ORDERS]

    def start(self, *, kill_at: int) -> subprocess.CompletedProcess[str]:
        program = (sys.executable, "-m", "tests.two_phase.killed_at", str(kill_at), str(PROGRAMS[self.database.kind]))
        return subprocess.run(
            [*program, self.broker.bootstrap_servers, self.database.address, *self.names],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def lines(self) -> int:
        """How many lines a run has that nothing kills."""
        done = self.start(kill_at=0)
        assert done.returncode == 0, done.stderr
        lines = int(done.stdout)
        assert lines > 60, "the lines of three transactions"
        return lines

    def check_kill(self, kill_at: int, between: Callable[[], None] = lambda: None) -> None:
        """Kill it at a line, and start it once more: both sides have each order once."""
        done = self.start(kill_at=kill_at)
        assert done.returncode == -9, done.stderr
        between()
        again = self.start(kill_at=0)
        assert again.returncode == 0, f"killed at {kill_at}: {again.stderr}"
        in_topic = [record.value.decode() for record in self.broker.records("orders")]
        own = sorted(name for name in in_topic if name in self.names)
        assert self.database.orders() == own == sorted(self.names), kill_at
        assert self.database.tokens() == []


@pytest.fixture(params=KINDS)
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Database]]:
    made: list[Database] = []

    def new() -> Database:
        if request.param == "sqlite":
            made.append(Database("sqlite", str(tmp_path / f"{len(made)}.sqlite")).create())
        else:
            made.append(postgres_database(request.getfixturevalue("postgres")))
        return made[-1]

    yield new
    for database in made:
        database.close()


def check_kills(broker: Any, new_database: Callable[[], Database], every: int) -> None:
    """Kill at each line whose number is a multiple of `every`; each time with a new database."""
    broker.topic("orders")
    for kill_at in range(1, Run(broker, new_database()).lines() + 1, every):
        database = new_database()
        Run(broker, database).check_kill(kill_at)
        database.close()


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_the_service_is_whole_wherever_it_is_killed(fencepost: Any, new_database: Callable[[], Database]) -> None:
    check_kills(fencepost, new_database, every=29)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_service_is_whole_at_every_line(fencepost: Any, new_database: Callable[[], Database]) -> None:
    check_kills(fencepost, new_database, every=1)


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_the_service_is_whole_when_the_broker_is_killed_between(
    fencepost_process: ProcessBroker, new_database: Callable[[], Database]
) -> None:
    broker = fencepost_process
    broker.topic("orders")
    lines = Run(broker, new_database()).lines()

    def restart() -> None:
        broker.kill()
        broker.restart()

    for kill_at in (lines // 3, lines // 2, lines - 8):
        Run(broker, new_database()).check_kill(kill_at, restart)
