"""A PostgreSQL with a synchronous standby: promoted, while the old primary is dead or alive."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from fencepost.soak import postgres_pair
from fencepost.soak.postgres_pair import PostgresPair, _serves_client, go


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[PostgresPair]:
    made = PostgresPair(tmp_path, "postgres")
    try:
        made.start()
        yield made
    finally:
        made.close()


def value(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return None if cursor.description is None else cursor.fetchone()[0]  # type: ignore[index]


def test_a_promoted_standby_has_all_commits_while_the_old_primary_lives_on_and_becomes_its_standby(
    pair: PostgresPair,
) -> None:
    old = pair.primary
    value(pair.own_url, "CREATE TABLE kept (number int)")
    value(pair.own_url, "INSERT INTO kept VALUES (1)")
    go(pair.promote(is_old_lost=False))
    assert pair.primary is not old
    assert value(old.url, "SELECT count(*) FROM kept") == 1, "it answers"
    with subprocess.Popen(pair.psql("INSERT INTO kept VALUES (2)", old.url)) as unacknowledged:
        value(pair.own_url, "INSERT INTO kept VALUES (3)")
        go(pair.make_standby())
    assert unacknowledged.returncode, "no standby had it"
    assert pair.standby is old
    assert value(old.url, "SELECT pg_is_in_recovery()")
    go(pair.promote())
    assert value(pair.own_url, "SELECT sum(number) FROM kept") == 4, "what no standby had is gone"


def test_data_that_are_kept_are_those_of_the_last_primary(tmp_path: Path) -> None:
    for number in (1, 2):
        pair = PostgresPair(tmp_path, "postgres", kept=tmp_path / "kept")
        try:
            pair.start()
            value(pair.own_url, "CREATE TABLE IF NOT EXISTS kept (number int)")
            go(pair.promote())
            value(pair.own_url, f"INSERT INTO kept VALUES ({number})")
            assert value(pair.own_url, "SELECT sum(number) FROM kept") == (number * (number + 1)) // 2
        finally:
            pair.close()
    assert (tmp_path / "kept" / "PG_VERSION").exists()


def test_only_a_process_that_serves_a_client_counts_as_one() -> None:
    assert not _serves_client(os.getpid())
    title = "postgres: clerk postgres [local] idle"
    with subprocess.Popen(
        [title, "-c", "print('ready', flush=True); input()"],
        executable=sys.executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert _serves_client(process.pid)


def test_steps_are_gone_with_their_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses_s: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses_s.append)

    def steps() -> Iterator[float]:
        yield 0.1
        yield 0.2

    go(steps())
    assert pauses_s == [0.1, 0.2]


def test_a_server_that_hangs_at_its_start_is_killed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one whose checkpointer failed at the end of a recovery."""
    lives: list[str] = []

    class Hanging:
        log = "the log"
        process = SimpleNamespace(poll=lambda: "ended" if lives[-1:] == ["killed"] else None)

        def spawn(self) -> None:
            lives.append("started")

        def is_ready(self) -> bool:
            return "started" in lives

    monkeypatch.setattr(postgres_pair, "HUNG_S", -1.0)
    monkeypatch.setattr(postgres_pair, "_kill", lambda _: lives.append("killed"))
    for _ in postgres_pair._until_ready(cast("Any", Hanging())):
        pass
    assert lives == ["killed", "started"]
