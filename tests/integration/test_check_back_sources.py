"""A service with PostgreSQL whose sessions die, hang and race with a check-back: both sides always say the same.

In the broker, and beside it as a process of its own, where a decision and its end are two requests.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from kafka import KafkaConsumer, TopicPartition

from fencepost.check_back.records import AUDIT_TOPIC
from fencepost.two_phase import Coordinator, PostgresLog, confluent_producer, prepare, recover, transaction
from tests.support import conditions
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.postgres import PostgresServer, postgres_server

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WRITERS, ORDERS = 3, 12
BEHAVIOURS = ("dies before", "dies after", "commits", "commits", "is slow")
LONG_S = 1.5
until = partial(conditions.until, timeout_s=60)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


class Service:
    """One instance of a service, which writes orders to its database and to a topic."""

    def __init__(self, bootstrap: str, uri: str, number: int) -> None:
        self.transactional_id = f"order-{number}"
        self.bootstrap, self._uri = bootstrap, uri
        self._chance = random.Random(number)
        self._log = PostgresLog()
        self._connection = psycopg.connect(uri)
        self._producer: Any = None
        self._left: list[Any] = []  # of sessions that hang
        self._generation = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with Coordinator(self.bootstrap) as coordinator:
                for order in range(ORDERS):
                    # The first two of all behaviours but these are left to the check-back for certain.
                    behaviour = BEHAVIOURS[order] if order < 2 else self._chance.choice(BEHAVIOURS)
                    self._write(coordinator, f"{self.transactional_id}-{order}", behaviour)
                    if self._producer is None and (order < 2 or self._chance.random() < 0.5):
                        self._wait_until_decided(coordinator)
        except BaseException as error:  # noqa: BLE001  # the test raises it
            self.failure = error
        finally:
            self._connection.close()

    def _write(self, coordinator: Coordinator, name: str, behaviour: str) -> None:
        try:
            if self._producer is None:
                self._start(coordinator)
            if behaviour.startswith("dies"):
                self._die(name, commits=behaviour == "dies after")
                return
            with transaction(
                self._producer, coordinator, self._log, self._connection, generation=self._generation, timeout_s=10
            ):
                self._insert(name)
                time.sleep(LONG_S if behaviour == "is slow" else self._chance.random() * 0.2)
        except Exception:  # noqa: BLE001  # fenced, or without its database: the next session recovers
            self._end_session()

    def _start(self, coordinator: Coordinator) -> None:
        self._generation = recover(coordinator, self._log, self._connection, self.transactional_id)
        self._producer = confluent_producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": self.transactional_id, "log_level": 0}
        )
        self._producer.init_transactions(20)

    def _die(self, name: str, *, commits: bool) -> None:
        self._log.begin(self._connection, self._generation, self.transactional_id)
        self._producer.begin_transaction()
        self._insert(name)
        self._log.record(self._connection, self._generation, prepare(self._producer, timeout_s=10))
        if commits:
            self._connection.commit()
        self._end_session()

    def _insert(self, name: str) -> None:
        self._connection.execute("INSERT INTO orders VALUES (%s)", (name,))
        self._producer.produce("orders", name.encode(), partition=0)

    def _end_session(self) -> None:
        """As if the process had died, and its connections had not: the producer goes on existing."""
        self._connection.close()
        until(self._connect)
        if self._producer is not None:
            self._left.append(self._producer)
        self._producer = None

    def _connect(self) -> bool:
        try:
            self._connection = psycopg.connect(self._uri)
        except psycopg.OperationalError:
            return False
        return True

    def _wait_until_decided(self, coordinator: Coordinator) -> None:
        until(lambda: not coordinator.in_doubt(self.transactional_id))


@contextmanager
def check_back_beside(bootstrap: str, directory: Path, settings: dict[str, str]) -> Iterator[Path]:
    """`fencepost check-back` as a process; yields the path of its output."""
    config, output = directory / "check-back.properties", directory / "check-back.log"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [sys.executable, "-m", "fencepost", "check-back", "--bootstrap", bootstrap, "--config", str(config)]
    with output.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield output
    finally:
        process.terminate()
        assert process.wait(60) == 0, output.read_text()


def records(bootstrap: str, topic: str) -> list[bytes]:
    """All committed records of partition 0."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    end = consumer.end_offsets([place])[place]
    found: list[bytes] = []
    give_up_at_s = time.monotonic() + 60
    while consumer.position(place) < end:
        assert time.monotonic() < give_up_at_s
        found += [record.value for batch in consumer.poll(200).values() for record in batch]
    consumer.close()
    return found


@pytest.mark.parametrize("door", ["in the broker", "beside it"])
def test_both_sides_say_the_same_whatever_dies_hangs_or_races(
    door: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    uri = postgres.make_schema()
    dsn_file = tmp_path / "shop.dsn"
    dsn_file.write_text(uri)
    with psycopg.connect(uri) as connection:
        PostgresLog().create(connection)
        connection.execute("CREATE TABLE orders (name text PRIMARY KEY)")
    of_shop = {"ids": "order-*", "type": "sql", "claim": "session", "dsn.file": str(dsn_file), "exhausted": "park"}
    of_shop |= {"first.ms": "100", "interval.ms": "100", "backoff": "1", "checks.max": "1000", "timeout.ms": "2000"}
    asked = {f"fencepost.check.back.shop.{name}": value for name, value in of_shop.items()}
    asked |= {"fencepost.check.back.resolvers": "shop"}
    settings = {"num.partitions": "1", "transaction.two.phase.commit.enable": "true"}
    settings |= asked if door == "in the broker" else {"fencepost.two.phase.transactional.ids": "order-*"}
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(tmp_path / "data", settings=settings))
        if door == "beside it":
            stack.enter_context(check_back_beside(broker.bootstrap, tmp_path, asked))
        services = [Service(broker.bootstrap, uri, number) for number in range(WRITERS)]
        threads = [threading.Thread(target=service.run, daemon=True) for service in services]
        for thread in threads:
            thread.start()
        time.sleep(3)
        postgres.restart()  # in the middle
        for thread in threads:
            thread.join(200)
        assert [service.failure for service in services] == [None] * WRITERS
        with Coordinator(broker.bootstrap) as coordinator:
            until(lambda: not coordinator.in_doubt("order-.*"))
        with psycopg.connect(uri) as connection:
            in_database = {name for (name,) in connection.execute("SELECT name FROM orders")}
        in_topic = [value.decode() for value in records(broker.bootstrap, "orders")]
        assert len(in_topic) == len(set(in_topic)), "a record is there twice"
        assert set(in_topic) == in_database
        audit = [json.loads(value) for value in records(broker.bootstrap, AUDIT_TOPIC)]
        decided = {one["decision"] for one in audit if one["event"] == "decision" and one["who"] == "resolver"}
        assert decided == {"commit", "abort"}
        assert str(uri) not in broker.output
