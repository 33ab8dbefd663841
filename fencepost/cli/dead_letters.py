"""`fencepost groups dead-letters`: the records that a share group could not consume, from its dead-letter topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from fencepost.cli.completion import group_names
from fencepost.cli.connection import bootstrap_option, client_options, json_option, kafka_errors
from fencepost.cli.console_client import ask_cluster
from fencepost.cli.output import print_rows
from fencepost.cli.positions import Wanted, assign
from fencepost.cli.records import fields_of

if TYPE_CHECKING:
    from fencepost.client.cluster import Cluster

GROUP: Final = 32
"""Kafka's number of this kind of resource."""
TOPIC_CONFIG: Final = "errors.deadletterqueue.topic.name"
PREFIX: Final = "__dlq.errors."
POLL_MS: Final = 500
COLUMNS: Final = ["topic", "partition", "offset", "delivery_count", "message", "time", "key", "value"]


@click.command("dead-letters")
@bootstrap_option
@json_option
@click.argument("group", shell_complete=group_names)
@click.option("--topic", help="The dead-letter topic, if the group's configs do not name it any more.")
@click.option("-n", "--max-records", type=click.IntRange(min=1), default=1_000, show_default=True, help="Show at most.")
def dead_letters(bootstrap: str, as_json: bool, group: str, topic: str | None, max_records: int) -> None:
    """Show the records that a share group could not consume.

    Read from the group's dead-letter topic. Topic, partition and offset are those of the original record; its key and
    value are shown if the group copies them (errors.deadletterqueue.copy.record.enable).
    """
    found = topic or _topic_of(bootstrap, group)
    if not found:
        raise click.ClickException(
            f"group {group} has no dead-letter topic: set {TOPIC_CONFIG} with `fencepost configs group {group} --set`, "
            "or name an earlier one with --topic"
        )
    rows: list[dict[str, Any]] = []
    with kafka_errors(bootstrap):
        for record in _records(bootstrap, found):
            row = row_of(record, group)
            if row is not None:
                rows.append(row)
            if len(rows) >= max_records:
                break
    columns = [*COLUMNS, "dead_letter_partition", "dead_letter_offset", "headers"] if as_json else COLUMNS
    print_rows(columns, rows, as_json=as_json, empty=f"no dead letters of group {group} in {found}")


def _topic_of(bootstrap: str, group: str) -> str | None:
    async def ask(cluster: Cluster) -> str | None:
        from fencepost.console.reading.settings import ResourceKind, read_settings

        settings = await read_settings(cluster, ResourceKind(GROUP), group, None)
        return next((one.value for one in settings if one.name == TOPIC_CONFIG), None)

    return ask_cluster(bootstrap, ask)


def _records(bootstrap: str, topic: str) -> Iterator[Any]:
    """All records that a topic has now, partition after partition as they arrive. Raises ClickException."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        **client_options(bootstrap),
        group_id=None,
        isolation_level="read_committed",
        enable_auto_commit=False,
        allow_auto_create_topics=False,
    )
    try:
        if topic not in consumer.topics():
            raise click.ClickException(f"there is no topic {topic}: create it with `fencepost topics create`")
        ends = assign(consumer, [topic], Wanted(to_end=True), from_beginning=True)
        while any(consumer.position(place) < end for place, end in ends.items()):
            for records in consumer.poll(timeout_ms=POLL_MS).values():
                yield from records
    finally:
        consumer.close()


def row_of(record: Any, group: str) -> dict[str, Any] | None:
    """The row of a consumed record; None if it is no dead letter of the group.

    The last header of a name counts: the original record may have had one of the same name.
    """
    fields = fields_of(record)
    headers = {name.removeprefix(PREFIX): value for name, value in fields["headers"] if name.startswith(PREFIX)}
    if headers.get("group") != group:
        return None
    return {
        "topic": headers.get("topic"),
        "partition": _number(headers.get("partition")),
        "offset": _number(headers.get("offset")),
        "delivery_count": _number(headers.get("delivery.count")),
        "message": headers.get("message"),
        "time": fields["time"],
        "key": fields["key"],
        "value": fields["value"],
        "dead_letter_partition": fields["partition"],
        "dead_letter_offset": fields["offset"],
        "headers": [header for header in fields["headers"] if not header[0].startswith(PREFIX)],
    }


def _number(text: Any) -> int | None:
    """A number of a header, which any producer may have written; None if it is none."""
    return int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 20 else None
