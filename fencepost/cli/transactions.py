"""`fencepost transactions`: shows transactions and producers, says why a partition is stuck, ends transactions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC
from fencepost.cli import transaction_doubts
from fencepost.cli.completion import topic_names, transactional_ids
from fencepost.cli.connection import admin_client, bootstrap_option, json_option, no_such
from fencepost.cli.incomplete import print_or_fail, unserved
from fencepost.cli.output import Done, format_time, print_done, print_rows
from fencepost.cli.times import DurationType
from fencepost.cli.transaction_ends import PairType, abort_on_partition, end_transaction, ends, fence
from fencepost.diagnosis.stuck import OPEN_STATES, UNLIMITED_TIMEOUT_MS, CoordinatorView

if TYPE_CHECKING:
    from fencepost.check_back.records import Journal

STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]


@click.group()
def transactions() -> None:
    """Show transactions and producers, end transactions."""


@transactions.command("list")
@bootstrap_option
@json_option
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="Only transactions in this state.")
@click.option(
    "--in-doubt",
    is_flag=True,
    help="Only open transactions of two-phase commit, which time never ends, and those of a check-back's resolvers.",
)
@click.option(
    "--older-than", "age_ms", type=DurationType(), help="Only open transactions older than, for example, 10m."
)
@click.option("--hanging", is_flag=True, help="Only open transactions of partitions that no coordinator knows.")
def list_transactions(
    bootstrap: str, as_json: bool, states: tuple[str, ...], in_doubt: bool, age_ms: int | None, hanging: bool
) -> None:
    """List transactional ids and their states.

    Hanging transactions are listed by partition, as they have no transactional id: `transactions abort-hanging` ends
    them. Those in doubt are listed with their state in the check-back, if one runs.
    """
    if hanging:
        if states or in_doubt:
            raise click.UsageError("--hanging goes with --older-than alone: no coordinator knows such a transaction")
        _list_hanging(bootstrap, age_ms or 0, as_json=as_json)
        return
    with admin_client(bootstrap) as admin:
        listed = admin.list_transactions(state_filters=list(states) or None)
        rows = [
            {
                "transactional_id": listing.transactional_id,
                "producer_id": listing.producer_id,
                "state": listing.state.value,
                "coordinator": node_id,
            }
            for node_id, listings in listed.items()
            for listing in listings
        ]
        columns = ["transactional_id", "producer_id", "state", "coordinator"]
        missing = unserved(bootstrap, TRANSACTION_STATE_TOPIC)
        if in_doubt or age_ms is not None:
            columns += ["producer_epoch", "age_ms", "timeout_ms", "partitions"]
            journal = None
            if in_doubt:
                journal, unread = transaction_doubts.read_journal(bootstrap)
                missing += unread
            rows = _open_rows(admin, rows, journal, age_ms=age_ms or 0)
        if in_doubt:
            columns += transaction_doubts.COLUMNS
    empty = f"no transactional id is {' or '.join(states)}" if states else "no transactional ids yet"
    if in_doubt or age_ms is not None:
        empty = "no such transaction is open"
    rows.sort(key=lambda row: str(row["transactional_id"]))
    print_or_fail(columns, rows, missing, as_json=as_json, empty=empty)


def _list_hanging(bootstrap: str, age_ms: int, *, as_json: bool) -> None:
    from fencepost.cli.stuck_partition import hanging_transactions

    found, missing = hanging_transactions(bootstrap)
    rows = [row for row in found if row["age_ms"] >= age_ms]
    columns = ["topic", "partition", "producer_id", "producer_epoch", "start_offset", "age_ms"]
    print_or_fail(columns, rows, missing, as_json=as_json, empty="no transaction hangs")


def _open_rows(admin: Any, rows: list[dict[str, Any]], journal: Journal | None, *, age_ms: int) -> list[dict[str, Any]]:
    """Those of the rows whose transaction is open and as old, with more columns; of a check-back's journal, those in
    doubt.
    """
    from kafka.errors import TransactionalIdNotFoundError

    found = []
    now_ms = int(time.time() * 1000)
    for row in rows:
        if row["state"] not in OPEN_STATES:
            continue
        name = row["transactional_id"]
        try:
            described = admin.describe_transactions([name])[name]
        except TransactionalIdNotFoundError:  # it has expired since
            continue
        since_ms = now_ms - described.transaction_start_time_ms
        if described.state.value not in OPEN_STATES or since_ms < age_ms:
            continue
        places = sorted((place.topic, place.partition) for place in described.topic_partitions)
        view = CoordinatorView(
            name,
            described.state.value,
            described.producer_id,
            described.producer_epoch,
            described.transaction_timeout_ms,
            described.transaction_start_time_ms,
            places,
        )
        doubts = {} if journal is None else transaction_doubts.columns_of(view, journal)
        if doubts is None:
            continue
        found.append(
            {
                **row,
                **doubts,
                "producer_epoch": described.producer_epoch,
                "age_ms": max(0, since_ms),
                "timeout_ms": described.transaction_timeout_ms,
                "partitions": [f"{topic}-{partition}" for topic, partition in places],
            }
        )
    return found


@transactions.command()
@bootstrap_option
@json_option
@click.argument("transactional_id", shell_complete=transactional_ids)
def describe(bootstrap: str, as_json: bool, transactional_id: str) -> None:
    """Show one transactional id with its partitions."""
    with admin_client(bootstrap) as admin:
        found = _described(admin, transactional_id)
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
@click.argument("topic", shell_complete=topic_names)
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
@json_option
@click.argument("topic", shell_complete=topic_names)
@click.argument("partition", type=click.IntRange(min=0))
@click.option(
    "--broker-http",
    metavar="URL",
    help="HTTP listener of a Fencepost broker, which knows the client behind; several, with commas between.",
)
@click.option(
    "--broker-http-token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File with the token for it.",
)
def why(
    bootstrap: str,
    as_json: bool,
    topic: str,
    partition: int,
    broker_http: str | None,
    broker_http_token_file: Path | None,
) -> None:
    """Say why read_committed consumers of a partition wait.

    One sentence; the chain from the partition to the transactional id and the client; each remedy with its command.
    """
    from fencepost.cli.stuck_partition import show_why

    try:
        token = broker_http_token_file.read_text(encoding="utf-8").strip() if broker_http_token_file else None
    except OSError as error:
        raise click.ClickException(str(error)) from None
    show_why(bootstrap, topic, partition, (broker_http, token), as_json=as_json)


@transactions.command()
@bootstrap_option
@json_option
@click.argument("transactional_id", shell_complete=transactional_ids)
@click.option("--pair", type=PairType(), help="Only if this producer id and epoch wrote it.")
@ends("This commits the open transaction in the place of its producer. Continue?")
def commit(
    bootstrap: str, as_json: bool, transactional_id: str, pair: tuple[int, int] | None, reason: str | None
) -> None:
    """Commit the open transaction of a transactional id.

    For a transaction in doubt, whose application has decided and is gone: the records become visible. It is refused if
    a later session keeps the transaction. Until it ends, its producer may still add records: stop that before.
    """
    print_done(end_transaction(bootstrap, transactional_id, pair, reason, commit=True), as_json=as_json)


@transactions.command()
@bootstrap_option
@json_option
@click.argument("transactional_id", shell_complete=transactional_ids)
@click.option("--pair", type=PairType(), help="Only if this producer id and epoch wrote it.")
@ends("This aborts the open transaction in the place of its producer. Continue?")
def abort(
    bootstrap: str, as_json: bool, transactional_id: str, pair: tuple[int, int] | None, reason: str | None
) -> None:
    """Abort the open transaction of a transactional id.

    The whole of it, through its coordinator. It is refused if a later session keeps the transaction: `terminate` aborts
    that, too.
    """
    print_done(end_transaction(bootstrap, transactional_id, pair, reason, commit=False), as_json=as_json)


@transactions.command("ask-again")
@bootstrap_option
@json_option
@click.argument("transactional_id", shell_complete=transactional_ids)
def ask_again(bootstrap: str, as_json: bool, transactional_id: str) -> None:
    """Have the source of a transaction in doubt asked at once.

    Also if it is parked, because its source has not known the outcome for too long. Its checks are counted from 0.
    """
    with admin_client(bootstrap) as admin:
        state = _described(admin, transactional_id).state.value
        if state != "Ongoing":
            raise click.ClickException(
                f"{transactional_id} has no open transaction; the last state of its coordinator is {state}"
            )
        words = transaction_doubts.ask_again(bootstrap, transactional_id)
    print_done(Done(words, {"transactional_id": transactional_id, "asked": True}), as_json=as_json)


@transactions.command()
@bootstrap_option
@json_option
@click.argument("transactional_id", shell_complete=transactional_ids)
@ends("This fences the producer of this id and aborts its transaction. Continue?")
def terminate(bootstrap: str, as_json: bool, transactional_id: str, reason: str | None) -> None:
    """Abort an open transaction and fence its producer.

    By a new session, as a new producer with this id begins one: the next request of the present producer is refused.
    """
    with admin_client(bootstrap) as admin:
        found = _described(admin, transactional_id)
        if found.state.value not in OPEN_STATES:
            raise click.ClickException(
                f"{transactional_id} has no open transaction; the last state of its coordinator is {found.state.value}"
            )
    # Only a client of two phases may ask for no time-out.
    timeout_ms = 60_000 if found.transaction_timeout_ms == UNLIMITED_TIMEOUT_MS else found.transaction_timeout_ms
    fence(bootstrap, transactional_id, timeout_ms, (found.producer_id, found.producer_epoch), reason)
    # An earlier decision is carried out.
    is_commit = found.state.value == "PrepareCommit"
    done = "completed the commit" if is_commit else "aborted the transaction"
    fields = {
        "transactional_id": transactional_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "outcome": "committed" if is_commit else "aborted",
    }
    print_done(Done(f"{done} of {transactional_id}, and fenced its producer", fields), as_json=as_json)


@transactions.command("abort-hanging")
@bootstrap_option
@json_option
@click.argument("topic", shell_complete=topic_names)
@click.argument("partition", type=click.IntRange(min=0))
@click.option("--producer-id", type=int, help="Producer of the transaction; see `transactions producers`.")
@click.option("--start-offset", type=click.IntRange(min=0), help="Or the transaction's start: the last stable offset.")
@click.option("--force", is_flag=True, help="Abort it here even if its coordinator knows it, which tears it apart.")
@ends("This aborts the transaction on this partition only, without its coordinator. Continue?")
def abort_hanging(
    bootstrap: str,
    as_json: bool,
    topic: str,
    partition: int,
    producer_id: int | None,
    start_offset: int | None,
    force: bool,
    reason: str | None,
) -> None:
    """Abort a hanging transaction on one partition.

    For a transaction that no coordinator will end: the last stable offset no longer moves. One that its coordinator
    knows is refused.
    """
    from kafka import TopicPartition

    if (producer_id is None) == (start_offset is None):
        raise click.UsageError("say whose transaction: --producer-id or --start-offset, one of them")
    place = TopicPartition(topic, partition)
    where = f"{topic}-{partition}"
    with admin_client(bootstrap) as admin:
        described = admin.describe_producers([place])
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
        if not force:
            away = unserved(bootstrap, TRANSACTION_STATE_TOPIC)
            if away:
                raise click.ClickException(
                    f"nobody can say whether the transaction hangs: {'; '.join(away)}. Its coordinator may know it and "
                    "commit it once it is back; --force aborts it on this partition all the same"
                )
            _refuse_known(admin, producer.producer_id, place)
    abort_on_partition(bootstrap, topic, partition, producer, reason)
    fields = {
        "topic": topic,
        "partition": partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "start_offset": producer.current_transaction_start_offset,
    }
    print_done(Done(f"aborted the transaction of producer {producer.producer_id} on {where}", fields), as_json=as_json)


def _refuse_known(admin: Any, producer_id: int, place: Any) -> None:
    """Raise ClickException if a coordinator knows the open transaction of this producer, with this partition."""
    listed = admin.list_transactions(producer_id_filters=[producer_id], state_filters=sorted(OPEN_STATES))
    for listing in (listing for listings in listed.values() for listing in listings):
        found = _described(admin, listing.transactional_id)
        if found.producer_id == producer_id and place in found.topic_partitions:
            raise click.ClickException(
                f"the transaction is not hanging: its coordinator knows it as that of {listing.transactional_id}, "
                f"{found.state.value}, and will end it within its timeout of {found.transaction_timeout_ms} ms. "
                f"`fencepost transactions terminate {listing.transactional_id}` aborts all of it now; "
                "--force aborts it on this partition alone"
            )


def _described(admin: Any, transactional_id: str) -> Any:
    """Describe a transactional id. Raises ClickException if it does not exist."""
    from kafka.errors import TransactionalIdNotFoundError

    try:
        return admin.describe_transactions([transactional_id])[transactional_id]
    except TransactionalIdNotFoundError:
        no_such("transactional id", transactional_id, "transactions")
