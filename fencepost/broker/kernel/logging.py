"""Writer of the broker's own log: text for people, or one JSON object per line; to standard error unless given."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any, TextIO

import structlog
from structlog.tracebacks import ExceptionDictTransformer

from fencepost.broker.kernel.events import LogEvent, NamedLogger, cut_values, get_logger, set_processors
from fencepost.broker.kernel.loggers import Loggers, LogLevel
from fencepost.broker.kernel.printable import printable

LEVELS = {"debug": LogLevel.DEBUG, "info": LogLevel.INFO, "warning": LogLevel.WARN, "error": LogLevel.ERROR}


def configure_logging(*, log_format: str, level: str, stream: TextIO | None = None) -> Loggers:
    """Write the events of this process to a stream, standard error unless given.

    log_format: `human` or `json`; level: a key of LEVELS.
    Returns the levels of the loggers.
    """
    loggers = Loggers(LEVELS[level])
    stream = sys.stderr if stream is None else stream
    renderers: list[Any]
    if log_format == "json":
        # Without the variables of the frames: passwords and tokens are among them.
        tracebacks = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
        renderers = [tracebacks, structlog.processors.JSONRenderer(default=_plain)]
    else:
        renderers = [
            _escape,
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    set_processors(
        [
            _DropBelowLevel(loggers),
            cut_values,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=log_format == "json"),
            *renderers,
            _WriteLine(stream),
        ]
    )
    handler = _ToEvents()
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    return loggers


class _DropBelowLevel:
    """The first processor: it drops events below their logger's level."""

    def __init__(self, loggers: Loggers) -> None:
        self._loggers = loggers

    def __call__(self, logger: NamedLogger, method_name: str, event: LogEvent) -> LogEvent:
        if structlog.processors.NAME_TO_LEVEL[method_name] < self._loggers.level(logger.name):
            raise structlog.DropEvent
        return event


class _WriteLine:
    """The last processor: it writes the line. A line that cannot be written is dropped: a full disk or a closed pipe of
    the log must not stop the broker's work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, _: NamedLogger, __: str, line: str) -> LogEvent:
        with contextlib.suppress(OSError):
            self._stream.write(line + "\n")
        with contextlib.suppress(OSError):
            self._stream.flush()
        raise structlog.DropEvent


class _ToEvents(logging.Handler):
    """Handler that logs the standard library's records (asyncio's warnings) as events, in the same format."""

    def emit(self, record: logging.LogRecord) -> None:
        event: LogEvent = {"logger": record.name, "reason": record.getMessage()}
        if record.exc_info:
            event["exc_info"] = record.exc_info
        get_logger(record.name).log(record.levelno, "library_event_logged", **event)


def _escape(_: NamedLogger, __: str, event: LogEvent) -> LogEvent:
    """Make clients' texts safe for a terminal. Tracebacks keep their lines; lists have escapes already."""
    for key, value in event.items():
        if type(value) is str and key != "exception":
            event[key] = printable(value)
    return event


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
