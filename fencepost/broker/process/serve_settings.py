"""Settings of `fencepost serve`, from its options. It imports no module that needs an event loop: the settings decide
how such a module is imported."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from fencepost.broker.config import ConfigurationError, Entry, LoadedSettings, Settings, load_settings, parse_listeners
from fencepost.broker.config.listeners import parse_endpoint, parse_http_listener

EXIT_BAD_SETTINGS = 2


def load(
    listeners: tuple[str, ...],
    data_dir: str | None,
    properties_path: str | None,
    assignments: tuple[str, ...],
    log_format: str | None,
    log_level: str | None,
    processes: int | None = None,
    cluster: str | None = None,
    objects: str | None = None,
) -> LoadedSettings:
    """Load the settings; the options are those of the command. Exits the process if they are wrong."""
    given = {
        ("listeners", "--listener"): ",".join(_listener(text, index) for index, text in enumerate(listeners)) or None,
        ("log.dirs", "--data-dir"): data_dir,
        ("fencepost.log.format", "--log-format"): log_format,
        ("fencepost.log.level", "--log-level"): log_level,
        ("fencepost.processes", "--processes"): None if processes is None else str(processes),
        ("fencepost.cluster.url", "--cluster"): cluster,
        ("fencepost.cluster.objects", "--objects"): objects,
    }
    try:
        return load_settings(
            properties_path=properties_path,
            assignments=assignments,
            environment=os.environ,
            options=[Entry(name, text, option) for (name, option), text in given.items() if text is not None],
        )
    except ConfigurationError as error:
        fail("\n".join(error.problems), EXIT_BAD_SETTINGS)


def needs_tls(settings: Settings) -> bool:
    """Whether a listener has TLS."""
    listeners = [*parse_listeners(settings), parse_http_listener(settings)]
    return any(listener.protocol.uses_tls for listener in listeners if listener is not None)


def fail(message: str, exit_code: int) -> NoReturn:
    """Exit the process with a message."""
    for line in message.splitlines():
        print(f"fencepost: {line}", file=sys.stderr)
    sys.exit(exit_code)


def _listener(text: str, index: int) -> str:
    """Make a listener of `HOST:PORT`; a text with a name is returned unchanged. Exits the process if it is neither."""
    if "://" in text:
        return text
    listener = f"PLAINTEXT://{text}" if index == 0 else f"PLAINTEXT{index + 1}://{text}"
    try:
        parse_endpoint(listener)
    except ValueError:
        fail(f"--listener: expected HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092; got {text!r}", EXIT_BAD_SETTINGS)
    return listener
