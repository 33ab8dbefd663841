"""`fencepost produce`: writes lines of standard input or of a file to a topic, also in transactions."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any, BinaryIO, Self

import click

from fencepost.broker.process.interrupts import EXIT_AFTER_SIGNAL
from fencepost.cli.completion import topic_names
from fencepost.cli.connection import bootstrap_option, client_options, describe_error, kafka_errors
from fencepost.cli.output import progress
from fencepost.cli.records import Content, from_json, from_line
from fencepost.cli.times import TimeType
from fencepost.cli.written_values import ValueWriter, current_writer, write_options

# The broker's message.max.bytes bounds records, not the client.
LARGEST_RECORD_BYTES = 1 << 30
REQUEST_TIMEOUT_MS = 15_000
DELIVERY_TIMEOUT_MS = 30_000
CONFIRM_TIMEOUT_S = 60
CONFIRM_AFTER_FAILURE_S = 2
UNCONFIRMED_LIMIT = 10_000
RECORDS_PER_REPORT = 1_000
# At a terminal, a line is acknowledged before the next one is read.
UNCONFIRMED_LIMIT_AT_TERMINAL = 1


@click.command()
@bootstrap_option
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "-i", "--input", "source", type=click.File("rb"), default="-", help="File of lines; - for standard input."
)
@click.option("--json", "as_json", is_flag=True, help="Lines are JSON objects, as `consume --json` prints them.")
@click.option("--key", help="Key of every record.")
@click.option("--key-separator", help="Split each line into key and value at the first occurrence of this text.")
@click.option("--null-marker", help="A key or value that is exactly this text is written as null.")
@write_options
@click.option(
    "-p", "--partition", type=click.IntRange(min=0), help="Write to this partition; if not given, the key decides."
)
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header for every record.")
@click.option("--timestamp", "timestamp_ms", type=TimeType(), help="Time of every record; if not given, now.")
@click.option("--keep-timestamps", is_flag=True, help="With --json, records have the timestamp_ms of their lines.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="At most this number of records per second.")
@click.option("--compression", type=click.Choice(["gzip", "snappy", "lz4", "zstd"]), help="Compress batches.")
@click.option("--transactional-id", help="Write all records in transactions of this producer.")
@click.option(
    "--transaction-size",
    type=click.IntRange(min=1),
    help="Records per transaction; if not given, one transaction for all.",
)
@click.option("--abort", is_flag=True, help="Abort the transactions instead of committing them.")
def produce(
    bootstrap: str,
    topic: str,
    source: BinaryIO,
    as_json: bool,
    key: str | None,
    key_separator: str | None,
    null_marker: str | None,
    partition: int | None,
    headers: tuple[str, ...],
    timestamp_ms: int | None,
    keep_timestamps: bool,
    rate: float | None,
    compression: str | None,
    transactional_id: str | None,
    transaction_size: int | None,
    abort: bool,
) -> None:
    """Write lines of standard input, or of a file, to a topic.

    Each line becomes a record, byte by byte without its newline. A missing topic is created, unless the broker's
    auto.create.topics.enable is false.
    """
    if (abort or transaction_size) and transactional_id is None:
        raise click.UsageError("--abort and --transaction-size need --transactional-id")
    _check_lines(key, key_separator, null_marker, as_json=as_json)
    if keep_timestamps and (not as_json or timestamp_ms is not None):
        raise click.UsageError("--keep-timestamps is for --json, whose lines have times, and goes without --timestamp")
    common_headers = tuple(_header(pair) for pair in headers)
    separator = None if key_separator is None else os.fsencode(key_separator)
    marker = None if null_marker is None else os.fsencode(null_marker)
    written = current_writer(topic)
    common_key = None if key is None or key == null_marker else _common_key(written, key)

    def read(line: bytes) -> Content:
        if as_json:
            content = from_json(line, keep_time=keep_timestamps, convert=written.of_json)
        else:
            content = written.of_line(from_line(line, separator, marker))
        if common_key is not None:
            content = content._replace(key=common_key)
        where = content.partition if partition is None else partition
        time_ms = content.timestamp_ms if timestamp_ms is None else timestamp_ms
        return content._replace(partition=where, headers=(*common_headers, *content.headers), timestamp_ms=time_ms)

    with kafka_errors(bootstrap):
        from kafka import KafkaProducer
        from kafka.errors import KafkaTimeoutError

        producer = KafkaProducer(
            **client_options(bootstrap),
            transactional_id=transactional_id,
            compression_type=compression,
            linger_ms=5,
            max_request_size=LARGEST_RECORD_BYTES,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        close_timeout_s = CONFIRM_AFTER_FAILURE_S
        try:
            typed = source.isatty()
            writer: _Writer = (
                _Writer(producer, topic, typed)
                if transactional_id is None
                else _TransactionalWriter(producer, topic, typed, transaction_size, abort)
            )
            with _Stopping() as stopping:
                lines = _lines(source, skip_blank=as_json)
                writer.write(stopping.guarded(lines if rate is None else _paced(lines, rate)), read)
            close_timeout_s = CONFIRM_TIMEOUT_S
        finally:
            with suppress(KafkaTimeoutError):
                producer.close(close_timeout_s)
    click.echo(writer.outcome, err=True)
    if stopping.signal_number is not None:
        sys.exit(EXIT_AFTER_SIGNAL + stopping.signal_number)


class _Stopping:
    """Handler that lets Ctrl-C and SIGTERM end the input only: lines that were read are written, transactions end.

    A second signal interrupts that, too.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._is_reading = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def guarded(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """The lines up to a signal; it raises KeyboardInterrupt where the next one is asked for."""
        iterator = iter(lines)
        while True:
            self._is_reading = True
            try:
                if self.signal_number is not None:
                    raise KeyboardInterrupt
                line = next(iterator, None)
            finally:
                self._is_reading = False
            if line is None:
                return
            yield line

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        is_second = self.signal_number is not None
        self.signal_number = number
        if self._is_reading or is_second:
            raise KeyboardInterrupt


class _Writer:
    """Sends records and waits for their acknowledgements. `outcome` describes the result for the user.

    typed: the lines come from a person at a terminal.
    """

    def __init__(self, producer: Any, topic: str, typed: bool) -> None:
        self._producer = producer
        self._topic = topic
        self._typed = typed
        self._unconfirmed: list[tuple[int, Any]] = []
        self._unconfirmed_limit = UNCONFIRMED_LIMIT_AT_TERMINAL if typed else UNCONFIRMED_LIMIT
        self._count = 0
        self._confirmed_count = 0

    @property
    def outcome(self) -> str:
        return f"{_records(self._confirmed_count)} written"

    def write(self, lines: Iterable[tuple[int, bytes]], read: Callable[[bytes], Content]) -> None:
        """Write all lines as records, or those before a KeyboardInterrupt that reading a line raises.

        Raises ClickException with the number of the wrong line; later lines are not written.
        """
        try:
            self._write(lines, read)
        except KeyboardInterrupt:
            self._stop()

    def _write(self, lines: Iterable[tuple[int, bytes]], read: Callable[[bytes], Content]) -> None:
        if self._typed:
            click.echo("One record a line; Ctrl-D ends.", err=True)
        with progress(f"writing to {self._topic}", total=None, shown=not self._typed) as bar:
            for number, line in lines:
                try:
                    content = read(line)
                except ValueError as error:
                    self._confirm()  # the lines before it
                    raise self._failure(number, str(error)) from None
                self._before_record()
                self._send(number, content)
                self._count += 1
                if self._count % RECORDS_PER_REPORT == 0:
                    bar.advance(RECORDS_PER_REPORT)
                self._after_record()
                if len(self._unconfirmed) >= self._unconfirmed_limit:
                    self._confirm()
            bar.advance(self._count % RECORDS_PER_REPORT)
            self._finish()

    def _send(self, number: int, content: Content) -> None:
        if content.partition is not None:
            self._check_partition(number, content.partition)
        future = self._producer.send(
            self._topic,
            key=content.key,
            value=content.value,
            partition=content.partition,
            headers=list(content.headers) or None,
            timestamp_ms=content.timestamp_ms,
        )
        self._unconfirmed.append((number, future))

    def _check_partition(self, number: int, partition: int) -> None:
        partitions = self._producer.partitions_for(self._topic)
        if partition not in partitions:
            self._confirm()  # the lines before it
            raise self._failure(number, f"topic {self._topic!r} has no partition {partition}; it has {len(partitions)}")

    def _before_record(self) -> None:
        """Begin a transaction here, if none is open."""

    def _after_record(self) -> None:
        """End the transaction here, if it has its size."""

    def _finish(self) -> None:
        self._confirm()

    def _stop(self) -> None:
        """Finish after Ctrl-C: the lines that were read are still written."""
        self._finish()

    def _confirm(self) -> None:
        """Wait for all acknowledgements. Raises ClickException for the first line that was refused, after counting the
        others."""
        from kafka.errors import KafkaError

        failure: tuple[int, Exception] | None = None
        deadline_s = time.monotonic() + CONFIRM_TIMEOUT_S
        for number, future in self._unconfirmed:
            try:
                future.get(timeout=max(0, deadline_s - time.monotonic()))
            except KafkaError as error:
                if failure is None:
                    failure = (number, error)
                    # Later records of the same partition are refused until they time out in the client.
                    deadline_s = time.monotonic() + CONFIRM_AFTER_FAILURE_S
            else:
                self._confirmed_count += 1
        self._unconfirmed.clear()
        if failure is not None:
            number, cause = failure
            raise self._failure(number, _reason(cause)) from cause

    def _failure(self, number: int, reason: str) -> click.ClickException:
        return click.ClickException(f"line {number}: {reason} ({self.outcome})")


class _TransactionalWriter(_Writer):
    """Sends records in transactions of `size` records, or in one; commits or aborts each."""

    def __init__(self, producer: Any, topic: str, typed: bool, size: int | None, aborts: bool) -> None:
        super().__init__(producer, topic, typed)
        self._size = size
        self._aborts = aborts
        self._is_open = False
        self._is_cut_short = False
        self._transactions_count = 0
        self._settled_count = 0

    @property
    def outcome(self) -> str:
        outcome = "aborted" if self._aborts else "committed"
        transactions = f"{self._transactions_count} transaction{'s' if self._transactions_count != 1 else ''}"
        rest = "; the last one was not complete and is aborted" if self._is_cut_short else ""
        return f"{_records(self._settled_count)} written and {outcome} in {transactions}{rest}"

    def _write(self, lines: Iterable[tuple[int, bytes]], read: Callable[[bytes], Content]) -> None:
        self._producer.init_transactions()
        try:
            super()._write(lines, read)
        except click.ClickException:
            self._stop()
            raise

    def _stop(self) -> None:
        # An open transaction would block read_committed consumers until it times out.
        if self._is_open:
            self._producer.abort_transaction()
            self._is_open = False
            self._is_cut_short = True

    def _before_record(self) -> None:
        if not self._is_open:
            self._producer.begin_transaction()
            self._is_open = True

    def _after_record(self) -> None:
        if self._size is not None and self._count % self._size == 0:
            self._settle()

    def _finish(self) -> None:
        if self._is_open:
            self._settle()

    def _settle(self) -> None:
        # An abort drops unsent records, and these are to be written to the log.
        self._confirm()
        if self._aborts:
            self._producer.abort_transaction()
        else:
            self._producer.commit_transaction()
        self._is_open = False
        self._transactions_count += 1
        self._settled_count = self._count


def _reason(error: Exception) -> str:
    from kafka.errors import BrokerResponseError

    if isinstance(error, BrokerResponseError):
        return describe_error(error)
    return f"it was not acknowledged: {error or type(error).__name__}"


def _records(count: int) -> str:
    return f"{count} record{'s' if count != 1 else ''}"


def _paced(lines: Iterator[tuple[int, bytes]], rate: float) -> Iterator[tuple[int, bytes]]:
    """The lines, at most `rate` per second: each waits for its time."""
    started_s = time.monotonic()
    for count, line in enumerate(lines):
        wait_s = started_s + count / rate - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        yield line


def _lines(source: BinaryIO, *, skip_blank: bool) -> Iterator[tuple[int, bytes]]:
    """The lines without their newlines, each with its number from 1."""
    for number, line in enumerate(source, start=1):
        if not skip_blank or line.strip():
            yield number, line.removesuffix(b"\n")


def _check_lines(key: str | None, key_separator: str | None, null_marker: str | None, *, as_json: bool) -> None:
    """Raise UsageError for options that contradict each other about the lines."""
    if as_json and (key_separator is not None or null_marker is not None):
        raise click.UsageError("--json says what is key and what is null; leave out --key-separator and --null-marker")
    if key is not None and (as_json or key_separator is not None):
        raise click.UsageError("--key goes with neither --json nor --key-separator, whose lines have their own keys")
    if key_separator == "":
        raise click.BadParameter("it must have at least one character", param_hint="--key-separator")


def _common_key(written: ValueWriter, key: str) -> bytes | None:
    try:
        return written.of_text("key", os.fsencode(key))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--key") from None


def _header(pair: str) -> tuple[str, bytes]:
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--header")
    return name, os.fsencode(value)
