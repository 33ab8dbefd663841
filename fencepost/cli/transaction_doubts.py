"""The check-back's state of transactions in doubt, and the commands of administrators, in its two topics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from fencepost.broker.kernel.printable import printable
from fencepost.cli.console_client import ask_cluster
from fencepost.cli.output import format_time

if TYPE_CHECKING:
    from fencepost.check_back.records import Entry, Journal
    from fencepost.diagnosis.stuck import CoordinatorView
    from fencepost.two_phase import Token

COLUMNS: Final = ("resolver", "checks", "last_answer", "next_question", "parked")
WAIT_S: Final = 10.0
PAUSE_S: Final = 0.2


def read_journal(bootstrap: str) -> tuple[Journal, list[str]]:
    """The content of `__fencepost_check_back`; empty if no check-back has run on this cluster, or it cannot be read.

    With it the parts that could not be read, as sentences. Raises ClickException.
    """
    from fencepost.console.reading.in_doubt import InDoubt, left_out_sentences, read_check_back_journal

    found = InDoubt()
    journal = ask_cluster(bootstrap, lambda cluster: read_check_back_journal(cluster, found))
    for sentence in left_out_sentences(journal):  # they are about no transaction, so nothing is missing
        click.echo(f"Warning: {printable(sentence)}", err=True)
    return journal, [sentence.removesuffix(".") for sentence in found.missing]


def columns_of(view: CoordinatorView, journal: Journal) -> dict[str, Any] | None:
    """The cells of COLUMNS for one transaction, none if nobody is asked about it; None if it is not in doubt."""
    from fencepost.console.in_doubt import doubts

    found = doubts([view], journal, int(time.time() * 1000))
    if not found:
        return None
    (doubt,) = found
    if doubt.resolver is None:
        return {}
    return {
        "resolver": doubt.resolver,
        "checks": doubt.checks,
        "last_answer": doubt.last_answer,
        "next_question": None if doubt.next_ms is None else format_time(doubt.next_ms),
        "parked": "yes" if doubt.is_parked else "no",
    }


def ask_again(bootstrap: str, transactional_id: str) -> str:
    """Have the source of an open transaction asked now; return the result in words. Raises ClickException."""
    from fencepost.check_back.records import ASK_AGAIN, Command, command_entry, resolver_of

    journal, missing = read_journal(bootstrap)
    if missing:
        raise click.ClickException("; ".join(missing))
    resolver = resolver_of(journal, transactional_id)
    if resolver is None:
        raise click.ClickException(
            f"no check-back asks about {transactional_id}: no resolver names it. Give the broker, or `fencepost "
            "check-back`, one whose fencepost.check.back.NAME.ids match it"
        )
    command = Command(transactional_id, ASK_AGAIN, None, int(time.time() * 1000))
    write(bootstrap, [command_entry(command)])
    give_up_at_s = time.monotonic() + WAIT_S
    while time.monotonic() < give_up_at_s:
        now, unread = read_journal(bootstrap)
        if not unread and not any(one.transactional_id == transactional_id for one in now.commands):
            return f"the source {resolver} is asked about {transactional_id} now"
        time.sleep(PAUSE_S)
    raise click.ClickException(
        f"no check-back has taken this up within {WAIT_S:g} s: is the broker, or `fencepost check-back`, running with "
        f"the resolver {resolver}? It asks when it starts"
    )


def record_decision(bootstrap: str, admin: Any, token: Token, started_ms: int, *, commit: bool) -> None:
    """Record that an administrator ends a transaction, where a check-back runs. Raises ClickException: then it must not
    be ended.
    """
    from fencepost.check_back.question import Question
    from fencepost.check_back.records import (
        AUDIT_TOPIC,
        STATE_TOPIC,
        Command,
        administrator_entry,
        command_entry,
    )

    topics = set(admin.list_topics())
    word = "commit" if commit else "abort"
    now_ms = int(time.time() * 1000)
    described = admin.describe_transactions([token.transactional_id])[token.transactional_id]
    places = tuple(sorted((place.topic, place.partition) for place in described.topic_partitions))
    entries: list[Entry] = []
    if AUDIT_TOPIC in topics:
        entries.append(administrator_entry(Question(token, started_ms, places), word, now_ms))
    if STATE_TOPIC in topics:
        entries.append(command_entry(Command(token.transactional_id, word, str(token), now_ms)))
    if entries:
        write(bootstrap, entries)


def write(bootstrap: str, entries: Sequence[Entry]) -> None:
    """Write records and wait until they are durable. Raises ClickException."""
    from fencepost.check_back.kafka_topics import KafkaJournal
    from fencepost.check_back.ports import Unavailable

    try:
        ask_cluster(bootstrap, lambda cluster: KafkaJournal(cluster).write(entries))
    except Unavailable as error:
        topics = " or ".join(dict.fromkeys(entry.topic for entry in entries))
        raise click.ClickException(f"{topics} could not be written, so nothing was done: {error.reason}") from None
