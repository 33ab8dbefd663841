"""Changes are shown, confirmed by a reason and a typed name, checked against what was shown, and audited."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.client.errors import ClusterError, NoAnswerError, RefusedError
from fencepost.console.roles import Role
from fencepost.console.web import audit, changes
from fencepost.console.web.changes import (
    CHANGES,
    LONGEST_TYPED,
    Change,
    PartlyDoneError,
    WorldChangedError,
    answer,
    check_parts,
    field_of,
)
from fencepost.console.web.previews import GOOD_FOR_S, Previews
from fencepost.console.web.visit import BadFormError, Page

DENIED = 29


async def nothing() -> str:
    return ""


@pytest.mark.parametrize("subject", ["orders", "a group with blanks", "Zoë"])
def test_the_name_of_the_subject_is_to_be_typed(subject: str) -> None:
    assert Change("Delete", subject, (), nothing, "/", "/").to_type == subject


@pytest.mark.parametrize("subject", ["", " orders", "orders\n", "a\u202eb", "x" * (LONGEST_TYPED + 1)])
def test_a_name_that_cannot_be_typed_is_replaced_by_a_word(subject: str) -> None:
    assert Change("Delete", subject, (), nothing, "/", "/").to_type == "confirm"


def test_a_field_is_stripped_and_must_not_be_empty() -> None:
    assert field_of({"topic": " orders "}, "topic", "the name") == "orders"
    for form in ({}, {"topic": "  "}):
        with pytest.raises(BadFormError, match="the name is missing"):
            field_of(form, "topic", "the name")


class World:
    """A cluster with one number in it, which the change `set` sets; and the console's side of one session."""

    def __init__(self, log: Path) -> None:
        self.number = 1
        self.drift = 0
        self.done: list[int] = []
        self.failure: Exception | None = None
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.session = SimpleNamespace(previews=Previews(), notice="")
        self.cluster_id = "c1"
        self.user: str | None = "alice"
        self._log = log

    @property
    def visit(self) -> Any:
        async def view(_: object) -> SimpleNamespace:
            return SimpleNamespace(cluster_id=self.cluster_id)

        cluster = SimpleNamespace(view=view, user=self.user, bootstrap="127.0.0.1:9092")
        request = SimpleNamespace(client=SimpleNamespace(host="192.0.2.7"))
        readers = SimpleNamespace(forget=lambda: None)
        return SimpleNamespace(
            session=self.session,
            cluster=cluster,
            cluster_name="shop",
            role=Role.ADMIN,
            person=self.user,
            request=request,
            readers=readers,
        )

    async def prepare(self, _: Any, form: Any) -> Change:
        wanted = int(form["to"])
        until = form.get("until") or str(100 + self.drift)
        present = self.number

        async def perform() -> str:
            await self.goes_on.wait()
            if self.failure is not None:
                raise self.failure
            self.number = wanted
            self.done.append(wanted)
            return f"Set to {wanted} until {until}."

        return Change(
            "Set number",
            "number",
            ("It is set.",),
            perform,
            "/",
            "/number",
            world={"the number": present},
            values=[("number", str(present), str(wanted))],
            fixes={"until": until},
        )

    async def look(self, to: int = 7) -> dict[str, str]:
        """Look at the change, and return the form that confirms it."""
        page = await answer(self.visit, "set", {"csrf": "x", "to": str(to)})
        return self.form_in(page)

    def form_in(self, page: Any) -> dict[str, str]:
        assert isinstance(page, Page)
        return {**page.data["fields"], "preview": page.data["preview"], "typed_name": "number", "reason": "why not"}

    async def send(self, form: dict[str, str]) -> Any:
        return await answer(self.visit, "set", form)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []

    @property
    def outcomes(self) -> list[str]:
        return [line["outcome"] for line in self.lines]


Story = Callable[[World], Awaitable[None]]


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Story], None]]:
    """Run a story in a new world."""
    path = tmp_path / "audit.log"
    audit.open_audit_log(str(path))

    def run(story: Story) -> None:
        async def in_a_world() -> None:
            world = World(path)
            monkeypatch.setitem(CHANGES, "set", world.prepare)
            await story(world)

        asyncio.run(in_a_world())

    yield run
    audit.close_audit_log()


Tell = Callable[[Story], None]


def test_a_change_is_made_once_it_was_seen_and_audited_with_values_and_reason(tell: Tell) -> None:
    async def story(world: World) -> None:
        form = await world.look()
        assert (world.done, world.outcomes) == ([], [])
        result = await world.send(form)
        assert (result.status_code, result.headers["location"]) == (303, "/number")
        assert (world.done, world.session.notice) == ([7], "Set to 7 until 100.")
        begun, done = world.lines
        assert (begun["outcome"], done["outcome"]) == ("begun", "done")
        assert begun["id"] == done["id"] != ""
        assert (done["user"], done["role"], done["address"]) == ("alice", "admin", "192.0.2.7")
        assert (done["cluster"], done["bootstrap"]) == ("shop", "127.0.0.1:9092")
        assert (done["reason"], done["values"]) == ("why not", [["number", "1", "7"]])

    tell(story)


def test_a_world_that_has_changed_is_named_and_the_new_preview_works(tell: Tell) -> None:
    async def story(world: World) -> None:
        form = await world.look()
        world.number = 3
        page = await world.send(form)
        assert page.status == 409
        assert list(page.data["changed"]) == ["The number: 1 when you looked, 3 now."]
        assert (world.done, world.outcomes) == ([], ["refused"])
        assert "The number: 1" in world.lines[0]["why"]
        await world.send(world.form_in(page))
        assert world.done == [7]
        assert world.lines[-1]["values"] == [["number", "3", "7"]]

    tell(story)


def test_what_moves_by_itself_is_carried_out_as_it_was_shown(tell: Tell) -> None:
    async def story(world: World) -> None:
        form = await world.look()
        world.drift = 5
        await world.send(form)
        assert world.session.notice == "Set to 7 until 100."
        form = await world.look(8)
        world.number = 0
        page = await world.send(form)
        assert page.data["fields"]["until"] == "105"

    tell(story)


def test_a_form_that_is_sent_twice_is_carried_out_once_with_one_answer(tell: Tell) -> None:
    async def story(world: World) -> None:
        form = await world.look()
        world.goes_on.clear()
        first = asyncio.create_task(world.send(form))
        second = asyncio.create_task(world.send(form))
        await asyncio.wait([first, second], timeout=0.1)
        assert not first.done()
        assert not second.done()
        world.goes_on.set()
        assert await first is await second
        third = await world.send(form)
        assert third.status_code == 303
        assert world.done == [7]
        assert world.outcomes.count("repeated") == 2

    tell(story)


def test_a_form_that_failed_is_not_sent_again(tell: Tell) -> None:
    async def story(world: World) -> None:
        form = await world.look()
        world.failure = NoAnswerError("the broker gave no answer in 10 s")
        with pytest.raises(NoAnswerError):
            await world.send(form)
        world.failure = None
        page = await world.send(form)
        assert page.status == 409
        assert "that failed: the broker gave no answer in 10 s. It was not sent again." in page.data["changed"][0]
        assert (world.done, world.outcomes) == ([], ["begun", "unknown", "refused"])

    tell(story)


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (PartlyDoneError(["a"], ["b (NOT_LEADER)"]), "partly done"),
        (RefusedError(DENIED), "refused"),
        (ValueError("a bug"), "failed"),
        (asyncio.CancelledError(), "interrupted"),
    ],
)
def test_what_came_of_it_is_audited(tell: Tell, failure: Any, outcome: str) -> None:
    async def story(world: World) -> None:
        form = await world.look()
        world.failure = failure
        with pytest.raises(type(failure)):
            await world.send(form)
        assert world.outcomes == ["begun", outcome]

    tell(story)


def test_a_change_may_see_only_at_the_last_moment_that_the_world_is_another(tell: Tell) -> None:
    async def story(world: World) -> None:
        form = await world.look()
        world.failure = WorldChangedError("The log begins at 9 now.")
        page = await world.send(form)
        assert (page.status, list(page.data["changed"])) == (409, ["The log begins at 9 now."])
        assert world.outcomes == ["begun", "refused"]

    tell(story)


@pytest.mark.parametrize(
    "added",
    [{"typed_name": "Number"}, {"reason": "  "}, {"typed_name": ""}],
    ids=["wrong name", "no reason", "no name"],
)
def test_without_name_or_reason_nothing_is_done_and_the_form_may_come_again(tell: Tell, added: dict[str, str]) -> None:
    async def story(world: World) -> None:
        form = await world.look()
        page = await world.send(form | added)
        assert (page.status, world.done, world.outcomes) == (422, [], ["refused"])
        await world.send(form)
        assert world.done == [7]

    tell(story)


def test_a_form_of_another_session_user_cluster_time_or_content_is_refused(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        async def refused(form: dict[str, str], said: str) -> None:
            page = await world.send(form)
            assert page.status == 409
            assert said in page.data["changed"][0]

        await refused(await world.look() | {"to": "8"}, "not the one that was shown")
        await refused(await world.look() | {"until": "8"}, "not the one that was shown")
        form = await world.look()
        world.cluster_id = "c2"
        await refused(form, "of another cluster or another user")
        form = await world.look()
        world.user = "bob"
        await refused(form, "of another cluster or another user")
        form = await world.look()
        world.session.previews = Previews()
        await refused(form, "older than 10 minutes, or of another session")
        form = await world.look()
        later = time.monotonic() + GOOD_FOR_S + 1
        monkeypatch.setattr(changes, "time", SimpleNamespace(monotonic=lambda: later))
        await refused(form, "older than 10 minutes")
        assert world.done == []
        assert set(world.outcomes) == {"refused"}

    tell(story)


def test_no_change_is_made_that_cannot_be_audited(tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        form = await world.look()

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(audit.AuditLog, "write", full)
            with pytest.raises(ClusterError, match=r"nothing was changed.*No space left"):
                await world.send(form)
        assert world.done == []
        await world.send(form)
        assert world.done == [7]

    tell(story)


def test_parts_that_failed_are_named_beside_those_that_were_done() -> None:
    check_parts(["a", "b"], {})
    with pytest.raises(PartlyDoneError) as partly:
        check_parts(["a", "b", "c"], {"b": 3})
    assert str(partly.value) == "2 of 3 were done: a, c. Not: b (UNKNOWN_TOPIC_OR_PARTITION)"
    with pytest.raises(RefusedError, match="TOPIC_AUTHORIZATION_FAILED"):
        check_parts(["a", "b"], {"a": DENIED, "b": DENIED})
    with pytest.raises(PartlyDoneError) as many:
        check_parts([f"p{number}" for number in range(5_000)], {"p0": 3})
    assert len(str(many.value)) < 200
