"""A command whose output nobody reads ends without a word; a connection that breaks is no such end."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from fencepost.cli.closed_output import is_output_closed, quiet_if_output_is_closed
from fencepost.cli.exit_codes import OUTPUT_CLOSED
from tests.support.broker_process import ROOT


def ended(*command: str) -> tuple[int, str]:
    """Exit code and errors of a Python process whose output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "arguments", [("version",), ("--help",), ("topics", "--help"), ("--version",), ("profile", "path")], ids=" ".join
)
def test_a_command_without_a_reader_ends_without_a_word(arguments: tuple[str, ...]) -> None:
    assert ended("-m", "fencepost", *arguments) == (OUTPUT_CLOSED, "")


def test_text_that_python_still_holds_is_dropped_without_a_word() -> None:
    program = (
        "import sys\n"
        "from fencepost.cli import commands\n"
        "sys.stdout = open(1, 'w', closefd=False)\n"
        "commands.fencepost.main = lambda **_: print('held')\n"
        "commands.run()\n"
    )
    assert ended("-c", program) == (OUTPUT_CLOSED, "")


def test_a_connection_that_breaks_is_a_failure_with_words() -> None:
    with pytest.raises(click.ClickException, match="a connection was closed: Broken pipe"), quiet_if_output_is_closed():
        raise BrokenPipeError(32, "Broken pipe")


def test_an_output_that_is_no_file_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    assert not is_output_closed()
