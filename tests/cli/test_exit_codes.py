"""Exit codes are those of the documentation: 0 done, 1 not done, 2 the options are wrong."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from fencepost.broker.process.serve import EXIT_FAILED
from fencepost.cli import questions
from fencepost.cli.commands import COMMANDS, fencepost
from fencepost.cli.exit_codes import (
    BROKER_FAILED,
    DONE,
    EXIT_CODES,
    INTERRUPTED,
    NOT_DONE,
    OUTPUT_CLOSED,
    TERMINATED,
    WRONG_USAGE,
)

NOWHERE = ("--bootstrap", "127.0.0.1:1")


def exit_code(*arguments: str) -> int:
    return CliRunner().invoke(fencepost, arguments, prog_name="fencepost").exit_code


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_done(command: str) -> None:
    assert exit_code(command, "--help") == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_that_does_not_exist_is_wrong_usage(command: str) -> None:
    assert exit_code(command, "--no-such-option") == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("cluster", "info"),
        ("topics", "describe", "a"),
        ("topics", "trim", "a", "--everything", "--yes"),
        ("consume", "a", "--markers"),
        ("groups", "reset-offsets", "g", "a", "--to", "latest"),
        ("groups", "delete-offsets", "g", "a", "--yes"),
        ("transactions", "list", "--hanging"),
        ("transactions", "why", "a", "0"),
        ("transactions", "commit", "a", "--yes"),
        ("transactions", "abort", "a", "--yes"),
        ("transactions", "terminate", "a", "--yes"),
        ("configs", "group", "g"),
        ("bench", "--records", "1"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_without_a_broker_says_so_in_one_line(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(fencepost, [*arguments, *NOWHERE], prog_name="fencepost")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: no broker answers at 127.0.0.1:1: ")
    assert len(result.stderr.splitlines()) == 1


def test_the_answer_no_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "is_answerable", lambda: True)
    result = CliRunner().invoke(fencepost, ["topics", "delete", "a", *NOWHERE], input="n\n")
    assert result.exit_code in (1, NOT_DONE)


def test_a_question_that_nobody_can_answer_is_wrong_usage() -> None:
    assert exit_code("groups", "delete", "a", *NOWHERE) == WRONG_USAGE


def test_the_codes_are_those_that_shells_know() -> None:
    assert (INTERRUPTED, OUTPUT_CLOSED, TERMINATED) == (130, 141, 143)
    assert BROKER_FAILED == EXIT_FAILED
    assert {one.code for one in EXIT_CODES} >= {DONE, NOT_DONE, WRONG_USAGE}
