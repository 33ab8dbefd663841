"""Joins and syncs of a classic group that wait for each other, each finished as soon as it must have been answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fencepost.protocol.messages.group_admin import DescribeGroupsRequest
from fencepost.protocol.messages.group_membership import JoinGroupRequest, SyncGroupRequest
from tests.differences.exchange import ATTEMPTS, PAUSE_S, Exchange, Pending

JOINING: Final = "PreparingRebalance"
SYNCING: Final = "CompletingRebalance"
DEAD: Final = "Dead"
STATES_THAT_LET_WAIT: Final = {JoinGroupRequest: JOINING, SyncGroupRequest: SYNCING}
PATIENCE_S: Final = 0.1
"""Far longer than a refusal takes: what has no answer by then waits for others, if the group lets it wait."""


@dataclass
class _WaitingRequest:
    pending: Pending
    who: str
    waits_in: str
    then: Callable[[Any], None]


class Waiting:
    """The requests of one group that have no answer yet. Which of them wait, the state of the group says."""

    def __init__(self, exchange: Exchange, group_id: str) -> None:
        self._exchange = exchange
        self._group_id = group_id
        self._waiting: list[_WaitingRequest] = []

    def begin(self, who: str, situation: str, request: Any, version: int, then: Callable[[Any], None]) -> None:
        """Send a member's JoinGroup or SyncGroup; `then` gets its reply once there is one."""
        pending = self._exchange.begin(situation, request, version)
        self._waiting.append(_WaitingRequest(pending, who, STATES_THAT_LET_WAIT[type(request)], then))
        pending.connection.has_reply(PATIENCE_S)
        self.settle()

    def is_waiting_for_reply(self, who: str) -> bool:
        """Whether a request of this one still waits."""
        return any(waiting.who == who for waiting in self._waiting)

    def settle(self) -> None:
        """Finish all that must have been answered, in the order in which it was asked."""
        for _ in range(ATTEMPTS):
            state = self.state() if self._waiting else ""
            due = [
                waiting
                for waiting in self._waiting
                if waiting.waits_in != state or waiting.pending.connection.has_reply()
            ]
            if all(waiting.pending.connection.has_reply() for waiting in due):
                self._finish(due)
                if not due:
                    return
            else:
                time.sleep(PAUSE_S)
        self._finish(self._waiting)

    def _finish(self, answered: list[_WaitingRequest]) -> None:
        self._waiting = [waiting for waiting in self._waiting if waiting not in answered]
        for waiting in answered:
            waiting.then(self._exchange.finish(waiting.pending))

    def state(self) -> str:
        """Of the group, as a classic one; one that everybody has left is soon empty, and until then not looked at."""
        for _ in range(ATTEMPTS):
            described = self._exchange.call(DescribeGroupsRequest([self._group_id]), 5).groups[0]
            if described.members or described.group_state != JOINING:
                break
            time.sleep(PAUSE_S)
        state: str = described.group_state
        return state
