"""`fencepost groups`: lists groups, shows the members and lag of any kind of group, resets offsets, deletes groups."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.completion import group_names, topic_names
from fencepost.cli.connection import (
    admin_client,
    bootstrap_option,
    describe_topic,
    json_option,
    no_such,
    refusal,
)
from fencepost.cli.console_client import ask_cluster
from fencepost.cli.dead_letters import dead_letters, redeliver
from fencepost.cli.group_deletions import delete_groups
from fencepost.cli.group_descriptions import Group, Place, describe_group
from fencepost.cli.group_resets import Target, planned, read_offsets, reset_rows
from fencepost.cli.group_transfers import export_groups, import_groups
from fencepost.cli.incomplete import print_or_fail
from fencepost.cli.output import Done, print_done, print_rows
from fencepost.cli.patterns import Pattern, pattern_option
from fencepost.cli.positions import checked_partitions
from fencepost.cli.questions import yes_option
from fencepost.cli.sending import brokers
from fencepost.cli.times import TimeType

if TYPE_CHECKING:
    from fencepost.cli.group_lists import Listing
    from fencepost.client.cluster import Cluster
    from fencepost.console.reading.topics import PartitionState
    from fencepost.diagnosis.lag import Lag

KINDS: Final = ("classic", "consumer", "share", "streams")
SORTS: Final = ("group", "lag", "members")
EARLIEST: Final = -2
LATEST: Final = -1


@click.group()
def groups() -> None:
    """Show groups of all kinds and lag, reset offsets."""


groups.add_command(dead_letters)
groups.add_command(redeliver)
groups.add_command(delete_groups)
groups.add_command(export_groups)
groups.add_command(import_groups)


@groups.command("list")
@bootstrap_option
@json_option
@pattern_option("Groups")
@click.option(
    "--state", "states", metavar="STATE", multiple=True, help="Groups in this state, such as Empty; repeatable."
)
@click.option("--type", "kinds", type=click.Choice(KINDS), multiple=True, help="Groups of this type; repeatable.")
@click.option("--min-lag", type=click.IntRange(min=1), metavar="N", help="Groups that are N or more behind.")
@click.option("--sort", type=click.Choice(SORTS), default="group", show_default=True, help="Greatest lag first.")
def list_groups(
    bootstrap: str,
    as_json: bool,
    patterns: tuple[Pattern, ...],
    states: tuple[str, ...],
    kinds: tuple[str, ...],
    min_lag: int | None,
    sort: str,
) -> None:
    """List groups of all kinds with their states, members and lag.

    Lags are sums over partitions, as `groups describe` shows them. For long lags, offsets stand for records.
    """

    async def ask(cluster: Cluster) -> Listing:
        from fencepost.cli.group_lists import Wanted, read_groups

        chosen = (lambda group: any(one.matches(group) for one in patterns)) if patterns else None
        return await read_groups(cluster, Wanted(frozenset(map(str.lower, states)), frozenset(kinds), chosen))

    listing = ask_cluster(bootstrap, ask)
    rows = [row for row in listing.rows if min_lag is None or _behind(row) >= min_lag]
    if sort != "group":
        rows.sort(key=_behind if sort == "lag" else lambda row: row[sort] or 0, reverse=True)
    columns = ["group", "state", "type", "protocol_type", "members", "partitions", "lag", "read_committed_lag"]
    if as_json or any(row["unread_partitions"] for row in rows):
        columns.append("unread_partitions")
    for note in listing.notes:
        click.echo(printable(note), err=True)
    is_filtered = bool(patterns or states or kinds or min_lag)
    missing = [sentence.removesuffix(".") for sentence in listing.missing]
    empty = "no such groups" if is_filtered else "no groups yet"
    print_or_fail(columns, rows, missing, as_json=as_json, empty=empty)


def _behind(row: Mapping[str, Any]) -> int:
    """The records that a group could get now; for a share group, its own lag."""
    lag = row["read_committed_lag"] if row["read_committed_lag"] is not None else row["lag"]
    return int(lag or 0)


@groups.command()
@bootstrap_option
@json_option
@click.argument("group", shell_complete=group_names)
@click.option("--members", is_flag=True, help="Show the members, and what is assigned to each.")
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--interval", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="Seconds between.")
def describe(bootstrap: str, as_json: bool, group: str, members: bool, watch: bool, interval: float) -> None:
    """Show a group's partitions, offsets and lag, or its members.

    Groups of every kind: classic, consumer, share and streams. There is a line for each partition with a committed
    offset or a reader, and for each member that reads none. Lag is the number of offsets up to the high watermark,
    markers and aborted records included. Read_committed lag is the number of records that a read_committed consumer
    gets now. Offsets stand for those behind the first MB, and for those of a partition that may not be read.
    """
    with admin_client(bootstrap) as admin, brokers(bootstrap) as cluster:
        while True:
            described = describe_group(admin, cluster, group)
            rows = _member_rows(described) if members else _partition_rows(admin, bootstrap, described)
            if watch and not as_json:
                click.clear()  # where the output is a terminal
                click.echo(time.strftime("%H:%M:%S"))
            _show(described, rows, members=members, as_json=as_json)
            if not watch:
                return
            time.sleep(interval)


def _show(described: Group, rows: list[dict[str, Any]], *, members: bool, as_json: bool) -> None:
    if not as_json:
        click.echo(printable(described.headline))
    if members:
        columns = [*("member_id", "client_id", "host", "instance_id", "epoch", "subscription", "assignment")]
        columns += ["tasks"] if described.kind == "streams" else []
    elif described.kind == "share":
        columns = ["topic", "partition", "start_offset", "high_watermark", "lag", "member"]
    else:
        columns = ["topic", "partition", "committed_offset", "last_stable_offset", "high_watermark"]
        columns += ["lag", "read_committed_lag", "member", "host"]
    empty = "no members" if members else "no committed offsets and no members"
    print_rows(columns, rows, as_json=as_json, empty=empty)
    sys.stdout.flush()


def _member_rows(group: Group) -> list[dict[str, Any]]:
    rows = []
    for member in sorted(group.members, key=lambda member: (member.client_id, member.member_id)):
        assignment = [f"{place.topic}-{place.partition}" for place in member.assignment]
        rows.append({**vars(member), "assignment": assignment, "subscription": list(member.subscription)})
    return rows


def _partition_rows(admin: Any, bootstrap: str, group: Group) -> list[dict[str, Any]]:
    committed: dict[Place, int] = {}
    if group.kind != "share":
        found = admin.list_group_offsets({group.name: None})[group.name]
        committed = {Place(*partition): offset.offset for partition, offset in found.items()}
    readers = group.readers()
    places = sorted({*committed, *readers, *group.positions})
    states, lags = _states_and_lags(bootstrap, places, committed)
    rows = []
    for place in places:
        state = states.get(place)
        row: dict[str, Any] = {
            "topic": place.topic,
            "partition": place.partition,
            "high_watermark": state.high_watermark if state else None,
            "last_stable_offset": state.last_stable_offset if state else None,
            "member": ", ".join(member.client_id for member in readers.get(place, ())) or None,
            "host": ", ".join(member.host for member in readers.get(place, ())) or None,
        }
        if state is not None and state.error is not None:
            click.echo(f"Warning: {printable(f'{state.name} does not answer: {state.error}')}", err=True)
        if group.kind == "share":
            row["start_offset"], row["lag"] = group.positions.get(place, (None, None))
        else:
            row["committed_offset"] = committed.get(place)
            row["lag"], row["read_committed_lag"] = lags[place][:2] if place in lags else (None, None)
        rows.append(row)
    rows += [{"member": member.client_id, "host": member.host} for member in group.members if not member.assignment]
    return rows


def _states_and_lags(
    bootstrap: str, places: Sequence[Place], committed: Mapping[Place, int]
) -> tuple[Mapping[tuple[str, int], PartitionState], Mapping[tuple[str, int], Lag]]:
    """The partitions that there are, as a group may have offsets of a deleted topic; and the lags of the offsets."""
    from fencepost.console.reading.groups import lags_of
    from fencepost.console.reading.lags import ReadableCounts
    from fencepost.console.reading.topics import fill_offsets, partition_states

    if not places:
        return {}, {}

    async def ask(cluster: Cluster) -> tuple[dict[tuple[str, int], PartitionState], dict[tuple[str, int], Lag]]:
        found = partition_states(await cluster.view(sorted({place.topic for place in places})), places)
        await fill_offsets(cluster, found)
        states = {(one.topic, one.index): one for one in found}
        lags = lags_of({place: (offset, "") for place, offset in committed.items()}, states)
        await ReadableCounts().fill(cluster, [(one, states[one.topic, one.partition]) for one in lags if one.lag.end])
        return states, {(one.topic, one.partition): one.lag for one in lags}

    return ask_cluster(bootstrap, ask)


@groups.command("reset-offsets")
@bootstrap_option
@json_option
@click.argument("group", shell_complete=group_names)
@click.argument("topic", required=False, shell_complete=topic_names)
@click.option("-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this partition.")
@click.option("--to", type=click.Choice(["earliest", "latest"]), help="To one of the ends.")
@click.option("--to-offset", type=click.IntRange(min=0), help="To this offset.")
@click.option("--to-time", type=TimeType(), help="To the first record of this time or later, for example -10m.")
@click.option("--shift-by", type=int, metavar="N", help="On by N offsets from the committed one, or back by -N.")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="To the offsets of lines topic,partition,offset, as kafka-consumer-groups exports, or of --json.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be set, and set nothing.")
def reset_offsets(
    bootstrap: str,
    as_json: bool,
    group: str,
    topic: str | None,
    partitions: tuple[int, ...],
    to: str | None,
    to_offset: int | None,
    to_time: int | None,
    shift_by: int | None,
    from_file: Path | None,
    dry_run: bool,
) -> None:
    """Set the offsets of a group without members.

    All partitions of TOPIC are set, or those of --partition. An offset outside of a partition's range becomes
    the nearest one in it. A missing group is created.
    """
    target = Target(to, to_offset, shift_by, to_time, from_file)
    if target.count() != 1:
        raise click.UsageError("say once where to: --to, --to-offset, --to-time, --shift-by or --from-file")
    if (topic is None) == (from_file is None):
        raise click.UsageError("name the topic, or a file with --from-file, which names topics itself")
    if from_file is not None and partitions:
        raise click.UsageError("--from-file names the partitions itself: leave out --partition")
    in_file = read_offsets(from_file) if from_file is not None else {}
    with admin_client(bootstrap) as admin:
        places = sorted(in_file) if topic is None else _places(admin, topic, partitions)
        for place in in_file:
            _places(admin, place.topic, (place.partition,))
        committed = _committed(admin, group)
        plan = planned(
            target,
            places,
            earliest=_offsets(admin, places, EARLIEST),
            latest=(latest := _offsets(admin, places, LATEST)),
            committed=committed,
            at_time=latest | _offsets(admin, places, to_time) if to_time is not None else {},
            from_file=in_file,
        )
        if not dry_run:
            _alter(admin, group, plan)
    if dry_run and not as_json:
        click.echo("nothing was set; without --dry-run this would be:")
    print_rows(["topic", "partition", "offset", "before"], reset_rows(plan, committed), as_json=as_json)


def _places(admin: Any, topic: str, partitions: Sequence[int]) -> list[Place]:
    found = describe_topic(admin, topic)["partitions"]
    known = [partition["partition_index"] for partition in found]
    return [Place(topic, partition) for partition in checked_partitions(topic, known, partitions)]


def _committed(admin: Any, group: str) -> dict[Place, int]:
    from kafka.errors import GroupIdNotFoundError

    try:
        found = admin.list_group_offsets({group: None})[group]
    except GroupIdNotFoundError:
        return {}
    return {Place(*place): offset.offset for place, offset in found.items() if offset.offset >= 0}


def _offsets(admin: Any, places: Sequence[Place], at: int) -> dict[Place, int]:
    """at: EARLIEST, LATEST, or a time in ms; a partition without a record of that time is left out."""
    from kafka import TopicPartition

    found = admin.list_partition_offsets({TopicPartition(*place): at for place in places})
    return {Place(*place): one.offset for place, one in found.items() if one.offset >= 0}


def _alter(admin: Any, group: str, plan: Mapping[Place, int]) -> None:
    from kafka import TopicPartition
    from kafka.errors import UnknownMemberIdError
    from kafka.structs import OffsetAndMetadata

    outcomes = admin.alter_group_offsets(
        group, {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in plan.items()}
    )
    for error in outcomes.values():
        if error is UnknownMemberIdError:
            raise click.ClickException(f"group {group!r} has members; stop them, then reset its offsets")
        if error.errno:
            raise click.ClickException(refusal(error, None))


@groups.command("delete-offsets")
@bootstrap_option
@json_option
@click.argument("group", shell_complete=group_names)
@click.argument("topic", shell_complete=topic_names)
@click.option("-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this partition.")
@yes_option("This deletes committed offsets of the group. Continue?")
def delete_offsets(bootstrap: str, as_json: bool, group: str, topic: str, partitions: tuple[int, ...]) -> None:
    """Delete a group's offsets of a topic that no member reads.

    Of all partitions, or of those of --partition. The next member begins there by its auto.offset.reset.
    """
    from kafka import TopicPartition
    from kafka.errors import GroupIdNotFoundError, GroupSubscribedToTopicError

    with admin_client(bootstrap) as admin:
        try:
            committed = [place for place in _committed(admin, group) if place.topic == topic]
            chosen = [Place(topic, partition) for partition in partitions] or committed
            missing = sorted(set(chosen) - set(committed))
            if missing or not chosen:
                what = f"{topic}-{missing[0].partition}" if missing else topic
                raise click.ClickException(
                    f"group {group!r} has no offset for {what}; `fencepost groups describe {group}` shows those it has"
                )
            outcomes = admin.delete_group_offsets(group, [TopicPartition(*place) for place in sorted(chosen)])
        except GroupIdNotFoundError:
            no_such("group", group, "groups")
    for error in outcomes.values():
        if error is GroupSubscribedToTopicError:
            raise click.ClickException(f"members of group {group!r} read {topic!r}; stop them, then delete its offsets")
        if error.errno:
            raise click.ClickException(refusal(error, None))
    words = f"deleted offsets of {len(chosen)} partition{'s' if len(chosen) != 1 else ''} of {topic} in {group}"
    deleted = {"group": group, "topic": topic, "partitions": sorted(place.partition for place in chosen)}
    print_done(Done(words, deleted), as_json=as_json)
