"""Checks for missing records: lost writes, torn transactions, skipped reads.

A consumer that reads offsets 4 and 7 without a reset of its position in between has passed 5 and 6. There may
legally be: markers; at read_committed, records of transactions that are or may be aborted; and records of which no
client knows that they were written. A final read passes all offsets of its ranges.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fencepost.history.findings import (
    Anomaly,
    AnomalyFinding,
    Proof,
    acknowledged,
    commit_reply_or_request,
    committed,
    finding,
    sent,
)
from fencepost.history.model import History, Partition, Run, Send, Transaction, TransactionOutcome


@dataclass(slots=True)
class Missing:
    """Records reported as missing, and the transactions of these records."""

    sends: set[Send] = field(default_factory=set)
    transactions: set[Transaction] = field(default_factory=set)


def find_missing_records(history: History, missing: Missing) -> Iterator[AnomalyFinding]:
    """Find records that final reads lack, then those that polls skipped; fills `missing`."""
    partitions = [one for one in history.partitions.values() if one.topic not in history.compacted_topics]
    visible_offsets = {partition: _VisibleOffsets(partition) for partition in partitions}
    yield from _missing_in_final_reads(history, visible_offsets, missing)
    for partition in partitions:
        for run in partition.runs:
            if run.end_offset is None and run.offsets:
                yield from _missing_in_polls(run, visible_offsets[partition], missing)


class _VisibleOffsets:
    """The offsets of one partition that every consumer must see, sorted, per isolation level."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._sorted: dict[bool, array[int]] = {}

    def missing(self, run: Run, start: int, end: int) -> list[int]:
        """The offsets in [start, end) that the run lacks."""
        isolation_is_committed = run.client.isolation_is_committed
        offsets = self._sorted.get(isolation_is_committed)
        if offsets is None:
            log = self._partition.log
            visible = (offset for offset, send in log.items() if send.is_visible(committed=isolation_is_committed))
            offsets = self._sorted[isolation_is_committed] = array("q", sorted(visible))
        expected = offsets[bisect_left(offsets, start) : bisect_left(offsets, end)]
        if expected == run.offsets:
            return []
        missing = sorted(set(expected).difference(run.offsets))
        if not run.family:
            return missing
        return [offset for offset in missing if not any(one.holds(offset) for one in run.family)]


def _missing_in_final_reads(
    history: History, visible_offsets: dict[Partition, _VisibleOffsets], missing: Missing
) -> Iterator[AnomalyFinding]:
    lacking: dict[Send, Run] = {}
    covered: dict[Partition, Run] = {}
    for partition, visible in visible_offsets.items():
        final_runs = [run for run in partition.runs if run.end_offset is not None]
        last_runs = {run.client: run for run in sorted(final_runs, key=_end_offset)}
        for run in final_runs:
            is_last = last_runs[run.client] is run
            assert run.start_offset is not None
            for offset in visible.missing(run, run.start_offset, 2**63 - 1 if is_last else _end_offset(run)):
                send = partition.log[offset]
                if send.settled_line < run.invoke_line or (run.offsets and offset < run.offsets[-1]):
                    lacking.setdefault(send, run)
        for run in last_runs.values():
            if _reaches_from_zero(of_client := [one for one in final_runs if one.client is run.client]):
                covered[partition] = min(of_client, key=lambda one: one.invoke_line)
    for send in history.sends.values():
        if send.offset is None and send.is_acknowledged:
            places = [send.partition] if send.partition else _partitions_of(history, send.topic)
            runs = [covered.get(place) for place in places]
            first = runs[0] if runs else None
            if first is not None and all(run is not None and send.settled_line < run.invoke_line for run in runs):
                lacking[send] = first
    missing.sends.update(lacking)
    by_transaction: dict[Transaction, list[Send]] = {}
    for send, run in lacking.items():
        if send.transaction is None:
            yield _lost_write(send, run)
        elif send.transaction.is_committed:
            by_transaction.setdefault(send.transaction, []).append(send)
        else:
            yield _lost_write(send, run)
    for transaction, sends in by_transaction.items():
        missing.transactions.add(transaction)
        seen = _seen_part(transaction, set(sends))
        if seen is None:
            yield _lost_transaction(transaction, sends, lacking[sends[0]])
        else:
            yield finding(
                Anomaly.TORN_TRANSACTION,
                f'of {transaction}, {_count(sends)} cannot be read in the end, among them "{sends[0].value}"',
                sent(sends[0]),
                acknowledged(sends[0]),
                commit_reply_or_request(transaction),
                seen,
                _final_read_lacks(sends[0], lacking[sends[0]]),
            )


def _end_offset(run: Run) -> int:
    assert run.end_offset is not None
    return run.end_offset


def _reaches_from_zero(runs: Iterable[Run]) -> bool:
    """Whether the final reads of one partition cover it from offset 0 on without a gap."""
    reached = 0
    for run in sorted(runs, key=_end_offset):
        assert run.start_offset is not None
        if run.start_offset > reached:
            return False
        reached = max(reached, _end_offset(run))
    return True


def _partitions_of(history: History, topic: str) -> list[Partition]:
    return [partition for partition in history.partitions.values() if partition.topic == topic]


def _seen_part(transaction: Transaction, missing: set[Send]) -> Proof | None:
    """Proof that a client sees a part of a transaction whose other records are missing at the end."""
    for send in transaction.sends:
        if send.final_read_line and send not in missing:
            return Proof(send.final_read_line, f'a final read has "{send.value}" of the same transaction')
    if transaction.offsets_seen_line:
        return Proof(transaction.offsets_seen_line, f"{transaction.offsets_seen} of the same transaction")
    if transaction.outcome is not TransactionOutcome.COMMITTED:
        for send in transaction.sends:
            if send.committed_read_line:
                return Proof(send.committed_read_line, f'{send.committed_reader} reads "{send.value}"')
    return None


def _missing_in_polls(run: Run, visible: _VisibleOffsets, missing: Missing) -> Iterator[AnomalyFinding]:
    start = run.offsets[0] if run.start_offset is None else run.start_offset
    skipped_after = None
    for offset in visible.missing(run, start, run.offsets[-1]):
        send = run.partition.log[offset]
        transaction = send.transaction
        if send in missing.sends or (transaction is not None and transaction in missing.transactions):
            continue
        seen = None if transaction is None else _seen_in_run(transaction, run)
        if transaction is not None and seen is not None:
            missing.transactions.add(transaction)
            yield finding(
                Anomaly.TORN_TRANSACTION,
                f"{run.client} reads a part of {transaction}, and comes past another part in the same partition",
                sent(send),
                committed(transaction),
                Proof(_poll_line(run, seen), f'{run.client} reads "{run.partition.log[seen].value}" at offset {seen}'),
                *_come_past(run, send, offset),
            )
        elif send.read_line:
            after = bisect_right(run.offsets, offset)
            if after == skipped_after:
                continue
            skipped_after = after
            yield finding(
                Anomaly.SKIPPED_READ,
                f'{run.client} comes past "{send.value}" at offset {offset} of {run.partition} without reading it',
                sent(send) if transaction is None else committed(transaction),
                Proof(send.read_line, f'{send.reader} reads "{send.value}" at offset {offset}'),
                *_come_past(run, send, offset),
            )
        else:
            missing.sends.add(send)
            yield finding(
                Anomaly.LOST_WRITE,
                f'"{send.value}" is acknowledged, and no client ever reads it; {run.client} comes past its offset',
                sent(send),
                acknowledged(send),
                None if transaction is None else committed(transaction),
                *_come_past(run, send, offset),
            )


def _seen_in_run(transaction: Transaction, run: Run) -> int | None:
    """The offset of a record of the transaction that the run contains."""
    for send in transaction.sends:
        if send.offset is not None and send.partition is run.partition and run.holds(send.offset):
            return send.offset
    return None


def _poll_line(run: Run, offset: int) -> int:
    """The line of the poll that returned an offset of the run."""
    return run.poll_lines[bisect_right(run.poll_starts, bisect_left(run.offsets, offset)) - 1]


def _come_past(run: Run, send: Send, offset: int) -> Iterator[Proof]:
    """The two polls between whose records the missing one lies, or the one poll, or the position before it."""
    after = bisect_right(run.offsets, offset)
    next_offset = run.offsets[after]
    next_line = _poll_line(run, next_offset)
    if after == 0:
        yield Proof(run.line, f"the position of {run.client} in {run.partition} is {run.start_offset}")
        yield Proof(next_line, f"{run.client} reads offset {next_offset} there first")
        return
    former_offset = run.offsets[after - 1]
    former_line = _poll_line(run, former_offset)
    if former_line == next_line:
        yield Proof(next_line, f'{run.client} reads offsets {former_offset} and {next_offset}, not "{send.value}"')
    else:
        yield Proof(former_line, f"{run.client} reads offset {former_offset}")
        yield Proof(next_line, f"{run.client} goes on with offset {next_offset}")


def _lost_write(send: Send, run: Run) -> AnomalyFinding:
    reader = Proof(send.read_line, f'{send.reader} reads "{send.value}"') if send.read_line else None
    return finding(
        Anomaly.LOST_WRITE,
        f'"{send.value}" is {"acknowledged" if acknowledged(send) else "read once"} and not there in the end',
        sent(send),
        acknowledged(send) or reader,
        _final_read_lacks(send, run),
    )


def _lost_transaction(transaction: Transaction, sends: list[Send], run: Run) -> AnomalyFinding:
    return finding(
        Anomaly.LOST_WRITE,
        f'{transaction} is committed, and not there in the end: {_count(sends)}, among them "{sends[0].value}"',
        sent(sends[0]),
        acknowledged(sends[0]),
        committed(transaction),
        _final_read_lacks(sends[0], run),
    )


def _final_read_lacks(send: Send, run: Run) -> Proof:
    return Proof(
        run.line,
        f'the final read of {run.partition} from offset {run.start_offset} to {run.end_offset} lacks "{send.value}"',
    )


def _count(sends: list[Send]) -> str:
    return "1 record" if len(sends) == 1 else f"{len(sends)} records"
