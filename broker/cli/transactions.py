"""`fencepost transactions`: shows transactional ids and the producers of a partition, aborts hanging transactions."""

from __future__ import annotations

import time

import click

from fencepost.broker.cli.connection import admin_client, bootstrap_option, json_option, no_such
from fencepost.broker.cli.output import format_time, print_rows

STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]


@click.group()
def transactions() -> None:
    """Show transactions and producers, abort hanging ones."""


@transactions.command("list")
@bootstrap_option
@json_option
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="Only transactions in this state.")
def list_transactions(bootstrap: str, as_json: bool, states: tuple[str, ...]) -> None:
    """List transactional ids and their states."""
    with admin_client(bootstrap) as admin:
        listed = admin.list_transactions(state_filters=list(states) or None)
    rows = sorted(
        (
            {
                "transactional_id": listing.transactional_id,
                "producer_id": listing.producer_id,
                "state": listing.state.value,
                "coordinator": node_id,
            }
            for node_id, listings in listed.items()
            for listing in listings
        ),
        key=lambda row: str(row["transactional_id"]),
    )
    print_rows(
        ["transactional_id", "producer_id", "state", "coordinator"],
        rows,
        as_json=as_json,
        empty=f"no transactional id is {' or '.join(states)}" if states else "no transactional ids yet",
    )


@transactions.command()
@bootstrap_option
@json_option
@click.argument("transactional_id")
def describe(bootstrap: str, as_json: bool, transactional_id: str) -> None:
    """Show one transactional id with its partitions."""
    from kafka.errors import TransactionalIdNotFoundError

    with admin_client(bootstrap) as admin:
        try:
            found = admin.describe_transactions([transactional_id])[transactional_id]
        except TransactionalIdNotFoundError:
            no_such("transactional id", transactional_id, "transactions")
    started_ms = found.transaction_start_time_ms
    row = {
        "transactional_id": transactional_id,
        "state": found.state.value,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "started": format_time(started_ms),
        "age_ms": int(time.time() * 1000) - started_ms if started_ms >= 0 else None,
        "partitions": [f"{partition.topic}-{partition.partition}" for partition in sorted(found.topic_partitions)],
    }
    print_rows(list(row), [row], as_json=as_json)


@transactions.command()
@bootstrap_option
@json_option
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
def producers(bootstrap: str, as_json: bool, topic: str, partition: int) -> None:
    """Show the producers whose state a partition keeps.

    With the start offset of each one's open transaction, if it has one.
    """
    from kafka import TopicPartition

    with admin_client(bootstrap) as admin:
        described = admin.describe_producers([TopicPartition(topic, partition)])
    rows = [
        {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "last_sequence": producer.last_sequence,
            "last_write": format_time(producer.last_timestamp),
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_start_offset": (
                producer.current_transaction_start_offset if producer.current_transaction_start_offset >= 0 else None
            ),
        }
        for state in described.values()
        for producer in state.active_producers
    ]
    print_rows(
        [
            "producer_id",
            "producer_epoch",
            "last_sequence",
            "last_write",
            "coordinator_epoch",
            "transaction_start_offset",
        ],
        rows,
        as_json=as_json,
        empty="no producers",
    )


@transactions.command()
@bootstrap_option
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.option("--producer-id", type=int, help="Producer of the transaction; see `transactions producers`.")
@click.option("--start-offset", type=click.IntRange(min=0), help="Or the transaction's start: the last stable offset.")
@click.confirmation_option(
    "--yes", prompt="This aborts the transaction on this partition only, without its coordinator. Continue?"
)
def abort(bootstrap: str, topic: str, partition: int, producer_id: int | None, start_offset: int | None) -> None:
    """Abort a hanging transaction on one partition.

    For a transaction that no coordinator will end: the last stable offset no longer moves.
    """
    from kafka import TopicPartition
    from kafka.admin import AbortTransactionSpec

    if (producer_id is None) == (start_offset is None):
        raise click.UsageError("say whose transaction: --producer-id or --start-offset, one of them")
    where = f"{topic}-{partition}"
    with admin_client(bootstrap) as admin:
        described = admin.describe_producers([TopicPartition(topic, partition)])
        producer = next(
            (
                producer
                for state in described.values()
                for producer in state.active_producers
                if producer.current_transaction_start_offset >= 0
                and (producer.producer_id == producer_id or producer.current_transaction_start_offset == start_offset)
            ),
            None,
        )
        if producer is None:
            missing = (
                f"producer {producer_id} has no open transaction on {where}"
                if start_offset is None
                else f"no open transaction begins at offset {start_offset} of {where}"
            )
            raise click.ClickException(
                f"{missing}; `fencepost transactions producers {topic} {partition}` shows which there are"
            )
        # A producer whose partition has no marker yet has coordinator epoch -1; every coordinator's is 0 or more.
        admin.abort_transaction(
            AbortTransactionSpec(
                TopicPartition(topic, partition),
                producer.producer_id,
                producer.producer_epoch,
                max(0, producer.coordinator_epoch),
            )
        )
    click.echo(f"aborted the transaction of producer {producer.producer_id} on {where}")
