"""Options that mean the same have one name, in every command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import click
import pytest

from fencepost.cli.commands import refuse_bytes
from fencepost.cli.exit_codes import INTERRUPTED
from tests.support.command_tree import commands

SERVING: Final = {"serve", "cluster try", "console"}
"""They print no results."""
PRINTING_A_FILE: Final = {"groups export"}
"""It prints a file, which is JSON by itself."""


OPTIONS: Final = {
    name: {spelling for one in command.params if isinstance(one, click.Option) for spelling in one.opts}
    for name, command in commands()
}
"""The options of each command."""


def test_what_a_command_shows_or_has_done_a_program_can_read() -> None:
    assert {name for name, options in OPTIONS.items() if "--json" not in options} == SERVING | PRINTING_A_FILE


def test_every_command_that_asks_a_broker_takes_profiles_and_properties() -> None:
    keeping = {"profile create", "profile set"}
    asking = {name: options for name, options in OPTIONS.items() if "--bootstrap" in options}
    assert keeping < set(asking)
    expected = {"-b", "--bootstrap-server", "--profile", "--command-config", "-X"}
    assert {name for name, options in asking.items() if not expected <= options} == keeping


def test_what_answers_a_question_beforehand_is_called_yes() -> None:
    forced = {name for name, options in OPTIONS.items() if "--force" in options and "--yes" not in options}
    assert forced == set()


def test_an_argument_that_is_no_text_is_refused_unless_it_names_a_file(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff"
    with pytest.raises(click.UsageError, match="is not UTF-8"):
        refuse_bytes(["describe", os.fsdecode(path)])
    with open(path, "wb"):
        refuse_bytes(["describe", os.fsdecode(path)])


def ended(*arguments: bytes | str, closed: str = "") -> tuple[int, str]:
    """The exit code and the errors of a command. closed: a redirection of the shell."""
    command = [sys.executable, "-m", "fencepost", *arguments]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *command], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", ["topics", "transactions", "groups"])
def test_a_name_that_is_no_text_ends_a_command_at_once(command: str) -> None:
    code, error = ended(command, "describe", b"\xff", "--bootstrap", "127.0.0.1:1")
    assert code == 2
    assert r"b'\xff' is not UTF-8" in error


def test_a_closed_input_is_an_empty_one() -> None:
    assert ended("profile", "create", "p", "--from", "-", closed="<&-")[0] == 1
    code, error = ended("produce", "orders", "--bootstrap", "127.0.0.1:1", closed="<&-")
    assert (code, "no broker answers" in error) == (1, True)


INTERRUPTED_IN_EXEC = """
import click, sys
import fencepost.cli.commands as commands
from fencepost.cli.main import main

@click.command()
def interrupted():
    exec("raise KeyboardInterrupt")

commands.fencepost = interrupted
sys.argv = ["fencepost"]
main()
"""


def test_an_interrupt_while_generated_code_runs_ends_with_the_exit_code_of_interrupts(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_IN_EXEC)
    program = [sys.executable, "-m", "interrupted"]
    assert subprocess.run(program, capture_output=True, check=False, cwd=tmp_path).returncode == INTERRUPTED
