"""`fencepost configs`: settings of brokers, groups, loggers and topics, and changes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from fencepost.cli.completion import resource_names, setting_names
from fencepost.cli.connection import bootstrap_option, json_option, parse_settings
from fencepost.cli.console_client import ask_cluster
from fencepost.cli.output import print_rows

if TYPE_CHECKING:
    from fencepost.client.cluster import Cluster
    from fencepost.console.reading.settings import Setting

KINDS: Final = {"topic": 2, "broker": 4, "logger": 8, "group": 32}
"""With Kafka's numbers."""
ALL_BROKERS: Final = "all"


@click.command()
@bootstrap_option
@json_option
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("name", shell_complete=resource_names)
@click.option("--all", "everything", is_flag=True, help="Show defaults, too, not only set values.")
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    shell_complete=setting_names,
    help="Change a setting, or a logger's level; repeatable.",
)
@click.option(
    "--delete",
    "deleted",
    metavar="NAME",
    multiple=True,
    shell_complete=setting_names,
    help="Reset a setting to its default; repeatable.",
)
def configs(
    bootstrap: str,
    as_json: bool,
    kind: str,
    name: str,
    everything: bool,
    settings: tuple[str, ...],
    deleted: tuple[str, ...],
) -> None:
    """Show or change settings of brokers, groups and loggers.

    NAME is a broker's id for broker and logger, a group or a topic. `broker all` has the settings for all brokers.
    Changes apply at once; either all changes of one command are made, or none.
    """
    changes: list[tuple[str, str | None]] = list(parse_settings(settings, "--set").items())
    twice = sorted({setting for setting, _ in changes} & set(deleted))
    if twice:
        raise click.UsageError(f"--set and --delete both name {', '.join(twice)}")
    changes += [(setting, None) for setting in deleted]
    node_id = None
    if kind in ("broker", "logger") and not (kind == "broker" and name == ALL_BROKERS):
        if not (name.isascii() and name.isdecimal()):
            raise click.BadParameter(
                f"{name!r} is no broker id; `fencepost cluster info` shows them, and `broker all` is for all brokers",
                param_hint="NAME",
            )
        node_id = int(name)

    async def ask(cluster: Cluster) -> list[Setting]:
        from fencepost.console.reading.settings import ResourceKind, alter_settings, read_settings

        resource = ResourceKind(KINDS[kind]), "" if kind == "broker" and name == ALL_BROKERS else name
        if changes:
            await alter_settings(cluster, *resource, changes, node_id=node_id)
        return await read_settings(cluster, *resource, node_id)

    found = ask_cluster(bootstrap, ask)
    if changes:
        names = ", ".join(sorted(setting for setting, _ in changes))
        click.echo(f"changed {names} of {kind} {name}", err=as_json)
    rows: list[dict[str, Any]] = [
        {
            "name": setting.name,
            "value": setting.value,
            "source": setting.source,
            "read_only": setting.is_read_only,
            "secret": setting.is_secret,
        }
        for setting in found
        if everything or kind == "logger" or not setting.is_default
    ]
    columns = ["name", "value", "source", *(["read_only", "secret"] if as_json else [])]
    empty = f"{kind} {name} has no settings of its own; --all shows the defaults"
    print_rows(columns, rows, as_json=as_json, empty=empty)
