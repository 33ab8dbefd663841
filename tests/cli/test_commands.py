"""Options that mean the same have one name, in every command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from fencepost.cli.commands import fencepost

SERVING: Final = {"serve", "cluster try", "console"}
"""They print no results."""
PRINTING_A_FILE: Final = {"groups export"}
"""It prints a file, which is JSON by itself."""


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    """The commands that do something, with their options."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))
    else:
        options = (one for one in command.params if isinstance(one, click.Option))
        yield " ".join(path), {name for option in options for name in option.opts}


def test_what_a_command_shows_or_has_done_a_program_can_read() -> None:
    assert {name for name, options in commands(fencepost) if "--json" not in options} == SERVING | PRINTING_A_FILE


def test_every_command_that_asks_a_broker_takes_profiles_and_properties() -> None:
    keeping = {"profile create", "profile set"}
    asking = {name: options for name, options in commands(fencepost) if "--bootstrap" in options}
    assert keeping < set(asking)
    expected = {"-b", "--bootstrap-server", "--profile", "--command-config", "-X"}
    assert {name for name, options in asking.items() if not expected <= options} == keeping


def test_what_answers_a_question_beforehand_is_called_yes() -> None:
    forced = {name for name, options in commands(fencepost) if "--force" in options and "--yes" not in options}
    assert forced == set()
