"""`fencepost consume`: reads a topic, with either isolation level, with or without a group."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import click

from fencepost.broker.cli.connection import bootstrap_option, client_options, kafka_errors, no_such
from fencepost.broker.cli.output import progress
from fencepost.broker.cli.records import to_bytes, to_json, to_terminal

POLL_MS = 200
# A poll that ends during a join loses the assignment: kafka-python 3.0.12 neither applies it
# nor continues its heartbeats. So a member's polls are longer than a rebalance takes.
MEMBER_POLL_MS = 2_000
RECORDS_PER_POLL = 5_000
COMMIT_INTERVAL_S = 5.0


@click.command()
@bootstrap_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, with all fields of a record.")
@click.argument("topic")
@click.option("--group", help="Read as a member of this group and commit offsets.")
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Start at the earliest record instead of the latest; a group starts at its committed offset.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="read_committed skips open and aborted transactions.",
)
@click.option("-n", "--max-records", type=click.IntRange(min=1), help="Stop after this number of records.")
@click.option(
    "--idle-seconds",
    type=click.FloatRange(min=0),
    help="Stop after this time without new records. Without it, Ctrl-C stops.",
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
    """Print the records of a topic.

    Each value is printed on one line, byte for byte if the output is not a terminal. --json distinguishes null from
    text, and newlines within a value from those between values.
    """
    with kafka_errors(bootstrap):
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            **client_options(bootstrap),
            group_id=group,
            auto_offset_reset="earliest" if from_beginning else "latest",
            isolation_level=isolation_level,
            enable_auto_commit=False,
            allow_auto_create_topics=False,
            max_poll_records=RECORDS_PER_POLL,
        )
        try:
            if topic not in consumer.topics():
                no_such("topic", topic, "topics")
            consumer.subscribe([topic])
            count = _print_records(
                consumer,
                _printer(as_json=as_json, keys=keys),
                commits=group is not None,
                max_records=max_records,
                idle_seconds=idle_seconds,
            )
        finally:
            consumer.close()
    click.echo(f"{count} record{'s' if count != 1 else ''} read", err=True)


def _print_records(
    consumer: Any,
    write: Callable[[list[Any]], None],
    *,
    commits: bool,
    max_records: int | None,
    idle_seconds: float | None,
) -> int:
    """Print records until a limit or a signal; returns their number. Offsets are committed after the print."""
    count = 0
    uncommitted_count = 0
    committed_at_s = last_at_s = time.monotonic()

    def commit() -> None:
        nonlocal uncommitted_count, committed_at_s
        if commits and uncommitted_count:
            consumer.commit()
        uncommitted_count, committed_at_s = 0, time.monotonic()

    poll_ms = MEMBER_POLL_MS if commits else POLL_MS
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with progress("reading", total=max_records, shown=not sys.stdout.isatty()) as bar:
            while max_records is None or count < max_records:
                wanted_count = RECORDS_PER_POLL if max_records is None else min(RECORDS_PER_POLL, max_records - count)
                polled = consumer.poll(timeout_ms=poll_ms, max_records=wanted_count)
                records = [record for of_partition in polled.values() for record in of_partition]
                if records:
                    write(records)
                    count += len(records)
                    uncommitted_count += len(records)
                    bar.advance(len(records))
                    last_at_s = time.monotonic()
                elif idle_seconds is not None and time.monotonic() - last_at_s >= idle_seconds:
                    break
                if time.monotonic() - committed_at_s >= COMMIT_INTERVAL_S:
                    commit()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
    commit()
    return count


def _interrupt(_number: int, _frame: object) -> NoReturn:
    """Handle SIGTERM as Ctrl-C: offsets are committed, and the consumer leaves the group."""
    raise KeyboardInterrupt


def _printer(*, as_json: bool, keys: bool) -> Callable[[list[Any]], None]:
    """Make a function that prints records, several in one write: a write for each would take most of the time."""

    def write_text(records: list[Any]) -> None:
        lines = [to_json(record) if as_json else to_terminal(record, keys=keys) for record in records]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()

    def write_bytes(records: list[Any]) -> None:
        sys.stdout.buffer.write(b"\n".join([to_bytes(record, keys=keys) for record in records]) + b"\n")
        sys.stdout.buffer.flush()

    return write_text if as_json or sys.stdout.isatty() else write_bytes
