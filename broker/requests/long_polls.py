"""Requests that wait for something to happen, such as a Fetch for records: asked again when it may have happened.

None of them has a task. With one each, what has happened takes three turns of the event loop until it reaches the
client: an event wakes a task, the task ends, its end is told. Here a poll that was woken is asked again before the
requests that woke it are answered themselves, as far as there are few; else in the loop's next turn. What several
requests that arrived together have caused is delivered together.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar

from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.storage.file_slice import FileSlice
from fencepost.protocol.primitives import Buffer

POLL = Place("answer to a request that waited", Policy.REPORT)
POLL_TIME_OUT = Place("end of a fetch's wait", Policy.RETRY)
TIME_OUT_RETRY_S = 1.0


def wake_on_time_out(wake: Callable[[], None]) -> None:
    """For the timer of a long poll whose time is over: nothing else may wake it any more."""
    try:
        wake()
    except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
        again = POLL_TIME_OUT.callback(wake_on_time_out)
        POLL_TIME_OUT.failed(
            error, on_failure=lambda _: asyncio.get_running_loop().call_later(TIME_OUT_RETRY_S, again, wake)
        )


Response = TypeVar("Response")
ReplyChunks = Sequence[Buffer | FileSlice]
"""The chunks of one reply, length prefix included."""
Reply = ReplyChunks | None
"""None when the client expects no reply."""

MAX_ANSWERED_BEFORE_WRITER = 4
"""As many answers leave before the replies to who caused them; what thousands wait for must not delay its writer."""


class LongPoll(ABC, Generic[Response]):
    """What a handler returns instead of a response that is not there yet. All calls come from the event loop."""

    __slots__ = ()

    @abstractmethod
    def begin(self, wake: Callable[[], None]) -> None:
        """Watch: `wake` is to be called whenever an answer may have become possible. It only takes note of that."""

    @abstractmethod
    def poll(self) -> Response | None:
        """The answer, or None to go on waiting. Raises what a handler may raise."""

    @abstractmethod
    def end(self) -> None:
        """Stop watching: it is answered, or its client is gone."""


class PendingReply:
    """The reply to a long poll. Whoever waits for it is told in the very step in which it is made.

    poll:     makes the reply, or returns None. Raises CloseConnection, and nothing else.
    on_reply: is called once, with the reply or else the error, unless the poll is cancelled.
    """

    __slots__ = ("_context", "_is_over", "_is_woken", "_poll", "_polls", "_waiting", "on_reply")

    on_reply: Callable[[ReplyChunks | None, BaseException | None], None]

    def __init__(self, polls: LongPolls, waiting: LongPoll[Any], poll: Callable[[], ReplyChunks | None]) -> None:
        self._polls = polls
        self._waiting = waiting
        self._poll = poll
        # Whoever wakes it may be about something else: another client, or in a simulation another node.
        self._context = copy_context()
        self._is_over = self._is_woken = False

    def begin(self) -> None:
        """Raises what the poll raises."""
        try:
            self._waiting.begin(self.wake)
        except BaseException:
            self._waiting.end()
            raise

    def wake(self) -> None:
        if not self._is_woken:
            self._polls.schedule(self)
            self._is_woken = True

    @POLL.handles
    def answer_if_possible(self) -> None:
        """Let it answer, if it can by now. Raises nothing: others are to be asked after it."""
        try:
            self._context.run(self._answer_if_possible)
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            POLL.failed(error)

    def cancel(self) -> None:
        """Nobody wants the reply any more."""
        if not self._is_over:
            self._end()

    def _answer_if_possible(self) -> None:
        self._is_woken = False
        if self._is_over:
            return
        reply, error = None, None
        try:
            reply = self._poll()
            if reply is None:
                return
        except BaseException as reason:  # noqa: BLE001  # CloseConnection: the connection ends with it
            error = reason
        on_reply = self.on_reply
        try:
            self._end()
        finally:
            on_reply(reply, error)

    def _end(self) -> None:
        """Also lets go of what refers to this: the records of a reply are freed when they are sent."""
        self._is_over = True
        try:
            self._waiting.end()
        finally:
            del self._poll, self.on_reply


class LongPolls:
    """Those that were woken and are to be asked again, one after another; one for all connections of a node.

    woken_polls: they are, in order.
    """

    __slots__ = ("_is_scheduled", "woken_polls")

    def __init__(self) -> None:
        self.woken_polls: Final[deque[PendingReply]] = deque()
        self._is_scheduled = False

    def schedule(self, pending: PendingReply) -> None:
        """Ask this one soon."""
        if not self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._answer_woken)
            self._is_scheduled = True
        self.woken_polls.append(pending)

    def answer_first_woken(self) -> None:
        """Ask a few at once: to be called by who has let things happen, before it answers."""
        woken_polls = self.woken_polls
        for _ in range(MAX_ANSWERED_BEFORE_WRITER):
            if not woken_polls:
                return
            woken_polls.popleft().answer_if_possible()

    @POLL.handles
    def _answer_woken(self) -> None:
        self._is_scheduled = False
        woken_polls = self.woken_polls
        for _ in range(len(woken_polls)):  # those that are woken by these come in the turn after it
            woken_polls.popleft().answer_if_possible()
