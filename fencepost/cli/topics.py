"""`fencepost topics`: list, create, describe, grow, trim and delete topics."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.completion import setting_names, topic_names
from fencepost.cli.confirmation import asking_options, check_choice, check_count, confirm, counted, preview
from fencepost.cli.connection import admin_client, bootstrap_option, describe_topic, json_option, parse_settings
from fencepost.cli.console_client import ask_cluster
from fencepost.cli.output import print_rows
from fencepost.cli.patterns import Pattern, pattern_option
from fencepost.cli.positions import checked_partitions
from fencepost.cli.questions import yes_option
from fencepost.cli.times import TimeType
from fencepost.cli.topic_choice import FoundTopic, choose_topics, shown_id

if TYPE_CHECKING:
    from fencepost.client.cluster import Cluster


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
    shell_complete=setting_names,
    help="Topic setting, for example cleanup.policy=compact; repeatable.",
)
@click.option("--if-missing", "--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@click.option("--dry-run", is_flag=True, help="Let the broker check whether it can be done, and create nothing.")
def create(
    bootstrap: str,
    as_json: bool,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_missing: bool,
    dry_run: bool,
) -> None:
    """Create topics, all alike.

    If one cannot be created, the others are all the same, and the message names it.
    """
    from fencepost.cli.topic_changes import EXISTS, Outcome, create_topics, fail_for, partition_counts

    settings = parse_settings(configs, "--config")
    names = tuple(dict.fromkeys(names))

    async def ask(cluster: Cluster) -> tuple[list[Outcome], dict[str, int]]:
        outcomes = await create_topics(cluster, names, partitions, replication_factor, settings, dry_run=dry_run)
        untold = [one.name for one in outcomes if one.partitions_count is None and one.code in (0, EXISTS)]
        return outcomes, await partition_counts(cluster, untold) if untold else {}

    outcomes, counts = ask_cluster(bootstrap, ask)
    left = {one.name for one in outcomes if one.code == EXISTS and if_missing}
    rows: list[dict[str, Any]] = [
        {
            "topic": one.name,
            "partitions": counts.get(one.name, one.partitions_count),
            "created": one.error is None and not dry_run,
            "error": None if one.name in left else one.error,
        }
        for one in outcomes
    ]
    if as_json:
        print_rows(["topic", "partitions", "created", "error"], rows, as_json=True)
    else:
        for row in (row for row in rows if not row["error"]):
            action = "left as it is:" if row["topic"] in left else "would create" if dry_run else "created"
            click.echo(printable(f"{action} {row['topic']}{_with_partitions(row['partitions'])}"))
    fail_for([(row["topic"], row["error"]) for row in rows if row["error"]], "created", len(names))


def _with_partitions(count: int | None) -> str:
    return "" if count is None else f" with {count} partition{'s' if count != 1 else ''}"


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
    shell_complete=setting_names,
    help="Change a setting, for example retention.ms=3600000; repeatable.",
)
@click.option(
    "--delete",
    "deleted",
    metavar="NAME",
    multiple=True,
    shell_complete=setting_names,
    help="Reset a setting to its default; repeatable.",
)
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
@click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=topic_names)
@pattern_option("Topics")
@click.option("-p", "--partitions", type=click.IntRange(min=1), required=True, help="The new partition count.")
@asking_options
def grow(
    bootstrap: str,
    as_json: bool,
    names: tuple[str, ...],
    patterns: tuple[Pattern, ...],
    partitions: int,
    is_sure: bool,
    expect: int | None,
    dry_run: bool,
) -> None:
    """Add partitions to topics.

    Topics of a pattern are shown first, and a question is asked: no topic can have fewer partitions again.
    """
    from fencepost.cli.topic_changes import Outcome, fail_for, grow_topics

    check_choice(names, patterns, "topics", is_asked=bool(patterns) and not (is_sure or dry_run))
    chosen = choose_topics(bootstrap, names, patterns)
    before = {topic.name: topic.partitions_count for topic in chosen.topics}
    check_count(len(before), expect, "topics")
    if patterns and not is_sure and not dry_run:
        preview(["topic", "partitions"], [{"topic": name, "partitions": count} for name, count in before.items()])
    if patterns and not dry_run:
        confirm(
            f"Let {counted(len(before), 'topic')} have {partitions} partitions",
            len(before),
            is_sure=is_sure,
            of_everything=chosen.of_everything,
            expected=expect,
        )

    async def change(cluster: Cluster) -> list[Outcome]:
        return await grow_topics(cluster, list(before), partitions, dry_run=dry_run)

    outcomes = ask_cluster(bootstrap, change) if before else []
    refused = [*chosen.refused, *((one.name, one.error) for one in outcomes if one.error is not None)]
    if as_json:
        errors = dict(refused)
        rows = [
            {"topic": name, "partitions": partitions, "before": before.get(name), "error": errors.get(name)}
            for name in [*before, *chosen.missing]
        ]
        print_rows(["topic", "partitions", "before", "error"], rows, as_json=True)
    else:
        for one in (one for one in outcomes if one.error is None):
            words = "could have" if dry_run else "now has"
            click.echo(printable(f"{one.name} {words} {counted(partitions, 'partition')}"))
    fail_for(refused, "grown", len(before) + len(chosen.missing))


@topics.command()
@bootstrap_option
@json_option
@click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=topic_names)
@pattern_option("Topics")
@asking_options
def delete(
    bootstrap: str,
    as_json: bool,
    names: tuple[str, ...],
    patterns: tuple[Pattern, ...],
    is_sure: bool,
    expect: int | None,
    dry_run: bool,
) -> None:
    """Delete topics and everything in them.

    All of them are shown before the question. They are deleted by their ids: one that is created again in the meantime
    stays. If one cannot be deleted, the others are all the same, and the message names it. A pattern never means
    internal topics, those that begin with __ included. For one that matches every name, --yes is not enough: type the
    number of topics, or give it with --expect.
    """
    from fencepost.cli.topic_changes import Outcome, delete_topics, fail_for

    check_choice(names, patterns, "topics", is_asked=not (is_sure or dry_run))
    chosen = choose_topics(bootstrap, names, patterns)
    check_count(len(chosen.topics), expect, "topics")
    if dry_run or not is_sure:
        _preview_deletion(bootstrap, chosen.topics, as_json=as_json, is_result=dry_run)
    if dry_run:
        fail_for(chosen.refused, "found", len(chosen.topics) + len(chosen.missing))
        return
    if chosen.topics:
        what = "it" if len(chosen.topics) == 1 else "them"
        confirm(
            f"This deletes {counted(len(chosen.topics), 'topic')} and everything in {what}. Continue",
            len(chosen.topics),
            is_sure=is_sure,
            of_everything=chosen.of_everything,
            expected=expect,
        )

    async def change(cluster: Cluster) -> list[Outcome]:
        return await delete_topics(cluster, chosen.topics)

    outcomes = ask_cluster(bootstrap, change) if chosen.topics else []
    refused = [*chosen.refused, *((one.name, one.error) for one in outcomes if one.error is not None)]
    errors = dict(refused)
    order = dict.fromkeys([*names, *(one.name for one in outcomes)])
    rows = [{"topic": name, "deleted": name not in errors, "error": errors.get(name)} for name in order]
    if as_json:
        print_rows(["topic", "deleted", "error"], rows, as_json=True)
    else:
        for row in (row for row in rows if row["deleted"]):
            click.echo(printable(f"deleted {row['topic']}"))
    fail_for(refused, "deleted", len(order))


def _preview_deletion(bootstrap: str, topics: Sequence[FoundTopic], *, as_json: bool, is_result: bool) -> None:
    from fencepost.cli.topic_figures import read_figures

    figures = read_figures(bootstrap)
    rows = [
        {
            "topic": topic.name,
            "partitions": topic.partitions_count,
            **figures.get(topic.name, {}),
            "topic_id": shown_id(topic.topic_id),
        }
        for topic in topics
    ]
    columns = ["topic", "partitions", "records", "size_bytes", "topic_id"]
    if is_result:
        print_rows(columns, rows, as_json=as_json, empty="no topics")
    else:
        preview(columns, rows)


def _topic_id(topic: dict[str, Any]) -> str:
    raw = topic.get("topic_id")
    return shown_id(raw.bytes if isinstance(raw, uuid.UUID) else uuid.UUID(str(raw)).bytes if raw else bytes(16))
