"""Dead letters of a share group, read from the end of its dead-letter topic, within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fencepost.client.cluster import Cluster
from fencepost.client.consuming import Place
from fencepost.client.errors import ClusterError
from fencepost.console.reading.records import read_range
from fencepost.console.reading.settings import ResourceKind, read_settings
from fencepost.console.reading.topics import PartitionState
from fencepost.console.record_marks import UNREADABLE
from fencepost.protocol.record_batch import Record, read_records

TOPIC_CONFIG: Final = "errors.deadletterqueue.topic.name"
PREFIX: Final = "__dlq.errors."
MOST_RECORDS: Final = 500
MOST_BYTES: Final = 1 << 20
"""Both of one partition: the page is read again every 5 s."""
MOST_PARTITIONS: Final = 20


@dataclass(frozen=True)
class NewestDeadLetter:
    """The dead letter that was written last. topic, partition, offset: of its original, as its headers name them.
    place, place_offset: its own place."""

    topic: str
    partition: str
    offset: str
    message: str
    delivery_count: str
    timestamp_ms: int
    place: int
    place_offset: int


@dataclass
class DeadLetters:
    """The dead letters of a group. topic: of all its dead letters; empty if it has none. count: number of those read.
    is_all: whether all records of the topic were read. error: why some were not, as a sentence."""

    topic: str = ""
    count: int = 0
    is_all: bool = True
    newest: NewestDeadLetter | None = None
    error: str | None = None


async def read_dead_letters(cluster: Cluster, group_id: str, partitions: Mapping[Place, PartitionState]) -> DeadLetters:
    """Read the last records of the group's dead-letter topic."""
    found = DeadLetters()
    try:
        settings = await read_settings(cluster, ResourceKind.GROUP, group_id)
        found.topic = next((one.value or "" for one in settings if one.name == TOPIC_CONFIG), "")
        ours = [partition for (topic, _), partition in sorted(partitions.items()) if topic == found.topic]
        if found.topic and not ours:
            found.error = "it does not exist, or you may not see it"
        found.is_all = len(ours) <= MOST_PARTITIONS
        await asyncio.gather(*(_add(cluster, group_id, partition, found) for partition in ours[:MOST_PARTITIONS]))
    except ClusterError as error:
        found.error = str(error)
    return found


async def _add(cluster: Cluster, group_id: str, partition: PartitionState, found: DeadLetters) -> None:
    start, end = partition.start or 0, partition.high_watermark or 0
    first = max(start, end - MOST_RECORDS)
    read = await read_range(cluster, partition, first, end, most_bytes=MOST_BYTES)
    found.is_all = found.is_all and read.is_whole and first == start
    batches = read.batches
    if not read.is_whole and end > read.next_offset:
        batches = batches + (await read_range(cluster, partition, end - 1, end)).batches
    for batch in batches:
        if batch.is_marker:
            continue
        try:
            records = list(read_records(batch.content))
        except UNREADABLE as error:
            found.error = f"{partition.name} cannot be read at offset {batch.header.base_offset}: {error}"
            return
        for record in records:
            letter = _letter(record, group_id, partition.index)
            if letter is None or record.offset < first:
                continue
            found.count += 1
            if found.newest is None or letter.timestamp_ms >= found.newest.timestamp_ms:
                found.newest = letter


def _letter(record: Record, group_id: str, place: int) -> NewestDeadLetter | None:
    """The record as a dead letter; None if it is none of the group."""
    headers = {
        name.removeprefix(PREFIX): (value or b"").decode("utf-8", "replace")
        for name, value in record.headers
        if name.startswith(PREFIX)
    }
    if headers.get("group") != group_id:
        return None
    return NewestDeadLetter(
        topic=headers.get("topic", ""),
        partition=headers.get("partition", ""),
        offset=headers.get("offset", ""),
        message=headers.get("message", ""),
        delivery_count=headers.get("delivery.count", ""),
        timestamp_ms=record.timestamp_ms,
        place=place,
        place_offset=record.offset,
    )
