"""`fencepost groups`: lists groups, shows the members and lag of any kind of group, resets offsets, deletes groups."""

from __future__ import annotations

from typing import Any

import click

from fencepost.broker.cli.connection import (
    admin_client,
    bootstrap_option,
    describe_topic,
    json_option,
    no_such,
    refusal,
)
from fencepost.broker.cli.group_descriptions import Group, Place, describe_group
from fencepost.broker.cli.output import print_rows


@click.group()
def groups() -> None:
    """Show groups of all kinds and lag, reset offsets."""


@groups.command("list")
@bootstrap_option
@json_option
def list_groups(bootstrap: str, as_json: bool) -> None:
    """List groups and their states."""
    with admin_client(bootstrap) as admin:
        listed = admin.list_groups()
    rows = [
        {
            "group": group["group_id"],
            "state": group.get("group_state"),
            "type": group.get("group_type"),
            "protocol_type": group.get("protocol_type"),
        }
        for group in sorted(listed, key=lambda group: str(group["group_id"]))
    ]
    print_rows(["group", "state", "type", "protocol_type"], rows, as_json=as_json, empty="no groups yet")


@groups.command()
@bootstrap_option
@json_option
@click.argument("group")
@click.option("--members", is_flag=True, help="Show the members, and what is assigned to each.")
def describe(bootstrap: str, as_json: bool, group: str, members: bool) -> None:
    """Show a group's partitions, offsets and lag, or its members.

    Groups of every kind: classic, consumer, share and streams. There is a line for each partition with a committed
    offset or a reader, and for each member that reads none. Lag is the number of offsets up to the high watermark,
    markers and aborted records included; read_committed lag, up to the last stable offset.
    """
    with admin_client(bootstrap) as admin:
        described = describe_group(admin, group)
        rows = _member_rows(described) if members else _partition_rows(admin, described)
    if not as_json:
        click.echo(described.headline)
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


def _member_rows(group: Group) -> list[dict[str, Any]]:
    rows = []
    for member in sorted(group.members, key=lambda member: (member.client_id, member.member_id)):
        assignment = [f"{place.topic}-{place.partition}" for place in member.assignment]
        rows.append({**vars(member), "assignment": assignment, "subscription": list(member.subscription)})
    return rows


def _partition_rows(admin: Any, group: Group) -> list[dict[str, Any]]:
    from kafka import TopicPartition
    from kafka.protocol.consumer import IsolationLevel, OffsetSpec

    committed: dict[Place, int] = {}
    if group.kind != "share":
        found = admin.list_group_offsets({group.name: None})[group.name]
        committed = {Place(*partition): offset.offset for partition, offset in found.items()}
    readers = group.readers()
    places = sorted({*committed, *readers, *group.positions})
    existing = _existing(admin, {place.topic for place in places})
    latest = {TopicPartition(*place): OffsetSpec.LATEST for place in places if place in existing}
    ends = admin.list_partition_offsets(latest) if latest else {}
    stable = admin.list_partition_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED) if latest else {}
    rows = []
    for place in places:
        end, last_stable = (offsets.get(TopicPartition(*place)) for offsets in (ends, stable))
        row: dict[str, Any] = {
            "topic": place.topic,
            "partition": place.partition,
            "high_watermark": end.offset if end else None,
            "last_stable_offset": last_stable.offset if last_stable else None,
            "member": ", ".join(member.client_id for member in readers.get(place, ())) or None,
            "host": ", ".join(member.host for member in readers.get(place, ())) or None,
        }
        if group.kind == "share":
            row["start_offset"], row["lag"] = group.positions.get(place, (None, None))
        else:
            offset = row["committed_offset"] = committed.get(place)
            row["lag"] = _distance(offset, row["high_watermark"])
            row["read_committed_lag"] = _distance(offset, row["last_stable_offset"])
        rows.append(row)
    rows += [{"member": member.client_id, "host": member.host} for member in group.members if not member.assignment]
    return rows


def _existing(admin: Any, topics: set[str]) -> set[Place]:
    """The partitions of these topics that there are: a group may have offsets of a topic that was deleted."""
    described = admin.describe_topics(sorted(topics)) if topics else []
    return {
        Place(topic["name"], partition["partition_index"])
        for topic in described
        if not topic["error_code"]
        for partition in topic["partitions"]
    }


def _distance(offset: int | None, end: int | None) -> int | None:
    return None if offset is None or end is None else max(0, end - offset)


@groups.command("reset-offsets")
@bootstrap_option
@json_option
@click.argument("group")
@click.argument("topic")
@click.option("--to", "target", type=click.Choice(["earliest", "latest"]), required=True, help="New position.")
def reset_offsets(bootstrap: str, as_json: bool, group: str, topic: str, target: str) -> None:
    """Set the offsets of a group without members.

    All partitions of TOPIC are set. A missing group is created.
    """
    from kafka import TopicPartition
    from kafka.errors import UnknownMemberIdError
    from kafka.protocol.consumer import OffsetSpec
    from kafka.structs import OffsetAndMetadata

    with admin_client(bootstrap) as admin:
        found = describe_topic(admin, topic)["partitions"]
        partitions = [TopicPartition(topic, partition["partition_index"]) for partition in found]
        spec = OffsetSpec.EARLIEST if target == "earliest" else OffsetSpec.LATEST
        offsets = admin.list_partition_offsets(dict.fromkeys(partitions, spec))
        outcomes = admin.alter_group_offsets(
            group, {partition: OffsetAndMetadata(found_at.offset, "", -1) for partition, found_at in offsets.items()}
        )
    for error in outcomes.values():
        if error is UnknownMemberIdError:
            raise click.ClickException(f"group {group!r} has members; stop them, then reset its offsets")
        if error.errno:
            raise click.ClickException(refusal(error, None))
    rows = [
        {"topic": topic, "partition": partition.partition, "offset": offsets[partition].offset}
        for partition in sorted(offsets)
    ]
    print_rows(["topic", "partition", "offset"], rows, as_json=as_json)


@groups.command()
@bootstrap_option
@click.argument("group")
@click.confirmation_option("--yes", prompt="This deletes the group and its offsets. Continue?")
def delete(bootstrap: str, group: str) -> None:
    """Delete a group without members, and its offsets."""
    with admin_client(bootstrap) as admin:
        outcome = admin.delete_groups([group])[group]
    if outcome == "GroupIdNotFoundError":
        no_such("group", group, "groups")
    if outcome == "NonEmptyGroupError":
        raise click.ClickException(f"group {group!r} has members; stop them, then delete it")
    if outcome != "OK":
        raise click.ClickException(f"group {group!r} was not deleted: {outcome}")
    click.echo(f"deleted {group}")
