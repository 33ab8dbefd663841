"""Destination of the broker's events, which each module logs through `get_logger`.

Events go to the standard library's loggers below `fencepost`, until `configure_logging` sends them to a stream or
`events_to` to a function. structlog's own configuration is not changed: it belongs to the application that runs the
broker.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, cast

import structlog
from structlog.typing import FilteringBoundLogger

LogEvent = MutableMapping[str, Any]
"""The fields of an event; `event` is its name."""

PACKAGE: Final = "fencepost."
"""The prefix that names of loggers omit: `broker.log.cleaner` is the logger of `fencepost.broker.log.cleaner`."""


class NamedLogger:
    """A logger's name, at the end of its chain of processors. No event arrives here: the last processor drops it."""

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
    """Replace the processors of all loggers. The last one must raise structlog.DropEvent."""
    _PROCESSORS[:] = processors  # in place: loggers that exist keep this list


@contextmanager
def events_to(take: Callable[[str, str, LogEvent], None]) -> Iterator[None]:
    """Send all events to a function, and nowhere else, while the context lasts.

    take: called with the logger's name, the level (`warning`) and the event.
    """

    def give(logger: NamedLogger, level: str, event: LogEvent) -> LogEvent:
        take(logger.name, level, event)
        raise structlog.DropEvent

    before = _PROCESSORS.copy()
    set_processors([give])
    try:
        yield
    finally:
        set_processors(before)


def silence_this_thread() -> None:
    """Drop the later events of this thread, on which a broker has crashed."""
    _THREAD.is_silent = True


def _to_standard_library(logger: NamedLogger, level: str, event: LogEvent) -> LogEvent:
    """Log an event through `logging.getLogger("fencepost.broker...")`, if that logger has the level enabled."""
    number = structlog.processors.NAME_TO_LEVEL[level]
    target = logging.getLogger(PACKAGE + logger.name)
    if target.isEnabledFor(number) and not getattr(_THREAD, "is_silent", False):
        exc_info = event.pop("exc_info", None)
        name = event.pop("event")
        fields = " ".join(f"{key}={value!r}" for key, value in event.items())
        target.log(number, "%s", f"{name} {fields}" if fields else name, exc_info=exc_info)
    raise structlog.DropEvent


# Without a handler anywhere, Python would print the warnings of a broker inside a program to standard error.
logging.getLogger(PACKAGE.rstrip(".")).addHandler(logging.NullHandler())

_THREAD: Final = threading.local()
_PROCESSORS: Final[list[Any]] = [_to_standard_library]
