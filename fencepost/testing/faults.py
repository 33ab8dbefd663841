"""Faults: their requests, their effects, and how often they have fired.

`FaultOrder` is a test's order, and `Faults` keeps the orders where requests pass. Pure: no event loop, no broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Literal, TypedDict

from fencepost.protocol.errors import ErrorCode
from fencepost.testing.apis import API_NAMES
from fencepost.testing.requests import Passing

Moment = Literal["request", "reply"]
"""`request`: at its arrival, before anything is done. `reply`: when all is done and durable, before it leaves."""

AtSync = Literal["sync"]
"""The moment of crashes alone: the request's records are appended and about to become durable."""


class Which(TypedDict, total=False):
    """The requests of a fault. client_id, group: may have `*` and `?`, as file names in a shell. None: any.

    after: number of requests that pass first. optional: whether the test may end without the fault having fired.
    """

    topic: str | None
    partition: int | None
    client_id: str | None
    transactional_id: str | None
    group: str | None
    after: int
    optional: bool


class Timed(Which, total=False):
    """As `Which`, of a fault that may meet several requests, before or after they are done.

    count: the number of requests; None for all. on: `request` if the requests are not carried out, `reply` if they are.
    """

    count: int | None
    on: Moment


class FaultKind(StrEnum):
    """A fault's effect on a request."""

    FAIL = "fail"
    DELAY = "delay"
    HOLD = "hold"
    DISCONNECT = "disconnect"
    CRASH = "crash_after"


@dataclass(frozen=True, slots=True)
class FaultOrder:
    """The requests that a fault concerns, and its effect on them. None: any.

    client_id, group: may have `*` and `?`, as file names in a shell. count: number of requests that it
    concerns; None for all. after: number of them that pass first.
    """

    kind: FaultKind
    moment: Moment | AtSync
    api_key: int | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    transactional_id: str | None = None
    group: str | None = None
    count: int | None = 1
    after: int = 0
    error: int = 0
    seconds: float = 0.0

    def concerns(self, passing: Passing) -> bool:
        if self.api_key is not None and passing.api_key != self.api_key:
            return False
        if self.client_id is not None and not fnmatchcase(passing.client_id or "", self.client_id):
            return False
        if self.transactional_id is not None and passing.transactional_id != self.transactional_id:
            return False
        if self.group is not None and not any(fnmatchcase(group, self.group) for group in passing.groups):
            return False
        if self.topic is None and self.partition is None:
            return True
        return any(self.concerns_partition(topic, partition) for topic, partition in passing.partitions)

    def concerns_partition(self, topic: str | None, partition: int | None) -> bool:
        return (self.topic is None or topic == self.topic) and (
            self.partition is None or partition is None or partition == self.partition
        )

    def __str__(self) -> str:
        what = [] if self.api_key is None else [repr(API_NAMES[self.api_key])]
        if self.kind is FaultKind.FAIL:
            what.append(f"error={ErrorCode(self.error).name!r}")
        if self.kind is FaultKind.DELAY:
            what.append(f"seconds={self.seconds:g}")
        for name in ("topic", "partition", "client_id", "transactional_id", "group"):
            value = getattr(self, name)
            if value is not None:
                what.append(f"{name}={value!r}")
        if self.moment == "sync":
            what.append("durable=False")
        if self.after:
            what.append(f"after={self.after}")
        return f"{self.kind}({', '.join(what)})"


@dataclass(slots=True)
class PlacedFault:
    """An order with its effect so far.

    fired:    number of requests that it has met. passed: number of those that it has let pass first.
    releases: callbacks that release its held requests, in their order.
    """

    number: int
    order: FaultOrder
    fired: int = 0
    passed: int = 0
    is_removed: bool = False
    releases: list[Callable[[], None]] = field(default_factory=list)

    @property
    def is_spent(self) -> bool:
        return self.is_removed or (self.order.count is not None and self.fired >= self.order.count)

    def meets(self, passing: Passing) -> bool:
        """Whether the fault meets this request, for the caller to carry out and count; counts those that pass first."""
        if self.is_spent or not self.order.concerns(passing):
            return False
        if self.passed < self.order.after:
            self.passed += 1
            return False
        return True

    def release(self) -> int:
        """Let all held requests go; return how many."""
        releases, self.releases = self.releases, []
        for release in releases:
            release()
        return len(releases)


class Faults:
    """The faults of one broker, by number."""

    def __init__(self) -> None:
        self._placed: dict[int, PlacedFault] = {}
        self._next_number = 1

    def __iter__(self) -> Iterator[PlacedFault]:
        return iter(list(self._placed.values()))

    def __getitem__(self, number: int) -> PlacedFault:
        return self._placed[number]

    def place(self, order: FaultOrder, number: int | None = None) -> PlacedFault:
        """Set a fault. number: its own; the next one, unless given."""
        fault = PlacedFault(self._next_number if number is None else number, order)
        self._placed[fault.number] = fault
        self._next_number = max(self._next_number, fault.number) + 1
        return fault

    def remove(self, number: int) -> None:
        """End a fault, and release its held requests."""
        fault = self._placed[number]
        fault.is_removed = True
        fault.release()

    def first(self, passing: Passing, moment: Moment | AtSync) -> PlacedFault | None:
        """The first fault that meets a request at a moment; the caller counts it as fired."""
        if not self._placed:
            return None
        for fault in self._placed.values():
            if fault.order.moment == moment and fault.meets(passing):
                return fault
        return None
