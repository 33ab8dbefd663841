"""The course of the transactions of one id, by the records of `__transaction_state` that compaction has left."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.stored.transaction_state import TransactionLogValue, encode_transaction_log_key
from fencepost.protocol.stored.versioned import decode_known

if TYPE_CHECKING:
    from fencepost.protocol.record_batch import Record

STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""By the number that is stored. Source: Kafka's TransactionState."""
FORGOTTEN: Final = "Forgotten"
"""Placeholder of the state after the id was removed."""
MOST_NAMED: Final = 6


@dataclass(frozen=True)
class Moment:
    """A record of the coordinator. Times in ms since 1970.

    time_ms: time of the change; timestamp_ms: the record's. start_ms: the transaction's, -1 if there was none.
    note: the change, in words. after_ms: the time since the moment before; None for the first.
    """

    time_ms: int
    offset: int
    state: str
    producer_id: int = -1
    producer_epoch: int = -1
    partitions: tuple[str, ...] = ()
    note: str = ""
    after_ms: int | None = None
    timestamp_ms: int = -1
    timeout_ms: int = -1
    start_ms: int = -1


class TransactionHistory:
    """The latest moments of an id, oldest first. is_whole: whether all of its records could be read, and none is left
    out because there are more than `most`.
    """

    def __init__(self, transactional_id: str, most: int) -> None:
        self.moments: deque[Moment] = deque(maxlen=most)
        self.is_whole = True
        self._key = encode_transaction_log_key(transactional_id)

    def add(self, record: Record) -> None:
        """Take the next record of the partition; those of other ids are passed over."""
        if record.key != self._key:
            return
        try:
            moment = _moment(record)
        except DecodeError:
            self.is_whole = False
            return
        before = self.moments[-1] if self.moments else None
        if len(self.moments) == self.moments.maxlen:
            self.is_whole = False
        if record.value is not None:
            moment = replace(moment, note=_what_changed(before, moment))
        if before is not None:
            moment = replace(moment, after_ms=max(0, moment.time_ms - before.time_ms))
        self.moments.append(moment)


def state_name(number: int) -> str:
    return STATES[number] if 0 <= number < len(STATES) else f"state {number}"


def _moment(record: Record) -> Moment:
    if record.value is None:
        return Moment(record.timestamp_ms, record.offset, FORGOTTEN, timestamp_ms=record.timestamp_ms)
    value = decode_known(TransactionLogValue, bytes(record.value))
    places = sorted((one.topic, index) for one in value.transaction_partitions or () for index in one.partition_ids)
    return Moment(
        value.transaction_last_update_timestamp_ms,
        record.offset,
        state_name(value.transaction_status),
        value.producer_id,
        value.producer_epoch,
        tuple(f"{topic}-{index}" for topic, index in places),
        timestamp_ms=record.timestamp_ms,
        timeout_ms=value.transaction_timeout_ms,
        start_ms=value.transaction_start_timestamp_ms,
    )


def _what_changed(before: Moment | None, after: Moment) -> str:
    if before is None or before.state == FORGOTTEN:
        return "first seen here"
    said = []
    if after.producer_id != before.producer_id:
        said.append("another producer id")
    elif after.producer_epoch != before.producer_epoch:
        said.append(f"epoch {before.producer_epoch} → {after.producer_epoch}")
    known = set(before.partitions)
    added = [name for name in after.partitions if name not in known]
    if added and after.state == "Ongoing":
        more = f" and {len(added) - MOST_NAMED:,} more" if len(added) > MOST_NAMED else ""
        said.append(f"+ {', '.join(added[:MOST_NAMED])}{more}")
    return "; ".join(said)
