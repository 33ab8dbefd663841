"""History of read_committed readers' view of a partition, with its causes. Pure; from batch headers alone.

Each batch moves the log's end. An open transaction holds the last stable offset at its first batch; its marker lets it
go on. So the headers of a range, read in order, give both back for every point: a stair below the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.console.record_marks import Batch


class Step(NamedTuple):
    """Where a partition stood after a batch. time_ms: of that batch or an earlier one, so that it never goes back."""

    end_offset: int
    time_ms: int
    last_stable_offset: int


@dataclass
class Transaction:
    """A transaction in one partition.

    first_offset: offset of its first batch; the range's start if `began_before`.
    marker_offset, committed: None while it is open.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    first_ms: int
    last_offset: int
    records: int = 0
    bytes: int = 0
    began_before: bool = False
    marker_offset: int | None = None
    marker_ms: int | None = None
    committed: bool | None = None

    @property
    def outcome(self) -> str:
        if self.committed is None:
            return "open"
        return "committed" if self.committed else "aborted"


@dataclass
class History:
    """A range of a partition's log as transactions and steps.

    from_offset, to_offset: the range; steps begin with one for `from_offset` itself.
    plain_batches: number of batches outside of transactions.
    """

    from_offset: int
    to_offset: int
    transactions: list[Transaction] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    plain_batches: int = 0

    @property
    def lanes(self) -> list[tuple[int, list[Transaction]]]:
        """By producer id, in the order of their first transactions."""
        found: dict[int, list[Transaction]] = {}
        for transaction in self.transactions:
            found.setdefault(transaction.producer_id, []).append(transaction)
        return list(found.items())

    def at_offset(self, end_offset: int) -> Step:
        """Where the partition stood when its end was at this offset."""
        return self._last(step for step in self.steps if step.end_offset <= end_offset)

    def at_time(self, time_ms: int) -> Step:
        """Where the partition stood at a time; at the start of the range for an earlier one."""
        return self._last(step for step in self.steps if step.time_ms <= time_ms)

    def _last(self, steps: Iterable[Step]) -> Step:
        found = self.steps[0]
        for step in steps:
            found = step
        return found

    def holding(self, step: Step) -> Transaction | None:
        """The transaction that held the last stable offset then; None if it was at the end."""
        if step.last_stable_offset >= step.end_offset:
            return None
        for transaction in self.transactions:
            is_open = transaction.marker_offset is None or transaction.marker_offset >= step.end_offset
            if is_open and transaction.first_offset <= step.last_stable_offset <= transaction.last_offset:
                return transaction
        return None


def history_of(
    batches: Iterable[Batch],
    from_offset: int,
    *,
    begins_the_log: bool,
    open_since: Mapping[int, int] | None = None,
) -> History:
    """Read the batches of a range that begins at `from_offset`, in order.

    begins_the_log: nothing lies before the range, so that a marker without records before it ended an empty
                    transaction. In any other range its transaction is taken to have begun before: it holds the last
                    stable offset at the range's start.
    open_since: first offset of the transaction that is open now, by producer id.
    """
    ordered = list(batches)
    history = History(from_offset, from_offset)
    running = {} if begins_the_log else _begun_before(ordered, from_offset, open_since or {})
    history.transactions.extend(running.values())
    now_ms = ordered[0].header.max_timestamp_ms if ordered else 0
    history.steps.append(Step(from_offset, now_ms, _stable(running, from_offset)))
    for batch in ordered:
        header = batch.header
        now_ms = max(now_ms, header.max_timestamp_ms)
        history.to_offset = header.last_offset + 1
        if batch.committed is not None:
            ended = running.pop(header.producer_id, None)
            if ended is not None:
                ended.marker_offset, ended.marker_ms = header.base_offset, now_ms
                ended.committed, ended.last_offset = batch.committed, header.base_offset
        elif header.is_transactional and not header.is_control:
            _write(history, running, batch, now_ms)
        else:
            history.plain_batches += 1
        history.steps.append(Step(history.to_offset, now_ms, _stable(running, history.to_offset)))
    return history


def _write(history: History, running: dict[int, Transaction], batch: Batch, now_ms: int) -> None:
    header = batch.header
    transaction = running.get(header.producer_id)
    if transaction is None:
        transaction = Transaction(
            header.producer_id, header.producer_epoch, header.base_offset, now_ms, header.last_offset
        )
        running[header.producer_id] = transaction
        history.transactions.append(transaction)
    transaction.producer_epoch = header.producer_epoch
    transaction.last_offset = header.last_offset
    transaction.records += header.records_count
    transaction.bytes += header.size_bytes


def _begun_before(batches: list[Batch], from_offset: int, open_since: Mapping[int, int]) -> dict[int, Transaction]:
    """The transactions that were open at the range's start, by producer id."""
    found: dict[int, Transaction] = {}
    has_written: set[int] = set()
    for batch in batches:
        header = batch.header
        producer_id = header.producer_id
        if batch.is_marker:
            # If it is the first batch of its producer, the transaction began before the range, or has no records here.
            if producer_id not in has_written and producer_id not in found:
                found[producer_id] = _early(producer_id, header.producer_epoch, from_offset, header.max_timestamp_ms)
            has_written.add(producer_id)
        elif header.is_transactional:
            has_written.add(producer_id)
    for producer_id, first_offset in open_since.items():
        if first_offset < from_offset and producer_id not in found:
            began_ms = batches[0].header.max_timestamp_ms if batches else 0
            found[producer_id] = _early(producer_id, -1, from_offset, began_ms)
    return found


def _early(producer_id: int, epoch: int, from_offset: int, time_ms: int) -> Transaction:
    return Transaction(producer_id, epoch, from_offset, time_ms, from_offset, began_before=True)


def _stable(running: Mapping[int, Transaction], end_offset: int) -> int:
    return min((transaction.first_offset for transaction in running.values()), default=end_offset)
