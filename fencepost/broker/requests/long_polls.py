"""Long polls: requests that wait for an event, such as a Fetch for records, and are polled again when it may have come.

None of them has a task. With tasks, an event takes three turns of the event loop to reach the client: it wakes a task,
the task ends, its callbacks run. Here the first MAX_ANSWERED_BEFORE_WRITER woken polls are answered before the requests
that woke them, the others in the loop's next turn. Requests that arrive together wake polls together.
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
    """Wake a long poll whose time is over, and retry if that fails: nothing else may wake it any more."""
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
ReplyFrame = ReplyChunks | None
"""None when the client expects no reply."""

MAX_ANSWERED_BEFORE_WRITER = 4
"""Woken polls that are answered before the request that woke them; thousands of them must not delay that request."""
MAX_ANSWERED_IN_A_STEP = 64
"""An answer takes some 0.1 ms, and a thousand consumers may wait for one partition."""


class LongPoll(ABC, Generic[Response]):
    """A handler's result in place of a response that is not ready. All calls come from the event loop."""

    __slots__ = ()

    @abstractmethod
    def begin(self, wake: Callable[[], None]) -> None:
        """Start to watch: call `wake` whenever an answer may have become possible. `wake` only schedules a poll."""

    @abstractmethod
    def poll(self) -> Response | None:
        """Return the answer, or None to continue to wait. Raises the errors of a handler."""

    @abstractmethod
    def end(self) -> None:
        """Stop watching: the request is answered, or its client is gone."""


class PendingReply:
    """The reply to a long poll. `on_reply` is called in the step in which the reply is made.

    poll:     makes the reply, or returns None. Raises CloseConnection, and nothing else.
    on_reply: called once, with the reply or else the error, unless the poll is cancelled.
    """

    __slots__ = ("_context", "_is_over", "_is_woken", "_poll", "_polls", "_waiting", "on_reply")

    on_reply: Callable[[ReplyChunks | None, BaseException | None], None]

    def __init__(self, polls: LongPolls, waiting: LongPoll[Any], poll: Callable[[], ReplyChunks | None]) -> None:
        self._polls = polls
        self._waiting = waiting
        self._poll = poll
        # The waker may run in the context of another client, or in a simulation of another node.
        self._context = copy_context()
        self._is_over = self._is_woken = False

    def begin(self) -> None:
        """Start to wait. Raises the errors of the poll."""
        try:
            self._waiting.begin(self.wake)
        except BaseException:
            self._waiting.end()
            raise

    def wake(self) -> None:
        if not self._is_woken:
            self._polls.schedule(self)
            self._is_woken = True

    @POLL.catches_itself
    def answer_if_possible(self) -> None:
        """Poll, and answer if that is possible by now. Raises nothing: other polls follow."""
        try:
            self._context.run(self._answer_if_possible)
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            POLL.failed(error)

    def cancel(self) -> None:
        """Stop waiting: the client is gone."""
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
        """Stop watching, and drop the references to this object: the records of a reply are freed once sent."""
        self._is_over = True
        try:
            self._waiting.end()
        finally:
            del self._poll, self.on_reply


class LongPolls:
    """Queue of the woken polls; one for all connections of a node.

    woken_polls: polls in the order in which they were woken.
    """

    __slots__ = ("_is_scheduled", "woken_polls")

    def __init__(self) -> None:
        self.woken_polls: Final[deque[PendingReply]] = deque()
        self._is_scheduled = False

    def schedule(self, pending: PendingReply) -> None:
        """Poll it in this step or the loop's next turn."""
        self._answer_in_next_turn()
        self.woken_polls.append(pending)

    def answer_first_woken(self) -> None:
        """Answer a few woken polls at once; called after a request that may have woken them, before its reply."""
        woken_polls = self.woken_polls
        for _ in range(MAX_ANSWERED_BEFORE_WRITER):
            if not woken_polls:
                return
            woken_polls.popleft().answer_if_possible()

    @POLL.catches_itself
    def _answer_woken(self) -> None:
        self._is_scheduled = False
        woken_polls = self.woken_polls
        # Polls that these wake are polled in the next turn.
        for _ in range(min(len(woken_polls), MAX_ANSWERED_IN_A_STEP)):
            woken_polls.popleft().answer_if_possible()
        if woken_polls:
            self._answer_in_next_turn()

    def _answer_in_next_turn(self) -> None:
        if not self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._answer_woken)
            self._is_scheduled = True
