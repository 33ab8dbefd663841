"""All commands of the command line."""

from __future__ import annotations

from collections.abc import Iterator

import click

from fencepost.cli.commands import fencepost


def commands(command: click.Command = fencepost, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """The commands that do something, each with its name, such as `topics list`."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))
    else:
        yield " ".join(path), command
