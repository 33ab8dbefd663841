"""How the broker's own log is written: for people, or one JSON object per line; always to standard error."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog

from fencepost.broker.kernel.loggers import PACKAGE, ROOT, Loggers, LogLevel

Event = MutableMapping[str, Any]
LEVELS = {"debug": LogLevel.DEBUG, "info": LogLevel.INFO, "warning": LogLevel.WARN, "error": LogLevel.ERROR}


def configure_logging(*, log_format: str, level: str, stream: TextIO | None = None) -> Loggers:
    """Set up structlog for the process. log_format: `human` or `json`; level: a key of LEVELS.

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
    structlog.configure(
        processors=[
            _DropBelowLevel(loggers),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=log_format == "json"),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        logger_factory=_NamedLoggers(cast("TextIO", _Unfailing(stream))),
        cache_logger_on_first_use=True,
    )
    handler = _ToStructlog()
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    return loggers


class _NamedLogger(structlog.WriteLogger):
    """Writes lines, and knows for which module."""

    def __init__(self, file: TextIO, name: str) -> None:
        super().__init__(file)
        self.name = name


class _NamedLoggers:
    """Makes the logger of each `structlog.get_logger(name)`."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __call__(self, name: str = ROOT) -> _NamedLogger:
        return _NamedLogger(self._file, name.removeprefix(PACKAGE))


class _DropBelowLevel:
    """The first processor: an event below its logger's level goes no further."""

    def __init__(self, loggers: Loggers) -> None:
        self._loggers = loggers

    def __call__(self, logger: _NamedLogger, method_name: str, event: Event) -> Event:
        if structlog.processors.NAME_TO_LEVEL[method_name] < self._loggers.level(logger.name):
            raise structlog.DropEvent
        return event


class _Unfailing:
    """A stream that loses lines rather than raise: a full disk or a closed pipe behind the broker's log is no reason to
    give up what the line was about."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


class _ToStructlog(logging.Handler):
    """Brings what the standard library logs (asyncio's complaints) into the same stream and format."""

    def emit(self, record: logging.LogRecord) -> None:
        event: Event = {"logger": record.name, "reason": record.getMessage()}
        if record.exc_info:
            event["exc_info"] = record.exc_info
        structlog.get_logger(record.name).log(record.levelno, "library_event_logged", **event)


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
