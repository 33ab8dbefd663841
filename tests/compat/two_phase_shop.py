"""The shop of the order services: its database and its topic, and services in it that are killed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from tests.compat.two_phase_services import TRANSACTIONAL_ID, address_for, started
from tests.support.conditions import until
from tests.support.postgres import PostgresServer
from tests.support.postgres_over_tcp import PostgresPort
from tests.two_phase.databases import Database

SLEEPS = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
ENDED = ("", "Empty", "CompleteCommit", "CompleteAbort")
NAMES_PER_START = 150
MOST_STARTING_S = {"two-phase-java": 1.5, "two-phase-java-3.9": 1.5, "two-phase-go": 0.15, "python": 1.5}
MOST_WORKING_S = 0.05


class Shop:
    """A database without tables, and the topic `orders` of a broker. broker: one of fencepost.testing."""

    def __init__(self, broker: Any, postgres: tuple[PostgresServer, PostgresPort]) -> None:
        self.broker = broker
        self.servers: str = broker.bootstrap_servers
        server, self.port = postgres
        self._conninfo = server.make_schema()
        self.database = Database("postgres", self._conninfo)
        if "orders" not in broker.topics():
            broker.topic("orders")

    def started(self, language: str, names: Sequence[str]) -> Any:
        return started(language, self.servers, address_for(language, self._conninfo, self.port.port), names)

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

    def wait_for_orders(self, count: int) -> None:
        """Wait until the database has at least this many."""
        until(lambda: len(self.database.orders()) >= count)

    def wait_for_sleep(self) -> None:
        """Wait until a statement of a service sleeps in the database."""
        until(lambda: self.database.query(SLEEPS))

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
def shop_on(broker: Any, postgres: tuple[PostgresServer, PostgresPort]) -> Iterator[Shop]:
    shop = Shop(broker, postgres)
    try:
        yield shop
    finally:
        shop.close()


def leave_token(shop: Shop, language: str, name: str) -> None:
    """Let a service commit an order in the database, and kill it before its coordinator hears of it."""
    fault = shop.broker.disconnect("EndTxn", count=None, on="request", transactional_id=TRANSACTIONAL_ID)
    with shop.started(language, [name]):
        fault.wait_until_fired(timeout=30)
    fault.remove()
    (token,) = shop.database.tokens()
    assert token.endswith(f":{TRANSACTIONAL_ID}")
    assert shop.state() == "Ongoing"


def kill_at_random(
    shop: Shop, languages: Sequence[str], *, kills: int, seed: int, broker_dies: Callable[[], None] = lambda: None
) -> None:
    """Start and kill services, one after the other, and let one run to its end: both sides have each order, once.

    languages: each start takes the next one. The broker dies after each eighth kill, or twice if there are few.
    """
    chance, numbers = random.Random(seed), count(1)
    shop.run(languages[0])  # the tables are there
    names: list[str] = []
    interrupted = 0
    for kill in range(1, kills + 1):
        language = languages[kill % len(languages)]
        done = shop.database.orders()
        names += [f"order-{next(numbers)}" for _ in range(NAMES_PER_START - len(names) + len(done))]
        with shop.started(language, [name for name in names if name not in done]) as service:
            if chance.random() < 1 / 3:
                time.sleep(chance.uniform(0, MOST_STARTING_S[language]))
            else:
                shop.wait_for_orders(len(done) + chance.randint(1, 4))
                time.sleep(chance.uniform(0, MOST_WORKING_S))
            service.kill()
        interrupted += len(done) < len(shop.database.orders()) < len(names)
        if kill % min(8, max(2, kills // 2)) == 0:
            broker_dies()
    assert interrupted >= kills // 4, f"only {interrupted} kills of seed {seed} came while it wrote"
    shop.run(languages[0], names)
    shop.assert_whole(names)
