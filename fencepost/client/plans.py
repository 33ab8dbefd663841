"""Requests that need the right broker, and that are repeated while it is not ready. Pure: a driver carries plans out.

A plan is a generator. It yields an `Ask`, and gets the reply; or a `Pause`, after which it goes on, unless its time is
over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from typing import Any, Final, NamedTuple

from fencepost.client.errors import RefusedError
from fencepost.client.view import CoordinatorKind, coordinator_request, coordinators_of
from fencepost.protocol.errors import ErrorCode

PAUSE_S: Final = 0.01
MOST_ROUTES: Final = 10_000
MOST_KEYS: Final = 1_000
"""In one request for coordinators."""

RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Errors that pass: a plan asks again."""


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Ask(NamedTuple):
    """Send a request to a broker, to any for None."""

    request: Any
    address: Address | None = None


class Pause(NamedTuple):
    """Wait for `PAUSE_S`, or raise this error if the time is over. about: whose error it is."""

    error: int
    about: str

    def too_long(self, timeout_s: float) -> RefusedError:
        return RefusedError(self.error, f"{self.about}, for {timeout_s:g} s")


Plan = Generator[Ask | Pause, Any, Any]


class Routes:
    """Where coordinators have been found."""

    def __init__(self) -> None:
        self._coordinators: dict[tuple[CoordinatorKind, str], Address] = {}

    def forget(self, address: Address) -> None:
        """Look up anew the coordinators of a broker that does not answer."""
        self._coordinators = {key: one for key, one in self._coordinators.items() if one != address}

    def clear(self) -> None:
        self._coordinators.clear()

    def to_coordinator(self, kind: CoordinatorKind, key: str, request: Any, error_of: Callable[[Any], int]) -> Plan:
        """Send a request to the coordinator of a group or a transactional id; ask again while it is not ready.

        error_of: gives the error code of a reply. Returns the reply. Raises RefusedError if there is no coordinator.
        """
        while True:
            try:
                found = yield from self.coordinators(kind, [key])
            except RefusedError as refused:
                if refused.code not in RETRIED:
                    raise
                error = refused.code
            else:
                reply = yield Ask(request, found[key])
                error = error_of(reply)
                if error not in RETRIED:
                    return reply
                if error != ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._coordinators.pop((kind, key), None)
            yield Pause(error, repr(key))

    def coordinators(
        self, kind: CoordinatorKind, keys: Collection[str]
    ) -> Generator[Ask | Pause, Any, Mapping[str, Address]]:
        """Find the coordinators of groups or transactional ids, as a part of a plan. Raises RefusedError."""
        found = {key: self._coordinators[kind, key] for key in keys if (kind, key) in self._coordinators}
        while left := [key for key in keys if key not in found]:
            asked = left[:MOST_KEYS]
            for key, node in coordinators_of((yield Ask(coordinator_request(kind, *asked))), asked).items():
                if len(self._coordinators) >= MOST_ROUTES:
                    self._coordinators.clear()
                found[key] = self._coordinators[kind, key] = Address(node.host, node.port)
        return found
