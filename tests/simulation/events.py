"""Events that brokers log, for checkers of a world instead of for a terminal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from fencepost.broker.kernel.events import LogEvent, events_to


def broker_events(sink: Callable[[str, dict[str, Any]], None]) -> AbstractContextManager[None]:
    """While it is entered, every event that is logged goes to `sink`, as its name and its fields, and nowhere else."""

    def take(_: str, __: str, fields: LogEvent) -> None:
        event = str(fields.pop("event"))
        sink(event, dict(fields))

    return events_to(take)
