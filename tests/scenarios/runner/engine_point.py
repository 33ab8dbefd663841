"""What goes wrong with requests to an engine: as a scenario orders it, or, in the sweep, at the nth of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.simulation.engine_requests import EngineRequest, Trouble


@dataclass
class Order:
    """Something to go wrong once: with the nth request of its kind that a broker makes.

    name: found anywhere in the name of an object. countdown: of the requests that match, counted from 1.
    """

    trouble: Trouble
    host: str
    kind: str
    name: str
    countdown: int

    def is_due(self, request: EngineRequest) -> bool:
        if (request.host, request.kind) != (self.host, self.kind) or self.name not in request.name:
            return False
        self.countdown -= 1
        return self.countdown == 0


class EnginePoint(NamedTuple):
    """Which request, counted from 1, and what goes wrong with it. away_s: how long a broker that dies stays away."""

    number: int
    trouble: Trouble
    away_s: float

    def __str__(self) -> str:
        return f"at request {self.number} {self.trouble.value} (away for {self.away_s:g} s)"


class WatchedRequests:
    """All that brokers ask an engine. orders, point: what is still to go wrong."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.point: EnginePoint | None = None
        self.seen: list[EngineRequest] = []

    def meet(self, request: EngineRequest) -> Trouble | None:
        """What goes wrong with a request now."""
        self.seen.append(request)
        for order in self.orders:
            if order.is_due(request):
                self.orders.remove(order)
                return order.trouble
        point = self.point
        if point is not None and request.number == point.number:
            self.point = None
            return point.trouble
        return None
