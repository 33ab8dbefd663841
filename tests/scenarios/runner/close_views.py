"""What is to be seen from close by: every field of a record, a snapshot's entries, bytes, and what a fetch brings."""

from __future__ import annotations

from typing import Any

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.files.producer_snapshot import CorruptSnapshot, decode_snapshot
from fencepost.broker.transaction.state_machine import TransactionState
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import iterate_batches, read_records
from fencepost.protocol.stored.transaction_state import decode_transaction_log_key, decode_transaction_log_value
from tests.scenarios.runner.views import describe_batch, fetch_once, files, stored_batches
from tests.simulation.client import SimulatedClient
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import START_MS


async def fetch(
    client: SimulatedClient, address: Any, topic_partition: TopicPartition, *, isolation: int, offset: int
) -> list[str]:
    """What one Fetch brings over the wire, before a consumer leaves anything out: batches, then the aborted producers.

    Raises Disconnected.
    """
    found = await fetch_once(client, address, topic_partition, isolation=isolation, offset=offset)
    if found.error_code:
        return [ErrorCode(found.error_code).name]
    lines = [describe_batch(batch, topic_partition.topic) for batch in iterate_batches(found.records or b"")]
    lines += [
        f"aborted: producer {entry.producer_id} from offset {entry.first_offset}"
        for entry in found.aborted_transactions or ()
    ]
    return lines or ["nothing"]


def describe_transaction_state(disk: SimulatedDisk, topic_partition: TopicPartition) -> list[str]:
    """Every field of each record of a partition of `__transaction_state`. Times count from when the world began."""
    return [
        _all_fields(record.key, record.value)
        for batch in stored_batches(disk, topic_partition)
        for record in read_records(batch)
        if record.key is not None
    ] or ["empty"]


def _all_fields(key: bytes, value: bytes | None) -> str:
    transactional_id = decode_transaction_log_key(key)
    if value is None:
        return f"{transactional_id}: no value"
    stored = decode_transaction_log_value(value)
    assert stored is not None, "a version that this broker does not write"
    topics = stored.transaction_partitions
    if topics is None:
        partitions = "null"
    else:
        partitions = " ".join(sorted(f"{topic.topic}-{index}" for topic in topics for index in topic.partition_ids))
    fields = {
        "state": TransactionState(stored.transaction_status).display_name,
        "producer id": stored.producer_id,
        "previous": stored.previous_producer_id,
        "next": stored.next_producer_id,
        "epoch": stored.producer_epoch,
        **({} if stored.next_producer_epoch < 0 else {"next epoch": stored.next_producer_epoch}),
        "time-out": f"{stored.transaction_timeout_ms} ms",
        "partitions": partitions or "none",
        "started": _time_text(stored.transaction_start_timestamp_ms),
        "updated": _time_text(stored.transaction_last_update_timestamp_ms),
        "client's version": stored.client_transaction_version,
    }
    return f"{transactional_id}: " + ", ".join(f"{name} {value}" for name, value in fields.items())


def _time_text(timestamp_ms: int) -> str:
    return "never" if timestamp_ms < 0 else f"{(timestamp_ms - START_MS) / 1000:.1f} s"


def describe_last_record_in_bytes(disk: SimulatedDisk, topic_partition: TopicPartition) -> list[str]:
    """Key and value of the last record of a partition, in hexadecimal."""
    batches = stored_batches(disk, topic_partition)
    if not batches:
        return ["empty"]
    record = list(read_records(batches[-1]))[-1]
    return [
        f"{name} {'null' if content is None else content.hex()}"
        for name, content in (("key", record.key), ("value", record.value))
    ]


def describe_snapshot(disk: SimulatedDisk, topic_partition: TopicPartition) -> list[str]:
    """Every producer in the newest `.snapshot` of a partition."""
    found = list(files(disk, topic_partition, ".snapshot"))
    if not found:
        return ["none"]
    producers = decode_snapshot(found[-1][1])
    if isinstance(producers, CorruptSnapshot):
        return [f"corrupt: {producers.reason}"]
    lines = []
    for producer in producers:
        line = f"producer {producer.producer_id} epoch {producer.producer_epoch}"
        if producer.recent_batches:
            newest = producer.recent_batches[-1]
            line += f" last sequence {newest.last_sequence} at offset {newest.last_offset}"
            line += f", batches remembered {len(producer.recent_batches)}"
        start = producer.current_transaction_first_offset
        opened = f"transaction open since offset {start}" if start >= 0 else "no open transaction"
        lines.append(f"{line}, coordinator epoch {producer.coordinator_epoch}, {opened}")
    return lines or ["no producers"]


def describe_transaction_index_in_bytes(disk: SimulatedDisk, topic_partition: TopicPartition) -> list[str]:
    """The newest `.txnindex` of a partition, in hexadecimal."""
    found = list(files(disk, topic_partition, ".txnindex"))
    return [found[-1][1].hex() or "empty"] if found else ["none"]
