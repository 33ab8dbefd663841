"""Transactions in doubt: open ones, the check-back's journal and audit, and the offsets that each holds back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fencepost.check_back.records import AUDIT_TOPIC, STATE_TOPIC, Entry, Journal, left_out_words, read_journal
from fencepost.client.cluster import Cluster
from fencepost.client.consuming import Place
from fencepost.client.errors import ClusterError, RefusedError
from fencepost.client.producing import produce
from fencepost.console.in_doubt import HistoryLine, doubts, history_line
from fencepost.console.reading.decided_batches import UnfinishedBatch, read_unfinished
from fencepost.console.reading.records import Range, offset_at_time, read_range
from fencepost.console.reading.topics import fill_offsets, partition_states, read_partition
from fencepost.console.reading.transactions import describe_transactions, list_transactions, read_producers
from fencepost.console.record_marks import UNREADABLE
from fencepost.diagnosis.in_doubt import Doubt
from fencepost.diagnosis.stuck import CoordinatorView
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import Record, read_records

MOST_PLACES = 500
"""Bound of the partitions whose held-back offsets are counted, those of the oldest transactions first."""
MOST_LINES = 200
BEFORE_START_MS = 60_000
"""How much earlier than its transaction an audit record may seem, as clocks differ."""


@dataclass
class InDoubt:
    """All transactions in doubt.

    held:    by transactional id, the offsets behind the last stable offset that it alone holds back.
    missing: a sentence on each part that could not be read.
    unfinished: decided batches of Spark's sinks with open transactions.
    """

    doubts: list[Doubt] = field(default_factory=list)
    held: dict[str, int] = field(default_factory=dict)
    has_check_back: bool = False
    missing: list[str] = field(default_factory=list)
    unfinished: list[UnfinishedBatch] = field(default_factory=list)


async def read_in_doubt(cluster: Cluster) -> InDoubt:
    """Read all transactions in doubt. Raises ClusterError."""
    found = InDoubt()
    journal, listed = await asyncio.gather(
        read_check_back_journal(cluster, found), list_transactions(cluster, states=["Ongoing"])
    )
    views = await describe_transactions(cluster, listed.listed)
    found.missing += [*left_out_sentences(journal), *listed.missing]
    if len(views) < len(listed.listed):
        found.missing.append(f"{len(listed.listed) - len(views)} open transactions could not be described.")
    found.unfinished, unread = await read_unfinished(cluster, views.values())
    found.missing += unread
    found.doubts = doubts(views.values(), journal, int(time.time() * 1000))
    found.held = await _held(cluster, [views[one.transactional_id] for one in found.doubts])
    return found


def left_out_sentences(journal: Journal) -> list[str]:
    """A sentence on entries of the state in another form, if there are any. They are about no transaction."""
    words = left_out_words(journal)
    return [] if words is None else [f"{words}."]


async def read_check_back_journal(cluster: Cluster, found: InDoubt) -> Journal:
    """Read the check-back's state. Adds to `found` whether there is one, and which data are missing."""
    try:
        read = await _read_all(cluster, STATE_TOPIC)
    except RefusedError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            found.missing.append(f"What the check-back knows cannot be read: {error}.")
        return read_journal({})
    except ClusterError as error:
        found.missing.append(f"What the check-back knows cannot be read: {error}.")
        return read_journal({})
    found.has_check_back = True
    if not read.is_whole:
        found.missing.append(f"Only the beginning of {STATE_TOPIC} was read.")
    latest: dict[str, bytes | None] = {}
    for record in _records(read):
        if record.key is not None:
            latest[record.key.decode(errors="replace")] = record.value
    return read_journal(latest)


@dataclass
class History:
    """The audit's records of an id, oldest first. missing: why there are none, or not all."""

    lines: list[HistoryLine] = field(default_factory=list)
    missing: str = ""


async def read_audit(cluster: Cluster, transactional_id: str, since_ms: int) -> History:
    """Read the audit of an id from a time on."""
    try:
        partition = await read_partition(cluster, AUDIT_TOPIC, 0)
        from_offset = await offset_at_time(cluster, partition, max(0, since_ms - BEFORE_START_MS))
        read = await read_range(cluster, partition, from_offset, partition.high_watermark or 0)
    except RefusedError as error:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return History(missing=f"There is no topic {AUDIT_TOPIC} that you may see: no check-back runs here.")
        return History(missing=f"{AUDIT_TOPIC} cannot be read: {error}.")
    except ClusterError as error:
        return History(missing=f"{AUDIT_TOPIC} cannot be read: {error}.")
    history = History(missing="" if read.is_whole else f"Only the beginning of {AUDIT_TOPIC} was read.")
    wanted = transactional_id.encode()
    for record in _records(read):
        line = history_line(record.value or b"") if record.key == wanted else None
        if line is not None:
            before = history.lines[-1] if history.lines else None
            after_ms = None if before is None else max(0, line.time_ms - before.time_ms)
            history.lines.append(replace(line, after_ms=after_ms))
    history.lines = history.lines[-MOST_LINES:]
    return history


async def write_entry(cluster: Cluster, entry: Entry) -> bool:
    """Write a record of the check-back's topics; False if there is no such topic. Raises ClusterError."""
    try:
        partition = await read_partition(cluster, entry.topic, 0)
    except RefusedError as error:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        raise
    await produce(cluster, entry.topic, 0, partition.leader, entry.key.encode(), entry.encoded_value())
    return True


async def _read_all(cluster: Cluster, topic: str) -> Range:
    partition = await read_partition(cluster, topic, 0)
    if partition.error is not None:
        raise ClusterError(f"{partition.name} does not answer: {partition.error}")
    return await read_range(cluster, partition, partition.start or 0, partition.high_watermark or 0)


def _records(read: Range) -> list[Record]:
    """The records, up to a batch that cannot be read."""
    found: list[Record] = []
    try:
        for batch in read.batches:
            if not batch.header.is_control:
                found.extend(read_records(batch.content))
    except UNREADABLE:
        read.is_whole = False
    return found


async def _held(cluster: Cluster, views: Sequence[CoordinatorView]) -> dict[str, int]:
    """By transactional id, the offsets that it alone keeps from readers. Left out if they cannot be read."""
    places = list(dict.fromkeys(place for view in views for place in view.partitions))[:MOST_PLACES]
    if not places:
        return {}
    try:
        states = partition_states(await cluster.view({topic for topic, _ in places}), places)
        await fill_offsets(cluster, states)
        by_leader: dict[int, list[Place]] = {}
        for state in states:
            if state.behind:
                by_leader.setdefault(state.leader, []).append((state.topic, state.index))
        producers = await read_producers(cluster, by_leader.items())
    except ClusterError:
        return {}
    by_place = {(state.topic, state.index): state for state in states}
    ids = {view.producer_id: view.transactional_id for view in views}
    held = dict.fromkeys(ids.values(), 0)
    for one in producers.producers:
        state = by_place[one.topic, one.partition]
        if one.first_offset is not None and one.first_offset == state.last_stable_offset and one.producer_id in ids:
            held[ids[one.producer_id]] += state.behind
    return held
