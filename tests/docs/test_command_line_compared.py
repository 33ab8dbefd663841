"""The table of command lines names no command of ours that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from fencepost.cli.commands import fencepost

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line-compared.md"
NAMED = sorted(set(re.findall(r"`fencepost ([^`]+)`", PAGE.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("line", NAMED)
def test_the_command_and_its_options_exist(line: str) -> None:
    command: click.Command = fencepost
    words = line.split()
    while words and isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    assert not isinstance(command, click.Group), f"{line} is a group of commands"
    options = {name for one in command.params for name in one.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_each_row_has_all_tools() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {7}
    assert len(NAMED) > 20
