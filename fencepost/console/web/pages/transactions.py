"""Transactions: all transactional ids, one of them with its life, and how to abort it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClusterError, check
from fencepost.client.view import CoordinatorKind
from fencepost.console.reading.lag_table import LONGEST_WAIT_S
from fencepost.console.reading.sharing import Reads, StillReadingError
from fencepost.console.reading.transaction_history import read_history
from fencepost.console.reading.transactions import (
    ListedTransaction,
    coordinator_view_of,
    describe_transaction,
    describe_transactions,
    open_transactions,
    read_producers,
    transactions_of,
)
from fencepost.console.web.changes import Change, Form, WorldChangedError, change, field_of, reason_of
from fencepost.console.web.listing import Listing
from fencepost.console.web.pages.topic_changes import identity
from fencepost.console.web.pages.topics import read_topic
from fencepost.console.web.visit import BadFormError, NotFoundError, Page, Visit, path, whole_number, with_query
from fencepost.diagnosis.stuck import ONGOING, OPEN_STATES, UNLIMITED_TIMEOUT_MS, Cause, CoordinatorView, cause_of
from fencepost.diagnosis.words import counted
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest

MOST_DESCRIBED: Final = 2_000
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


@dataclass(frozen=True)
class TransactionRow:
    """A transactional id, with its state at its coordinator. age_ms: None unless a transaction is open."""

    transactional_id: str
    producer_id: int
    epoch: int | None
    state: str
    age_ms: int | None
    timeout_ms: int | None
    partitions: int

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def has_timeout(self) -> bool:
        return self.timeout_ms is not None and self.timeout_ms < UNLIMITED_TIMEOUT_MS

    @property
    def is_overdue(self) -> bool:
        return self.has_timeout and self.state == ONGOING and (self.age_ms or 0) > (self.timeout_ms or 0)


@dataclass(frozen=True)
class Described:
    """All transactional ids in a state, and the views of the open ones by their coordinators."""

    listed: Sequence[ListedTransaction]
    views: Mapping[str, CoordinatorView]
    missing: Sequence[str]


async def _read(reads: Reads, cluster: Cluster, states: Sequence[str]) -> Described:
    found = (await transactions_of(reads, states, LONGEST_WAIT_S)).value
    opened = [one for one in found.listed if one.is_open]
    missing = list(found.missing)
    if len(opened) > MOST_DESCRIBED:
        missing.append(f"Ages are shown of {MOST_DESCRIBED:,} of {len(opened):,} open transactions.")
    views = await describe_transactions(cluster, opened[:MOST_DESCRIBED])
    return Described(found.listed, views, missing)


def _row(one: ListedTransaction, view: CoordinatorView | None, now_ms: int) -> TransactionRow:
    is_open = one.is_open and view is not None and view.started_ms >= 0
    return TransactionRow(
        one.transactional_id,
        one.producer_id,
        view.producer_epoch if view else None,
        one.state,
        max(0, now_ms - view.started_ms) if view and is_open else None,
        view.timeout_ms if view else None,
        len(view.partitions) if view else 0,
    )


async def transactions(visit: Visit) -> Page:
    state, reads = visit.parameter("state"), visit.reads
    states = (state,) if state in STATES else ()
    answer = await reads.ask(("transaction table", states), lambda cluster: _read(reads, cluster, states))
    now_ms = int(time.time() * 1000)
    listing = await reads.made(
        ("transactions", tuple(sorted(visit.parameters.items()))),
        answer,
        lambda: Listing(
            [_row(one, answer.value.views.get(one.transactional_id), now_ms) for one in answer.value.listed],
            visit.parameters,
            text_of=lambda row: f"{row.transactional_id} {row.producer_id}",
            orders={
                "id": lambda row: row.transactional_id,
                "producer": lambda row: row.producer_id,
                "state": lambda row: row.state,
                "age": lambda row: row.age_ms,
                "partitions": lambda row: row.partitions,
            },
            first_order="-age",
        ),
    )
    missing = list(answer.value.missing)
    listing = await _with_epochs(visit, listing, answer.value, missing)
    data = {"listing": listing, "state": state, "states": STATES, "missing": missing}
    return Page("transactions.html", "Transactions", data, menu="transactions", refreshes=True, age_s=answer.age_s)


async def _with_epochs(
    visit: Visit, listing: Listing[TransactionRow], known: Described, missing: list[str]
) -> Listing[TransactionRow]:
    """The same rows, of which those that are not open are described, too."""
    listed = {one.transactional_id: one for one in known.listed}
    asked = [listed[row.transactional_id] for row in listing.rows if row.epoch is None]
    if not asked:
        return listing

    async def read(cluster: Cluster) -> Mapping[str, CoordinatorView]:
        return await describe_transactions(cluster, asked)

    kind = "epochs", tuple(one.transactional_id for one in asked)
    try:
        views = (await visit.reads.ask(kind, read)).value
    except StillReadingError:
        missing.append("Epochs are still being read.")
        return listing
    shown = copy(listing)
    shown.rows = [
        replace(row, epoch=view.producer_epoch, timeout_ms=view.timeout_ms) if view is not None else row
        for row in listing.rows
        for view in [views.get(row.transactional_id)]
    ]
    return shown


async def transaction(visit: Visit) -> Page:
    transactional_id = visit.transactional_id()
    view = await describe_transaction(visit.cluster, transactional_id)
    client, history = await asyncio.gather(
        visit.http.client_of(view.producer_id), read_history(visit.cluster, transactional_id)
    )
    now_ms = int(time.time() * 1000)
    data = {
        "transaction": view,
        "is_open": view.state in OPEN_STATES,
        "age_ms": now_ms - view.started_ms if view.started_ms >= 0 else None,
        "left_ms": view.left_ms(now_ms),
        "has_timeout": not view.is_two_phase,
        "client": client.client,
        "client_missing": client.missing,
        "history": history,
    }
    return Page("transaction.html", "Transaction", data, menu="transactions", refreshes=True)


@change("abort-transaction")
async def abort_transaction(visit: Visit, form: Form) -> Change:
    transactional_id = form.get("id", "")
    view = await describe_transaction(visit.cluster, transactional_id)
    if view.state not in OPEN_STATES:
        raise BadFormError(f"{transactional_id} has no open transaction; its state is {view.state}")
    aborted = f"The transaction is aborted on {counted(len(view.partitions), 'partition')}; readers skip its records."
    effects = [
        f"Producer {view.producer_id}:{view.producer_epoch} is fenced: its next request is refused (ProducerFenced).",
        "The decided commit is carried out." if view.state == "PrepareCommit" else aborted,
        "Readers that waited for it go on.",
    ]

    async def perform() -> str:
        await fence(visit, view, reason_of(form))
        return f"{transactional_id} was fenced, and its transaction ended."

    address = with_query("/transaction", id=transactional_id)
    return Change(
        "Abort transaction",
        transactional_id,
        effects,
        perform,
        address,
        address,
        details=f"producer {view.producer_id}:{view.producer_epoch}, begun at {view.started_ms}",
        world=world_of(view),
        values=[("state", view.state, "aborted" if view.state != "PrepareCommit" else "committed")],
    )


def world_of(view: CoordinatorView) -> Mapping[str, object]:
    """A transaction: its pair alone may be that of the next one, too, and its start tells them apart."""
    name = view.transactional_id
    return {
        f"the producer of {name}": f"{view.producer_id}:{view.producer_epoch}",
        f"the start of the transaction of {name}": view.started_ms,
        f"the state of {name}": view.state,
    }


async def fence(visit: Visit, view: CoordinatorView, reason: str) -> None:
    """Open a session with the transactional id, as its next producer does, and name the pair that was seen.

    The owner of a two-phase transaction may have another pair than the transaction, so that one is not named.
    Raises ClusterError; WorldChangedError if the pair is not the current one.
    """
    producer_id, epoch = (-1, -1) if view.is_two_phase else (view.producer_id, view.producer_epoch)
    request = InitProducerIdRequest(
        transactional_id=view.transactional_id,
        transaction_timeout_ms=min(view.timeout_ms, 60_000),
        producer_id=producer_id,
        producer_epoch=epoch,
        forced=True,
        reason=reason,
    )
    deadline_s = time.monotonic() + 10
    is_accepted = False
    while True:
        reply = await visit.cluster.send_to_coordinator(CoordinatorKind.TRANSACTION, view.transactional_id, request)
        if reply.error_code in FENCED and producer_id >= 0:
            if is_accepted:
                return  # the end of the transaction has raised the epoch
            raise WorldChangedError(f"{view.transactional_id} has another producer than when you looked.")
        # While markers are written the coordinator asks to come back.
        if reply.error_code != ErrorCode.CONCURRENT_TRANSACTIONS or time.monotonic() > deadline_s:
            break
        is_accepted = True
        await asyncio.sleep(0.05)
    check(reply.error_code)


FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


@change("abort-hanging")
async def abort_hanging(visit: Visit, form: Form) -> Change:
    topic = field_of(form, "topic", "the topic")
    index = whole_number(form.get("partition", ""), "the partition", 0, 2**31 - 1)
    producer_id = whole_number(form.get("producer_id", ""), "the producer id", 0)
    state = await read_topic(visit, topic)
    partition = next((one for one in state.partitions if one.index == index), None)
    if partition is None:
        raise NotFoundError(f"{topic} has no partition {index}")
    producers = await read_producers(visit.cluster, [(partition.leader, [(topic, index)])])
    holder = next((one for one in open_transactions(producers.producers) if one.producer_id == producer_id), None)
    if holder is None:
        raise NotFoundError(f"producer {producer_id} has no open transaction on {topic}-{index}")
    known, error = await coordinator_view_of(visit.cluster, producer_id)
    if cause_of(holder, (topic, index), known, error, int(time.time() * 1000)) is not Cause.HANGING:
        raise BadFormError(
            "this transaction does not hang: its coordinator knows it, or could not be asked. Abort it by its "
            "transactional id"
        )
    effects = [
        f"An abort marker for producer {producer_id}:{holder.producer_epoch} is written to {topic}-{index}.",
        f"read_committed readers skip its records from offset {holder.first_offset:,} on, and go on.",
        "Other partitions are not touched.",
    ]

    async def perform() -> str:
        # Before the first marker of a producer the partition has coordinator epoch -1; coordinators begin with 0.
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=holder.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
            coordinator_epoch=max(0, holder.coordinator_epoch),
        )
        reply = await visit.cluster.send(WriteTxnMarkersRequest([marker], reason_of(form)), partition.leader)
        codes = [one.error_code for result in reply.markers for topics in result.topics for one in topics.partitions]
        if not codes:
            raise ClusterError("the broker's answer says nothing of the marker")
        check(codes[0])
        return f"The hanging transaction of producer {producer_id} on {topic}-{index} was aborted."

    address = path("stuck", topic, index)
    return Change(
        "Abort hanging transaction",
        f"{topic}-{index}",
        effects,
        perform,
        address,
        address,
        details=f"producer {producer_id}:{holder.producer_epoch} from offset {holder.first_offset}",
        world={
            **identity(state),
            f"the epoch of producer {producer_id}": holder.producer_epoch,
            f"the first offset of its transaction on {topic}-{index}": holder.first_offset,
            f"the leader epoch of {topic}-{index}": partition.leader_epoch,
        },
        values=[("transaction", "open", "aborted")],
    )
