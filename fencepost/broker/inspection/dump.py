"""Dump of a partition's files, decoded: batches and records, indexes, producer snapshots, checkpoints.

Nothing is compared with anything else; `broker.inspection.partition_scan` does that.
Source: Kafka's DumpLogSegments.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fencepost.broker.inspection.overlay_disk import OverlayDisk
from fencepost.broker.inspection.segment_scan import Damaged, Mended, scan_segment
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from fencepost.broker.log.files.checkpoints import CorruptCheckpointError, decode_epochs, decode_partition_metadata
from fencepost.broker.log.files.partition_files import LEADER_EPOCH_FILE, METADATA_FILE
from fencepost.broker.log.files.producer_snapshot import CorruptSnapshot, decode_snapshot
from fencepost.broker.log.segment.offset_index import ENTRY_BYTES
from fencepost.broker.log.segment.time_index import TIME_INDEX_ENTRY
from fencepost.broker.log.segment.transaction_index import TRANSACTION_INDEX_ENTRY
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import RecordBatch, read_end_transaction_marker, read_records
from fencepost.protocol.stored.consumer_offsets import (
    decode_group_metadata_key,
    decode_group_metadata_value,
    decode_offset_commit_key,
    decode_offset_commit_value,
)
from fencepost.protocol.stored.transaction_state import decode_transaction_log_key, decode_transaction_log_value

DumpRow = dict[str, Any]
INT32_BYTES = 4

_DECODERS: dict[str, Sequence[tuple[Callable[[bytes], Any], Callable[[bytes], Any]]]] = {
    TRANSACTION_STATE_TOPIC: ((decode_transaction_log_key, decode_transaction_log_value),),
    CONSUMER_OFFSETS_TOPIC: (
        (decode_offset_commit_key, decode_offset_commit_value),
        (decode_group_metadata_key, decode_group_metadata_value),
    ),
}


def files_of(directory: str) -> list[str]:
    """Return the files of a partition that can be dumped, by name. Raises StorageError."""
    names = OverlayDisk().list(directory)
    return [f"{directory}/{name}" for name in names if _suffix(name) in _READERS or name in _SMALL]


def dump(path: str, *, with_records: bool) -> Iterator[DumpRow]:
    """Yield the content of a file, one row per item, with its `kind`. Raises StorageError.

    A file whose content does not match its name gives a row of kind `unreadable`.
    """
    name = os.path.basename(path)
    if name in _SMALL:
        yield from _SMALL[name](path)
    elif _suffix(name) == ".log":
        yield from _dump_log(path, with_records=with_records)
    elif _suffix(name) in _READERS:
        yield from _READERS[_suffix(name)](path)
    else:
        yield {"kind": "unreadable", "reason": "no file of a log has such a name"}


def _suffix(name: str) -> str:
    stem, dot, suffix = name.partition(".")
    is_numbered = len(stem) == 20 and stem.isdecimal()
    return f"{dot}{suffix}" if is_numbered else ""


def _base_offset(path: str) -> int:
    return int(os.path.basename(path).partition(".")[0])


def _dump_log(path: str, *, with_records: bool) -> Iterator[DumpRow]:
    disk = OverlayDisk()
    topic = os.path.basename(os.path.dirname(path)).rpartition("-")[0]
    base_offset = _base_offset(path)
    later = [_base_offset(one) for one in disk.list(os.path.dirname(path)) if _suffix(one) == ".log"]
    following = min((one for one in later if one > base_offset), default=None)
    try:
        for found in scan_segment(disk.open(path), base_offset, following):
            if isinstance(found, Damaged):
                yield {
                    "kind": "damage",
                    "position": found.position,
                    "bytes": found.end_position - found.position,
                    "first_offset": found.first_offset,
                    "end_offset": found.end_offset,
                    "reason": found.reason,
                }
                continue
            yield _batch_row(found.position, found.batch, found.reason if isinstance(found, Mended) else None)
            if with_records:
                yield from _record_rows(topic, found.batch)
    finally:
        disk.close()


def _batch_row(position: int, batch: RecordBatch, false_header: str | None) -> DumpRow:
    header = batch.header
    row: DumpRow = {
        "kind": "batch",
        "position": position,
        "bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.records_count,
        "crc": "ok",
        "leader_epoch": header.partition_leader_epoch,
        "max_timestamp_ms": header.max_timestamp_ms,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "compression": _compression(batch),
    }
    if false_header is not None:
        row["false_header"] = false_header
    if header.is_control:
        try:
            marker = read_end_transaction_marker(batch)
        except DecodeError as error:
            row["marker"] = f"unreadable: {error}"
        else:
            if marker is not None:
                row["marker"] = "COMMIT" if marker.committed else "ABORT"
                row["coordinator_epoch"] = marker.coordinator_epoch
    return row


def _compression(batch: RecordBatch) -> str:
    try:
        return batch.header.codec.name.lower()
    except DecodeError as error:
        return str(error)


def _record_rows(topic: str, batch: RecordBatch) -> Iterator[DumpRow]:
    if batch.header.is_control:
        return
    try:
        for record in read_records(batch):
            yield {
                "kind": "record",
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms,
                **_decoded(topic, record.key, record.value),
                "headers": {name: _text(value) for name, value in record.headers},
            }
    except DecodeError as error:
        yield {"kind": "unreadable", "reason": f"the records of the batch at {batch.header.base_offset}: {error}"}


def _decoded(topic: str, key: bytes | None, value: bytes | None) -> DumpRow:
    """Return key and value of a record; a coordinator's are decoded."""
    for decode_key, decode_value in _DECODERS.get(topic, ()):
        if key is None:
            break
        try:
            decoded_key = decode_key(key)
            if decoded_key is not None:
                return {"key": str(decoded_key), "value": None if value is None else str(decode_value(value))}
        except DecodeError:
            continue
    return {"key": _text(key), "value": _text(value)}


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="backslashreplace")


def _content(path: str) -> bytes:
    with contextlib.closing(OverlayDisk()) as disk:
        return disk.read_file(path) or b""


def _dump_offset_index(path: str) -> Iterator[DumpRow]:
    content, base_offset = _content(path), _base_offset(path)
    for start in range(0, len(content) - ENTRY_BYTES + 1, ENTRY_BYTES):
        relative = int.from_bytes(content[start : start + INT32_BYTES], "big", signed=True)
        position = int.from_bytes(content[start + INT32_BYTES : start + ENTRY_BYTES], "big", signed=True)
        yield {"kind": "index entry", "last_offset": base_offset + relative, "position": position}
    yield from _rest(content, ENTRY_BYTES)


def _dump_time_index(path: str) -> Iterator[DumpRow]:
    content, base_offset = _content(path), _base_offset(path)
    for start in range(0, len(content) - TIME_INDEX_ENTRY.size + 1, TIME_INDEX_ENTRY.size):
        timestamp_ms, relative = TIME_INDEX_ENTRY.unpack_from(content, start)
        yield {"kind": "time entry", "timestamp_ms": timestamp_ms, "last_offset": base_offset + relative}
    yield from _rest(content, TIME_INDEX_ENTRY.size)


def _dump_transaction_index(path: str) -> Iterator[DumpRow]:
    content = _content(path)
    for start in range(0, len(content) - TRANSACTION_INDEX_ENTRY.size + 1, TRANSACTION_INDEX_ENTRY.size):
        version, producer_id, first_offset, last_offset, stable_offset = TRANSACTION_INDEX_ENTRY.unpack_from(
            content, start
        )
        yield {
            "kind": "aborted transaction",
            "version": version,
            "producer_id": producer_id,
            "first_offset": first_offset,
            "last_offset": last_offset,
            "last_stable_offset": stable_offset,
        }
    yield from _rest(content, TRANSACTION_INDEX_ENTRY.size)


def _rest(content: bytes, entry_bytes: int) -> Iterator[DumpRow]:
    if len(content) % entry_bytes:
        reason = f"{len(content) % entry_bytes} bytes at the end are no entry"
        yield {"kind": "unreadable", "reason": reason}


def _dump_snapshot(path: str) -> Iterator[DumpRow]:
    decoded = decode_snapshot(_content(path))
    if isinstance(decoded, CorruptSnapshot):
        yield {"kind": "unreadable", "reason": decoded.reason}
        return
    for producer in decoded:
        last = producer.recent_batches[-1] if producer.recent_batches else None
        yield {
            "kind": "producer",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "timestamp_ms": producer.timestamp_ms,
            "transaction_first_offset": producer.current_transaction_first_offset,
            "last_sequence": None if last is None else last.last_sequence,
            "last_offset": None if last is None else last.last_offset,
            "batches": len(producer.recent_batches),
        }


def _dump_epochs(path: str) -> Iterator[DumpRow]:
    try:
        for leader_epoch, start_offset in decode_epochs(_content(path)):
            yield {"kind": "leader epoch", "leader_epoch": leader_epoch, "start_offset": start_offset}
    except CorruptCheckpointError as error:
        yield {"kind": "unreadable", "reason": str(error)}


def _dump_metadata(path: str) -> Iterator[DumpRow]:
    try:
        yield {"kind": "topic id", "topic_id": decode_partition_metadata(_content(path)).hex()}
    except CorruptCheckpointError as error:
        yield {"kind": "unreadable", "reason": str(error)}


_READERS: dict[str, Callable[[str], Iterator[DumpRow]]] = {
    ".log": lambda path: _dump_log(path, with_records=False),
    ".index": _dump_offset_index,
    ".timeindex": _dump_time_index,
    ".txnindex": _dump_transaction_index,
    ".snapshot": _dump_snapshot,
}
_SMALL: dict[str, Callable[[str], Iterator[DumpRow]]] = {LEADER_EPOCH_FILE: _dump_epochs, METADATA_FILE: _dump_metadata}
