"""`fencepost two-phase compare`: both sides of a service's commits, after one of them was restored."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.commands import fencepost as command
from fencepost.two_phase import Coordinator, confluent_producer, start_session, transaction
from tests.support.postgres import postgres_server
from tests.two_phase.databases import Database, postgres_database, sqlite_database


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
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

    def __init__(self, bootstrap: str, database: Database, name: str) -> None:
        self.bootstrap, self.database, self.name = bootstrap, database, name
        self.connection = database.connect()
        self.connection.cursor().execute("ALTER TABLE orders ADD COLUMN commit_id text")
        self.connection.commit()

    def write(self, names: list[str]) -> list[str]:
        """Write orders in a session; returns the ids of their commits."""
        ids = []
        with Coordinator(self.bootstrap) as coordinator:
            producer = confluent_producer({"bootstrap.servers": self.bootstrap, "transactional.id": self.name})
            log, connection = self.database.log, self.connection
            generation = start_session(producer, coordinator, log, connection)
            for name in names:
                with transaction(producer, coordinator, log, connection, generation=generation) as commit:
                    mark = self.database.mark
                    connection.cursor().execute(f"INSERT INTO orders VALUES ({mark}, {mark})", (name, commit.id))
                    producer.produce(self.name, name, headers=commit.headers)
                    producer.produce(self.name, f"{name}, its invoice", headers=commit.headers)
                ids.append(commit.id)
            producer.close()
        return ids

    def compare(self, *options: str) -> Result:
        arguments = ["--database", self.database.address, "--query", "SELECT commit_id FROM orders", "-t", self.name]
        soon = ["--until", str(int(time.time() * 1000) + 1_000)]
        return CliRunner().invoke(command, ["two-phase", "compare", "-b", self.bootstrap, *arguments, *soon, *options])

    def delete(self, name: str) -> None:
        self.connection.cursor().execute(f"DELETE FROM orders WHERE name = {self.database.mark}", (name,))
        self.connection.commit()


def test_the_command_lists_each_difference_and_none_of_equal_sides(fencepost: Any, database: Database) -> None:
    name = fencepost.topic("compared")
    service = Service(fencepost.bootstrap_servers, database, name)
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


def test_the_command_lists_a_row_whose_records_are_gone_and_the_open_tokens(fencepost: Any, tmp_path: Path) -> None:
    name = fencepost.topic("compared")
    database = sqlite_database(tmp_path)
    service = Service(fencepost.bootstrap_servers, database, name)
    (only,) = service.write(["tea"])
    CliRunner().invoke(command, ["topics", "delete", "-b", fencepost.bootstrap_servers, name, "--yes"])
    CliRunner().invoke(command, ["topics", "create", "-b", fencepost.bootstrap_servers, name])
    service.connection.execute("UPDATE fencepost_prepared SET token = '123456789:7:nobody'")
    service.connection.commit()
    result = service.compare("--json")
    assert result.exit_code == 1
    (row,) = json.loads(result.stdout)
    assert (row["difference"], row["commit_id"], row["first_record"]) == ("row without records", only, None)
    assert "token 123456789:7:nobody: the database has committed" in result.stderr
    database.close()


def test_more_commits_than_fit_into_memory_are_refused(
    fencepost: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.cli.two_phase.MOST_COMMITS", 1)
    database = sqlite_database(tmp_path)
    service = Service(fencepost.bootstrap_servers, database, fencepost.topic("compared"))
    service.write(["tea", "milk"])
    result = service.compare()
    assert result.exit_code == 1
    assert "there are more than 1 commits" in result.output
    assert "name a range with --since and --until" in result.output
    database.close()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--query", "SELECT absent FROM orders"], "the database refuses the query: no such column"),
        (["--query", "DELETE FROM orders RETURNING name"], "attempt to write a readonly database"),
        (["--topic", "not-there"], "there is no topic not-there"),
        (["--database", "not-there.sqlite"], "not-there.sqlite is no file, and no URL such as postgresql://"),
        (["--database", "postgresql://127.0.0.1:1/x"], "the database cannot be reached"),
    ],
)
def test_a_refusal_is_one_sentence(fencepost: Any, tmp_path: Path, arguments: list[str], sentence: str) -> None:
    database = sqlite_database(tmp_path)
    with sqlite3.connect(database.address) as connection:
        for name in ("a", "b"):
            connection.execute("INSERT INTO orders VALUES (?)", (f"01935f0a-0000-7000-8000-00000000000{name}",))
    connection.close()
    topic = fencepost.topic("refused")
    usual = ["--database", database.address, "--query", "SELECT name FROM orders", "--topic", topic]
    result = CliRunner().invoke(
        command, ["two-phase", "compare", "-b", fencepost.bootstrap_servers, *usual, *arguments]
    )
    assert result.exit_code == 1
    assert sentence in result.output
    assert "Traceback" not in result.output
    database.close()
