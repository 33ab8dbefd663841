"""Answers are shared by all who look as one user: asked once at a time, kept while fresh; errors are not kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.client.errors import ClusterError, UnreachableError
from fencepost.console.reading.sharing import MOST_KINDS, Answer, Readers, Reads, StillReadingError


class Client:
    """A client of a cluster that answers when it is let."""

    def __init__(self, user: str = "ann") -> None:
        self.identity = user
        self.is_closed = False
        self.asked = 0
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def answer(self) -> int:
        self.asked += 1
        number = self.asked
        await self.gate.wait()
        if self.is_closed:
            raise UnreachableError("the connection was closed")
        if self.error is not None:
            raise self.error
        return number


async def read(client: Any) -> int:
    number: int = await client.answer()
    return number


def reads_of(*clients: Any, fresh_s: float = 60) -> Reads:
    reads = Reads(fresh_s)
    for client in clients:
        reads.add(client)
    return reads


async def until_async(condition: Callable[[], bool]) -> None:
    deadline_s = asyncio.get_running_loop().time() + 10
    while not condition():
        assert asyncio.get_running_loop().time() < deadline_s
        await asyncio.sleep(0)


async def begun(client: Client, asked: int = 1) -> None:
    await until_async(lambda: client.asked >= asked)


async def test_a_hundred_who_look_at_once_and_again_cost_one_request() -> None:
    client = Client()
    reads = reads_of(client)
    waiting = [asyncio.create_task(reads.ask("groups", read)) for _ in range(100)]
    await begun(client)
    client.gate.set()
    assert {answer.value for answer in await asyncio.gather(*waiting)} == {1}
    assert {(await reads.ask("groups", read)).value for _ in range(100)} == {1}
    assert client.asked == 1
    assert (await reads.ask("topics", read)).value == 2


async def test_an_answer_that_took_long_is_fresh_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    client = Client()
    reads = reads_of(client, fresh_s=4)
    slow = asyncio.create_task(reads.ask("all", read))
    await begun(client)
    now_s += 2
    client.gate.set()
    await slow
    now_s += 13
    assert (await reads.ask("all", read)).age_s == 15
    now_s += 2
    assert (await reads.ask("all", read)).value == 2


async def test_who_loses_patience_has_the_answer_before_and_its_age() -> None:
    client = Client()
    client.gate.set()
    reads = reads_of(client, fresh_s=60)
    before = await reads.ask("all", read)
    reads.forget()
    client.gate.clear()
    after = await reads.ask("all", read, patience_s=0.01)
    assert (after.number, after.read_s) == (before.number, before.read_s)
    client.gate.set()
    assert (await reads.ask("all", read)).value == 2, "the same question was asked on"


async def test_without_an_answer_before_it_is_said_that_it_is_still_read() -> None:
    client = Client()
    with pytest.raises(StillReadingError):
        await reads_of(client).ask("all", read, patience_s=0.01)


async def test_an_error_reaches_those_who_waited_for_it_and_nobody_later() -> None:
    client = Client()
    client.error = ClusterError("GROUP_AUTHORIZATION_FAILED")
    reads = reads_of(client)
    waiting = [asyncio.create_task(reads.ask("groups", read)) for _ in range(3)]
    await begun(client)
    client.gate.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(error) for error in found] == ["GROUP_AUTHORIZATION_FAILED"] * 3
    client.error = None
    assert (await reads.ask("groups", read)).value == 2


async def test_what_was_asked_before_a_change_is_not_shown_after_it() -> None:
    client = Client()
    reads = reads_of(client)
    early = asyncio.create_task(reads.ask("topics", read))
    await begun(client)
    reads.forget()
    late = asyncio.create_task(reads.ask("topics", read))
    await begun(client, 2)
    client.gate.set()
    assert ((await early).value, (await late).value) == (1, 2)
    assert (await reads.ask("topics", read)).value == 2


async def test_others_of_the_same_user_read_on_when_a_session_ends_in_the_middle() -> None:
    leaving, staying = Client(), Client()
    staying.gate.set()
    readers = Readers(60)
    readers.of(leaving)  # type: ignore[arg-type]
    reads = readers.of(staying)  # type: ignore[arg-type]
    answer = asyncio.create_task(reads.ask("groups", read))
    await begun(leaving)
    leaving.is_closed = True
    leaving.gate.set()
    assert (await answer).value == 1
    assert (leaving.asked, staying.asked) == (1, 1)
    staying.is_closed = True
    reads.forget()
    with pytest.raises(UnreachableError, match="the session ended"):
        await reads.ask("groups", read)


async def test_users_share_nothing_and_who_left_is_forgotten() -> None:
    ann, bob = Client("ann"), Client("bob")
    ann.gate.set()
    bob.error = ClusterError("denied")
    bob.gate.set()
    readers = Readers(60)
    assert (await readers.of(ann).ask("groups", read)).value == 1  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="denied"):
        await readers.of(bob).ask("groups", read)  # type: ignore[arg-type]
    assert len(readers) == 2
    ann.is_closed = True
    readers.of(bob)  # type: ignore[arg-type]
    assert len(readers) == 1


async def test_many_kinds_of_questions_do_not_pile_up() -> None:
    client = Client()
    client.gate.set()
    reads = reads_of(client)
    for number in range(5 * MOST_KINDS):
        await reads.ask(("topic", number), read)
    assert len(reads) == MOST_KINDS


async def test_the_end_ends_what_is_being_read() -> None:
    client = Client()
    readers = Readers(60)
    waiting = asyncio.create_task(readers.of(client).ask("groups", read))  # type: ignore[arg-type]
    await begun(client)
    readers.close()
    with pytest.raises(UnreachableError, match="the console ends"):
        await waiting
    assert len(readers) == 0


async def test_an_unexpected_error_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client.error = ZeroDivisionError("planted")
    reads = reads_of(client)
    with pytest.raises(StillReadingError):
        await reads.ask("all", read, patience_s=0.01)
    client.gate.set()
    await until_async(lambda: "planted" in caplog.text)
    client.error = None
    assert isinstance(await reads.ask("all", read), Answer)
