"""The broker's events: each module logs through `get_logger`, and this file decides where events go.

They go to the standard library's loggers below `fencepost`, until `configure_logging` sends them to a stream or
`events_to` to a function. structlog's own configuration is left alone: it belongs to the application that a broker runs
inside.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, cast

import structlog
from structlog.typing import FilteringBoundLogger

Event = MutableMapping[str, Any]
"""The fields of an event; `event` is its name."""

PACKAGE: Final = "fencepost."
"""What the names of loggers leave out: `broker.log.cleaner` is the logger of `fencepost.broker.log.cleaner`."""


class NamedLogger:
    """The end of a logger's chain of processors, and its name. No event gets here: the last processor drops it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def get_logger(name: str) -> FilteringBoundLogger:
    """The logger of a module. name: its `__name__`."""
    return cast(
        "FilteringBoundLogger",
        structlog.wrap_logger(
            NamedLogger(name.removeprefix(PACKAGE)),
            processors=_PROCESSORS,
            wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
            cache_logger_on_first_use=True,
        ),
    )


def set_processors(processors: list[Any]) -> None:
    """Send all events through these, from now on. The last one has to raise structlog.DropEvent."""
    _PROCESSORS[:] = processors  # in place: loggers that exist keep this list


@contextmanager
def events_to(take: Callable[[str, str, Event], None]) -> Iterator[None]:
    """Give all events to a function, and to nobody else, while the context lasts.

    take: called with the logger's name, the level (`warning`) and the event.
    """

    def give(logger: NamedLogger, level: str, event: Event) -> Event:
        take(logger.name, level, event)
        raise structlog.DropEvent

    before = _PROCESSORS.copy()
    set_processors([give])
    try:
        yield
    finally:
        set_processors(before)


def silence_this_thread() -> None:
    """Log nothing of this thread any more: a broker that has crashed on it has nothing to say."""
    _THREAD.is_silent = True


def _to_standard_library(logger: NamedLogger, level: str, event: Event) -> Event:
    """Log it as `logging.getLogger("fencepost.broker...")` would, where such a level is wanted."""
    number = structlog.processors.NAME_TO_LEVEL[level]
    target = logging.getLogger(PACKAGE + logger.name)
    if target.isEnabledFor(number) and not getattr(_THREAD, "is_silent", False):
        exc_info = event.pop("exc_info", None)
        name = event.pop("event")
        fields = " ".join(f"{key}={value!r}" for key, value in event.items())
        target.log(number, "%s", f"{name} {fields}" if fields else name, exc_info=exc_info)
    raise structlog.DropEvent


_THREAD: Final = threading.local()
_PROCESSORS: Final[list[Any]] = [_to_standard_library]
