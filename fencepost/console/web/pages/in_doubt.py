"""In doubt: transactions that wait for a decision, the state of the check-back of each, and decisions by a person."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fencepost.check_back.decided import sink_of
from fencepost.check_back.question import Question
from fencepost.check_back.records import ASK_AGAIN, Command, administrator_entry, command_entry
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClusterError, RefusedError, check
from fencepost.client.view import CoordinatorKind
from fencepost.console.in_doubt import doubts, token_of
from fencepost.console.reading.decided_batches import UnfinishedBatch, read_unfinished
from fencepost.console.reading.in_doubt import (
    InDoubt,
    left_out_sentences,
    read_audit,
    read_check_back_journal,
    read_in_doubt,
    write_entry,
)
from fencepost.console.reading.transactions import describe_transaction, describe_transactions, list_transactions
from fencepost.console.web.changes import Change, Form, PartlyDoneError, change, field_of, in_turn, reason_of
from fencepost.console.web.listing import Listing
from fencepost.console.web.pages.transactions import world_of
from fencepost.console.web.visit import BadFormError, Page, Visit, whole_number, with_query
from fencepost.diagnosis.in_doubt import Doubt
from fencepost.diagnosis.stuck import ONGOING, CoordinatorView
from fencepost.diagnosis.words import counted
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import EndTxnRequest

Perform = Callable[[], Awaitable[str]]

ENDS_WITHIN_S = 10.0
PAUSE_S = 0.05
AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
DECIDED = {"commit": "committed", "abort": "aborted"}


@dataclass(frozen=True)
class DoubtRow:
    """A transaction in doubt. held: the offsets that it keeps from readers; None if that is not known."""

    doubt: Doubt
    held: int | None


@dataclass(frozen=True)
class UnfinishedRow:
    """A decided batch that is not finished, and the time since its decision."""

    one: UnfinishedBatch
    age_ms: int


async def in_doubt_list(visit: Visit) -> Page:
    found = await read_in_doubt(visit.cluster)
    rows = [DoubtRow(one, found.held.get(one.transactional_id)) for one in found.doubts]
    listing = Listing(
        rows,
        visit.parameters,
        text_of=lambda row: f"{row.doubt.transactional_id} {row.doubt.resolver or ''}",
        orders={
            "id": lambda row: row.doubt.transactional_id,
            "resolver": lambda row: row.doubt.resolver or "",
            "age": lambda row: row.doubt.age_ms,
            "checks": lambda row: row.doubt.checks,
            "held": lambda row: row.held,
        },
        first_order="-age",
    )
    now_ms = int(time.time() * 1000)
    data = {
        "listing": listing,
        "parked": sum(row.doubt.is_parked for row in rows),
        "has_check_back": found.has_check_back,
        "missing": found.missing,
        "unfinished": [UnfinishedRow(one, max(0, now_ms - one.decided_ms)) for one in found.unfinished],
        "silent": {row.doubt.resolver: row.doubt.resolver_error for row in rows if row.doubt.resolver_error},
    }
    return Page("in_doubt_list.html", "In doubt", data, menu="in-doubt", refreshes=True)


async def in_doubt(visit: Visit) -> Page:
    transactional_id = visit.transactional_id()
    view = await describe_transaction(visit.cluster, transactional_id)
    found = InDoubt()
    journal, history = await asyncio.gather(
        read_check_back_journal(visit.cluster, found), read_audit(visit.cluster, transactional_id, view.started_ms)
    )
    chosen = doubts([view], journal, int(time.time() * 1000))
    data = {
        "transaction": view,
        "doubt": chosen[0] if chosen else None,
        "history": history,
        "has_check_back": found.has_check_back,
        "missing": [*found.missing, *left_out_sentences(journal)],
    }
    return Page("in_doubt.html", "In doubt", data, menu="in-doubt", refreshes=True)


@change("decide-in-doubt")
async def decide(visit: Visit, form: Form) -> Change:
    outcome = form.get("outcome", "")
    if outcome not in DECIDED:
        raise BadFormError("the outcome must be commit or abort")
    view = await _meant(visit.cluster, form)
    readers = "read_committed readers get its records." if outcome == "commit" else "Readers skip its records."
    effects = [
        f"The transaction is {DECIDED[outcome]} on {counted(len(view.partitions), 'partition')}. {readers}",
        f"Look first what its source did: nothing can turn {outcome} around, and nobody is asked any more.",
        f"Its client, if it still runs, gets an error unless it wants to {outcome}, too.",
    ]

    async def perform() -> str:
        now_ms = int(time.time() * 1000)
        token = token_of(view)
        # Before the end: if a check-back keeps records, a decision that cannot be recorded is not carried out.
        command = Command(view.transactional_id, outcome, str(token), now_ms)
        is_noted = await write_entry(visit.cluster, command_entry(command))
        question = Question(token, view.started_ms, tuple(view.partitions))
        await write_entry(visit.cluster, administrator_entry(question, outcome, now_ms))
        try:
            await _end(visit.cluster, view, reason_of(form), commits=outcome == "commit")
        except ClusterError as error:
            if is_noted:
                raise PartlyDoneError(["the check-back's note"], [f"the end of the transaction ({error})"]) from error
            raise
        return f"The transaction of {view.transactional_id} was {DECIDED[outcome]}."

    return _change(f"{outcome.capitalize()} transaction", view, effects, perform, DECIDED[outcome])


@change("finish-batch")
async def finish_batch(visit: Visit, form: Form) -> Change:
    """Commit the open transactions of a decided batch that a person has looked at."""
    sink, decision = field_of(form, "sink", "the sink"), field_of(form, "decision", "the decision's id")
    listed = await list_transactions(visit.cluster, states=[ONGOING])
    own = [one for one in listed.listed if sink_of(one.transactional_id) == sink]
    found, missing = await read_unfinished(visit.cluster, (await describe_transactions(visit.cluster, own)).values())
    meant = next((one for one in found if (one.batch.sink, one.batch.id) == (sink, decision)), None)
    if meant is None:
        raise BadFormError(" ".join([f"no transaction of that batch of {sink} is open any more.", *missing]))
    batch = meant.batch
    open_ones = counted(len(meant.open), "transaction")
    effects = [
        f"{open_ones} of {len(batch.tokens)} are committed, as the sink has decided. Readers get their records.",
        "A driver that still runs finds them committed, and goes on.",
    ]

    async def perform() -> str:
        await in_turn(
            {
                view.transactional_id: partial(_end, visit.cluster, view, reason_of(form), commits=True)
                for view in meant.open
            }
        )
        return f"{open_ones} of batch {batch.batch} of {sink} were committed."

    return Change(
        "Finish decided batch",
        sink,
        effects,
        perform,
        "/in-doubt",
        "/in-doubt",
        is_dangerous=False,
        details=f"decision {decision} in {meant.topic}, batch {batch.batch}",
        world={name: value for view in meant.open for name, value in world_of(view).items()},
        values=[(view.transactional_id, view.state, "committed") for view in meant.open],
    )


@change("ask-again")
async def ask_again(visit: Visit, form: Form) -> Change:
    view = await _meant(visit.cluster, form)
    effects = [
        "Its source is asked at once, also if the transaction was parked.",
        "Nothing else changes: an answer decides, as always.",
    ]

    async def perform() -> str:
        command = Command(view.transactional_id, ASK_AGAIN, str(token_of(view)), int(time.time() * 1000))
        if not await write_entry(visit.cluster, command_entry(command)):
            raise ClusterError("no check-back runs on this cluster, so nobody can be asked")
        return f"The source of {view.transactional_id} is asked again."

    return _change("Ask again", view, effects, perform)


def _change(title: str, view: CoordinatorView, effects: Sequence[str], perform: Perform, then: str = "") -> Change:
    """then: the state of the transaction afterwards, if it changes."""
    address = with_query("/in-doubt/transaction", id=view.transactional_id)
    return Change(
        title,
        view.transactional_id,
        effects,
        perform,
        address,
        address,
        is_dangerous=bool(then),
        details=f"token {token_of(view)}, begun at {view.started_ms}",
        world=world_of(view),
        values=[("state", view.state, then)] if then else (),
    )


async def _meant(cluster: Cluster, form: Form) -> CoordinatorView:
    """The transaction that a person has looked at. Raises BadFormError if it is not open any more."""
    transactional_id = field_of(form, "id", "the transactional id")
    started_ms = whole_number(form.get("started_ms", ""), "the start", 0)
    view = await describe_transaction(cluster, transactional_id)
    if view.state != ONGOING:
        raise BadFormError(f"{transactional_id} is not in doubt any more: its state is {view.state}")
    # A client may use its pair again, so the start says which of its transactions this is.
    if (str(token_of(view)), view.started_ms) != (form.get("token"), started_ms):
        raise BadFormError(f"{transactional_id} has another transaction than the one you saw: open its page again")
    return view


async def _end(cluster: Cluster, view: CoordinatorView, reason: str, *, commits: bool) -> None:
    """End a transaction by its pair. Raises ClusterError."""
    request = EndTxnRequest(
        transactional_id=view.transactional_id,
        producer_id=view.producer_id,
        producer_epoch=view.producer_epoch,
        committed=commits,
        reason=reason,
    )
    deadline_s = time.monotonic() + ENDS_WITHIN_S
    while True:
        reply = await cluster.send_to_coordinator(CoordinatorKind.TRANSACTION, view.transactional_id, request)
        if reply.error_code not in AGAIN or time.monotonic() > deadline_s:
            break
        await asyncio.sleep(PAUSE_S)
    if reply.error_code == ErrorCode.INVALID_TXN_STATE:
        raise RefusedError(reply.error_code, "it has been ended the other way meanwhile, so both sides may differ")
    check(reply.error_code)
