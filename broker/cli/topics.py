"""`fencepost topics`: list, create, describe, grow and delete topics."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import click

from broker.cli.connection import admin_client, bootstrap_option, json_option, parse_settings
from broker.cli.output import print_rows


@click.group()
def topics() -> None:
    """List, create, describe, grow and delete topics."""


@topics.command("list")
@bootstrap_option
@json_option
@click.option("--internal", is_flag=True, help="Show internal topics too.")
def list_topics(bootstrap: str, as_json: bool, internal: bool) -> None:
    """All topics with their partition counts."""
    with admin_client(bootstrap) as admin:
        described = admin.describe_topics()
    rows = [
        {"topic": topic["name"], "partitions": len(topic["partitions"]), "topic_id": _topic_id(topic)}
        for topic in sorted(described, key=lambda topic: str(topic["name"]))
        if internal or not topic["is_internal"]
    ]
    print_rows(["topic", "partitions", "topic_id"], rows, as_json=as_json, empty="no topics yet")


@topics.command()
@bootstrap_option
@click.argument("name")
@click.option("--partitions", type=int, default=-1, help="Partition count; the broker's num.partitions when not given.")
@click.option(
    "--config",
    "configs",
    metavar="NAME=VALUE",
    multiple=True,
    help="Topic setting, for example cleanup.policy=compact.",
)
def create(bootstrap: str, name: str, partitions: int, configs: tuple[str, ...]) -> None:
    """Create a topic."""
    with admin_client(bootstrap) as admin:
        admin.create_topics(
            {
                name: {
                    "num_partitions": partitions,
                    "replication_factor": -1,
                    "configs": parse_settings(configs, "--config"),
                }
            }
        )
        count = len(admin.describe_topics([name])[0]["partitions"])
    click.echo(f"created {name} with {count} partition{'s' if count != 1 else ''}")


@topics.command()
@bootstrap_option
@json_option
@click.argument("name")
def describe(bootstrap: str, as_json: bool, name: str) -> None:
    """Offsets of each partition: log start, last stable offset, high watermark."""
    from kafka import TopicPartition
    from kafka.protocol.consumer import IsolationLevel, OffsetSpec

    with admin_client(bootstrap) as admin:
        found = admin.describe_topics([name])
        if not found or found[0]["error_code"]:
            raise click.ClickException(f"there is no topic {name!r}; `fencepost topics list` shows which there are")
        partitions = [TopicPartition(name, partition["partition_index"]) for partition in found[0]["partitions"]]
        earliest = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        latest = dict.fromkeys(partitions, OffsetSpec.LATEST)
        high_watermarks = admin.list_partition_offsets(latest)
        stable = admin.list_partition_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED)
    rows = [
        {
            "partition": partition.partition,
            "log_start_offset": earliest[partition].offset,
            "last_stable_offset": stable[partition].offset,
            "high_watermark": high_watermarks[partition].offset,
        }
        for partition in sorted(partitions)
    ]
    print_rows(["partition", "log_start_offset", "last_stable_offset", "high_watermark"], rows, as_json=as_json)


@topics.command()
@bootstrap_option
@json_option
@click.argument("name")
@click.option("--all", "everything", is_flag=True, help="Show defaults too, not only what was set.")
def configs(bootstrap: str, as_json: bool, name: str, everything: bool) -> None:
    """Settings of a topic, with where each comes from."""
    from kafka.admin import ConfigResource, ConfigResourceType

    with admin_client(bootstrap) as admin:
        described = admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, name)], config_filter="all" if everything else "modified"
        )
    rows = sorted(
        (
            {"name": setting, "value": value["value"] if isinstance(value, dict) else value}
            for resources in described.values()
            for settings in resources.values()
            for setting, value in settings.items()
        ),
        key=lambda row: str(row["name"]),
    )
    print_rows(
        ["name", "value"], rows, as_json=as_json, empty=f"{name} has no settings of its own; --all shows the defaults"
    )


@topics.command()
@bootstrap_option
@click.argument("name")
@click.option("--partitions", type=click.IntRange(min=1), required=True, help="The new partition count.")
def grow(bootstrap: str, name: str, partitions: int) -> None:
    """Add partitions to a topic."""
    with admin_client(bootstrap) as admin:
        admin.create_partitions({name: partitions})
    click.echo(f"{name} now has {partitions} partitions")


@topics.command()
@bootstrap_option
@click.argument("name")
@click.confirmation_option("--yes", prompt="This deletes the topic and everything in it. Continue?")
def delete(bootstrap: str, name: str) -> None:
    """Delete a topic and everything in it."""
    with admin_client(bootstrap) as admin:
        admin.delete_topics([name])
    click.echo(f"deleted {name}")


def _topic_id(topic: dict[str, Any]) -> str:
    raw = topic.get("topic_id")
    identity = raw.bytes if isinstance(raw, uuid.UUID) else uuid.UUID(str(raw)).bytes if raw else bytes(16)
    return base64.urlsafe_b64encode(identity).rstrip(b"=").decode()
