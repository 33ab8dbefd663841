"""The check-back at work, on a cluster in memory: what it asks, records and ends, and what a crash leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from fencepost.check_back.case import Decider, State
from fencepost.check_back.ports import Unavailable
from fencepost.check_back.question import Answer, Question, ResolverUnreachable
from fencepost.check_back.records import STATE_TOPIC, Command, Entry, command_entry
from fencepost.check_back.service import CheckBack
from fencepost.check_back.settings import ResolverSettings
from fencepost.two_phase.tokens import Token
from tests.broker.supervision.planting import until

SETTINGS = ResolverSettings(
    "orders", ("order-*",), "http", first_ms=0, interval_ms=1, interval_max_ms=5, checks_max=3, timeout_ms=200
)


class Cluster:
    """Open transactions, two topics, and a source. down: what cannot be asked."""

    def __init__(self) -> None:
        self.open: dict[str, Question] = {}
        self.outcomes: dict[Token, str] = {}
        self.written: list[Entry] = []
        self.read_up_to = 0
        self.down: set[str] = set()
        self.asked: list[Token] = []
        self.answer: Callable[[Question], Any] = lambda _: Answer.UNKNOWN
        self.seen: list[str] = []

    def begin(self, name: str) -> None:
        self.open[name] = Question(Token(7, 0, name), 1, (("t", 0),))

    def _check(self, what: str) -> None:
        if what in self.down:
            raise Unavailable(f"{what} is down")

    async def all_open(self, is_wanted: Callable[[str], bool]) -> Sequence[Question]:
        self._check("list")
        return [question for name, question in self.open.items() if is_wanted(name)]

    async def end(self, question: Question, *, commit: bool) -> str:
        self._check("end")
        await asyncio.sleep(0)
        if self.open.pop(question.token.transactional_id, None) is not None:
            self.outcomes[question.token] = "commit" if commit else "abort"
        return self.outcomes[question.token]

    async def outcome(self, question: Question) -> tuple[str, Decider]:
        self._check("outcome")
        return self.outcomes.get(question.token, "open"), Decider.CLIENT

    async def read_state(self) -> Mapping[str, bytes | None]:
        self._check("journal")
        entries, self.read_up_to = self.written[self.read_up_to :], len(self.written)
        return {entry.key: entry.encoded_value() for entry in entries if entry.topic == STATE_TOPIC}

    async def write(self, entries: Sequence[Entry]) -> None:
        if any(entry.topic != STATE_TOPIC for entry in entries):
            self._check("audit")
        self.written += entries

    def recorded(self, entry: Entry) -> None:
        pass

    def unavailable(self, what: str, reason: str) -> None:
        self.seen.append(reason)

    def left_out(self, what: str) -> None:
        self.seen.append(what)

    async def ask(self, question: Question) -> Answer:
        self.asked.append(question.token)
        answer = self.answer(question)
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, Answer):
            await answer
            return Answer.UNKNOWN
        return answer

    async def close(self) -> None:
        pass

    def audit(self) -> list[str]:
        return [
            " ".join(str(entry.value.get(name)) for name in ("event", "answer", "decision", "outcome"))
            for entry in self.written
            if entry.topic != STATE_TOPIC and entry.value is not None
        ]


@asynccontextmanager
async def running(cluster: Cluster) -> AsyncIterator[CheckBack]:
    cluster.read_up_to = 0
    service = CheckBack([SETTINGS], {"orders": cluster}, cluster, cluster, cluster, now_ms=_now_ms, poll_s=0.005)
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


async def test_a_transaction_is_ended_as_its_source_says_and_all_of_it_is_recorded() -> None:
    cluster = Cluster()
    cluster.begin("order-1")
    cluster.begin("order-2")
    cluster.begin("other")
    cluster.answer = lambda question: Answer.COMMIT if question.token[2] == "order-1" else Answer.ABORT
    async with running(cluster):
        await until(lambda: len(cluster.outcomes) == 2 and len(cluster.audit()) == 6)
    assert cluster.outcomes == {Token(7, 0, "order-1"): "commit", Token(7, 0, "order-2"): "abort"}
    assert list(cluster.open) == ["other"]
    assert sorted(cluster.audit()) == sorted(
        line
        for outcome in ("commit", "abort")
        for line in (
            f"question {outcome} None None",
            f"decision {outcome} {outcome} None",
            f"end None {outcome} {outcome}",
        )
    )


async def test_an_exhausted_transaction_is_parked_and_stays_open_until_an_administrator_has_it_asked_again() -> None:
    cluster = Cluster()
    cluster.begin("order-1")
    async with running(cluster) as service:
        await until(lambda: any(case.state is State.PARKED for case in service.schedule.cases.values()))
        assert len(cluster.asked) == 3
        cluster.answer = lambda _: Answer.COMMIT
        await asyncio.sleep(0.05)
        assert len(cluster.asked) == 3
        await cluster.write([command_entry(Command("order-1", "ask-again", None, 1))])
        await until(lambda: not cluster.open)
    assert service.figures.checks == {("orders", "unknown"): 3, ("orders", "commit"): 1}
    assert service.figures.decisions == {("park", "exhausted"): 1, ("commit", "resolver"): 1}


async def test_a_source_that_fails_or_hangs_has_not_answered() -> None:
    for failure in (ResolverUnreachable("no way"), ValueError("the password is hunter2"), asyncio.sleep):
        cluster = Cluster()
        cluster.begin("order-1")
        cluster.answer = lambda _, failure=failure: failure(60) if callable(failure) else failure  # type: ignore[misc]
        async with running(cluster) as service:
            await until(lambda cluster=cluster: len(cluster.asked) >= 5)  # type: ignore[misc]
            assert [case.checks for case in service.schedule.cases.values()] == [0]
            assert not service.schedule.sources["orders"].up
        assert cluster.open
        assert "hunter2" not in str(cluster.written)


async def test_a_decision_survives_a_crash_before_the_end_and_nobody_is_asked_again() -> None:
    cluster = Cluster()
    cluster.begin("order-1")
    cluster.answer = lambda _: Answer.COMMIT
    cluster.down = {"end"}
    async with running(cluster):
        await until(lambda: "end is down" in cluster.seen)
    assert cluster.open
    cluster.down = set()
    cluster.answer = lambda _: Answer.ABORT
    async with running(cluster):
        await until(lambda: not cluster.open)
    assert cluster.outcomes == {Token(7, 0, "order-1"): "commit"}
    assert len(cluster.asked) == 1


async def test_nothing_is_asked_or_ended_while_it_cannot_be_recorded() -> None:
    cluster = Cluster()
    cluster.begin("order-1")
    cluster.answer = lambda _: Answer.COMMIT
    cluster.down = {"audit"}
    async with running(cluster):
        await until(lambda: cluster.seen.count("audit is down") >= 2)
        assert cluster.open
        assert len(cluster.asked) == 1
        cluster.down = set()
        await until(lambda: not cluster.open)
    assert len(cluster.asked) == 1


async def test_what_a_client_ends_is_dropped_and_its_outcome_recorded() -> None:
    cluster = Cluster()
    cluster.begin("order-1")
    async with running(cluster) as service:
        await until(lambda: len(cluster.asked) >= 1)
        question = cluster.open["order-1"]
        await cluster.end(question, commit=True)
        await until(lambda: not service.schedule.cases and any(line.startswith("end") for line in cluster.audit()))
    assert cluster.audit()[-1] == "end None None commit"


async def test_an_answer_about_what_its_slow_client_has_ended_meanwhile_decides_nothing() -> None:
    cluster = Cluster()
    cluster.begin("order-1")
    token = cluster.open["order-1"].token

    def claim(question: Question) -> Answer:
        del cluster.open["order-1"]
        cluster.outcomes[question.token] = "commit"
        return Answer.ABORT  # nothing waits for a commit any more

    cluster.answer = claim
    async with running(cluster):
        await until(lambda: len(cluster.audit()) == 2)
    assert cluster.outcomes == {token: "commit"}
    assert cluster.audit() == ["question abort None None", "end None None commit"]
    assert [entry.value["late"] for entry in cluster.written if entry.value and "late" in entry.value] == [True]


async def test_an_answer_counts_where_nobody_can_say_whether_the_transaction_is_open() -> None:
    cluster = Cluster()
    cluster.begin("order-1")
    cluster.down = {"outcome"}
    cluster.answer = lambda _: Answer.COMMIT
    async with running(cluster):
        await until(lambda: len(cluster.audit()) == 3)
    assert cluster.audit()[1:] == ["decision commit commit None", "end None commit commit"]


async def test_an_unexpected_failure_ends_the_run_and_the_next_run_goes_on() -> None:
    cluster = Cluster()
    cluster.begin("order-1")
    cluster.answer = lambda _: Answer.COMMIT

    async def fails(question: Question, *, commit: bool) -> str:
        raise RuntimeError("planted")

    whole, cluster.end = cluster.end, fails  # type: ignore[method-assign]
    service = CheckBack([SETTINGS], {"orders": cluster}, cluster, cluster, cluster, now_ms=_now_ms, poll_s=0.005)
    with pytest.raises(RuntimeError, match="planted"):
        await asyncio.wait_for(service.run(), 10)
    cluster.end = whole  # type: ignore[method-assign]
    async with running(cluster):
        await until(lambda: not cluster.open)
    assert cluster.outcomes == {Token(7, 0, "order-1"): "commit"}
