"""The series that clients have pushed, as `/metrics` shows them: a bounded number, dropped with their client. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fencepost.broker.telemetry.otlp import Point

MOST_OF_A_CLIENT: Final = 1_000

SeriesKey = tuple[str, str]
"""Name and attributes."""


class ClientSeries:
    """The values of all clients, by client instance id."""

    def __init__(self) -> None:
        self._values: dict[bytes, dict[SeriesKey, float]] = {}
        self._left_out: dict[bytes, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def left_out(self) -> int:
        """Points of the clients' last pushes that are not kept."""
        return sum(self._left_out.values())

    def begin_push(self, client_instance_id: bytes) -> None:
        """Count the points that are left out anew."""
        self._left_out.pop(client_instance_id, None)

    def take(self, client_instance_id: bytes, point: Point, maximum: int) -> None:
        """Keep the value of a point, or add a difference to it; leave a new series out above a bound."""
        values = self._values.setdefault(client_instance_id, {})
        key = point.name, point.attributes
        known = values.get(key)
        if known is not None:
            values[key] = known + point.value if point.is_delta else point.value
        elif self._count < maximum and len(values) < MOST_OF_A_CLIENT:
            values[key] = point.value
            self._count += 1
        else:
            self._left_out[client_instance_id] = self._left_out.get(client_instance_id, 0) + 1

    def drop(self, client_instance_id: bytes) -> None:
        """Drop the series of a client that is gone."""
        self._count -= len(self._values.pop(client_instance_id, ()))
        self._left_out.pop(client_instance_id, None)

    def count_of(self, client_instance_id: bytes) -> int:
        """Series of a client."""
        return len(self._values.get(client_instance_id, ()))

    def of(self, client_instance_id: bytes) -> Iterator[tuple[SeriesKey, float]]:
        """The series of a client as they are now."""
        return iter(list(self._values.get(client_instance_id, {}).items()))
