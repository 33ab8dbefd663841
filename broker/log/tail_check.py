"""Reading a log file batch by batch with every checksum, and judging what stands where the first bad batch begins.

After an unclean stop the end of a log may hold half a batch, zeros, or whole batches behind a hole: what had not been
synced reaches the disk in any order or not at all.
Source: Kafka's LogSegment.recover, which cuts at the first batch that is not valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.disk import LogFile
from broker.log.batch_scan import is_plausible
from broker.log.steps import Steps
from protocol.record_batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    PREFIX_BYTES,
    RecordBatch,
    check_crc,
    read_header,
)

READ_BYTES = 1024 * 1024  # what stays in the processor's cache, and is not mapped anew from the system for every read
_LEADER_EPOCH_POSITION = 12


class CheckedBatch(NamedTuple):
    """A batch with a right checksum, and where in the file it starts."""

    position: int
    batch: RecordBatch


def checked_batches(file: LogFile, first_offset: int) -> Iterator[CheckedBatch]:
    """The batches of a file up to the first that is not whole, not valid, or does not follow the one before.

    first_offset: none may begin below. Offsets may leave gaps, as compaction does.
    """
    position = 0
    chunk = memoryview(b"")
    chunk_position = chunk_bytes = 0
    while True:
        start = position - chunk_position
        if start + HEADER_BYTES > chunk_bytes:
            chunk, chunk_position, start = file.read(position, READ_BYTES), position, 0
            chunk_bytes = len(chunk)
            if chunk_bytes < HEADER_BYTES:
                return
        header = read_header(chunk, start)
        if not is_plausible(header) or header.base_offset < first_offset:
            return
        size_bytes = header.batch_length + LENGTH_OVERHEAD_BYTES
        if start + size_bytes > chunk_bytes:
            if position + size_bytes > file.size_bytes:
                return
            chunk, chunk_position, start = file.read(position, max(READ_BYTES, size_bytes)), position, 0
            chunk_bytes = len(chunk)
        buffer = chunk[start : start + size_bytes]
        if not check_crc(buffer):
            return
        yield CheckedBatch(position, RecordBatch(header, buffer))
        position += size_bytes
        first_offset = header.base_offset + header.last_offset_delta + 1


def find_valid_batch(file: LogFile, position: int, first_offset: int, leader_epoch: int) -> Steps[CheckedBatch | None]:
    """The first whole, valid batch that begins after `position`, wherever that is; None when there is none.

    It is looked for by what is known to stand at fixed places of it: the leader epoch and the format's number.
    """
    pattern = leader_epoch.to_bytes(PREFIX_BYTES - _LEADER_EPOCH_POSITION, "big", signed=True) + b"\x02"
    chunk_position = position
    while chunk_position + HEADER_BYTES <= file.size_bytes:
        chunk = bytes(file.read(chunk_position, READ_BYTES))
        found = chunk.find(pattern)
        while found >= 0:
            candidate = chunk_position + found - _LEADER_EPOCH_POSITION
            if candidate > position:
                batch = _batch_at(file, candidate, first_offset)
                if batch is not None:
                    return batch
            found = chunk.find(pattern, found + 1)
        yield
        # The pattern may lie across two chunks.
        chunk_position += len(chunk) - len(pattern) + 1 if len(chunk) == READ_BYTES else len(chunk)
    return None


def _batch_at(file: LogFile, position: int, first_offset: int) -> CheckedBatch | None:
    start = file.read(position, HEADER_BYTES)
    if len(start) < HEADER_BYTES:
        return None
    header = read_header(start)
    if not is_plausible(header) or header.base_offset < first_offset:
        return None
    if position + header.size_bytes > file.size_bytes:
        return None
    buffer = file.read(position, header.size_bytes)
    return CheckedBatch(position, RecordBatch(header, buffer)) if check_crc(buffer) else None
