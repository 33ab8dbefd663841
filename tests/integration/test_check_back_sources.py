"""A service with PostgreSQL whose sessions die, hang and race with a check-back: both sides always say the same.

In the broker, and beside it as a process of its own, where a decision and its end are two requests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest
from kafka import KafkaConsumer, TopicPartition

from fencepost.check_back.records import AUDIT_TOPIC
from fencepost.two_phase import Coordinator, PostgresLog
from tests.support import conditions
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.postgres import PostgresServer, postgres_server

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WRITERS = 3
until = partial(conditions.until, timeout_s=60)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@contextmanager
def services_beside(bootstrap: str, uri: str) -> Iterator[subprocess.Popen[str]]:
    """The services, in a process of their own: their sessions that hang end with it."""
    command = [sys.executable, "-m", "tests.integration.order_services", bootstrap, uri, str(WRITERS)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


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
        PostgresLog(weak="accept").create(connection)
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
        services = stack.enter_context(services_beside(broker.bootstrap, uri))
        assert services.stdout is not None
        assert services.stdout.readline() == "they write\n"
        time.sleep(3)
        postgres.restart()  # in the middle
        assert services.stdout.readline() == "done\n", "a failure is on stderr"
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
