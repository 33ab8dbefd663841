"""The gate for answers of a node that has a lease: one that may have lost it does not answer as a leader.

An API declares with `needs_lease` whether its answers have to pass.

The store guards every write, so an acknowledgement of a write is true even if it leaves late. Nothing guards an answer
from memory: by then another node may lead, and have newer state. So the lease is compared when such an answer leaves,
not by a timer: a process that was stopped reads its sockets first when it continues. In place of the answer the client
loses its connection, as if the node had died, and finds the new leader after its usual pause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fencepost.broker.requests.api import CloseConnection

LEASE_IS_OVER: Final = "this node may have lost its lease, and another one may lead what it led"


class LeaseGate:
    """Lets answers of a leader pass while the lease is held. is_held: whether the lease is certainly in force."""

    def __init__(self, is_held: Callable[[], bool]) -> None:
        self._is_held = is_held

    def require_lease(self) -> None:
        """Raises CloseConnection."""
        if not self._is_held():
            raise CloseConnection(LEASE_IS_OVER)
