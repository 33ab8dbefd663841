"""`fencepost groups delete`: several groups and patterns, with an outcome for each."""

from __future__ import annotations

import json
import time
from typing import Any

import confluent_kafka as ck
import pytest

from fencepost.cli import questions
from tests.cli.test_group_transfers import run


def make(fencepost: Any, topic: str, *groups: str) -> None:
    for group in groups:
        assert run(fencepost, "reset-offsets", group, topic, "--to", "earliest").exit_code == 0


def left(fencepost: Any, pattern: str) -> list[str]:
    return [row["group"] for row in json.loads(run(fencepost, "list", "--pattern", pattern, "--json").stdout)]


def test_groups_of_a_pattern_are_shown_and_deleted(fencepost: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make(fencepost, fencepost.topic("deleted"), "del.a", "del.b", "delxc", "\u202edel\x00")
    monkeypatch.setattr(questions, "is_answerable", lambda: True)
    assert run(fencepost, "delete", "--pattern", "del.*", answer="n\n").exit_code == 1
    assert left(fencepost, "del*") == ["del.a", "del.b", "delxc"]
    result = run(fencepost, "delete", "--pattern", "del.*", "--pattern", "\u202e*", answer="y\n")
    assert result.exit_code == 0
    assert "This deletes 3 groups and their offsets. Continue?" in result.stderr
    assert result.stdout == "deleted del.a\ndeleted del.b\ndeleted \\u202edel\\x00\n"
    assert left(fencepost, "*del*") == ["delxc"]
    run(fencepost, "delete", "delxc", "--yes")


def test_a_pattern_of_all_groups_needs_their_number(fencepost: Any) -> None:
    make(fencepost, fencepost.topic("deleted"), "every-1")
    count = len(left(fencepost, "*"))
    refused = run(fencepost, "delete", "--pattern", "*", "--yes")
    assert (refused.exit_code, f"add --expect {count}" in refused.stderr) == (1, True)
    assert run(fencepost, "delete", "--pattern", "*", "--yes", "--expect", str(count + 1)).exit_code == 1
    assert left(fencepost, "every-*") == ["every-1"]
    assert json.loads(run(fencepost, "delete", "--pattern", "every-*", "--dry-run", "--json").stdout) == [
        {"group": "every-1", "type": "classic", "state": "Empty"}
    ]
    run(fencepost, "delete", "every-1", "--yes")


def test_a_group_with_members_stays_and_the_others_go(fencepost: Any) -> None:
    topic = fencepost.topic("deleted")
    make(fencepost, topic, "idle")
    consumer = ck.Consumer({"bootstrap.servers": fencepost.bootstrap_servers, "group.id": "busy"})
    consumer.subscribe([topic])
    try:
        deadline_s = time.monotonic() + 60
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline_s
        result = run(fencepost, "delete", "busy", "idle", "nobody", "--yes", "--json")
    finally:
        consumer.close()
    assert result.exit_code == 1
    rows = {row["group"]: (row["deleted"], row["error"]) for row in json.loads(result.stdout)}
    assert rows["idle"] == (True, None)
    assert rows["busy"] == (False, "group 'busy' has members; stop them, then delete it")
    assert "there is no group 'nobody'" in rows["nobody"][1]
    assert "2 of 3 groups were not deleted" in result.stderr
