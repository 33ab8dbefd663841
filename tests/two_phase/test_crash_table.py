"""The crash table of docs/two-phase.md with real processes: the writer, the broker, or both end by kill -9 at each row.

Afterwards the service is started once more, and both sides must hold the same orders, each once. Every client library,
database and broker has its turn in the quick selection; the marker `long` has all combinations.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fencepost.two_phase import Coordinator, Outcome, Token
from tests.support.covering import covering
from tests.two_phase.brokers import BROKERS, Orders
from tests.two_phase.databases import KINDS, Database
from tests.two_phase.order_writer import GAVE_UP, RECOVERY_ROWS, ROWS, SIDES_DIFFER
from tests.two_phase.sessions import SESSIONS

ROOT = Path(__file__).resolve().parents[2]
ORDERS = ("tea", "milk", "bread")
LIMIT_S = 90
KILLED = ("writer", "broker", "both")
DURABLE_IN_DATABASE = ("committed in the database", "committed on both sides", "forgotten")
NOWHERE = "nowhere"

OrdersOn = Callable[[str], Orders]


class Writer:
    """A process of the service. client: of SESSIONS."""

    def __init__(
        self,
        client: str,
        database: Database,
        orders: Orders,
        row: str = NOWHERE,
        names: tuple[str, ...] = ORDERS,
        timeout_ms: int = 60_000,
    ) -> None:
        program = (sys.executable, "-m", "tests.two_phase.order_writer", client, database.kind, database.address)
        about = (orders.servers, orders.topic, orders.transactional_id, str(timeout_ms), row)
        self._process = subprocess.Popen(
            [*program, *about, *names],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_at(self, row: str) -> None:
        """Return once it stops at a row."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == f"at {row}\n", (line, *self._process.communicate(timeout=LIMIT_S))

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def go_on(self) -> tuple[int, str]:
        """Let it run to its end; returns its exit code and what it wrote."""
        output, errors = self._process.communicate("\n", timeout=LIMIT_S)
        code = self._process.returncode
        assert code in (0, GAVE_UP, SIDES_DIFFER), (code, output, errors)
        return code, output


@contextmanager
def started(*about: Any, **options: Any) -> Iterator[Writer]:
    writer = Writer(*about, **options)
    try:
        yield writer
    finally:
        writer.kill()


def finish(client: str, database: Database, orders: Orders) -> str:
    """Start the service once more, and let it run to its end."""
    with started(client, database, orders) as writer:
        code, output = writer.go_on()
        assert code == 0, output
        return output


def assert_whole(database: Database, orders: Orders, names: tuple[str, ...] = ORDERS) -> None:
    """Both sides have each order once, and nothing is in doubt."""
    assert database.orders() == sorted(names)
    assert orders.values() == sorted(names)
    assert database.tokens() == []
    assert orders.state() in ("CompleteCommit", "Empty")


def case(row: str, client: str, kind: str, broker: str, killed: str, *, is_quick: bool) -> Any:
    marks = [pytest.mark.integration if is_quick else pytest.mark.long, pytest.mark.timeout(240)]
    return pytest.param(row, client, kind, broker, killed, marks=marks, id=f"{row}-{client}-{kind}-{broker}-{killed}")


def cases() -> Iterator[Any]:
    """Quick are the writer at each row, the broker or both at each row, and three rows on Apache Kafka."""
    table = list(product(ROWS, SESSIONS, KINDS, BROKERS, KILLED))
    quick: set[tuple[str, ...]] = set()
    for killed in (("writer",), ("broker", "both")):
        of_fencepost = [row for row in table if row[3] == "fencepost" and row[4] in killed]
        quick |= {of_fencepost[chosen] for chosen in covering(of_fencepost, len(killed))}
    of_kafka = [row for row in table if row[3] == "apache-kafka" and row[0] == "committed in the database"]
    quick |= {of_kafka[chosen] for chosen in covering(of_kafka)}
    for row in table:
        yield case(*row, is_quick=row in quick)


@pytest.fixture
def database_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Database]]:
    from tests.two_phase.databases import postgres_database, sqlite_database

    made: list[Database] = []

    def of(kind: str) -> Database:
        if kind == "sqlite":
            made.append(sqlite_database(tmp_path))
        else:
            made.append(postgres_database(request.getfixturevalue("postgres")))
        return made[-1]

    yield of
    for database in made:
        database.close()


DatabaseOf = Callable[[str], Database]


@pytest.mark.parametrize(("row", "client", "kind", "broker", "killed"), list(cases()))
def test_both_sides_are_whole_after_a_kill(
    row: str, client: str, kind: str, broker: str, killed: str, killable_orders: OrdersOn, database_of: DatabaseOf
) -> None:
    database, orders = database_of(kind), killable_orders(broker)
    with started(client, database, orders, row) as writer:
        writer.wait_at(row)
        if killed in ("broker", "both"):
            orders.broker.kill()
        if killed in ("writer", "both"):
            writer.kill()
        if killed in ("broker", "both"):
            orders.broker.restart()
        if killed == "broker":
            code, output = writer.go_on()
            assert code != SIDES_DIFFER, output
            if row in DURABLE_IN_DATABASE:
                assert "milk" in database.orders()
        else:
            assert ("milk" in database.orders()) == (row in DURABLE_IN_DATABASE)
    finish(client, database, orders)
    assert_whole(database, orders)


@pytest.mark.integration
@pytest.mark.parametrize("row", RECOVERY_ROWS)
@pytest.mark.parametrize(("client", "kind"), list(zip(SESSIONS, ("postgres", "sqlite", "postgres"), strict=True)))
def test_a_recovery_that_is_killed_is_done_by_the_next_one(
    row: str, client: str, kind: str, killable_orders: OrdersOn, database_of: DatabaseOf
) -> None:
    database, orders = database_of(kind), killable_orders("fencepost")
    for at in ("committed in the database", row, row):
        with started(client, database, orders, at) as writer:
            writer.wait_at(at)
    assert database.tokens() != []
    assert finish(client, database, orders) == "wrote 1\n"
    assert_whole(database, orders)


@pytest.mark.integration
@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("client", SESSIONS)
@pytest.mark.parametrize("row", ROWS)
def test_a_slow_session_and_its_successor_keep_both_sides_whole(
    row: str, client: str, broker: str, killable_orders: OrdersOn, database_of: DatabaseOf
) -> None:
    database, orders = database_of("postgres"), killable_orders(broker)
    with started(client, database, orders, row) as slow:
        slow.wait_at(row)
        with started(client, database, orders, names=("honey",)) as successor:
            if row != "recorded":  # there the claim of the successor waits for the slow one
                assert successor.go_on() == (0, "wrote 1\n")
            code, output = slow.go_on()
            if row == "recorded":
                assert successor.go_on() == (0, "wrote 1\n")
        is_committed = row in (*DURABLE_IN_DATABASE, "recorded")
        assert ("milk" in database.orders()) == is_committed
        if row != "recorded":  # it may have written its last order before its successor went on
            assert code == GAVE_UP, output
    finish(client, database, orders)
    assert_whole(database, orders, (*ORDERS, "honey"))


@pytest.mark.integration
@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("client", SESSIONS)
def test_a_recovery_after_the_time_out_names_what_differs(
    client: str, broker: str, killable_orders: OrdersOn, database_of: DatabaseOf
) -> None:
    database, orders = database_of("sqlite"), killable_orders(broker)
    with started(client, database, orders, "committed in the database", timeout_ms=1_500) as writer:
        writer.wait_at("committed in the database")
    (text,) = database.tokens()
    token = Token.parse(text)
    with Coordinator(orders.servers) as coordinator:
        orders.broker.wait_until(
            lambda: coordinator.outcome(token) is Outcome.ABORTED, 30, lambda: "the time-out has not come"
        )
    for _ in range(2):  # it says so until a person has looked
        with started(client, database, orders) as writer:
            code, output = writer.go_on()
            assert code == SIDES_DIFFER
            assert output.startswith(f"HeuristicOutcome: {token} should be committed, but its coordinator has ended it")
    assert database.orders() == ["milk", "tea"]
    assert orders.values() == ["tea"]
