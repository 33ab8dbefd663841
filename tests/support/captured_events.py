"""What a broker logs while a test looks on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fencepost.broker.kernel.events import LogEvent, events_to


@contextmanager
def capture_logs() -> Iterator[list[LogEvent]]:
    """All events of the context: their fields, with their name as `event` and their level as `log_level`."""
    events: list[LogEvent] = []

    def take(_: str, level: str, event: LogEvent) -> None:
        events.append({**event, "log_level": level})

    with events_to(take):
        yield events
