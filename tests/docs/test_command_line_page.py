"""The generated page of commands says what `--help` says."""

from __future__ import annotations

import click
import pytest

from fencepost.cli.commands import COMMANDS, fencepost
from scripts.command_line_page import PAGE, command_line_page


def all_commands(command: click.Command, context: click.Context) -> list[click.Command]:
    if not isinstance(command, click.Group):
        return [command]
    subcommands = [command.get_command(context, name) for name in command.list_commands(context)]
    return [command, *(found for one in subcommands if one is not None for found in all_commands(one, context))]


COMMANDS_FOUND = all_commands(fencepost, click.Context(fencepost))


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == command_line_page(), "run python -m scripts.command_line_page"


def test_every_command_is_on_the_page() -> None:
    page = command_line_page()
    for name in COMMANDS:
        assert f"\n## fencepost {name}\n" in page
    assert "\n### fencepost transactions abort-hanging\n" in page


@pytest.mark.parametrize("command", COMMANDS_FOUND, ids=lambda command: command.name)
def test_every_command_and_option_is_explained(command: click.Command) -> None:
    assert command.help, f"give the function of {command.name} a docstring: its first line is the help"
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    unexplained = [option.opts[0] for option in options if not option.help]
    assert unexplained == [], f'give each of these options of {command.name} a help="…" of one line'


@pytest.mark.parametrize("command", COMMANDS_FOUND[1:], ids=lambda command: command.name)
def test_a_command_fits_into_one_line_of_its_groups_help(command: click.Command) -> None:
    assert not command.get_short_help_str(80 - 20).endswith("...")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_the_whole_program_says_of_a_command_what_its_own_help_says(name: str) -> None:
    command = fencepost.get_command(click.Context(fencepost), name)
    assert command is not None
    assert COMMANDS[name] == command.get_short_help_str(80)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_that_the_page_shows_is_there(shell: str) -> None:
    page = command_line_page()
    assert f"_FENCEPOST_COMPLETE={shell}_source fencepost" in page
