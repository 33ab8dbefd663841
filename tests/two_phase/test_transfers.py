"""Transfers between a table of PostgreSQL and a topic, while writers and broker are killed with kill -9 at random.

Three services, one of each client library, each with an account and a transactional id of its own. At the end the money
is all there, each transfer is on both sides once, and nothing is in doubt. The marker `long` makes 10,000 transfers.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.two_phase import Coordinator
from tests.support.postgres import PostgresServer
from tests.two_phase.brokers import BROKERS, Orders
from tests.two_phase.databases import Database, postgres_database
from tests.two_phase.order_writer import GAVE_UP
from tests.two_phase.sessions import SESSIONS
from tests.two_phase.transfer_writer import TABLE, amount_of

ROOT = Path(__file__).resolve().parents[2]
BALANCE = 1_000_000_000
STUCK_S = 120.0
QUIET_S = {"fencepost": (1.0, 3.0), "apache-kafka": (4.0, 9.0)}
"""Shortest and longest pause between two kills: Apache Kafka needs seconds to start."""


class Transfers:
    """The three writers, and what happens to them. count: transfers of each."""

    def __init__(self, database: Database, orders: Orders, count: int, seed: int) -> None:
        self.database = database
        self.orders = orders
        self.count = count
        self.chance = random.Random(seed)
        self.clients = {f"{orders.transactional_id}-{number}": client for number, client in enumerate(SESSIONS)}
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.happened: Counter[str] = Counter()
        connection = database.connect()
        connection.execute(TABLE)
        for name in self.clients:
            connection.execute("INSERT INTO accounts VALUES (%s, %s, 0)", (name, BALANCE))
        connection.commit()

    def start(self, name: str) -> None:
        about = (self.clients[name], self.database.address, self.orders.servers, self.orders.topic, name)
        self.running[name] = subprocess.Popen(
            [sys.executable, "-m", "tests.two_phase.transfer_writer", *about, str(self.count)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def look(self) -> None:
        """Start again what has ended before its time. Fails for an end that no later session can mend."""
        for name, process in list(self.running.items()):
            if process.poll() is None:
                continue
            output, errors = process.communicate()
            del self.running[name]
            if process.returncode != 0:
                assert process.returncode == GAVE_UP, (self.clients[name], process.returncode, output, errors)
                self.happened[f"{self.clients[name]}: {output.split(':')[0]}"] += 1
                self.start(name)

    def kill_one(self) -> None:
        """Kill the broker, or one of the writers."""
        victim = self.chance.choice(["the broker", *self.running])
        if victim == "the broker":
            self.orders.broker.kill()
            self.orders.broker.restart()
            self.happened["kills of the broker"] += 1
        else:
            process = self.running.pop(victim)
            process.kill()
            process.communicate()
            self.happened["kills of a writer"] += 1
            self.start(victim)

    def made(self) -> int:
        (total,) = self.database.query("SELECT sum(transfers) FROM accounts")[0]
        return int(total)

    def run(self, pauses_s: tuple[float, float]) -> None:
        for name in self.clients:
            self.start(name)
        made, moved_at_s = 0, time.monotonic()
        kill_at_s = moved_at_s + self.chance.uniform(*pauses_s)
        while self.running:
            self.look()
            now_s = time.monotonic()
            if (now := self.made()) > made:
                made, moved_at_s = now, now_s
            assert now_s - moved_at_s < STUCK_S, f"stuck at {made}: {self.happened}"
            if now_s > kill_at_s and self.running:
                self.kill_one()
                kill_at_s = time.monotonic() + self.chance.uniform(*pauses_s)
            time.sleep(0.05)

    def stop(self) -> None:
        for process in self.running.values():
            process.kill()
            process.communicate()

    def check(self) -> None:
        """All is on both sides, once, and nothing is in doubt."""
        records = [record.value.decode().split() for record in self.orders.broker.records(self.orders.topic)]
        found = sorted((name, int(number), int(amount)) for name, number, amount in records)
        wanted = [(name, number, amount_of(number)) for name in self.clients for number in range(1, self.count + 1)]
        assert found == sorted(wanted)
        ((left, transfers),) = self.database.query("SELECT sum(balance), sum(transfers) FROM accounts")
        assert transfers == len(wanted)
        assert left + sum(amount for _, _, amount in found) == BALANCE * len(self.clients)
        assert self.database.tokens() == []
        with Coordinator(self.orders.servers) as coordinator:
            assert coordinator.in_doubt(f"{self.orders.transactional_id}.*") == []


def run(database: Database, orders: Orders, count: int, seed: int, pauses_s: tuple[float, float]) -> str:
    """Make the transfers and check them; returns the figures."""
    transfers = Transfers(database, orders, count, seed)
    started_s = time.monotonic()
    try:
        transfers.run(pauses_s)
    finally:
        transfers.stop()
    took_s = time.monotonic() - started_s
    orders.broker.wait_until(
        lambda: (
            not any(
                state.startswith("Prepare")
                for name, state in orders.broker.transactions().items()
                if name in transfers.clients
            )
        ),
        30,
        lambda: "markers are missing",
    )
    transfers.check()
    total = count * len(transfers.clients)
    return f"{total} transfers in {took_s:.0f} s, {total / took_s:.0f}/s; {dict(sorted(transfers.happened.items()))}"


@pytest.fixture
def accounts(postgres: PostgresServer) -> Any:
    database = postgres_database(postgres)
    yield database
    database.close()


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_no_transfer_is_lost_or_doubled(accounts: Database, killable_orders: Callable[[str], Orders]) -> None:
    run(accounts, killable_orders("fencepost"), 30, 1, QUIET_S["fencepost"])


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("broker", BROKERS)
def test_no_transfer_of_ten_thousand_is_lost_or_doubled(
    broker: str, accounts: Database, killable_orders: Callable[[str], Orders], capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run(accounts, killable_orders(broker), 3_334, 2, QUIET_S[broker])
    with capsys.disabled():
        sys.stdout.write(f"\n{broker}: {figures}\n")
