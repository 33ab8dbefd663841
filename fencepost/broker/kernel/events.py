"""Destination of the broker's events, which each module logs through `get_logger`.

Events go to the standard library's loggers below `fencepost`, until `configure_logging` sends them to a stream or
`events_to` to a function. structlog's own configuration is not changed: it belongs to the application that runs the
broker. Nor is structlog imported before: with rich, which it imports if it is installed, it would be a sixth of the
time in which a test's broker starts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from fencepost.broker.kernel.printable import cut

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

LogEvent = MutableMapping[str, Any]
"""The fields of an event; `event` is its name."""

PACKAGE: Final = "fencepost."
"""The prefix that names of loggers omit: `broker.node` is the logger of `fencepost.broker.node`."""


MAXIMUM_VALUE_CHARACTERS: Final = 2_000
"""Characters of one field of an event."""


class NamedLogger:
    """A logger's name, at the end of its chain of processors. No event arrives here: the last processor drops it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class _ModuleLogger:
    """The result of `get_logger`: the methods of a structlog logger, which is made when the first event needs it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._structured: FilteringBoundLogger | None = None

    def __getattr__(self, method_name: str) -> Any:
        if method_name.startswith("_"):
            raise AttributeError(method_name)
        method = partial(self._log, method_name)
        setattr(self, method_name, method)
        return method

    def _log(self, method_name: str, *arguments: Any, **fields: Any) -> None:
        if not _PROCESSORS:
            _to_standard_library(self._name, method_name, *arguments, **fields)
            return
        if self._structured is None:
            self._structured = _structured_logger(self._name)
        getattr(self._structured, method_name)(*arguments, **fields)


def get_logger(name: str) -> FilteringBoundLogger:
    """The logger of a module. name: its `__name__`."""
    return cast("FilteringBoundLogger", _ModuleLogger(name.removeprefix(PACKAGE)))


def _structured_logger(name: str) -> FilteringBoundLogger:
    import structlog

    return cast(
        "FilteringBoundLogger",
        structlog.wrap_logger(
            NamedLogger(name),
            processors=_PROCESSORS,
            wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
            cache_logger_on_first_use=True,
        ),
    )


def set_processors(processors: list[Any]) -> None:
    """Replace the processors of all loggers. The last one must raise structlog.DropEvent. None: the standard library
    gets the events.
    """
    _PROCESSORS[:] = processors  # in place: loggers that exist keep this list


@contextmanager
def events_to(take: Callable[[str, str, LogEvent], None]) -> Iterator[None]:
    """Send all events to a function, and nowhere else, while the context lasts.

    take: called with the logger's name, the level (`warning`) and the event.
    """
    from structlog import DropEvent

    def give(logger: NamedLogger, level: str, event: LogEvent) -> LogEvent:
        take(logger.name, level, event)
        raise DropEvent

    before = _PROCESSORS.copy()
    set_processors([give])
    try:
        yield
    finally:
        set_processors(before)


def cut_values(_: object, __: str, event: LogEvent) -> LogEvent:
    """A processor: long texts are cut, as clients choose some of them, and may send the same event often."""
    for key, value in event.items():
        if type(value) is str and len(value) > MAXIMUM_VALUE_CHARACTERS:
            event[key] = cut(value, MAXIMUM_VALUE_CHARACTERS)
    return event


def silence_this_thread() -> None:
    """Drop the later events of this thread, on which a broker has crashed."""
    _THREAD.is_silent = True


def _to_standard_library(name: str, method_name: str, event: str, **fields: Any) -> None:
    """Log an event through `logging.getLogger("fencepost.broker...")`, if that logger has the level enabled."""
    target = logging.getLogger(PACKAGE + name)
    number = _LEVELS[method_name.upper()]
    if target.isEnabledFor(number) and not getattr(_THREAD, "is_silent", False):
        exc_info = fields.pop("exc_info", method_name == "exception")
        told = " ".join(f"{key}={value!r}" for key, value in cut_values(None, method_name, fields).items())
        target.log(number, "%s", f"{event} {told}" if told else event, exc_info=exc_info)


# Without a handler anywhere, Python would print the warnings of a broker inside a program to standard error.
logging.getLogger(PACKAGE.rstrip(".")).addHandler(logging.NullHandler())

_THREAD: Final = threading.local()
_PROCESSORS: Final[list[Any]] = []
_LEVELS: Final = {**logging.getLevelNamesMapping(), "EXCEPTION": logging.ERROR}
