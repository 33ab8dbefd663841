"""The broker's own log: levels count at once, and where it cannot be written, the broker goes on."""

from __future__ import annotations

import errno
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import fencepost.broker.log.compaction.cleaner  # noqa: F401  # for its logger
from fencepost.broker.config import Alteration, AlterOperation
from fencepost.broker.kernel import events
from fencepost.broker.kernel.events import get_logger, set_processors
from fencepost.broker.kernel.loggers import Loggers
from fencepost.broker.kernel.logging import configure_logging
from tests.broker.kernel.test_printable import EVIL


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    processors = events._PROCESSORS.copy()
    yield
    set_processors(processors)
    root.handlers[:], root.level = handlers, level


def set_level(loggers: Loggers, name: str, level: str) -> None:
    assert loggers.alter(1, "1", [Alteration(name, AlterOperation.SET, level)], validate_only=False) is None


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else() -> None:
    configure_logging(log_format="json", level="info", stream=FullDisk())
    get_logger("test").error("partition_went_offline", reason="No space left on device")


def test_a_level_counts_for_loggers_that_are_in_use_already() -> None:
    stream = io.StringIO()
    loggers = configure_logging(log_format="json", level="warning", stream=stream)
    cleaner, topics = get_logger("broker.log.compaction.cleaner"), get_logger("broker.hosting.topics")

    def log_all(round_name: str) -> list[str]:
        stream.seek(0)
        stream.truncate()
        for logger in (cleaner, topics):
            for method in ("debug", "info", "warning", "error", "critical"):
                getattr(logger, method)(round_name)
        return [json.loads(line)["level"] for line in stream.getvalue().splitlines()]

    severe = ["warning", "error", "critical"]
    assert log_all("as_started") == severe + severe
    set_level(loggers, "broker.log.compaction.cleaner", "TRACE")
    assert log_all("cleaner_in_detail") == ["debug", "info", *severe, *severe]
    set_level(loggers, "root", "FATAL")
    assert log_all("others_quiet") == ["debug", "info", *severe, "critical"]


def test_what_libraries_log_obeys_the_root() -> None:
    stream = io.StringIO()
    loggers = configure_logging(log_format="json", level="info", stream=stream)
    logging.getLogger("asyncio").warning("heard")
    set_level(loggers, "root", "ERROR")
    logging.getLogger("asyncio").warning("not heard")
    assert [json.loads(line)["reason"] for line in stream.getvalue().splitlines() if "reason" in line] == ["heard"]


@pytest.mark.parametrize("fields", [{"group": EVIL}, {"groups": [EVIL]}, {"groups": {EVIL: EVIL}}])
def test_a_line_for_people_has_no_control_characters(fields: dict[str, Any]) -> None:
    stream = io.StringIO()
    configure_logging(log_format="human", level="info", stream=stream)
    get_logger("broker.test").info("seen", **fields)
    line, rest = stream.getvalue().split("\n")
    assert (rest, line.isprintable(), "OWNED" in line) == ("", True, True)


def test_a_traceback_keeps_its_lines() -> None:
    stream = io.StringIO()
    configure_logging(log_format="human", level="info", stream=stream)
    try:
        raise ValueError(EVIL)
    except ValueError:
        get_logger("broker.test").exception("failed")
    assert len(stream.getvalue().splitlines()) > 3


@pytest.mark.parametrize("log_format", ["json", "human"])
def test_no_traceback_shows_the_variables_of_its_frames(log_format: str) -> None:
    stream = io.StringIO()
    configure_logging(log_format=log_format, level="info", stream=stream)

    def check(password: str) -> None:
        raise ValueError(len(password))

    try:
        check("alice-" + "secret")
    except ValueError:
        get_logger("test").exception("request_failed")
    assert "check" in stream.getvalue()
    assert "alice-secret" not in stream.getvalue()


@pytest.mark.parametrize("log_format", ["json", "human"])
def test_a_long_text_is_cut_with_a_mark(log_format: str) -> None:
    stream = io.StringIO()
    configure_logging(log_format=log_format, level="info", stream=stream)
    get_logger("test").warning("connection_refused", reason="x" * 100_000)
    assert "100000 characters" in stream.getvalue()
    assert len(stream.getvalue()) < 2 * events.MAXIMUM_VALUE_CHARACTERS


def test_a_long_text_is_cut_for_the_standard_library_too(caplog: pytest.LogCaptureFixture) -> None:
    set_processors([])
    get_logger("broker.test").warning("connection_refused", reason="x" * 100_000)
    assert len(caplog.messages[-1]) < 2 * events.MAXIMUM_VALUE_CHARACTERS
