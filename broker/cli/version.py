"""`fencepost version`: the same as `fencepost --version`, for those who are used to a command."""

from __future__ import annotations

import click


@click.command()
def version() -> None:
    """Show the version."""
    from importlib.metadata import version as version_of

    click.echo(f"fencepost, version {version_of('fencepost')}")
