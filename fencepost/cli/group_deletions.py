"""`fencepost groups delete`: groups without members, by name or pattern, with an outcome for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.completion import group_names
from fencepost.cli.confirmation import asking_options, check_choice, check_count, confirm, counted, preview
from fencepost.cli.connection import bootstrap_option, json_option, no_such_text, refusal
from fencepost.cli.console_client import ask_cluster
from fencepost.cli.output import print_rows
from fencepost.cli.patterns import Pattern, matching, pattern_option
from fencepost.cli.topic_changes import fail_for

if TYPE_CHECKING:
    from fencepost.client.cluster import Cluster
    from fencepost.console.reading.groups import ListedGroup

GROUPS_PER_REQUEST: Final = 200
NON_EMPTY: Final = 68
NOT_FOUND: Final = 69
COLUMNS: Final = ("group", "type", "state")


class ChosenGroups(NamedTuple):
    """The groups, and names without one, with reasons."""

    groups: Sequence[ListedGroup]
    refused: Sequence[tuple[str, str]]


@click.command("delete")
@bootstrap_option
@json_option
@click.argument("names", metavar="[GROUP...]", nargs=-1, shell_complete=group_names)
@pattern_option("Groups")
@asking_options
def delete_groups(
    bootstrap: str,
    as_json: bool,
    names: tuple[str, ...],
    patterns: tuple[Pattern, ...],
    is_sure: bool,
    expect: int | None,
    dry_run: bool,
) -> None:
    """Delete groups without members, and their offsets.

    All of them are shown before the question. The broker refuses a group with members; the others are deleted all the
    same, and the message names it.
    """
    check_choice(names, patterns, "groups", is_asked=not (is_sure or dry_run))
    chosen = ask_cluster(bootstrap, lambda cluster: _choose(cluster, names, patterns))
    check_count(len(chosen.groups), expect, "groups")
    rows = [{"group": one.group_id, "type": one.kind, "state": one.state} for one in chosen.groups]
    if dry_run:
        print_rows(COLUMNS, rows, as_json=as_json, empty="no groups")
        fail_for(chosen.refused, "found", len(rows) + len(chosen.refused), "group")
        return
    if rows:
        if not is_sure:
            preview(COLUMNS, rows)
        confirm(
            f"This deletes {counted(len(rows), 'group')} and {'its' if len(rows) == 1 else 'their'} offsets. Continue",
            len(rows),
            is_sure=is_sure,
            of_everything=next((one.text for one in patterns if one.is_of_everything), None),
            expected=expect,
        )
    errors = ask_cluster(bootstrap, lambda cluster: _delete(cluster, chosen.groups)) if rows else {}
    refused = [*chosen.refused, *((name, why) for name, why in errors.items() if why is not None)]
    reasons = dict(refused)
    outcomes = [
        {"group": name, "deleted": name not in reasons, "error": reasons.get(name)}
        for name in dict.fromkeys([*names, *errors])
    ]
    if as_json:
        print_rows(["group", "deleted", "error"], outcomes, as_json=True)
    else:
        for one in (one for one in outcomes if one["deleted"]):
            click.echo(printable(f"deleted {one['group']}"))
    fail_for(refused, "deleted", len(outcomes), "group")


async def _choose(cluster: Cluster, names: Sequence[str], patterns: Sequence[Pattern]) -> ChosenGroups:
    from fencepost.console.reading.groups import list_groups

    listing = await list_groups(cluster)
    listed = {group.group_id: group for group in listing.listed}
    for pattern in patterns:
        if not matching(listed, [pattern]):
            raise click.ClickException(
                f"no group matches {pattern.text!r}; `fencepost groups list` shows which there are"
                + "".join(f". {one.removesuffix('.')}" for one in listing.missing)
            )
    wanted = dict.fromkeys([*names, *matching(listed, patterns)])
    unlisted = [name for name in wanted if name not in listed]
    why = f"it is not known: {listing.missing[0].removesuffix('.')}" if listing.missing else None
    return ChosenGroups(
        [listed[name] for name in wanted if name in listed],
        [(name, why or no_such_text("group", name, "groups")) for name in unlisted],
    )


async def _delete(cluster: Cluster, groups: Sequence[ListedGroup]) -> Mapping[str, str | None]:
    """By group id, the reason why it was not deleted; None if it was. In the order of the groups."""
    import asyncio  # not for `--help`

    from fencepost.client.errors import ClusterError
    from fencepost.protocol.messages.group_admin import DeleteGroupsRequest

    by_node: dict[int, list[str]] = defaultdict(list)
    for group in groups:
        by_node[group.coordinator].append(group.group_id)
    found: dict[str, str | None] = {}

    async def delete(node_id: int, ids: list[str]) -> None:
        try:
            reply = await cluster.send(DeleteGroupsRequest(groups_names=ids), node_id)
        except ClusterError as error:
            found.update(dict.fromkeys(ids, f"nobody knows, look again: {error}"))
            return
        found.update({one.group_id: _reason(one.group_id, one.error_code, one.error_message) for one in reply.results})

    await asyncio.gather(
        *(
            delete(node_id, ids[first : first + GROUPS_PER_REQUEST])
            for node_id, ids in by_node.items()
            for first in range(0, len(ids), GROUPS_PER_REQUEST)
        )
    )
    return {one.group_id: found.get(one.group_id, "the broker's answer does not have it") for one in groups}


def _reason(name: str, code: int, message: str | None) -> str | None:
    if code == NON_EMPTY:
        return f"group {name!r} has members; stop them, then delete it"
    if code == NOT_FOUND:
        return no_such_text("group", name, "groups")
    if not code:
        return None
    from kafka.errors import for_code

    return refusal(for_code(code), message)
