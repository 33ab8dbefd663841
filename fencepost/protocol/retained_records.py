"""A batch with only some of its records, as the cleaner writes it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from fencepost.protocol.compression import Codec, compress
from fencepost.protocol.record import Record
from fencepost.protocol.record_batch import DELETE_HORIZON_BIT, BatchHeader, RecordBatch, sealed_header, write_records

RECORDS_PER_RETENTION_STEP: Final = 1_000


def retention_steps(
    batch: RecordBatch, records: list[Record], *, delete_horizon_ms: int | None = None
) -> Generator[None, None, tuple[BatchHeader, bytearray]]:
    """Make header and uncompressed records section of a batch with only some of its records.

    Offsets, sequence range, producer and leader epoch stay, so that consumers' positions and producers' state remain
    valid. A step is `RECORDS_PER_RETENTION_STEP` records; the list is emptied.
    delete_horizon_ms: time from which its tombstones and markers may be removed; None keeps the batch's own.
    Source: Kafka's MemoryRecords.filterTo and KIP-534.
    """
    header = batch.header
    base_timestamp_ms = records[0].timestamp_ms if records else header.base_timestamp_ms
    if header.has_delete_horizon:
        base_timestamp_ms = header.base_timestamp_ms
    attributes = header.attributes
    if delete_horizon_ms is not None:
        base_timestamp_ms = delete_horizon_ms
        attributes |= DELETE_HORIZON_BIT
    section = bytearray()
    records_count = len(records)
    times_ms = []
    records.reverse()  # frees the memory of records as they are written
    for start in range(0, records_count, RECORDS_PER_RETENTION_STEP):
        if start:
            yield
        step = records[-RECORDS_PER_RETENTION_STEP:]
        del records[-RECORDS_PER_RETENTION_STEP:]
        step.reverse()
        write_records(section, base_timestamp_ms, header.base_offset, step)
        times_ms.append(max([record.timestamp_ms for record in step]))
    max_timestamp_ms = header.max_timestamp_ms if header.is_log_append_time or not times_ms else max(times_ms)
    changed = header._replace(
        attributes=attributes,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        records_count=records_count,
    )
    return changed, section


def compressed_and_sealed(header: BatchHeader, section: bytearray) -> bytearray:
    """Build the batch of that header and an uncompressed records section."""
    compressed = section if header.codec is Codec.NONE else compress(header.codec, section)
    return bytearray().join((sealed_header(header, compressed), compressed))
