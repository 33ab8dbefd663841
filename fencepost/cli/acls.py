"""`fencepost acls`: add, list and remove access control lists, with the options of Kafka's `kafka-acls`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import click

from fencepost.broker.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from fencepost.cli.completion import group_names, topic_names
from fencepost.cli.connection import bootstrap_option, check_replies, json_option
from fencepost.cli.output import print_rows
from fencepost.cli.questions import ask, sure_option
from fencepost.cli.sending import brokers
from fencepost.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)

Command = TypeVar("Command", bound=Callable[..., Any])

_OPERATIONS: Final = {
    "".join(part.capitalize() for part in operation.name.split("_")): operation
    for operation in AclOperation
    if operation not in (AclOperation.UNKNOWN, AclOperation.ANY)
}
"""By Kafka's names, such as `DescribeConfigs`."""
_OPERATION_NAMES: Final = {int(operation): name for name, operation in _OPERATIONS.items()}


class Resource(NamedTuple):
    """A resource that the options name."""

    kind: AclResource
    name: str


class Entry(NamedTuple):
    """Principal, host, operation and permission of a rule; None for fields that a filter leaves open."""

    principal: str | None
    host: str | None
    operation: int
    permission: int


@click.group()
def acls() -> None:
    """Add, list and remove access control lists (ACLs)."""


def _resource_options(command: Command) -> Command:
    for decorate in reversed(
        (
            click.option(
                "--topic",
                "topics",
                multiple=True,
                metavar="NAME",
                shell_complete=topic_names,
                help="Topic, * for all; repeatable.",
            ),
            click.option(
                "--group",
                "groups",
                multiple=True,
                metavar="NAME",
                shell_complete=group_names,
                help="Group, * for all; repeatable.",
            ),
            click.option("--cluster", is_flag=True, help="The cluster."),
            click.option(
                "--transactional-id",
                "transactional_ids",
                multiple=True,
                metavar="ID",
                help="Transactional id, * for all; repeatable.",
            ),
            click.option(
                "--delegation-token", "tokens", multiple=True, metavar="ID", help="Delegation token; repeatable."
            ),
            click.option(
                "--user-principal", "users", multiple=True, metavar="NAME", help="User of a token; repeatable."
            ),
        )
    ):
        command = decorate(command)
    return command


def _pattern_option(*choices: str, default: str) -> Callable[[Command], Command]:
    return click.option(
        "--resource-pattern-type",
        "pattern",
        type=click.Choice(choices, case_sensitive=False),
        default=default,
        show_default=True,
        help="Whether the names are literal, or prefixes; any and match find both: any by the same name, match all "
        "that apply to it."
        if len(choices) > len(_PATTERNS_OF_RULES)
        else "Whether the names are literal, or prefixes.",
    )


_PATTERNS_OF_RULES: Final = ("literal", "prefixed")
_PATTERNS_OF_FILTERS: Final = (*_PATTERNS_OF_RULES, "any", "match")


def _entry_options(command: Command) -> Command:
    for decorate in reversed(
        (
            click.option(
                "--allow-principal",
                "allowed",
                multiple=True,
                metavar="TYPE:NAME",
                help="Principal to allow, such as User:alice; User:* for all; repeatable.",
            ),
            click.option(
                "--deny-principal", "denied", multiple=True, metavar="TYPE:NAME", help="Principal to deny; repeatable."
            ),
            click.option(
                "--allow-host",
                "allowed_hosts",
                multiple=True,
                metavar="ADDRESS",
                help="Address from which allowed principals connect; repeatable; all if not given.",
            ),
            click.option(
                "--deny-host",
                "denied_hosts",
                multiple=True,
                metavar="ADDRESS",
                help="Address from which denied principals connect; repeatable; all if not given.",
            ),
            click.option(
                "--operation",
                "operations",
                multiple=True,
                type=click.Choice(list(_OPERATIONS), case_sensitive=False),
                help="Operation; repeatable; All if not given.",
            ),
            click.option("--producer", is_flag=True, help="The rights of a producer, on topics and transactional ids."),
            click.option("--consumer", is_flag=True, help="The rights of a consumer, on topics and groups."),
            click.option("--idempotent", is_flag=True, help="With --producer: an idempotent one, for the cluster."),
        )
    ):
        command = decorate(command)
    return command


def _resources(options: dict[str, Any]) -> list[Resource]:
    named = (
        (AclResource.TOPIC, options["topics"]),
        (AclResource.GROUP, options["groups"]),
        (AclResource.TRANSACTIONAL_ID, options["transactional_ids"]),
        (AclResource.DELEGATION_TOKEN, options["tokens"]),
        (AclResource.USER, options["users"]),
    )
    found = [Resource(kind, name) for kind, names in named for name in names]
    if options["cluster"] or options.get("idempotent"):
        found.append(Resource(AclResource.CLUSTER, CLUSTER_NAME))
    return found


def _entries(options: dict[str, Any], operations: Sequence[AclOperation]) -> Iterator[Entry]:
    for principals, hosts, permission in (
        (options["allowed"], options["allowed_hosts"], AclPermission.ALLOW),
        (options["denied"], options["denied_hosts"], AclPermission.DENY),
    ):
        for principal in principals:
            for host in hosts or (WILDCARD,):
                for operation in operations:
                    yield Entry(principal, host, operation, permission)


_OF_PRODUCER: Final = {
    AclResource.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    AclResource.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    AclResource.CLUSTER: (AclOperation.IDEMPOTENT_WRITE,),
}
_OF_CONSUMER: Final = {
    AclResource.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    AclResource.GROUP: (AclOperation.READ,),
}


def _rules(options: dict[str, Any]) -> list[tuple[Resource, Entry]]:
    """The rules that the options describe. Raises UsageError."""
    resources = _resources(options)
    if not resources:
        raise click.UsageError("name a resource: --topic, --group, --cluster, --transactional-id, …")
    if not options["allowed"] and not options["denied"]:
        raise click.UsageError("name a principal: --allow-principal or --deny-principal")
    if options["idempotent"] and not options["producer"]:
        raise click.UsageError("--idempotent goes with --producer")
    roles = [role for role, flag in ((_OF_PRODUCER, "producer"), (_OF_CONSUMER, "consumer")) if options[flag]]
    if roles and options["operations"]:
        raise click.UsageError("--producer and --consumer stand for operations: leave --operation out")
    chosen = [_OPERATIONS[name] for name in options["operations"]] or [AclOperation.ALL]
    found: dict[tuple[Resource, Entry], None] = {}
    for resource in resources:
        operations = [one for role in roles for one in role.get(resource.kind, ())] if roles else chosen
        found.update(((resource, entry), None) for entry in _entries(options, operations))
    return list(found)


@acls.command()
@bootstrap_option
@json_option
@_resource_options
@_pattern_option(*_PATTERNS_OF_RULES, default="literal")
@_entry_options
def add(bootstrap: str, as_json: bool, pattern: str, **options: Any) -> None:
    """Allow or deny operations on resources.

    A rule is in force at once, also on open connections. Denials come before permissions. Example:
    fencepost acls add --allow-principal User:alice --consumer --topic orders --group billing
    """
    kind = AclPattern[pattern.upper()]
    wanted = [
        AclCreation(
            resource.kind,
            resource.name,
            # The cluster has one name: a prefix of it would be none.
            AclPattern.LITERAL if resource.kind is AclResource.CLUSTER else kind,
            entry.principal or "",
            entry.host or "",
            entry.operation,
            entry.permission,
        )
        for resource, entry in _rules(options)
    ]
    with brokers(bootstrap) as cluster:
        results = cluster.send(CreateAclsRequest(wanted)).results
    check_replies(*results)
    _print([_row(one, one.resource_type, one.resource_name, one.resource_pattern_type) for one in wanted], as_json)


@acls.command("list")
@bootstrap_option
@json_option
@_resource_options
@_pattern_option(*_PATTERNS_OF_FILTERS, default="match")
@click.option("--principal", "principals", multiple=True, metavar="TYPE:NAME", help="Only of it; repeatable.")
def list_acls(bootstrap: str, as_json: bool, pattern: str, principals: Sequence[str], **options: Any) -> None:
    """Show ACLs: all, or of some resources and principals."""
    filters = _filters(_resources(options), AclPattern[pattern.upper()], [_open(one) for one in principals or (None,)])
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    with brokers(bootstrap) as cluster:
        for wanted in filters:
            reply = cluster.send(_describing(wanted))
            check_replies(reply)
            for found in reply.resources:
                for rule in found.acls:
                    row = _row(rule, found.resource_type, found.resource_name, found.pattern_type)
                    rows[tuple(row.values())] = row
    _print(list(rows.values()), as_json)


@acls.command()
@bootstrap_option
@json_option
@_resource_options
@_pattern_option(*_PATTERNS_OF_FILTERS, default="literal")
@_entry_options
@sure_option("--force")
def remove(bootstrap: str, as_json: bool, pattern: str, is_sure: bool, **options: Any) -> None:
    """Remove ACLs.

    Those that the same options have added; without a principal, all of the given resources.
    """
    kind = AclPattern[pattern.upper()]
    resources = _resources(options)
    if not resources:
        raise click.UsageError("name a resource: --topic, --group, --cluster, --transactional-id, …")
    if options["allowed"] or options["denied"]:
        filters = [one for resource, entry in _rules(options) for one in _filters([resource], kind, [entry])]
    else:
        filters = _filters(resources, kind, [_open(None)])
    if not is_sure:
        names = ", ".join(f"{resource.kind.name.lower()} {resource.name}" for resource in resources)
        ask(f"Remove these ACLs of {names}?")
    with brokers(bootstrap) as cluster:
        results = cluster.send(DeleteAclsRequest(filters)).filter_results
    check_replies(*results)
    removed = [rule for result in results for rule in result.matching_acls]
    rows = [_row(one, one.resource_type, one.resource_name, one.pattern_type) for one in removed]
    _print(list({tuple(row.values()): row for row in rows}.values()), as_json)


def _open(principal: str | None) -> Entry:
    """A filter for all rules, or for those of a principal."""
    return Entry(principal, None, AclOperation.ANY, AclPermission.ANY)


def _filters(resources: Iterable[Resource], pattern: AclPattern, entries: Sequence[Entry]) -> list[DeleteAclsFilter]:
    named: list[tuple[AclResource, str | None, AclPattern]] = [
        (resource.kind, resource.name, AclPattern.LITERAL if resource.kind is AclResource.CLUSTER else pattern)
        for resource in resources
    ]
    return [
        DeleteAclsFilter(kind, name, of_kind, entry.principal, entry.host, entry.operation, entry.permission)
        for kind, name, of_kind in named or [(AclResource.ANY, None, AclPattern.ANY)]
        for entry in entries
    ]


def _describing(wanted: DeleteAclsFilter) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


_COLUMNS: Final = ("resource_type", "resource_name", "pattern", "permission", "principal", "host", "operation")


def _row(rule: Any, resource: int, name: str, pattern: int) -> dict[str, Any]:
    return dict(
        zip(
            _COLUMNS,
            (
                AclResource(resource).name.lower(),
                name,
                AclPattern(pattern).name.lower(),
                AclPermission(rule.permission_type).name.lower(),
                rule.principal,
                rule.host,
                _OPERATION_NAMES.get(rule.operation, str(rule.operation)),
            ),
            strict=True,
        )
    )


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    rows.sort(key=lambda row: tuple(map(str, row.values())))
    print_rows(_COLUMNS, rows, as_json=as_json, empty="no ACLs")
