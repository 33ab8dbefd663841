"""How the broker's own log is written: for people, or one JSON object per line; always to standard error."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any, TextIO

import structlog

from fencepost.broker.kernel.events import Event, NamedLogger, get_logger, set_processors
from fencepost.broker.kernel.loggers import Loggers, LogLevel

LEVELS = {"debug": LogLevel.DEBUG, "info": LogLevel.INFO, "warning": LogLevel.WARN, "error": LogLevel.ERROR}


def configure_logging(*, log_format: str, level: str, stream: TextIO | None = None) -> Loggers:
    """Write the events of this process to a stream, standard error unless given.

    log_format: `human` or `json`; level: a key of LEVELS.
    Returns the levels that hold from now on.
    """
    loggers = Loggers(LEVELS[level])
    stream = sys.stderr if stream is None else stream
    renderers: list[Any]
    if log_format == "json":
        renderers = [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(default=_plain)]
    else:
        renderers = [
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
            )
        ]
    set_processors(
        [
            _DropBelowLevel(loggers),
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
    """The first processor: an event below its logger's level goes no further."""

    def __init__(self, loggers: Loggers) -> None:
        self._loggers = loggers

    def __call__(self, logger: NamedLogger, method_name: str, event: Event) -> Event:
        if structlog.processors.NAME_TO_LEVEL[method_name] < self._loggers.level(logger.name):
            raise structlog.DropEvent
        return event


class _WriteLine:
    """The last processor: it writes the line. One that cannot be written is lost: a full disk or a closed pipe behind
    the broker's log is no reason to give up what the line was about."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, _: NamedLogger, __: str, line: str) -> Event:
        with contextlib.suppress(OSError):
            self._stream.write(line + "\n")
        with contextlib.suppress(OSError):
            self._stream.flush()
        raise structlog.DropEvent


class _ToEvents(logging.Handler):
    """Brings what the standard library logs (asyncio's complaints) into the same stream and format."""

    def emit(self, record: logging.LogRecord) -> None:
        event: Event = {"logger": record.name, "reason": record.getMessage()}
        if record.exc_info:
            event["exc_info"] = record.exc_info
        get_logger(record.name).log(record.levelno, "library_event_logged", **event)


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
