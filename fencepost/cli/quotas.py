"""`fencepost quotas set | list | remove`: limits of users, client ids and addresses, as `kafka-configs` sets them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from fencepost.cli.completion import user_names
from fencepost.cli.connection import bootstrap_option, json_option, refusal
from fencepost.cli.output import Done, print_done, print_rows
from fencepost.cli.sending import brokers
from fencepost.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)

Command = TypeVar("Command", bound=Callable[..., Any])
KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
_HELP: Final = (
    "Bytes per second that it may produce.",
    "Bytes per second that it may fetch.",
    "Percent of a processor's time that its requests may take.",
    "Partitions per second that it may create and delete.",
    "Connections per second that an address may open.",
)
_KINDS: Final = ("user", "client-id", "ip")
_EXACT, _DEFAULT = 0, 1
_COLUMNS: Final = (*_KINDS, *KEYS)
DEFAULT: Final = "<default>"


@click.group()
def quotas() -> None:
    """Set, list and remove quotas of users and client ids.

    Addresses have one of their own, for new connections.

    Of several quotas for a client the most specific counts: of the user with the client id, of the user, of the client
    id. A default counts for each that has no quota of its own.
    """


def _entity_options(command: Command) -> Command:
    for kind, what in reversed(tuple(zip(_KINDS, ("user", "client id", "address"), strict=True))):
        command = click.option(f"--{kind}-default", is_flag=True, help=f"For each {what} without a quota of its own.")(
            command
        )
        complete = user_names if kind == "user" else None
        command = click.option(f"--{kind}", metavar="NAME", shell_complete=complete, help=f"For one {what}.")(command)
    return command


def _entity(options: Mapping[str, Any]) -> list[EntityData]:
    """Return the entity that the options name. Raises UsageError if they name none."""
    parts = []
    for kind in _KINDS:
        option = kind.replace("-", "_")
        name, is_default = options[option], options[f"{option}_default"]
        if name is not None and is_default:
            raise click.UsageError(f"either --{kind} or --{kind}-default")
        if name is not None or is_default:
            parts.append(EntityData(kind, name))
    if len(parts) > 1 and any(part.entity_type == "ip" for part in parts):
        raise click.UsageError("an address has quotas of its own: --ip goes with no --user and no --client-id")
    return parts


def _required_entity(options: Mapping[str, Any]) -> list[EntityData]:
    entity = _entity(options)
    if not entity:
        raise click.UsageError("say for whom: --user NAME, --client-id NAME, --ip ADDRESS, or one of the defaults")
    return entity


def _value_options(command: Command) -> Command:
    for key, text in reversed(tuple(zip(KEYS, _HELP, strict=True))):
        option = "--" + key.replace("_", "-")
        command = click.option(option, key, type=click.FloatRange(min=0, min_open=True), metavar="N", help=text)(
            command
        )
    return command


@quotas.command("set")
@bootstrap_option
@json_option
@_entity_options
@_value_options
def set_quotas(bootstrap: str, as_json: bool, **options: Any) -> None:
    """Set quotas; those that are not named stay as they are.

    They count for the next request. Example:
    fencepost quotas set --user alice --client-id-default --producer-byte-rate 1048576
    """
    entity = _required_entity(options)
    ops = [OpData(key, float(options[key]), remove=False) for key in KEYS if options[key] is not None]
    if not ops:
        raise click.UsageError(f"say how much: {', '.join('--' + key.replace('_', '-') for key in KEYS)}")
    _alter(bootstrap, entity, ops)
    shown = ", ".join(f"{op.key} {op.value:g}" for op in ops)
    fields = {**_names(entity), **{op.key: op.value for op in ops}}
    print_done(Done(f"set for {_words(entity)}: {shown}", fields), as_json=as_json)


@quotas.command("list")
@bootstrap_option
@json_option
@_entity_options
def list_quotas(bootstrap: str, as_json: bool, **options: Any) -> None:
    """Show quotas: all, or those of a user, client id or address."""
    components = [
        ComponentData(part.entity_type, _DEFAULT if part.entity_name is None else _EXACT, part.entity_name)
        for part in _entity(options)
    ]
    with brokers(bootstrap) as cluster:
        reply = cluster.send(DescribeClientQuotasRequest(components, False))
    _check(reply)
    rows = []
    for entry in reply.entries or ():
        names = {part.entity_type: DEFAULT if part.entity_name is None else part.entity_name for part in entry.entity}
        rows.append({**names, **{value.key: value.value for value in entry.values}})
    rows.sort(key=lambda row: [str(row.get(kind, "")) for kind in _KINDS])
    shown = _COLUMNS if as_json else [column for column in _COLUMNS if any(column in row for row in rows)]
    print_rows(shown, rows, as_json=as_json, empty="no quotas")


@quotas.command()
@bootstrap_option
@json_option
@_entity_options
@click.option("--quota", "keys", type=click.Choice(KEYS), multiple=True, help="Only this one; repeatable. Else all.")
def remove(bootstrap: str, as_json: bool, keys: tuple[str, ...], **options: Any) -> None:
    """Remove quotas of a user, client id or address."""
    entity = _required_entity(options)
    is_address = entity[0].entity_type == "ip"
    chosen = keys or tuple(key for key in KEYS if (key == "connection_creation_rate") is is_address)
    _alter(bootstrap, entity, [OpData(key, 0.0, remove=True) for key in chosen])
    done = Done(f"removed of {_words(entity)}: {', '.join(chosen)}", {**_names(entity), "removed": chosen})
    print_done(done, as_json=as_json)


def _alter(bootstrap: str, entity: list[EntityData], ops: list[OpData]) -> None:
    with brokers(bootstrap) as cluster:
        reply = cluster.send(AlterClientQuotasRequest([AlterEntryData(entity, ops)], validate_only=False))
    for entry in reply.entries:
        _check(entry)


def _check(result: Any) -> None:
    if result.error_code:
        from kafka.errors import for_code

        raise click.ClickException(refusal(for_code(result.error_code), result.error_message))


def _names(entity: list[EntityData]) -> dict[str, str]:
    return {part.entity_type: part.entity_name or DEFAULT for part in entity}


def _words(entity: list[EntityData]) -> str:
    return ", ".join(f"{kind} {name}" for kind, name in _names(entity).items())
