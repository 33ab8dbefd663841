"""`fencepost consume`: reads topics, with either isolation level, with or without a group, whole or in part."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import click

from fencepost.broker.process.interrupts import EXIT_AFTER_SIGNAL
from fencepost.cli.completion import group_names, topic_names
from fencepost.cli.connection import bootstrap_option, client_options, kafka_errors
from fencepost.cli.output import progress
from fencepost.cli.positions import OffsetType, Start, Wanted, assign, matching_topics
from fencepost.cli.read_values import ReadRecord, current_reader, read_options
from fencepost.cli.record_format import DIRECTIVES, parse_format
from fencepost.cli.records import escaped, to_bytes, to_json, to_terminal
from fencepost.cli.times import TimeType

POLL_MS = 200
# A poll that ends during a join loses the assignment: kafka-python 3.0.12 neither applies it
# nor continues its heartbeats. So a member's polls are longer than a rebalance takes.
MEMBER_POLL_MS = 2_000
RECORDS_PER_POLL = 5_000
COMMIT_INTERVAL_S = 5.0
REBALANCE_S = 10.0


@click.command()
@bootstrap_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, with all fields of a record.")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=topic_names)
@click.option("--group", shell_complete=group_names, help="Read as a member of this group and commit offsets.")
@click.option("-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this partition.")
@click.option(
    "-o",
    "--offset",
    "start",
    type=OffsetType(),
    help="Where to begin in each partition: beginning, end, an offset, or -5 for the last five.",
)
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Start at the earliest record instead of the latest; a group starts at its committed offset.",
)
@click.option("--from-time", "from_ms", type=TimeType(), help="Begin with the first record of this time or later.")
@click.option("--to-time", "to_ms", type=TimeType(), help="Stop before the first record of this time or later.")
@click.option("-e", "--exit-at-end", "to_end", is_flag=True, help="Stop at the end that each partition has now.")
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
@click.option("-f", "--format", "layout", metavar="TEXT", help=f"How to print a record, as with kcat: {DIRECTIVES}.")
@read_options
@click.option(
    "--markers",
    is_flag=True,
    help="Show all that the log holds up to its end now, marked: also aborted and open records, and markers.",
)
def consume(
    bootstrap: str,
    as_json: bool,
    topics: tuple[str, ...],
    group: str | None,
    partitions: tuple[int, ...],
    start: Start | None,
    from_beginning: bool,
    from_ms: int | None,
    to_ms: int | None,
    to_end: bool,
    isolation_level: str,
    max_records: int | None,
    idle_seconds: float | None,
    keys: bool,
    layout: str | None,
    markers: bool,
) -> None:
    """Print the records of topics.

    A TOPIC may be a pattern, `orders-*` or `^orders`. Each value is printed on one line, byte for byte if the output is
    not a terminal. --json distinguishes null from text, and newlines within a value from those between values.
    Times are such as 2026-01-31T14:02:00 (local), milliseconds since 1970, or -10m for ten minutes ago.
    """
    wanted = Wanted(partitions, start, from_ms, to_ms, to_end)
    _check(wanted, group, layout, as_json=as_json, keys=keys, from_beginning=from_beginning)
    if markers:
        if group is not None or layout is not None:
            raise click.UsageError("--markers goes with neither --group nor --format")
        from fencepost.cli.marked_records import print_marked

        _report(print_marked(bootstrap, topics, wanted, max_records, as_json=as_json))
        return
    write = _printer(as_json=as_json, keys=keys, layout=layout)
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
            found = matching_topics(consumer.topics(), topics)
            ends: dict[Any, int] = {}
            if wanted.is_all:
                consumer.subscribe(found)
            else:
                ends = assign(consumer, found, wanted, from_beginning=from_beginning or to_end or to_ms is not None)
            count, signal_number = _print_records(
                consumer,
                write,
                ends,
                commits=group is not None,
                max_records=max_records,
                idle_seconds=idle_seconds,
            )
        finally:
            consumer.close()
    _report(count)
    if signal_number is not None:
        sys.exit(EXIT_AFTER_SIGNAL + signal_number)


def _report(count: int) -> None:
    click.echo(f"{count} record{'s' if count != 1 else ''} read", err=True)


def _check(
    wanted: Wanted, group: str | None, layout: str | None, *, as_json: bool, keys: bool, from_beginning: bool
) -> None:
    """Raise UsageError for options that contradict each other."""
    if group is not None and not wanted.is_all:
        raise click.UsageError(
            "a group decides itself what its members read: --group goes with none of --partition, --offset, "
            "--from-time, --to-time, --exit-at-end; `fencepost groups reset-offsets` moves a group"
        )
    if (wanted.start is not None) + (wanted.from_ms is not None) + from_beginning > 1:
        raise click.UsageError("say once where to begin: --from-beginning, --offset or --from-time")
    if layout is not None and (as_json or keys):
        raise click.UsageError("--format says all: leave out --json and --keys")


def _print_records(
    consumer: Any,
    write: Callable[[list[Any]], None],
    ends: dict[Any, int],
    *,
    commits: bool,
    max_records: int | None,
    idle_seconds: float | None,
) -> tuple[int, int | None]:
    """Print records until a limit or a signal; returns their number, and that of the signal.

    Offsets are committed after the print.
    ends: end offset of each partition; a partition without one is read until the command is stopped.
    """
    count = 0
    last_at_s = time.monotonic()
    offsets = _Offsets(consumer)
    poll_ms = MEMBER_POLL_MS if commits else POLL_MS
    signal_number = None
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with progress("reading", total=max_records, shown=not sys.stdout.isatty()) as bar:
            while (max_records is None or count < max_records) and not _have_ended(consumer, ends):
                wanted_count = RECORDS_PER_POLL if max_records is None else min(RECORDS_PER_POLL, max_records - count)
                polled = consumer.poll(timeout_ms=poll_ms, max_records=wanted_count)
                records = [
                    record
                    for place, of_partition in polled.items()
                    for record in of_partition
                    if not ends or record.offset < ends[place]
                ]
                if records:
                    write(records)
                    count += len(records)
                    offsets.printed(polled)
                    bar.advance(len(records))
                    last_at_s = time.monotonic()
                elif idle_seconds is not None and time.monotonic() - last_at_s >= idle_seconds:
                    break
                if commits:
                    offsets.commit_if_due()
    except KeyboardInterrupt as interrupt:
        signal_number = interrupt.args[0] if interrupt.args else signal.SIGINT
    finally:
        signal.signal(signal.SIGTERM, before)
    if commits:
        offsets.commit()
    return count, signal_number


class _Offsets:
    """Offsets behind the printed records of a group's member, until they are committed."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._uncommitted: dict[Any, int] = {}
        self._committed_at_s = time.monotonic()

    def printed(self, polled: Mapping[Any, Sequence[Any]]) -> None:
        self._uncommitted.update((place, records[-1].offset + 1) for place, records in polled.items())

    def commit_if_due(self) -> None:
        """Commit every COMMIT_INTERVAL_S. During a rebalance do nothing: the polls to come end it."""
        if time.monotonic() - self._committed_at_s >= COMMIT_INTERVAL_S:
            self._has_committed()
            self._committed_at_s = time.monotonic()

    def commit(self) -> None:
        """Commit; in a rebalance, join the group again first, and leave partitions that moved to their new readers.

        Raises RebalanceInProgressError if the group does not settle within REBALANCE_S.
        """
        from kafka.structs import OffsetAndMetadata

        if self._has_committed():
            return
        consumer = self._consumer
        give_up_at_s = time.monotonic() + REBALANCE_S
        while True:
            consumer.pause(*consumer.assignment())  # no further record is printed
            consumer.poll(timeout_ms=MEMBER_POLL_MS)
            own = self._uncommitted.keys() & consumer.assignment()
            is_over = time.monotonic() >= give_up_at_s
            if own or is_over:
                offsets = {place: OffsetAndMetadata(self._uncommitted[place], "", -1) for place in own}
                if not own or self._has_committed(offsets, is_over=is_over):
                    return

    def _has_committed(self, *offsets: Mapping[Any, Any], is_over: bool = False) -> bool:
        """Commit these offsets, or the consumer's positions; return False in a rebalance that is not over yet."""
        from kafka.errors import RebalanceInProgressError

        if not self._uncommitted:
            return True
        try:
            self._consumer.commit(*offsets)
        except RebalanceInProgressError:
            if is_over:
                raise
            return False
        self._uncommitted.clear()
        return True


def _have_ended(consumer: Any, ends: dict[Any, int]) -> bool:
    """Whether all partitions have been read up to where to stop; those that have are read no further."""
    if not ends:
        return False
    done = [place for place, end in ends.items() if consumer.position(place) >= end]
    consumer.pause(*done)
    return len(done) == len(ends)


def _interrupt(number: int, _frame: object) -> NoReturn:
    """Handle SIGTERM as Ctrl-C: offsets are committed, and the consumer leaves the group."""
    raise KeyboardInterrupt(number)


def _printer(*, as_json: bool, keys: bool, layout: str | None) -> Callable[[list[Any]], None]:
    """Make a function that prints records, several in one write: a write for each would take most of the time."""
    is_terminal = sys.stdout.isatty()
    reader = current_reader()
    read = (lambda records: records) if reader is None else reader.read
    if layout is not None:
        try:
            formatted = parse_format(layout)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--format") from None

        def write_formatted(records: list[Any]) -> None:
            content = b"".join([formatted(record) for record in read(records)])
            if is_terminal:
                content = escaped(content, kept="\t\n").encode()
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()

        return write_formatted

    to_line = to_json if reader is None else ReadRecord.to_json

    def write_text(records: list[Any]) -> None:
        lines = [to_line(record) if as_json else to_terminal(record, keys=keys) for record in read(records)]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()

    def write_bytes(records: list[Any]) -> None:
        sys.stdout.buffer.write(b"\n".join([to_bytes(record, keys=keys) for record in read(records)]) + b"\n")
        sys.stdout.buffer.flush()

    return write_text if as_json or is_terminal else write_bytes
