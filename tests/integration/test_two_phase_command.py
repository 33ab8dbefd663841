"""`fencepost two-phase compare`: both sides of a service's commits, after one of them was restored."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.commands import fencepost
from fencepost.two_phase import Coordinator, confluent_producer, start_session, transaction
from tests.support.broker_process import BrokerProcess
from tests.support.postgres import postgres_server
from tests.two_phase.databases import Database, postgres_database, sqlite_database

Unique = Callable[[str], str]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        made = sqlite_database(tmp_path)
        yield made
    else:
        with postgres_server() as server:
            made = postgres_database(server)
            yield made
            made.close()
    made.close()


class Service:
    """Writes orders, each with the id of its commit, to a database and a topic."""

    def __init__(self, broker: BrokerProcess, database: Database, name: str) -> None:
        self.broker, self.database, self.name = broker, database, name
        self.connection = database.connect()
        self.connection.cursor().execute("ALTER TABLE orders ADD COLUMN commit_id text")
        self.connection.commit()

    def write(self, names: list[str]) -> list[str]:
        """Write orders in a session; returns the ids of their commits."""
        ids = []
        with Coordinator(self.broker.bootstrap) as coordinator:
            producer = confluent_producer({"bootstrap.servers": self.broker.bootstrap, "transactional.id": self.name})
            log, connection = self.database.log, self.connection
            generation = start_session(producer, coordinator, log, connection)
            for name in names:
                with transaction(producer, coordinator, log, connection, generation=generation) as commit:
                    mark = log.placeholder
                    connection.cursor().execute(f"INSERT INTO orders VALUES ({mark}, {mark})", (name, commit.id))
                    producer.produce(self.name, name, headers=commit.headers)
                    producer.produce(self.name, f"{name}, its invoice", headers=commit.headers)
                ids.append(commit.id)
            producer.close()
        return ids

    def compare(self, *options: str) -> Result:
        arguments = ["--database", self.database.address, "--query", "SELECT commit_id FROM orders", "-t", self.name]
        soon = ["--until", str(int(time.time() * 1000) + 1_000)]
        return CliRunner().invoke(
            fencepost, ["two-phase", "compare", "-b", self.broker.bootstrap, *arguments, *soon, *options]
        )

    def delete(self, name: str) -> None:
        self.connection.cursor().execute(f"DELETE FROM orders WHERE name = {self.database.log.placeholder}", (name,))
        self.connection.commit()


def test_equal_sides_and_each_difference_are_told(broker: BrokerProcess, database: Database, unique: Unique) -> None:
    name = unique("compared")
    service = Service(broker, database, name)
    ids = service.write(["tea", "milk", "salt"])
    equal = service.compare()
    assert equal.exit_code == 0, equal.output
    assert equal.stdout == "the sides do not differ\n"
    assert "3 commits with rows, 3 with records; 0 rows and records without an id" in equal.stderr

    service.delete("milk")  # as a restore to an earlier moment does
    service.connection.cursor().execute("INSERT INTO orders VALUES ('pepper', NULL)")
    service.connection.commit()
    differs = service.compare("--json")
    assert differs.exit_code == 1
    (row,) = json.loads(differs.stdout)
    assert (row["difference"], row["commit_id"]) == ("records without a row", ids[1])
    assert row["first_record"].startswith(f"{name}-")
    assert "2 commits with rows, 3 with records; 1 rows and records without an id" in differs.stderr

    lost = service.compare("--json", "--topic", name, "--since", str(int(time.time() * 1000) + 900))
    assert (lost.exit_code, json.loads(lost.stdout)) == (0, []), "all of them began earlier"


def test_a_row_whose_records_are_gone_and_an_open_token_are_told(
    broker: BrokerProcess, tmp_path: Path, unique: Unique
) -> None:
    name = unique("compared")
    database = sqlite_database(tmp_path)
    service = Service(broker, database, name)
    (only,) = service.write(["tea"])
    CliRunner().invoke(fencepost, ["topics", "delete", "-b", broker.bootstrap, name, "--yes"])
    CliRunner().invoke(fencepost, ["topics", "create", "-b", broker.bootstrap, name])
    service.connection.execute("UPDATE fencepost_prepared SET token = '123456789:7:nobody'")
    service.connection.commit()
    result = service.compare("--json")
    assert result.exit_code == 1
    (row,) = json.loads(result.stdout)
    assert (row["difference"], row["commit_id"], row["first_record"]) == ("row without records", only, None)
    assert "token 123456789:7:nobody: the database has committed" in result.stderr
    database.close()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--query", "SELECT nothing FROM orders"], "the database refuses the query: no such column"),
        (["--query", "DELETE FROM orders RETURNING name"], "attempt to write a readonly database"),
        (["--topic", "not-there"], "there is no topic not-there"),
        (["--database", "not-there.sqlite"], "not-there.sqlite is no file, and no URL such as postgresql://"),
        (["--database", "postgresql://127.0.0.1:1/x"], "the database cannot be reached"),
        (["--max-commits", "1"], "there are more than 1 commits: name a range"),
    ],
)
def test_a_refusal_is_one_sentence(
    broker: BrokerProcess, tmp_path: Path, unique: Unique, arguments: list[str], sentence: str
) -> None:
    database = sqlite_database(tmp_path)
    with sqlite3.connect(database.address) as connection:
        for name in ("a", "b"):
            connection.execute("INSERT INTO orders VALUES (?)", (f"01935f0a-0000-7000-8000-00000000000{name}",))
    connection.close()
    topic = unique("refused")
    CliRunner().invoke(fencepost, ["topics", "create", "-b", broker.bootstrap, topic])
    usual = ["--database", database.address, "--query", "SELECT name FROM orders", "--topic", topic]
    result = CliRunner().invoke(fencepost, ["two-phase", "compare", "-b", broker.bootstrap, *usual, *arguments])
    assert result.exit_code == 1
    assert sentence in result.output
    assert "Traceback" not in result.output
    database.close()
