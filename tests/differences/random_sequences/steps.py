"""The steps of a generated sequence: each has its number, so that no situation comes twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from fencepost.protocol.errors import ErrorCode
from tests.differences.connection import Connection
from tests.differences.exchange import Exchange


class SlicedWork:
    """Asks one thing after another, under a number and a description that says all that was given at random."""

    def __init__(self, exchange: Exchange, random: Random) -> None:
        self.exchange = exchange
        self.random = random
        self._count = 0

    def situation(self, description: str) -> str:
        self._count += 1
        return f"{self._count:03d} {description}"

    def ask(
        self,
        description: str,
        request: Any,
        version: int,
        *,
        retry: Sequence[ErrorCode] = (),
        connection: Connection | None = None,
    ) -> Any:
        """The reply, or None without one. See `Exchange.ask`."""
        return self.exchange.ask(self.situation(description), request, version, retry=retry, connection=connection)

    def version(self, request_type: type[Any], *, lowest: int = 0, highest: int = 0x7FFF) -> int:
        """One of the versions that both brokers serve, within bounds."""
        return self.random.choice(self.exchange.versions(request_type, lowest=lowest, highest=highest))

    def happens(self, probability: float) -> bool:
        return self.random.random() < probability

    def take(self, actions: Sequence[tuple[int, Callable[[], None]]]) -> None:
        """One of the actions, by their weights."""
        (chosen,) = self.random.choices([action for _, action in actions], [weight for weight, _ in actions])
        chosen()
