"""The life of a transactional id, as its coordinator wrote it into `__transaction_state`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.coordinator_partitions import partition_of
from fencepost.client.errors import ClusterError
from fencepost.console.reading.records import MOST_BYTES, read_range
from fencepost.console.reading.topics import read_partition
from fencepost.console.record_marks import UNREADABLE
from fencepost.protocol.record_batch import read_records
from fencepost.protocol.stored.transaction_state import TransactionLogKey, TransactionLogValue
from fencepost.protocol.stored.versioned import decode_versioned

TOPIC: Final = "__transaction_state"
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
MOST_SHOWN: Final = 200
LEAST_INT32: Final = -(1 << 31)


@dataclass(frozen=True)
class Moment:
    """A record of the coordinator. state: `Forgotten` where the id was removed. note: what changed, in words. after_ms:
    since the record before.
    """

    time_ms: int
    offset: int
    state: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[str, ...]
    note: str = ""
    after_ms: int | None = None


@dataclass
class LifeLine:
    """The moments, oldest first. missing: why there are none, or not all."""

    moments: list[Moment] = field(default_factory=list)
    missing: str = ""


async def read_history(cluster: Cluster, transactional_id: str) -> LifeLine:
    """Read the records of an id that compaction has left."""
    try:
        view = await cluster.view([TOPIC])
        found = view.topics.get(TOPIC)
        if found is None or not found.partitions:
            return LifeLine(missing="Your user may not read __transaction_state, where the coordinator writes it down.")
        index = partition_of(transactional_id, len(found.partitions))
        partition = await read_partition(cluster, TOPIC, index)
        if partition.error is not None:
            return LifeLine(missing=f"{partition.name} does not answer: {partition.error}.")
        read = await read_range(
            cluster, partition, partition.start or 0, partition.high_watermark or 0, most_bytes=MOST_BYTES
        )
    except ClusterError as error:
        return LifeLine(missing=f"The coordinator's own log cannot be read: {error}.")
    line = LifeLine(missing="" if read.is_whole else "Only the beginning of the coordinator's log was read.")
    try:
        for batch in read.batches:
            if batch.header.is_control:
                continue
            for record in read_records(batch.content):
                if record.key is not None:
                    _note(line, transactional_id, record.key, record.value, record.offset, record.timestamp_ms)
    except UNREADABLE as error:
        line.missing = f"The coordinator's log cannot be decoded: {error}."
    line.moments = line.moments[-MOST_SHOWN:]
    return line


def _note(
    line: LifeLine, transactional_id: str, key: bytes, value: bytes | None, offset: int, timestamp_ms: int
) -> None:
    found = decode_versioned(TransactionLogKey, key)
    if found is None or found.transactional_id != transactional_id:
        return
    before = line.moments[-1] if line.moments else None
    if value is None:
        line.moments.append(Moment(timestamp_ms, offset, "Forgotten", -1, -1, ()))
        return
    state = decode_versioned(TransactionLogValue, value)
    if state is None:
        return
    number = state.transaction_status
    partitions = tuple(
        f"{topic.topic}-{index}" for topic in state.transaction_partitions or () for index in topic.partition_ids
    )
    moment = Moment(
        state.transaction_last_update_timestamp_ms,
        offset,
        STATES[number] if 0 <= number < len(STATES) else f"state {number}",
        state.producer_id,
        state.producer_epoch,
        partitions,
    )
    line.moments.append(replace(moment, note=_what_changed(before, moment), after_ms=_between(before, moment)))


def _between(before: Moment | None, after: Moment) -> int | None:
    return None if before is None else max(0, after.time_ms - before.time_ms)


def _what_changed(before: Moment | None, after: Moment) -> str:
    if before is None or before.state == "Forgotten":
        return "first seen here"
    said = []
    if after.producer_id != before.producer_id:
        said.append("another producer id")
    elif after.producer_epoch != before.producer_epoch:
        said.append(f"epoch {before.producer_epoch} → {after.producer_epoch}")
    added = [name for name in after.partitions if name not in before.partitions]
    if added and after.state == "Ongoing":
        said.append(f"+ {', '.join(added[:6])}" + (f" and {len(added) - 6} more" if len(added) > 6 else ""))
    return "; ".join(said)
