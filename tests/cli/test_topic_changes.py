"""Many topics are created and deleted in requests of a bounded size, by identity, with an outcome for each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
import pytest
from click.testing import CliRunner, Result

from fencepost.cli import questions
from fencepost.cli.commands import fencepost as command
from fencepost.cli.topic_changes import GONE, TOPICS_PER_REQUEST, Outcome, create_topics, delete_topics, fail_for
from fencepost.cli.topic_choice import read_found
from fencepost.client.cluster import Cluster
from fencepost.client.errors import UnreachableError
from fencepost.client.options import addresses_of
from fencepost.client.session import ClientOptions

T = TypeVar("T")


def ask(fencepost: Any, question: Callable[[Cluster], Awaitable[T]]) -> T:
    async def run() -> T:
        cluster = Cluster(addresses_of(fencepost.bootstrap_servers), ClientOptions())
        try:
            return await question(cluster)
        finally:
            cluster.close()

    return asyncio.run(run())


def run(fencepost: Any, *arguments: str, answer: str = "") -> Result:
    options = {"FENCEPOST_BOOTSTRAP": fencepost.bootstrap_servers}
    return CliRunner().invoke(command, ["topics", *arguments], input=answer, env=options)


def test_more_topics_than_one_request_has_are_created_and_deleted_by_a_pattern(fencepost: Any) -> None:
    names = [f"many-{number}" for number in range(TOPICS_PER_REQUEST + 1)]
    created = ask(fencepost, lambda cluster: create_topics(cluster, names, 1, None, {"retention.ms": "1000"}))
    assert created == [Outcome(name, partitions_count=1) for name in names]
    again = ask(fencepost, lambda cluster: create_topics(cluster, [*names, "many-more"], 1, None, {}))
    assert {one.code for one in again[:-1]} == {36}
    assert again[-1] == Outcome("many-more", partitions_count=1)
    deleted = run(fencepost, "delete", "--pattern", "many-*", "--yes", "--expect", str(len(names) + 1), "--json")
    assert deleted.exit_code == 0, deleted.output
    assert json.loads(deleted.stdout) == [
        {"topic": name, "deleted": True, "error": None} for name in sorted([*names, "many-more"])
    ]


def test_a_topic_that_was_made_again_after_the_preview_stays(fencepost: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run(fencepost, "create", "again", "steady", "-p", "1")

    def made_again(_question: str) -> None:
        assert run(fencepost, "delete", "again", "--yes").exit_code == 0
        assert run(fencepost, "create", "again", "-p", "1").exit_code == 0

    monkeypatch.setattr(questions, "is_answerable", lambda: True)
    monkeypatch.setattr(questions, "ask", made_again)
    result = run(fencepost, "delete", "again", "steady")
    assert result.exit_code == 1
    assert result.stdout == "deleted steady\n"
    assert f"again was not deleted: {GONE}" in result.stderr
    assert run(fencepost, "describe", "again").exit_code == 0
    run(fencepost, "delete", "again", "--yes")


def test_a_dry_run_creates_grows_and_deletes_nothing(fencepost: Any) -> None:
    assert run(fencepost, "create", "dry", "-p", "2", "--dry-run").stdout == "would create dry with 2 partitions\n"
    assert run(fencepost, "describe", "dry").exit_code == 1
    run(fencepost, "create", "dry", "-p", "2")
    assert run(fencepost, "grow", "--pattern", "dry*", "-p", "3", "--dry-run").stdout == "dry could have 3 partitions\n"
    shown = json.loads(run(fencepost, "delete", "dry", "--dry-run", "--json").stdout)
    assert [(row["topic"], row["partitions"], row["records"]) for row in shown] == [("dry", 2, 0)]
    assert run(fencepost, "delete", "dry", "--yes").exit_code == 0


def test_topics_of_a_pattern_grow_after_a_question(fencepost: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "is_answerable", lambda: True)
    run(fencepost, "create", "grow-1", "grow-2", "-p", "2")
    assert run(fencepost, "grow", "--pattern", "grow-*", "-p", "4", answer="n\n").exit_code == 1
    result = run(fencepost, "grow", "--pattern", "grow-*", "-p", "4", answer="y\n")
    assert "grow-1 now has 4 partitions\ngrow-2 now has 4 partitions\n" in result.stdout
    refused = run(fencepost, "grow", "grow-1", "nothing", "-p", "3", "--json")
    assert refused.exit_code == 1
    assert [(row["topic"], row["before"]) for row in json.loads(refused.stdout)] == [("grow-1", 4), ("nothing", None)]
    assert "INVALID_PARTITIONS" in refused.stderr
    run(fencepost, "delete", "--pattern", "grow-*", "--yes")


class Dying:
    """A controller that goes away after some requests."""

    def __init__(self, cluster: Cluster, answered: int) -> None:
        self._cluster = cluster
        self._left = answered

    async def send_to_controller(self, request: Any) -> Any:
        if not self._left:
            raise UnreachableError("127.0.0.1:9 closed the connection")
        self._left -= 1
        return await self._cluster.send_to_controller(request)


def test_after_a_lost_answer_the_outcomes_say_so_and_the_rest_is_not_tried(fencepost: Any) -> None:
    names = [f"lost-{number}" for number in range(3 * TOPICS_PER_REQUEST)]

    async def create_and_delete(cluster: Cluster) -> list[Outcome]:
        await create_topics(cluster, names, 1, None, {})
        found = (await read_found(cluster, names)).topics
        outcomes = await delete_topics(Dying(cluster, answered=1), [found[name] for name in names])  # type: ignore[arg-type]
        await delete_topics(cluster, [found[name] for name in names])
        return outcomes

    outcomes = ask(fencepost, create_and_delete)
    pieces = [outcomes[first : first + TOPICS_PER_REQUEST] for first in range(0, len(names), TOPICS_PER_REQUEST)]
    assert {one.error for one in pieces[0]} == {None}
    assert {one.error for one in pieces[1]} == {"nobody knows, look again: 127.0.0.1:9 closed the connection"}
    assert {one.error for one in pieces[2]} == {"not tried"}


def test_several_refusals_are_counted_and_one_is_its_reason() -> None:
    fail_for([], "deleted", 3)
    with pytest.raises(click.ClickException, match=r"^no$"):
        fail_for([("orders", "no")], "deleted", 1)
    with pytest.raises(click.ClickException, match="1 of 2 topics were not deleted"):
        fail_for([("orders", "no")], "deleted", 2)
