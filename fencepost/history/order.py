"""Checks of records' offsets: two records at one offset, one at two, an order that contradicts that of the sends.

Kafka's guarantee per partition: a record sent after an acknowledgement, by any client, gets a greater offset; and the
records of an idempotent producer lie in the order of its sends, even if they were in flight together.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.history.findings import Anomaly, AnomalyFinding, Proof, acknowledged, finding, sent
from fencepost.history.model import Client, History, Partition, Send, SendOutcome


def find_inconsistent_offsets(history: History) -> Iterator[AnomalyFinding]:
    """Find offsets at which different records were seen."""
    reported: set[tuple[Partition, int]] = set()
    for conflict in history.offset_conflicts:
        if (conflict.partition, conflict.offset) in reported:
            continue
        reported.add((conflict.partition, conflict.offset))
        yield finding(
            Anomaly.INCONSISTENT_OFFSET,
            f'offset {conflict.offset} of {conflict.partition} holds "{conflict.other.value}" '
            f'and "{conflict.send.value}"',
            _placed(conflict.other, conflict.partition, conflict.offset),
            Proof(conflict.line, f'"{conflict.send.value}" is said to be at offset {conflict.offset}'),
        )


def _placed(send: Send, partition: Partition, offset: int) -> Proof:
    if send.acknowledged_offset == offset:
        return Proof(send.outcome_line, f'"{send.value}" is acknowledged at offset {offset} of {partition}')
    return Proof(send.read_line, f'{send.reader} reads "{send.value}" at offset {offset} of {partition}')


def find_second_places(history: History) -> Iterator[AnomalyFinding]:
    """Find records that were seen at two offsets although their producer is idempotent.

    A record read at both is a duplicate. A record read at one and acknowledged at the other was reported with a wrong
    offset. Such records are marked as displaced: their other anomalies follow from this one.
    """
    for place in history.second_places:
        send = place.send
        if not send.client.is_idempotent or send.is_displaced:
            continue
        send.is_displaced = True
        places = (place.first_partition, place.first_offset), (place.partition, place.offset)
        first, second = (f"offset {offset} of {partition}" for partition, offset in places)
        if all(_was_read(partition, offset) for partition, offset in places):
            yield finding(
                Anomaly.DUPLICATE,
                f'"{send.value}", sent once, is at {first} and at {second}',
                sent(send),
                Proof(place.first_line, f'"{send.value}" is at {first}'),
                Proof(place.line, f'"{send.value}" is at {second}'),
            )
        else:
            yield finding(
                Anomaly.INCONSISTENT_OFFSET,
                f'"{send.value}" is said to be at {first} and at {second}',
                Proof(place.first_line, f'"{send.value}" is at {first}'),
                Proof(place.line, f'"{send.value}" is at {second}'),
            )


def _was_read(partition: Partition, offset: int) -> bool:
    return any(run.holds(offset) for run in partition.runs)


def find_reordered_sends(history: History) -> Iterator[AnomalyFinding]:
    """Find records at lower offsets than records that were sent, or acknowledged, before them."""
    for partition in history.partitions.values():
        yield from _reordered(partition)


def _reordered(partition: Partition) -> Iterator[AnomalyFinding]:
    latest: Send | None = None
    latest_of_client: dict[Client, Send] = {}
    reported: set[Send] = set()
    for offset in sorted(partition.log):
        send = partition.log[offset]
        if send.outcome is not SendOutcome.OK or send.is_displaced or send.offset != offset:
            continue
        former = latest_of_client.get(send.client) if send.client.is_idempotent else None
        if former is None or former.line < send.line:
            former = latest
            if former is not None and former.line < send.outcome_line:
                former = None
        if former is not None and former not in reported:
            reported.add(former)
            yield _reordered_pair(partition, send, former)
        if latest is None or latest.line < send.line:
            latest = send
        own = latest_of_client.get(send.client)
        if own is None or own.line < send.line:
            latest_of_client[send.client] = send


def _reordered_pair(partition: Partition, earlier: Send, later: Send) -> AnomalyFinding:
    """earlier: sent first, at the greater offset."""
    transactions = earlier.transaction, later.transaction
    is_cycle = (
        all(one is not None and one.may_be_committed for one in transactions)
        and earlier.client.name != later.client.name
    )
    if is_cycle:
        anomaly = Anomaly.WRITE_CYCLE
        summary = (
            f"{transactions[0]} wrote before {transactions[1]} in time, and after it by the offsets of {partition}"
        )
    else:
        anomaly = Anomaly.NONMONOTONIC_SEND
        summary = f'"{later.value}" is sent to {partition} after "{earlier.value}" and lies before it'
    return finding(anomaly, summary, sent(earlier), acknowledged(earlier), sent(later), acknowledged(later))
