"""`fencepost groups`: list groups, show their members and lag, set and delete their offsets."""

from __future__ import annotations

from typing import Any

import click

from broker.cli.connection import admin_client, bootstrap_option, json_option
from broker.cli.output import print_rows


@click.group()
def groups() -> None:
    """List consumer groups, show their members and lag, reset offsets, delete groups."""


@groups.command("list")
@bootstrap_option
@json_option
def list_groups(bootstrap: str, as_json: bool) -> None:
    """All groups with their states."""
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
    """Committed offsets and lag for each partition, with the member that reads it."""
    from kafka.protocol.consumer import OffsetSpec

    with admin_client(bootstrap) as admin:
        description = admin.describe_groups([group])[group]
        if description.get("error") or description.get("group_state") == "Dead":
            raise click.ClickException(f"there is no group {group!r}; `fencepost groups list` shows which there are")
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
@click.option("--to", "target", type=click.Choice(["earliest", "latest"]), required=True)
def reset_offsets(bootstrap: str, as_json: bool, group: str, topic: str, target: str) -> None:
    """Set the offsets of an inactive GROUP for all partitions of TOPIC."""
    from kafka import TopicPartition
    from kafka.protocol.consumer import OffsetSpec
    from kafka.structs import OffsetAndMetadata

    with admin_client(bootstrap) as admin:
        found = admin.describe_topics([topic])
        if not found or found[0]["error_code"]:
            raise click.ClickException(f"there is no topic {topic!r}; `fencepost topics list` shows which there are")
        partitions = [TopicPartition(topic, partition["partition_index"]) for partition in found[0]["partitions"]]
        spec = OffsetSpec.EARLIEST if target == "earliest" else OffsetSpec.LATEST
        offsets = admin.list_partition_offsets(dict.fromkeys(partitions, spec))
        admin.alter_group_offsets(
            group, {partition: OffsetAndMetadata(found_at.offset, "", -1) for partition, found_at in offsets.items()}
        )
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
    """Delete an inactive group and its offsets."""
    with admin_client(bootstrap) as admin:
        for name, outcome in dict(admin.delete_groups([group])).items():
            if outcome != "OK":
                raise click.ClickException(f"{name} was not deleted: {outcome}")
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
