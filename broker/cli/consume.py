"""`fencepost consume`: read a topic, with either isolation level, with or without a group."""

from __future__ import annotations

import base64
import json
from typing import Any

import click

from broker.cli.connection import bootstrap_option, client_options, json_option, kafka_errors
from broker.cli.output import format_time


@click.command()
@bootstrap_option
@json_option
@click.argument("topic")
@click.option("--group", help="Read as a member of this group and commit offsets.")
@click.option("--from-beginning", is_flag=True, help="Start at the earliest record instead of the latest.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="Whether to hold back open transactions and leave out aborted ones.",
)
@click.option("--max-records", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option(
    "--idle-seconds",
    type=click.FloatRange(min=0),
    help="Stop when nothing new came for so long. Without it, Ctrl-C stops.",
)
@click.option("--keys", is_flag=True, help="Show each record's position and key before its value.")
def consume(
    bootstrap: str,
    as_json: bool,
    topic: str,
    group: str | None,
    from_beginning: bool,
    isolation_level: str,
    max_records: int | None,
    idle_seconds: float | None,
    keys: bool,
) -> None:
    """Print the records of TOPIC, one a line."""
    from kafka import KafkaConsumer

    with kafka_errors(bootstrap):
        consumer = KafkaConsumer(
            topic,
            **client_options(bootstrap),
            group_id=group,
            auto_offset_reset="earliest" if from_beginning else "latest",
            isolation_level=isolation_level,
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            consumer_timeout_ms=int(idle_seconds * 1000) if idle_seconds is not None else float("inf"),
        )
        count = 0
        try:
            if topic not in consumer.topics():
                raise click.ClickException(
                    f"there is no topic {topic!r}; `fencepost topics list` shows which there are"
                )
            for record in consumer:
                click.echo(_json(record) if as_json else _line(record, keys))
                count += 1
                if max_records is not None and count >= max_records:
                    break
        except KeyboardInterrupt:
            pass
        finally:
            if group is not None and count:
                consumer.commit()
            consumer.close()
    click.echo(f"{count} record{'s' if count != 1 else ''} read", err=True)


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "backslashreplace")


def _line(record: Any, keys: bool) -> str:
    value = _text(record.value)
    if not keys:
        return "" if value is None else value
    return f"{record.topic}-{record.partition} @{record.offset} {_text(record.key)}: {value}"


def _json(record: Any) -> str:
    return json.dumps(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp,
            "time": format_time(record.timestamp),
            "key": _json_text(record.key),
            "value": _json_text(record.value),
            "headers": [[name, _json_text(value)] for name, value in record.headers or ()],
        },
        ensure_ascii=False,
    )


def _json_text(content: bytes | None) -> str | dict[str, str] | None:
    """Text as it is; what is not UTF-8 as `{"base64": …}`, so that nothing is lost."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
