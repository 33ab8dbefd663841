"""Exit codes are those of the documentation: 0 done, 1 not done, 2 the options are wrong."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from fencepost.cli.commands import COMMANDS, fencepost
from scripts.command_line_page import command_line_page

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


def test_the_page_names_every_code() -> None:
    page = command_line_page()
    for code in (0, 1, 2, 3, 130, 143):
        assert f"\n| {code} | " in page
