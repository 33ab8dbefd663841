"""Long polls: polled again when woken, answered at once, released when over."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import pytest

from fencepost.broker.requests.api import CloseConnection
from fencepost.broker.requests.long_polls import (
    MAX_ANSWERED_BEFORE_WRITER,
    MAX_ANSWERED_IN_A_STEP,
    LongPoll,
    LongPolls,
    PendingReply,
)

Reply = tuple[object, BaseException | None]


class Waiting(LongPoll[str]):
    """Answers what a test has put there."""

    def __init__(self) -> None:
        self.answer: str | None = None
        self.poll_count = 0
        self.wake: Callable[[], None] = lambda: None
        self.is_watching = False

    def begin(self, wake: Callable[[], None]) -> None:
        self.wake, self.is_watching = wake, True

    def poll(self) -> str | None:
        self.poll_count += 1
        return self.answer

    def end(self) -> None:
        self.is_watching = False
        self.wake = lambda: None

    def happens(self, answer: str | None = "news") -> None:
        self.answer = answer
        self.wake()


class Client:
    """A long poll, and the replies that its connection got."""

    def __init__(self, polls: LongPolls, *, order: list[Client] | None = None) -> None:
        self.waiting = Waiting()
        self.replies: list[Reply] = []
        self._order = order
        self.pending = PendingReply(polls, self.waiting, self._reply)
        self.pending.begin()
        self.pending.on_reply = self._replied

    def _reply(self) -> list[bytes] | None:
        answer = self.waiting.poll()
        return None if answer is None else [answer.encode()]

    def _replied(self, reply: object, error: BaseException | None) -> None:
        if self._order is not None:
            self._order.append(self)
        self.replies.append((reply, error))


@pytest.fixture
def polls() -> LongPolls:
    return LongPolls()


async def turn() -> None:
    await asyncio.sleep(0)


async def test_a_woken_poll_is_answered_in_the_next_turn(polls: LongPolls) -> None:
    client = Client(polls)
    client.waiting.happens()
    assert not client.replies
    await turn()
    assert client.replies == [([b"news"], None)]
    assert not client.waiting.is_watching


async def test_the_first_woken_polls_are_answered_at_once(polls: LongPolls) -> None:
    client = Client(polls)
    client.waiting.happens()
    polls.answer_first_woken()
    assert client.replies == [([b"news"], None)]
    await turn()
    assert len(client.replies) == 1


async def test_only_a_few_woken_polls_are_answered_at_once(polls: LongPolls) -> None:
    order: list[Client] = []
    clients = [Client(polls, order=order) for _ in range(MAX_ANSWERED_BEFORE_WRITER + 3)]
    for client in clients:
        client.waiting.happens()
    polls.answer_first_woken()
    assert order == clients[:MAX_ANSWERED_BEFORE_WRITER]
    await turn()
    assert order == clients


async def test_a_thousand_woken_polls_are_answered_in_steps_that_others_come_between(polls: LongPolls) -> None:
    order: list[Client] = []
    clients = [Client(polls, order=order) for _ in range(1_000)]
    for client in clients:
        client.waiting.happens()
    turns = 0
    while len(order) < 1_000:
        before = len(order)
        await turn()
        turns += 1
        assert len(order) - before <= MAX_ANSWERED_IN_A_STEP
    assert turns == -(-1_000 // MAX_ANSWERED_IN_A_STEP)
    assert order == clients


async def test_a_poll_that_is_woken_often_is_polled_once(polls: LongPolls) -> None:
    client = Client(polls)
    for _ in range(5):
        client.waiting.happens(None)
    await turn()
    assert (client.waiting.poll_count, client.replies) == (1, [])
    client.waiting.happens()
    await turn()
    assert (client.waiting.poll_count, client.replies) == (2, [([b"news"], None)])


async def test_polls_that_are_woken_by_polls_are_answered_in_the_next_turn(polls: LongPolls) -> None:
    first, second = Client(polls), Client(polls)
    first.pending.on_reply = lambda *_: second.waiting.happens()
    first.waiting.happens()
    await turn()
    assert not second.replies
    await turn()
    assert second.replies


async def test_a_poll_whose_client_is_gone_is_not_polled(polls: LongPolls) -> None:
    client = Client(polls)
    client.waiting.happens()
    client.pending.cancel()
    client.pending.cancel()
    await turn()
    assert (client.waiting.poll_count, client.replies, client.waiting.is_watching) == (0, [], False)


async def test_what_cannot_be_answered_ends_the_wait_with_its_reason(polls: LongPolls) -> None:
    waiting = Waiting()

    def refuse() -> None:
        raise CloseConnection("no answer")

    pending = PendingReply(polls, waiting, refuse)
    pending.begin()
    replies: list[Reply] = []
    pending.on_reply = lambda reply, error: replies.append((reply, error))
    waiting.happens()
    await turn()
    ((reply, error),) = replies
    assert reply is None
    assert isinstance(error, CloseConnection)
    assert not waiting.is_watching


async def test_a_wait_that_cannot_begin_leaves_nothing_behind(polls: LongPolls) -> None:
    class Failing(Waiting):
        def begin(self, wake: Callable[[], None]) -> None:
            super().begin(wake)
            raise OSError("no more")

    waiting = Failing()
    with pytest.raises(OSError, match="no more"):
        PendingReply(polls, waiting, lambda: None).begin()
    assert not waiting.is_watching


async def test_a_poll_runs_in_the_context_of_its_request_and_not_of_its_waker(polls: LongPolls) -> None:
    name = ContextVar("who", default="nobody")
    name.set("the waiting client")
    waiting = Waiting()
    asked_as: list[str] = []
    pending = PendingReply(polls, waiting, lambda: asked_as.append(name.get()))
    pending.begin()
    name.set("who woke it")
    waiting.happens()
    polls.answer_first_woken()
    waiting.happens()
    await turn()
    assert asked_as == ["the waiting client"] * 2


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
async def test_the_memory_of_a_poll_that_is_over_is_free_without_a_collection(polls: LongPolls) -> None:
    answered, cancelled = Client(polls), Client(polls)
    answered.waiting.happens()
    await turn()
    cancelled.pending.cancel()
    left = [weakref.ref(client.waiting) for client in (answered, cancelled)]
    del answered, cancelled
    assert [reference() for reference in left] == [None, None]
