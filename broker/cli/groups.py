"""`fencepost groups`: lists groups, shows their members and lag, resets offsets, deletes groups."""

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
from fencepost.broker.cli.output import print_rows


@click.group()
def groups() -> None:
    """Show consumer groups and lag, reset offsets."""


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
def describe(bootstrap: str, as_json: bool, group: str) -> None:
    """Show committed offsets, lag and members.

    One line for each partition with a committed offset. Lag is the number of offsets up to the high watermark, markers
    and aborted records included.
    """
    from kafka.protocol.consumer import OffsetSpec

    with admin_client(bootstrap) as admin:
        description = admin.describe_groups([group])[group]
        if description.get("error") or description.get("group_state") == "Dead":
            no_such("group", group, "groups")
        committed = admin.list_group_offsets({group: None})[group]
        ends = admin.list_partition_offsets(dict.fromkeys(committed, OffsetSpec.LATEST)) if committed else {}
    readers = _readers(description)
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "committed_offset": committed[partition].offset,
            "high_watermark": ends[partition].offset,
            "lag": max(0, ends[partition].offset - committed[partition].offset),
            "member": readers.get((partition.topic, partition.partition)),
        }
        for partition in sorted(committed)
    ]
    if not as_json:
        click.echo(f"{group}: {description.get('group_state')}, {len(description.get('members', []))} member(s)")
    print_rows(
        ["topic", "partition", "committed_offset", "high_watermark", "lag", "member"],
        rows,
        as_json=as_json,
        empty="no committed offsets",
    )


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


def _readers(description: dict[str, Any]) -> dict[tuple[str, int], str]:
    readers = {}
    for member in description.get("members", []):
        assignment = member.get("member_assignment")
        if isinstance(assignment, dict):
            for topic in assignment.get("assigned_partitions") or []:
                for partition in topic["partitions"]:
                    readers[topic["topic"], partition] = member["client_id"]
    return readers
