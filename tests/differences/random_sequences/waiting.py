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
class _Begun:
    pending: Pending
    who: str
    waits_in: str
    then: Callable[[Any], None]


class Waiting:
    """The requests of one group that have no answer yet. Which of them wait, the state of the group says."""

    def __init__(self, exchange: Exchange, group_id: str) -> None:
        self._exchange = exchange
        self._group_id = group_id
        self._partial_send: list[_Begun] = []

    def begin(self, who: str, situation: str, request: Any, version: int, then: Callable[[Any], None]) -> None:
        """Send a JoinGroup or SyncGroup of somebody; `then` gets its reply once there is one."""
        pending = self._exchange.begin(situation, request, version)
        self._partial_send.append(_Begun(pending, who, STATES_THAT_LET_WAIT[type(request)], then))
        pending.connection.has_reply(PATIENCE_S)
        self.settle()

    def has_begun(self, who: str) -> bool:
        """Whether a request of this one still waits."""
        return any(begun.who == who for begun in self._partial_send)

    def settle(self) -> None:
        """Finish all that must have been answered, in the order in which it was asked."""
        for _ in range(ATTEMPTS):
            state = self.state() if self._partial_send else ""
            due = [
                begun for begun in self._partial_send if begun.waits_in != state or begun.pending.connection.has_reply()
            ]
            if all(begun.pending.connection.has_reply() for begun in due):
                self._finish(due)
                if not due:
                    return
            else:
                time.sleep(PAUSE_S)
        self._finish(self._partial_send)

    def _finish(self, answered: list[_Begun]) -> None:
        self._partial_send = [begun for begun in self._partial_send if begun not in answered]
        for begun in answered:
            begun.then(self._exchange.finish(begun.pending))

    def state(self) -> str:
        """Of the group, as a classic one; one that everybody has left is soon empty, and until then not looked at."""
        for _ in range(ATTEMPTS):
            described = self._exchange.call(DescribeGroupsRequest([self._group_id]), 5).groups[0]
            if described.members or described.group_state != JOINING:
                break
            time.sleep(PAUSE_S)
        state: str = described.group_state
        return state
