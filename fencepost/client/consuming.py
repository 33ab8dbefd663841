"""Reading a partition: its offsets, one Fetch, and its records between two offsets."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClusterError, check
from fencepost.client.view import Partition
from fencepost.protocol.aborted_transactions import AbortedTransactions
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import (
    Record,
    RecordBatch,
    check_crc,
    iterate_batches,
    read_records,
)

LATEST: Final = -1
EARLIEST: Final = -2
UNCOMMITTED, COMMITTED = 0, 1
FETCH_BYTES: Final = 1 << 20
WAIT_MS: Final = 200

Place = tuple[str, int]
"""A topic's name and a partition's number."""


class FetchedRecord(NamedTuple):
    """A record, and whether the broker set its timestamp."""

    record: Record
    is_append_time: bool


async def list_offsets(
    cluster: Cluster,
    leader: int,
    places: Sequence[Place],
    timestamp: int,
    isolation: int,
    *,
    within_s: float | None = None,
) -> Mapping[Place, tuple[int, int, int]]:
    """By place (error code, timestamp, offset). timestamp: ms, LATEST or EARLIEST. Raises ClusterError."""
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for topic, index in places:
        topics[topic].append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
        timeout_ms=5_000,
    )
    sending = cluster.send(request, leader) if within_s is None else cluster.send_within(request, leader, within_s)
    reply = await sending
    return {
        (topic.name, one.partition_index): (one.error_code, one.timestamp, one.offset)
        for topic in reply.topics
        for one in topic.partitions
    }


async def offset_of(cluster: Cluster, topic: str, partition: Partition, timestamp: int) -> int:
    """The offset of one partition at a timestamp, as for `list_offsets`. Raises ClusterError."""
    place = topic, partition.index
    found = (await list_offsets(cluster, partition.leader, [place], timestamp, UNCOMMITTED)).get(place)
    if found is None:
        raise ClusterError(f"the broker's answer does not have {topic}-{partition.index}")
    check(found[0])
    return found[2]


async def fetch(
    cluster: Cluster, place: Place, leader: int, offset: int, isolation: int, most_bytes: int, *, wait_ms: int = 0
) -> Any:
    """Send a Fetch for one partition and return its part of the reply. Raises ClusterError."""
    topic, index = place
    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=most_bytes)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1 if wait_ms else 0,
        max_bytes=most_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    reply = await cluster.send(request, leader)
    check(reply.error_code)
    if not reply.responses or not reply.responses[0].partitions:
        raise ClusterError(f"the broker's answer does not have {topic}-{index}")
    data = reply.responses[0].partitions[0]
    check(data.error_code)
    return data


async def read_between(
    cluster: Cluster, topic: str, partition: Partition, next_offset: int, end: int, isolation: int, timeout_s: float
) -> tuple[list[FetchedRecord], int]:
    """The records of a partition from an offset up to another, and the next offset to read.

    next_offset: the first offset; beyond the end, the log's start counts: the topic was created again. Raises
    ClusterError, and TimeoutError if an open transaction hides the rest from a read_committed reader.
    """
    place = topic, partition.index
    begin = await offset_of(cluster, topic, partition, EARLIEST)
    position = max(next_offset, begin) if next_offset <= end else begin
    found: list[FetchedRecord] = []
    give_up_at_s = time.monotonic() + timeout_s
    while position < end:
        if time.monotonic() > give_up_at_s:
            raise TimeoutError(
                f"{topic}-{partition.index} could not be read to its end in {timeout_s:g} s; an open transaction may "
                "be in the way"
            )
        data = await fetch(cluster, place, partition.leader, position, isolation, FETCH_BYTES, wait_ms=WAIT_MS)
        try:
            batches = list(iterate_batches(data.records or b""))
            for batch in visible_batches(batches, data.aborted_transactions or ()):
                if not check_crc(batch.buffer):
                    raise DecodeError("a batch with a wrong checksum")
                is_append_time = batch.header.is_log_append_time
                found += (FetchedRecord(one, is_append_time) for one in read_records(batch) if one.offset >= position)
        except (DecodeError, UnicodeDecodeError) as error:
            raise ClusterError(f"{topic}-{partition.index} cannot be read at offset {position}: {error}") from None
        if batches:
            position = batches[-1].header.last_offset + 1
        elif data.last_stable_offset >= end:
            position = end  # compaction has left nothing up to there
    return found, position


def visible_batches(batches: Iterable[RecordBatch], aborted: Iterable[Any]) -> Iterator[RecordBatch]:
    """Batches with records for a reader, of one Fetch and its aborted transactions."""
    transactions = AbortedTransactions(aborted)
    return (batch for batch in batches if not transactions.hide(batch) and not batch.header.is_control)
