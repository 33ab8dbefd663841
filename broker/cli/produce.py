"""`fencepost produce`: write lines of standard input to a topic, also as one transaction."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from broker.cli.connection import bootstrap_option, client_options, kafka_errors
from broker.cli.output import progress


@click.command()
@bootstrap_option
@click.argument("topic")
@click.option("--key-separator", help="Split each line into key and value at the first occurrence of this text.")
@click.option("--partition", type=click.IntRange(min=0), help="Write to this partition; chosen by key when not given.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header for every record.")
@click.option("--compression", type=click.Choice(["gzip", "snappy", "lz4", "zstd"]), help="Compress batches.")
@click.option("--transactional-id", help="Write everything in transactions of this producer.")
@click.option(
    "--transaction-size", type=click.IntRange(min=1), help="Records per transaction; one for all when not given."
)
@click.option("--abort", is_flag=True, help="Abort the transactions instead of committing them.")
def produce(
    bootstrap: str,
    topic: str,
    key_separator: str | None,
    partition: int | None,
    headers: tuple[str, ...],
    compression: str | None,
    transactional_id: str | None,
    transaction_size: int | None,
    abort: bool,
) -> None:
    """Write the lines of standard input to TOPIC, one record a line."""
    from kafka import KafkaProducer

    if (abort or transaction_size) and transactional_id is None:
        raise click.UsageError("--abort and --transaction-size need --transactional-id")
    record_headers = [_header(pair) for pair in headers]
    with kafka_errors(bootstrap):
        producer = KafkaProducer(
            **client_options(bootstrap), transactional_id=transactional_id, compression_type=compression, linger_ms=5
        )
        try:
            count = _write(
                producer, topic, key_separator, partition, record_headers, transactional_id, transaction_size, abort
            )
        finally:
            producer.close()
    outcome = "written"
    if transactional_id is not None:
        outcome += " and aborted" if abort else " and committed"
    click.echo(f"{count} record{'s' if count != 1 else ''} {outcome}", err=True)


def _write(
    producer: Any,
    topic: str,
    key_separator: str | None,
    partition: int | None,
    headers: list[tuple[str, bytes]],
    transactional_id: str | None,
    transaction_size: int | None,
    abort: bool,
) -> int:
    def finish() -> None:
        if abort:
            producer.abort_transaction()
        else:
            producer.commit_transaction()

    count = 0
    in_transaction = False
    if transactional_id is not None:
        producer.init_transactions()
    unconfirmed = []
    with progress(f"writing to {topic}", total=None) as shown:
        for line in _lines():
            if transactional_id is not None and not in_transaction:
                producer.begin_transaction()
                in_transaction = True
            key, value = None, line
            if key_separator is not None and key_separator.encode() in line:
                key, value = line.split(key_separator.encode(), 1)
            unconfirmed.append(producer.send(topic, value=value, key=key, partition=partition, headers=headers or None))
            count += 1
            shown.advance(1)
            if in_transaction and transaction_size is not None and count % transaction_size == 0:
                finish()
                in_transaction = False
            if len(unconfirmed) >= 10_000:
                _confirm(unconfirmed)
        if in_transaction:
            if count:
                producer.flush()
                _confirm(unconfirmed)
            finish()
        producer.flush()
        _confirm(unconfirmed)
    return count


def _confirm(unconfirmed: list[Any]) -> None:
    for future in unconfirmed:
        future.get(timeout=60)
    unconfirmed.clear()


def _lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.rstrip(b"\n")


def _header(pair: str) -> tuple[str, bytes]:
    name, equals, value = pair.partition("=")
    if not equals:
        raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--header")
    return name, value.encode()
