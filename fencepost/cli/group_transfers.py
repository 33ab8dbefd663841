"""`fencepost groups export` and `import`: committed offsets as a file, and back, here or in another cluster."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.completion import group_names
from fencepost.cli.confirmation import check_choice, confirm, counted, preview
from fencepost.cli.connection import bootstrap_option, json_option, no_such_text
from fencepost.cli.console_client import ask_cluster
from fencepost.cli.output import print_rows
from fencepost.cli.patterns import Pattern, matching, pattern_option
from fencepost.cli.questions import check_answerable, sure_option

if TYPE_CHECKING:
    from fencepost.cli.group_files import GroupFile
    from fencepost.cli.group_imports import Exported, Move, Plan, Rules
    from fencepost.client.cluster import Cluster

MOST_REASONS: Final = 20
COLUMNS: Final = ("group", "topic", "partition", "before", "offset", "moved_by")


@click.command("export")
@bootstrap_option
@click.argument("groups", metavar="[GROUP...]", nargs=-1, shell_complete=group_names)
@pattern_option("Groups")
@click.option("--csv", "as_csv", is_flag=True, help="As kafka-consumer-groups --export writes it, without topic ids.")
def export_groups(bootstrap: str, groups: tuple[str, ...], patterns: tuple[Pattern, ...], as_csv: bool) -> None:
    """Print committed offsets of groups, for `groups import`.

    One JSON object in each line: docs/groups.md describes the file. If a group cannot be read, nothing is written.
    """
    from fencepost.cli.group_files import csv_lines, json_lines

    check_choice(groups, patterns, "groups")
    exported = ask_cluster(bootstrap, lambda cluster: _export(cluster, groups, patterns))
    if exported.missing:
        raise click.ClickException(printable(f"nothing was written: {_some(exported.missing)}"))
    if exported.gone:
        click.echo(printable(f"left out are offsets of topics that are gone: {', '.join(exported.gone)}"), err=True)
    file = exported.file
    for line in csv_lines(file) if as_csv else json_lines(file):
        click.echo(line)
    words = f"{counted(len(file.offsets), 'offset')} of {counted(len(file.groups()), 'group')}"
    click.echo(f"exported {words}", err=True)


async def _export(cluster: Cluster, names: Sequence[str], patterns: Sequence[Pattern]) -> Exported:
    from fencepost.cli.group_imports import SHARE, export
    from fencepost.console.reading.groups import list_groups

    listing = await list_groups(cluster)
    listed = {group.group_id: group for group in listing.listed}
    with_offsets = [group.group_id for group in listing.listed if group.kind != SHARE]
    unknown = [name for name in names if name not in listed]
    if unknown and not listing.missing:
        raise click.ClickException(printable(no_such_text("group", unknown[0], "groups")))
    for pattern in patterns:
        if not matching(with_offsets, [pattern]):
            raise click.ClickException(f"no group with committed offsets matches {pattern.text!r}")
    shares = [name for name in names if name not in with_offsets and name in listed]
    if shares:
        raise click.ClickException(f"{shares[0]!r} is a share group, which has no committed offsets")
    chosen = dict.fromkeys([*(name for name in names if name in listed), *matching(with_offsets, patterns)])
    now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    exported = await export(cluster, [listed[name] for name in chosen], now)
    return exported._replace(missing=[*(one.removesuffix(".") for one in listing.missing), *exported.missing])


class Choice(TypedDict):
    """The groups of a file, and the rules for setting their offsets."""

    names: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    to_group: str | None
    any_topic_id: bool
    nearest: bool


@click.command("import")
@bootstrap_option
@json_option
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--group", "names", metavar="GROUP", multiple=True, help="Only this group of the file; repeatable.")
@pattern_option("Groups of the file")
@click.option(
    "--to-group", metavar="GROUP", help="Set the offsets of this group; the file has one, or --group names it."
)
@click.option("--any-topic-id", is_flag=True, help="Set offsets of topics with other ids than in the file, too.")
@click.option("--nearest", is_flag=True, help="Move an offset that a partition does not have to its nearest end.")
@click.option("--dry-run", is_flag=True, help="Show what would be set, and set nothing.")
@sure_option()
def import_groups(
    bootstrap: str,
    as_json: bool,
    path: str,
    dry_run: bool,
    is_sure: bool,
    **chosen: Unpack[Choice],
) -> None:
    """Set committed offsets from a file of `groups export`.

    Or from a CSV file of kafka-consumer-groups; `-` is standard input. The moves are shown first. All of them are made
    or, if there is a reason against one, none: a group in use, another topic of the name, an offset that a partition
    does not have, and a change between the preview and the answer.
    """
    from fencepost.cli.group_imports import Rules, changes_between, commit

    check_answerable(is_sure or dry_run)
    file = _chosen(_read(path), chosen["names"], chosen["patterns"], chosen["to_group"])
    rules = Rules(chosen["any_topic_id"], chosen["nearest"])
    plan = _plan(bootstrap, file, rules)
    if plan.refusals:
        raise click.ClickException(printable(f"nothing was set: {_some(plan.refusals)}"))
    rows = [_row(one) for one in plan.moves]
    if dry_run:
        print_rows(COLUMNS, rows, as_json=as_json)
        return
    if not is_sure:
        preview(COLUMNS, rows)
        words = f"{counted(len(rows), 'offset')} of {counted(len(file.groups()), 'group')}"
        confirm(f"This sets {words}. Continue", len(rows), is_sure=False)
        changed = changes_between(plan, _plan(bootstrap, file, rules))
        if changed:
            raise click.ClickException(
                printable(f"nothing was set, since the preview is out of date: {_some(changed)}")
            )
    refused = ask_cluster(bootstrap, lambda cluster: commit(cluster, plan.moves))
    failed = {(one.group, one.topic, one.partition) for one, _ in refused}
    print_rows(
        COLUMNS,
        [_row(one) for one in plan.moves if (one.group, one.topic, one.partition) not in failed],
        as_json=as_json,
    )
    if refused:
        reasons = [f"group {one.group!r}, {one.name}: {why}" for one, why in refused]
        raise click.ClickException(printable(f"{len(refused)} of {len(rows)} offsets were not set: {_some(reasons)}"))


def _plan(bootstrap: str, file: GroupFile, rules: Rules) -> Plan:
    from fencepost.cli.group_imports import plan_of, read_world

    world = ask_cluster(bootstrap, lambda cluster: read_world(cluster, file))
    unseen = [name for name in file.groups() if world.groups[name].kind is None]
    if unseen and world.missing:
        reasons = _some([one.removesuffix(".") for one in world.missing])
        raise click.ClickException(printable(f"nothing was set: {unseen[0]!r} may be in use: {reasons}"))
    return plan_of(file, world, rules)


def _read(path: str) -> GroupFile:
    from fencepost.cli.group_files import LONGEST_LINE_BYTES, GroupFileError, read_file

    try:
        with click.open_file(path, "rb") as opened:
            return read_file(iter(lambda: opened.readline(LONGEST_LINE_BYTES + 1), b""))
    except GroupFileError as error:
        raise click.ClickException(printable(f"{path}: {error}")) from None
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}") from None


def _chosen(file: GroupFile, names: Sequence[str], patterns: Sequence[Pattern], to_group: str | None) -> GroupFile:
    """The wanted groups of a file, the only one under its new name."""
    known = file.groups()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.ClickException(
            printable(f"the file has no group {unknown[0]!r}; it has {_some(list(map(repr, known)))}")
        )
    wanted = set(known) if not names and not patterns else {*names, *matching(known, patterns)}
    offsets = [one for one in file.offsets if one.group in wanted]
    if not offsets:
        raise click.ClickException("the file has no offsets" + (" of these groups" if known else ""))
    if to_group is not None:
        if len(wanted) != 1:
            raise click.UsageError(
                f"--to-group takes the offsets of one group, and these are {len(wanted)}: name one with --group"
            )
        offsets = [one._replace(group=to_group) for one in offsets]
    elif "" in wanted:
        raise click.UsageError("the file does not name its group: say --to-group GROUP")
    return replace(file, offsets=offsets)


def _row(one: Move) -> dict[str, Any]:
    return {
        "group": one.group,
        "topic": one.topic,
        "partition": one.partition,
        "before": one.before,
        "offset": one.offset,
        "moved_by": None if one.before is None else one.offset - one.before,
    }


def _some(reasons: Sequence[str]) -> str:
    more = f"; and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else ""
    return "; ".join(reasons[:MOST_REASONS]) + more
