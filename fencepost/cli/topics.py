"""`fencepost topics`: list, create, describe, grow, trim and delete topics."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.completion import topic_names
from fencepost.cli.connection import (
    admin_client,
    bootstrap_option,
    check_results,
    describe_topic,
    json_option,
    parse_settings,
    refusal,
)
from fencepost.cli.output import Done, print_done, print_rows
from fencepost.cli.positions import checked_partitions
from fencepost.cli.questions import yes_option
from fencepost.cli.times import TimeType


@click.group()
def topics() -> None:
    """Show, create, grow, trim and delete topics."""


@topics.command("list")
@bootstrap_option
@json_option
@click.option("--internal", is_flag=True, help="Show internal topics too.")
def list_topics(bootstrap: str, as_json: bool, internal: bool) -> None:
    """List topics with their sizes.

    Records are the offsets between the ends, markers included. A figure is missing where a broker does not answer.
    """
    from fencepost.cli.topic_figures import read_figures

    with admin_client(bootstrap) as admin:
        described = admin.describe_topics()
    figures = read_figures(bootstrap)
    rows = [
        {
            "topic": topic["name"],
            "partitions": len(topic["partitions"]),
            **figures.get(topic["name"], {}),
            "topic_id": _topic_id(topic),
        }
        for topic in sorted(described, key=lambda topic: str(topic["name"]))
        if internal or not topic["is_internal"]
    ]
    columns = ["topic", "partitions", "records", "size_bytes", "offline", "topic_id"]
    if not as_json and not any(row.get("offline") for row in rows):
        columns.remove("offline")
    print_rows(columns, rows, as_json=as_json, empty="no topics yet")


@topics.command()
@bootstrap_option
@json_option
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=topic_names)
@click.option(
    "-p", "--partitions", type=click.IntRange(min=1), help="Partition count; the broker's num.partitions if not given."
)
@click.option(
    "-r", "--replication-factor", type=click.IntRange(min=1), help="Copies of each partition; one broker has one."
)
@click.option(
    "--config",
    "configs",
    metavar="NAME=VALUE",
    multiple=True,
    help="Topic setting, for example cleanup.policy=compact; repeatable.",
)
@click.option("--if-missing", is_flag=True, help="Do nothing if the topic exists.")
def create(
    bootstrap: str,
    as_json: bool,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_missing: bool,
) -> None:
    """Create topics, all alike.

    If one cannot be created, the others are all the same, and the message names it.
    """
    from kafka.errors import TopicAlreadyExistsError

    settings = parse_settings(configs, "--config")
    wanted = {"num_partitions": partitions or -1, "replication_factor": replication_factor or -1, "configs": settings}
    names = tuple(dict.fromkeys(names))
    with admin_client(bootstrap) as admin:
        results = admin.create_topics(dict.fromkeys(names, wanted), raise_errors=False)["topics"]
        exist = {result["name"] for result in results if result["error_code"] == TopicAlreadyExistsError.errno}
        left = exist if if_missing else set[str]()
        refused = [result for result in results if result["error_code"] and result["name"] not in left]
        done = {result["name"] for result in results} - {result["name"] for result in refused}
        counts = {name: len(describe_topic(admin, name)["partitions"]) for name in names if name in done}
    rows = [{"topic": name, "partitions": count, "created": name not in left} for name, count in counts.items()]
    if as_json:
        print_rows(["topic", "partitions", "created"], rows, as_json=True)
    else:
        for name, count in counts.items():
            action = "left as it is:" if name in left else "created"
            click.echo(f"{action} {name} with {count} partition{'s' if count != 1 else ''}")
    _check_each(refused, "created", len(names))


@topics.command()
@bootstrap_option
@json_option
@click.argument("name", shell_complete=topic_names)
def describe(bootstrap: str, as_json: bool, name: str) -> None:
    """Show a topic and its partitions.

    Records lie between the log start offset and the high watermark; read_committed consumers see those below the last
    stable offset. The newest record is the one of the latest time.
    """
    from fencepost.cli.topic_figures import read_partitions

    with admin_client(bootstrap) as admin:
        described = describe_topic(admin, name)
        own = _config_rows(admin, name, everything=False)
    rows = read_partitions(bootstrap, name)
    if not as_json:
        settings = ", ".join(f"{row['name']}={row['value']}" for row in own)
        count = len(rows)
        click.echo(
            printable(
                f"{name}: topic id {_topic_id(described)}, {count} partition{'s' if count != 1 else ''}, "
                f"settings: {settings or 'defaults'}"
            )
        )
    columns = ["partition", "leader", "replicas", "in_sync", "log_start_offset", "last_stable_offset"]
    columns += ["high_watermark", "size_bytes", "newest_record", "error"]
    if not as_json and not any(row["error"] for row in rows):
        columns.remove("error")
    print_rows(columns, rows, as_json=as_json)


@topics.command()
@bootstrap_option
@json_option
@click.argument("name", shell_complete=topic_names)
@click.option("-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this partition.")
@click.option("--before-offset", type=click.IntRange(min=0), help="Delete what is before this offset.")
@click.option("--before-time", type=TimeType(), help="Delete what is before the first record of this time or later.")
@click.option("--everything", is_flag=True, help="Delete all records that there are now.")
@yes_option("This deletes records for good. Continue?")
def trim(
    bootstrap: str,
    as_json: bool,
    name: str,
    partitions: tuple[int, ...],
    before_offset: int | None,
    before_time: int | None,
    everything: bool,
) -> None:
    """Delete the oldest records of a topic.

    Log start offsets move on; space is given back in whole segments. Where a partition ends before, it is emptied.
    """
    from kafka import TopicPartition
    from kafka.protocol.consumer import OffsetSpec

    if (before_offset is not None) + (before_time is not None) + everything != 1:
        raise click.UsageError("say once up to where: --before-offset, --before-time or --everything")
    with admin_client(bootstrap) as admin:
        known = [partition["partition_index"] for partition in describe_topic(admin, name)["partitions"]]
        places = [TopicPartition(name, partition) for partition in checked_partitions(name, known, partitions)]
        earliest = admin.list_partition_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
        ends = admin.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
        targets = {place: end.offset for place, end in ends.items()}
        if before_time is not None:
            found = admin.list_partition_offsets(dict.fromkeys(places, before_time))
            targets |= {place: one.offset for place, one in found.items() if one.offset >= 0}
        if before_offset is not None:
            targets = {place: min(before_offset, end) for place, end in targets.items()}
        moving = {place: offset for place, offset in targets.items() if offset > earliest[place].offset}
        if moving:
            admin.delete_records(moving)
    rows = [
        {
            "partition": place.partition,
            "log_start_offset": moving.get(place, earliest[place].offset),
            "deleted_offsets": moving.get(place, earliest[place].offset) - earliest[place].offset,
        }
        for place in places
    ]
    print_rows(["partition", "log_start_offset", "deleted_offsets"], rows, as_json=as_json)


@topics.command()
@bootstrap_option
@json_option
@click.argument("name", shell_complete=topic_names)
@click.option("--all", "everything", is_flag=True, help="Show defaults, too, not only set values.")
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Change a setting, for example retention.ms=3600000; repeatable.",
)
@click.option("--delete", "deleted", metavar="NAME", multiple=True, help="Reset a setting to its default; repeatable.")
def configs(
    bootstrap: str, as_json: bool, name: str, everything: bool, settings: tuple[str, ...], deleted: tuple[str, ...]
) -> None:
    """Show a topic's settings and their sources, or change them.

    Changes apply at once; either all changes of one command are made, or none.
    """
    changes: dict[str, tuple[str, str | None]] = {
        setting: ("SET", value) for setting, value in parse_settings(settings, "--set").items()
    }
    twice = sorted(changes.keys() & set(deleted))
    if twice:
        raise click.UsageError(f"--set and --delete both name {', '.join(twice)}")
    changes |= dict.fromkeys(deleted, ("DELETE", None))
    with admin_client(bootstrap) as admin:
        describe_topic(admin, name)
        if changes:
            _alter_configs(admin, name, changes)
            click.echo(f"changed {', '.join(sorted(changes))} of {name}", err=as_json)
        rows = _config_rows(admin, name, everything=everything)
    print_rows(
        ["name", "value", "source"],
        rows,
        as_json=as_json,
        empty=f"{name} has no settings of its own; --all shows the defaults",
    )


def _alter_configs(admin: Any, name: str, changes: dict[str, tuple[str, str | None]]) -> None:
    from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType

    operations = {setting: (AlterConfigOp[operation], value) for setting, (operation, value) in changes.items()}
    resource = ConfigResource(ConfigResourceType.TOPIC, name, configs=operations)
    outcome = admin.alter_configs([resource], raise_on_unknown=False, incremental=True)["topic"][name]
    if outcome != "OK":
        raise click.ClickException(f"the broker refused: {outcome}")


def _config_rows(admin: Any, name: str, *, everything: bool) -> list[dict[str, Any]]:
    from kafka.admin import ConfigResource, ConfigResourceType

    described = admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, name)], config_filter="all" if everything else "modified"
    )
    return sorted(
        (
            {"name": setting, "value": value["value"], "source": value["config_source"]}
            for resources in described.values()
            for settings in resources.values()
            for setting, value in settings.items()
        ),
        key=lambda row: str(row["name"]),
    )


@topics.command()
@bootstrap_option
@json_option
@click.argument("name", shell_complete=topic_names)
@click.option("-p", "--partitions", type=click.IntRange(min=1), required=True, help="The new partition count.")
def grow(bootstrap: str, as_json: bool, name: str, partitions: int) -> None:
    """Add partitions to a topic."""
    with admin_client(bootstrap) as admin:
        check_results(admin.create_partitions({name: partitions}, raise_errors=False).to_dict()["results"])
    done = Done(f"{name} now has {partitions} partitions", {"topic": name, "partitions": partitions})
    print_done(done, as_json=as_json)


@topics.command()
@bootstrap_option
@json_option
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=topic_names)
@yes_option("This deletes the topics and everything in them. Continue?")
def delete(bootstrap: str, as_json: bool, names: tuple[str, ...]) -> None:
    """Delete topics and everything in them.

    If one cannot be deleted, the others are all the same, and the message names it.
    """
    names = tuple(dict.fromkeys(names))
    with admin_client(bootstrap) as admin:
        results = admin.delete_topics(list(names), raise_errors=False)["topics"]
    refused = [result for result in results if result["error_code"]]
    gone = {result["name"] for result in results} - {result["name"] for result in refused}
    rows = [{"topic": name, "deleted": True} for name in names if name in gone]
    if as_json:
        print_rows(["topic", "deleted"], rows, as_json=True)
    else:
        for row in rows:
            click.echo(f"deleted {row['topic']}")
    _check_each(refused, "deleted", len(names))


def _check_each(refused: Sequence[Mapping[str, Any]], action: str, asked_count: int) -> None:
    """Raise ClickException for refused topics: as the broker says, and where several were asked for, of each."""
    if len(refused) == asked_count == 1:
        check_results(refused)
    if refused:
        from kafka.errors import for_code

        reasons = [
            f"{result['name']} was not {action}: {refusal(for_code(result['error_code']), result.get('error_message'))}"
            for result in refused
        ]
        raise click.ClickException("; ".join(reasons))


def _topic_id(topic: dict[str, Any]) -> str:
    raw = topic.get("topic_id")
    identity = raw.bytes if isinstance(raw, uuid.UUID) else uuid.UUID(str(raw)).bytes if raw else bytes(16)
    return base64.urlsafe_b64encode(identity).rstrip(b"=").decode()
