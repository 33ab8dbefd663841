"""The life of a transactional id, as its coordinator wrote it into `__transaction_state`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.coordinator_partitions import partition_of
from fencepost.client.errors import ClusterError
from fencepost.console.reading.records import MOST_BYTES, read_range
from fencepost.console.reading.topics import read_partition
from fencepost.console.record_marks import UNREADABLE
from fencepost.diagnosis.transaction_history import Moment, TransactionHistory
from fencepost.protocol.record_batch import read_records

TOPIC: Final = "__transaction_state"
MOST_SHOWN: Final = 200


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
    history = TransactionHistory(transactional_id, MOST_SHOWN)
    missing = "" if read.is_whole else "Only the beginning of the coordinator's log was read."
    try:
        for batch in read.batches:
            if not batch.header.is_control:
                for record in read_records(batch.content):
                    history.add(record)
    except UNREADABLE as error:
        missing = f"The coordinator's log cannot be decoded: {error}."
    if not missing and not history.is_whole:
        missing = f"The latest {MOST_SHOWN}, without those of a later release."
    return LifeLine(list(history.moments), missing)
