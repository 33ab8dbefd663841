"""What brokers log, for those who look at a world instead of for a terminal."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from types import TracebackType
from typing import Any, Self

import structlog


class BrokerEvents:
    """While it is entered, every event that is logged goes to `sink`, as its name and its fields, and nowhere else."""

    def __init__(self, sink: Callable[[str, dict[str, Any]], None]) -> None:
        self._sink = sink
        self._before: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._before = structlog.get_config()
        structlog.configure(processors=[self._take], cache_logger_on_first_use=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        structlog.configure(**self._before)

    def _take(self, _: Any, __: str, fields: MutableMapping[str, Any]) -> Any:
        event = str(fields.pop("event"))
        self._sink(event, dict(fields))
        raise structlog.DropEvent
