"""`fencepost version`: the same as `fencepost --version`, for those who are used to a command."""

from __future__ import annotations

import click

from fencepost.cli.connection import json_option
from fencepost.cli.output import Done, print_done


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Show the version."""
    from importlib.metadata import version as version_of

    found = version_of("fencepost")
    print_done(Done(f"fencepost, version {found}", {"version": found}), as_json=as_json)
