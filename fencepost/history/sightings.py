"""Sightings of records in a history's lines: their offsets, and the order in which consumers read them.

This records everything that is known only at its line, above all whether the commit of a record's transaction was
invoked when the record was read.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from fencepost.history.model import (
    BackwardRead,
    Client,
    EarlyRead,
    ForeignRead,
    History,
    OffsetConflict,
    Partition,
    Run,
    SecondPlace,
    Send,
    Transaction,
)


def place(history: History, line: int, send: Send, partition: Partition, offset: int) -> None:
    """Record that an acknowledgement or a read reports a record at an offset."""
    holder = partition.log.setdefault(offset, send)
    if holder is not send:
        history.offset_conflicts.append(OffsetConflict(partition, offset, send, line, holder))
        send.is_displaced = holder.is_displaced = True
    if send.offset is None:
        send.offset, send.partition = offset, partition
    elif (send.offset != offset or send.partition is not partition) and holder is send:
        assert send.partition is not None
        first_line = send.outcome_line if send.acknowledged_offset == send.offset else send.read_line
        history.second_places.append(
            SecondPlace(send, line, partition, offset, first_line, send.partition, send.offset)
        )


def new_run(line: int, client: Client, partition: Partition, start_offset: int | None) -> Run:
    """Begin a new run after a reset of a client's position in a partition; start_offset: None if it is not known."""
    run = Run(client, partition, start_offset, line)
    if start_offset is not None:
        run.next_offset = start_offset
    client.runs[partition] = run
    partition.runs.append(run)
    return run


def read(history: History, line: int, run: Run, records: Iterable[tuple[int, str | None]]) -> None:
    """Record the result of one poll, or one final read, in one partition; records: (offset, value) in its order."""
    client, partition, sends, log = run.client, run.partition, history.sends, run.partition.log
    is_committed, is_final = client.isolation_is_committed, run.end_offset is not None
    claims = client.unclaimed_reads if client.transaction is None else client.transaction.reads
    run.poll_lines.append(line)
    run.poll_starts.append(len(run.offsets))
    for offset, value in records:
        if offset >= run.next_offset:
            run.offsets.append(offset)
            run.next_offset = offset + 1
        else:
            run = _gone_back(history, line, run, offset)
        if value is None:
            continue
        send = sends.get(value)
        if send is None:
            history.foreign_reads.append(ForeignRead(client, partition, offset, value, line))
            continue
        if log.get(offset) is not send or send.offset != offset or send.partition is not partition:
            place(history, line, send, partition, offset)
        if not send.read_line:
            send.read_line, send.reader = line, client
        if is_final:
            send.final_read_line = line
        if is_committed:
            _read_committed(history, line, client, send, claims)


def _read_committed(
    history: History, line: int, client: Client, send: Send, claims: dict[Transaction, tuple[int, Send]]
) -> None:
    transaction = send.transaction
    if transaction is not None:
        claims.setdefault(transaction, (line, send))
        if not transaction.commit_line:
            history.early_reads.append(EarlyRead(send, line, client))
            return
        if not transaction.evidence_line:
            transaction.evidence_line = line
            transaction.evidence = f'{client} reads "{send.value}" at offset {send.offset} of {send.partition}'
    if not send.committed_read_line:
        send.committed_read_line, send.committed_reader = line, client


def _gone_back(history: History, line: int, run: Run, offset: int) -> Run:
    """Record that a consumer goes back without a known reason; returns the run of its record at `offset`."""
    former_line = run.poll_lines[-2] if len(run.poll_lines) > 1 else run.line
    if run.poll_starts[-1] < len(run.offsets):
        former_line = line
    history.backward_reads.append(
        BackwardRead(run.client, run.partition, offset, line, run.next_offset - 1, former_line)
    )
    if run.end_offset is not None:
        if not run.holds(offset):
            insort(run.offsets, offset)
        return run
    continued = new_run(line, run.client, run.partition, None)
    family = run.family or [run]
    family.append(continued)
    run.family = continued.family = family
    continued.poll_lines.append(line)
    continued.poll_starts.append(0)
    continued.offsets.append(offset)
    continued.next_offset = offset + 1
    return continued
