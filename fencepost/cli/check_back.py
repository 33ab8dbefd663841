"""`fencepost check-back`: asks the sources of transactions in doubt, beside any Kafka."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fencepost.cli.client_properties import Properties, WrongPropertiesError, read_file
from fencepost.cli.connection import bootstrap_option, coordinator_options, json_option, kafka_errors

if TYPE_CHECKING:
    from fencepost.check_back.settings import ResolverSettings


@click.command("check-back")
@bootstrap_option
@json_option
@click.option(
    "--config",
    "config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="Properties with the resolvers: fencepost.check.back.…",
)
def check_back(bootstrap: str, as_json: bool, config: Path) -> None:
    """Ask the sources of transactions in doubt how they end.

    Until SIGTERM or Ctrl-C, beside any Kafka. A broker of Fencepost does it itself if it has the same settings. A
    source that does not answer decides nothing. Writes a line for each decision; the topic fencepost-audit has all.
    """
    settings = _read(config)
    with kafka_errors(bootstrap):
        options = coordinator_options(bootstrap)
    from fencepost.check_back.program import run

    try:
        asyncio.run(run(bootstrap, options, settings, as_json=as_json))
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def _read(path: Path) -> tuple[ResolverSettings, ...]:
    """Read the resolvers. Raises ClickException with every problem."""
    from fencepost.check_back.properties import ResolverSettingsError, resolver_settings, resolver_warnings

    try:
        properties: Properties = read_file(str(path))
        settings = resolver_settings({name: one.value for name, one in properties.items()})
    except WrongPropertiesError as error:
        raise click.ClickException(str(error)) from None
    except ResolverSettingsError as error:
        lines = []
        for name, problem in error.problems:
            found = properties.get(name)
            lines.append(f"{found.place if found else path}: {name}: {problem}")
        raise click.ClickException("\n".join(lines)) from None
    if not settings:
        raise click.ClickException(f"{path}: fencepost.check.back.resolvers names no resolver: there is nothing to ask")
    for warning in resolver_warnings(settings):
        click.echo(f"{path}: {warning}", err=True)
    return settings
