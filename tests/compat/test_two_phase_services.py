"""One commit over PostgreSQL and a topic from Python, Java and Go: the services of docs/examples, which are killed.

They share one table: each finishes what a service in another language has left.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fencepost.testing.process import ProcessBroker
from fencepost.testing.remote import RemoteBroker
from tests.compat.two_phase_services import TRANSACTIONAL_ID, Service, address_for, started
from tests.support.broker_processes import BrokerProcesses
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.postgres_over_tcp import postgres_over_tcp
from tests.two_phase.databases import Database

pytestmark = [pytest.mark.compat, pytest.mark.timeout(240)]

OTHERS = ("two-phase-java", "two-phase-go")
WRITERS = ("python", *OTHERS)
ENDED = ("", "Empty", "CompleteCommit", "CompleteAbort")
NAMES_PER_START = 50
MOST_STARTING_S = {"two-phase-java": 1.5, "two-phase-java-3.9": 1.5, "two-phase-go": 0.15}
MOST_WORKING_S = 0.25


@pytest.fixture(scope="module")
def postgres() -> Iterator[tuple[PostgresServer, int]]:
    with postgres_server() as server, postgres_over_tcp(server.uri) as port:
        yield server, port


class Shop:
    """A database without tables, and the topic `orders` of a broker. broker: one of fencepost.testing."""

    def __init__(self, broker: Any, postgres: tuple[PostgresServer, int]) -> None:
        self.broker = broker
        self.servers: str = broker.bootstrap_servers
        server, self._port = postgres
        self._conninfo = server.make_schema()
        self.database = Database("postgres", self._conninfo)
        if "orders" not in broker.topics():
            broker.topic("orders")

    def started(self, language: str, names: Sequence[str]) -> Any:
        return started(language, self.servers, address_for(language, self._conninfo, self._port), names)

    def run(self, language: str, names: Sequence[str] = ()) -> None:
        """Start a service, and let it run to its end."""
        with self.started(language, names) as service:
            code, errors = service.ended()
            assert code == 0, errors

    def records(self) -> list[str]:
        return sorted(record.value.decode() for record in self.broker.records("orders"))

    def state(self) -> str:
        """The state of the service's transactional id."""
        found: str = self.broker.transactions().get(TRANSACTIONAL_ID, "")
        return found

    def execute(self, statement: str) -> None:
        """Run statements in the database, and commit them."""
        with self.database.connect() as connection:
            connection.execute(statement)

    def assert_whole(self, names: Sequence[str]) -> None:
        """Both sides have each order once, and nothing is in doubt."""
        self.broker.wait_until(lambda: self.state() in ENDED, 30, lambda: f"a transaction is open: {self.state()}")
        assert self.database.orders() == self.records() == sorted(names)
        assert self.database.tokens() == []

    def close(self) -> None:
        self.database.close()


@contextmanager
def shop_on(broker: Any, postgres: tuple[PostgresServer, int]) -> Iterator[Shop]:
    shop = Shop(broker, postgres)
    try:
        yield shop
    finally:
        shop.close()


@pytest.fixture
def shop(fencepost: Any, postgres: tuple[PostgresServer, int]) -> Iterator[Shop]:
    with shop_on(fencepost, postgres) as made:
        yield made


def leave_token(shop: Shop, language: str, name: str) -> None:
    """Let a service commit an order in the database, and kill it before its coordinator hears of it."""
    fault = shop.broker.disconnect("EndTxn", count=None, on="request", transactional_id=TRANSACTIONAL_ID)
    with shop.started(language, [name]):
        fault.wait_until_fired(timeout=30)
    fault.remove()
    (token,) = shop.database.tokens()
    assert token.endswith(f":{TRANSACTIONAL_ID}")
    assert shop.state() == "Ongoing"


@pytest.mark.parametrize(
    ("writer", "finisher"),
    [
        *(
            (writer, finisher)
            for writer in WRITERS
            for finisher in WRITERS
            if (writer, finisher) != ("python", "python")
        ),
        ("two-phase-java-3.9", "two-phase-go"),
        ("two-phase-go", "two-phase-java-3.9"),
    ],
)
def test_a_token_of_one_language_is_finished_in_another(shop: Shop, writer: str, finisher: str) -> None:
    leave_token(shop, writer, "tea")
    shop.run(finisher, ["tea", "milk"])
    shop.assert_whole(["tea", "milk"])


def test_each_language_makes_the_same_table(fencepost: Any, postgres: tuple[PostgresServer, int]) -> None:
    made = []
    for language in WRITERS:
        with shop_on(fencepost, postgres) as shop:
            shop.run(language)
            made.append(
                shop.database.query(
                    "SELECT attribute.attname, format_type(attribute.atttypid, attribute.atttypmod), "
                    "attribute.attnotnull FROM pg_attribute AS attribute WHERE attribute.attnum > 0 "
                    "AND attribute.attrelid = 'fencepost_prepared'::regclass ORDER BY attribute.attnum"
                )
            )
    expected = [("transactional_id", "text", True), ("generation", "bigint", True), ("token", "text", False)]
    assert made == [expected] * len(WRITERS)


@pytest.mark.parametrize("language", OTHERS)
def test_a_slow_service_commits_nothing_once_its_successor_has_claimed(shop: Shop, language: str) -> None:
    fault = shop.broker.hold("Produce", count=1, on="request")
    with shop.started(language, ["tea"]) as slow:
        fault.wait_until_fired(timeout=30)
        slow.freeze()
        fault.release()
        shop.run(language, ["honey"])
        slow.thaw()
        code, errors = slow.ended()
    assert code != 0
    assert "another session has claimed order-service-1" in errors
    shop.assert_whole(["honey"])


@pytest.mark.parametrize("language", OTHERS)
def test_what_a_slow_service_has_committed_in_the_database_is_finished_by_its_successor(
    shop: Shop, language: str
) -> None:
    fault = shop.broker.hold("EndTxn", count=1, on="request")
    with shop.started(language, ["tea", "milk"]) as slow:
        fault.wait_until_fired(timeout=30)
        slow.freeze()
        shop.run(language, ["honey"])
        fault.release()
        slow.thaw()
        code, errors = slow.ended()
    assert code != 0
    assert "session" in errors, errors
    shop.assert_whole(["tea", "honey"])


HOLDS = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE state = 'idle in transaction'"


@pytest.mark.parametrize("language", OTHERS)
def test_a_service_that_is_late_in_its_start_aborts_nothing_though_its_hold_is_lost(shop: Shop, language: str) -> None:
    fault = shop.broker.hold("InitProducerId", after=1, count=1, on="request")  # the first one is the guard
    with shop.started(language, ["tea"]) as late:
        fault.wait_until_fired(timeout=30)
        shop.execute(HOLDS)
        leave_token(shop, language, "milk")
        fault.release()
        code, errors = late.ended()
    assert code != 0
    assert "another session of order-service-1 has an open transaction" in errors
    assert shop.state() == "Ongoing"
    shop.run(language, ["tea"])
    shop.assert_whole(["tea", "milk"])


FAILING_COMMIT = """
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {statement}; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER failing AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW WHEN (NEW.name = 'lost') EXECUTE FUNCTION fail()
"""


@pytest.mark.parametrize("language", OTHERS)
@pytest.mark.parametrize(
    ("statement", "state"),
    [("RAISE EXCEPTION 'no'", "CompleteAbort"), ("PERFORM pg_terminate_backend(pg_backend_pid())", "Ongoing")],
    ids=["refused", "lost"],
)
def test_a_commit_that_fails_is_aborted_only_if_the_database_says_so(
    shop: Shop, language: str, statement: str, state: str
) -> None:
    shop.run(language, ["tea"])
    shop.execute(FAILING_COMMIT.format(statement=statement))
    with shop.started(language, ["lost", "milk"]) as service:
        code, _ = service.ended()
    assert code != 0
    shop.broker.wait_until(lambda: shop.state() == state, 10, lambda: f"the state is {shop.state()}")
    assert shop.records() == ["tea"]
    shop.execute("DROP TRIGGER failing ON orders")
    shop.run(language, ["lost", "milk"])
    shop.assert_whole(["tea", "lost", "milk"])


def kill_at_random(shop: Shop, language: str, *, kills: int, seed: int, broker_dies: Callable[[], None]) -> None:
    """Start and kill a service again and again; then let it run to its end. Each order must be on both sides, once."""
    chance, numbers = random.Random(seed), count(1)
    shop.run(language)  # the tables are there
    names: list[str] = []
    interrupted = 0
    for kill in range(1, kills + 1):
        done = shop.database.orders()
        names += [f"order-{next(numbers)}" for _ in range(NAMES_PER_START - len(names) + len(done))]
        with shop.started(language, [name for name in names if name not in done]) as service:
            kill_it(service, chance, MOST_STARTING_S[language])
        interrupted += len(done) < len(shop.database.orders()) < len(names)
        if kill % 8 == 0:
            broker_dies()
    assert interrupted >= kills // 6, f"only {interrupted} kills of seed {seed} came while it wrote"
    shop.run(language, names)
    shop.assert_whole(names)


def kill_it(service: Service, chance: random.Random, most_starting_s: float) -> None:
    """One of three is killed in its start."""
    if chance.random() < 1 / 3:
        time.sleep(chance.uniform(0, most_starting_s))
    else:
        service.wait_until_ready()
        time.sleep(chance.uniform(0, MOST_WORKING_S))
    service.kill()


@pytest.mark.parametrize(
    ("language", "kills", "seed"),
    [("two-phase-java", 16, 1), ("two-phase-java-3.9", 8, 2), ("two-phase-go", 40, 3)],
    ids=["java-seed-1", "java-3.9-seed-2", "go-seed-3"],
)
def test_a_service_that_is_killed_at_random_loses_and_doubles_nothing(
    fencepost_process: ProcessBroker, postgres: tuple[PostgresServer, int], language: str, kills: int, seed: int
) -> None:
    def kill_broker() -> None:
        fencepost_process.kill()
        fencepost_process.restart()

    with shop_on(fencepost_process, postgres) as shop:
        kill_at_random(shop, language, kills=kills, seed=seed, broker_dies=kill_broker)


@pytest.mark.parametrize(("language", "seed"), [("two-phase-go", 4)], ids=["go-seed-4"])
def test_nor_against_a_broker_of_three_processes(
    postgres: tuple[PostgresServer, int], tmp_path: Path, language: str, seed: int
) -> None:
    with BrokerProcesses(tmp_path / "data", 3) as processes:
        numbers = count(0)

        def kill_node() -> None:
            node_id = processes.node_ids[next(numbers) % processes.count]
            processes.wait_for_another(node_id, than=processes.kill_node(node_id))
            processes.wait_for_answer(node_id)

        broker = RemoteBroker(processes.bootstrap)
        with shop_on(broker, postgres) as shop:
            kill_at_random(shop, language, kills=24, seed=seed, broker_dies=kill_node)
        broker.close_helpers()
