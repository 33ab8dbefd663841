"""The levels of loggers: which count, and what clients may do to them."""

from __future__ import annotations

import pytest

import fencepost.broker.log.compaction.cleaner  # noqa: F401  # for its logger
from fencepost.broker.config import Alteration, AlterOperation
from fencepost.broker.kernel.loggers import ROOT, Loggers, LogLevel
from fencepost.protocol.errors import ErrorCode

NODE_ID = 1
SET, DELETE = AlterOperation.SET, AlterOperation.DELETE


def alter(loggers: Loggers, *alterations: tuple[str, int, str | None], validate_only: bool = False) -> ErrorCode:
    changes = [Alteration(*alteration) for alteration in alterations]
    refusal = loggers.alter(NODE_ID, str(NODE_ID), changes, validate_only=validate_only)
    return ErrorCode.NONE if refusal is None else refusal.error


def test_the_nearest_level_above_a_logger_counts() -> None:
    loggers = Loggers(LogLevel.ERROR)
    assert alter(loggers, ("broker.log", SET, "DEBUG")) is ErrorCode.NONE
    assert loggers.level("broker.log.compaction.cleaner") is LogLevel.DEBUG
    assert loggers.level("broker.hosting.topics") is LogLevel.ERROR
    assert alter(loggers, ("broker.log.compaction.cleaner", SET, "FATAL"), (ROOT, SET, "INFO")) is ErrorCode.NONE
    assert loggers.level("broker.log.compaction.cleaner") is LogLevel.FATAL
    assert loggers.level("broker.hosting.topics") is LogLevel.INFO
    assert loggers.level("asyncio") is LogLevel.INFO
    assert alter(loggers, ("broker.log.compaction.cleaner", DELETE, None), ("broker.log", DELETE, "")) is ErrorCode.NONE
    assert loggers.level("broker.log.compaction.cleaner") is LogLevel.INFO


def test_every_module_that_logs_has_a_logger_and_so_has_what_is_above_it() -> None:
    names = Loggers().names()
    assert names[0] == ROOT
    assert {"broker", "broker.log", "broker.log.compaction.cleaner"} <= set(names)
    assert "broker.log.log_config" not in names
    assert names[1:] == sorted(names[1:])


@pytest.mark.parametrize(
    ("alteration", "error"),
    [
        ((ROOT, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ((ROOT, SET, "info"), ErrorCode.INVALID_CONFIG),
        (("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("no.such.logger", DELETE, None), ErrorCode.INVALID_CONFIG),
        ((ROOT, DELETE, None), ErrorCode.INVALID_REQUEST),
        ((ROOT, AlterOperation.APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        ((ROOT, AlterOperation.SUBTRACT, "INFO"), ErrorCode.INVALID_REQUEST),
        ((ROOT, 9, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_beside_it_is_done(
    alteration: tuple[str, int, str | None], error: ErrorCode
) -> None:
    loggers = Loggers()
    assert alter(loggers, ("broker", SET, "DEBUG"), alteration) is error
    assert loggers.level("broker") is LogLevel.INFO


@pytest.mark.parametrize("name", ["", "one", "2", "-1"])
def test_only_the_loggers_of_this_node_are_altered(name: str) -> None:
    refusal = Loggers().alter(NODE_ID, name, [Alteration(ROOT, SET, "INFO")], validate_only=False)
    assert refusal is not None
    assert refusal.error is ErrorCode.INVALID_REQUEST


def test_what_is_only_validated_changes_nothing() -> None:
    loggers = Loggers()
    assert alter(loggers, (ROOT, SET, "DEBUG"), validate_only=True) is ErrorCode.NONE
    assert loggers.level(ROOT) is LogLevel.INFO
