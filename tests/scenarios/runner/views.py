"""What is to be seen of a partition: by readers over the wire, and in the files of a broker's disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.log.segment.transaction_index import TRANSACTION_INDEX_ENTRY, TransactionIndexEntry
from fencepost.broker.transaction.state_machine import TransactionState
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from fencepost.protocol.record import Record
from fencepost.protocol.record_batch import (
    RecordBatch,
    check_crc,
    iterate_batches,
    read_end_transaction_marker,
    read_records,
)
from fencepost.protocol.stored.consumer_offsets import decode_offset_commit_key, decode_offset_commit_value
from fencepost.protocol.stored.transaction_state import decode_transaction_log_key, decode_transaction_log_value
from tests.scenarios.runner.arguments import KeyValue
from tests.simulation.broker import DATA_DIRECTORY
from tests.simulation.client import SimulatedClient
from tests.simulation.disk import SimulatedDisk

READ_COMMITTED = 1
FETCH_BYTES = 1024 * 1024
LONGEST_TIME_TO_READ = 1000


class Delivered(NamedTuple):
    """A record that a consumer hands to its application."""

    offset: int
    record: KeyValue


class Reading(NamedTuple):
    """What a consumer got from a partition, up to where it has to wait. error: why it got no further."""

    delivered: list[Delivered]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    error: ErrorCode = ErrorCode.NONE


async def fetch_once(
    client: SimulatedClient, address: Any, topic_partition: TopicPartition, *, isolation: int, offset: int
) -> PartitionData:
    """What one Fetch of one partition brings, at once. Raises Disconnected."""
    partition = FetchPartition(
        partition=topic_partition.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
    )
    request = FetchRequest(
        max_wait_ms=0,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic_partition.topic, partitions=[partition])],
    )
    response = await client.send(address, request, 12)
    found: PartitionData = response.responses[0].partitions[0]
    return found


async def read(
    client: SimulatedClient, address: Any, topic_partition: TopicPartition, *, isolation: int, offset: int = 0
) -> Reading:
    """Consume a partition as clients do: leave out control batches and, by the broker's list, aborted records.

    Raises Disconnected.
    """
    delivered: list[Delivered] = []
    for _ in range(LONGEST_TIME_TO_READ):
        found = await fetch_once(client, address, topic_partition, isolation=isolation, offset=offset)
        if found.error_code:
            return Reading(delivered, -1, -1, -1, ErrorCode(found.error_code))
        next_offset = offset
        aborted = sorted((entry.first_offset, entry.producer_id) for entry in found.aborted_transactions or ())
        for batch in iterate_batches(found.records or b""):
            next_offset = batch.header.last_offset + 1
            delivered += _deliver(batch, aborted, offset) if isolation == READ_COMMITTED else _records(batch, offset)
        if next_offset == offset:
            return Reading(delivered, found.high_watermark, found.last_stable_offset, found.log_start_offset)
        offset = next_offset
    raise AssertionError(f"{topic_partition} has no end")


def _deliver(batch: RecordBatch, aborted: list[tuple[int, int]], offset: int) -> list[Delivered]:
    """aborted: (first offset, producer id), of which those are taken out that a marker has ended."""
    header = batch.header
    active = [entry for entry in aborted if entry[0] <= header.last_offset and entry[1] == header.producer_id]
    if header.is_control:
        marker = read_end_transaction_marker(batch)
        if active and marker is not None and not marker.committed:
            aborted.remove(active[0])
        return []
    return [] if active and header.is_transactional else _records(batch, offset)


def _records(batch: RecordBatch, offset: int) -> list[Delivered]:
    if batch.header.is_control:
        return []
    return [
        Delivered(record.offset, KeyValue(record.key, record.value))
        for record in read_records(batch)
        if record.offset >= offset
    ]


# Files


def partition_path(topic_partition: TopicPartition) -> str:
    return f"{DATA_DIRECTORY}/{topic_partition}"


def files(disk: SimulatedDisk, topic_partition: TopicPartition, suffix: str) -> Iterator[tuple[int, bytes]]:
    """The files of a partition with this suffix: the offset in each name, and what is in it."""
    start = partition_path(topic_partition) + "/"
    for path in disk.paths():
        if path.startswith(start) and path.endswith(suffix):
            yield int(path.removeprefix(start).removesuffix(suffix)), disk.content(path)


def stored_batches(disk: SimulatedDisk, topic_partition: TopicPartition) -> list[RecordBatch]:
    """All batches of a partition, in the order of their offsets, up to the first that is torn."""
    batches: list[RecordBatch] = []
    for _, content in files(disk, topic_partition, ".log"):
        for batch in iterate_batches(content):
            if not check_crc(batch.buffer):
                return batches
            batches.append(batch)
    return batches


def describe_log(disk: SimulatedDisk, topic_partition: TopicPartition) -> list[str]:
    """Each batch of a partition in words."""
    return [describe_batch(batch, topic_partition.topic) for batch in stored_batches(disk, topic_partition)] or [
        "empty"
    ]


def describe_batch(batch: RecordBatch, topic: str) -> str:
    """A batch in words: offsets, records, its producer."""
    header = batch.header
    offsets = f"{header.base_offset}"
    if header.last_offset > header.base_offset:
        offsets += f"-{header.last_offset}"
    marker = read_end_transaction_marker(batch)
    if marker is not None:
        outcome = "COMMIT" if marker.committed else "ABORT"
        producer_name = f"producer {header.producer_id} epoch {header.producer_epoch}"
        return f"{offsets} {outcome} {producer_name} coordinator epoch {marker.coordinator_epoch}"
    records = " ".join(_record_text(record, topic) for record in read_records(batch)) or "(no records left)"
    if header.producer_id < 0:
        return f"{offsets} {records}"
    kind = "transactional" if header.is_transactional else "idempotent"
    sequence = f" sequence {header.base_sequence}" if header.base_sequence >= 0 else ""
    return f"{offsets} {records} ({kind}, producer {header.producer_id} epoch {header.producer_epoch}{sequence})"


def _record_text(record: Record, topic: str) -> str:
    if topic == TRANSACTION_STATE_TOPIC and record.key is not None:
        return _transaction_text(record.key, record.value)
    if topic == CONSUMER_OFFSETS_TOPIC and record.key is not None:
        return _offset_text(record.key, record.value)
    return str(KeyValue(record.key, record.value))


def _transaction_text(key: bytes, value: bytes | None) -> str:
    transactional_id = decode_transaction_log_key(key)
    if value is None:
        return f"{transactional_id}: forgotten"
    stored = decode_transaction_log_value(value)
    assert stored is not None, "a version that this broker does not write"
    partitions = sorted(
        f"{topic.topic}-{index}" for topic in stored.transaction_partitions or () for index in topic.partition_ids
    )
    state = TransactionState(stored.transaction_status).display_name
    line = f"{transactional_id}: {state} producer {stored.producer_id} epoch {stored.producer_epoch}"
    if stored.next_producer_id >= 0:
        line += f" next producer {stored.next_producer_id}"
    if stored.next_producer_epoch >= 0:
        line += f" epoch {stored.next_producer_epoch}"
    return f"{line} with {' '.join(partitions)}" if partitions else line


def _offset_text(key: bytes, value: bytes | None) -> str:
    where = decode_offset_commit_key(key)
    if where is None:
        return "group"
    line = f"{where.group} {where.topic}-{where.partition}"
    if value is None:
        return f"{line} forgotten"
    stored = decode_offset_commit_value(value)
    assert stored is not None, "a version that this broker does not write"
    return f"{line}={stored.offset}"


def describe_transaction_index(disk: SimulatedDisk, topic_partition: TopicPartition) -> list[str]:
    """Each entry of the `.txnindex` files of a partition in words."""
    return [
        f"producer {entry.producer_id} offsets {entry.first_offset} to {entry.last_offset}, "
        f"last stable offset {entry.last_stable_offset}"
        for entry in transaction_index(disk, topic_partition)
    ] or ["empty"]


def transaction_index(disk: SimulatedDisk, topic_partition: TopicPartition) -> list[TransactionIndexEntry]:
    return [
        TransactionIndexEntry._make(fields)
        for _, content in files(disk, topic_partition, ".txnindex")
        for _, *fields in TRANSACTION_INDEX_ENTRY.iter_unpack(content)
    ]
