"""Scan of a log file's tail: reads batch by batch with every checksum, and judges the first bad place.

After an unclean stop the end of a log may hold half a batch, zeros, or whole batches behind a hole: unsynced
bytes reach the disk in any order or not at all.
Source: Kafka's LogSegment.recover, which cuts at the first batch that is not valid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.broker.log.segment.batch_scan import header_at
from fencepost.broker.log.segment.header_plausibility import (
    MAX_RELATIVE_OFFSET,
    SMALLEST_BATCH_LENGTH,
    HeaderPlausibility,
    implausibility,
)
from fencepost.broker.storage.disk import LogFile
from fencepost.protocol.record_batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    BatchHeader,
    RecordBatch,
    check_crc,
    read_header,
)

READ_BYTES = 1024 * 1024  # fits the processor's cache, and is not mapped anew by the system for every read
SMALL_EPOCH = 2**16 - 1
_LEADER_EPOCH_POSITION = 12
_EPOCH_BYTES = 4
_NO_EPOCH_PATTERN = re.escape((-1).to_bytes(_EPOCH_BYTES, "big", signed=True))


class TailBatch(NamedTuple):
    """A batch with a right checksum, and its position in the file."""

    position: int
    batch: RecordBatch


class BatchesAfterDamage(NamedTuple):
    """The whole, valid batches behind a bad place.

    least_offset, end_offset: bounds of all of them together.
    """

    batches_count: int
    least_offset: int
    end_offset: int


def checked_batches(file: LogFile, order: HeaderPlausibility, position: int = 0) -> Iterator[TailBatch]:
    """Yield the batches of a file, from one's position to the first that is not whole, not valid, or not the next one.

    If that is not the end of the file, `order.fault` has the reason.
    """
    chunk = memoryview(b"")
    chunk_position, chunk_bytes = position, 0
    size_bytes = 0

    def following() -> BatchHeader | None:
        return header_at(file, position + size_bytes)

    while True:
        start = position - chunk_position
        if start + HEADER_BYTES > chunk_bytes:
            chunk, chunk_position, start = file.read(position, READ_BYTES), position, 0
            chunk_bytes = len(chunk)
            if chunk_bytes < HEADER_BYTES:
                if chunk_bytes:
                    order.reject(position, None, f"the {chunk_bytes} bytes from there on are no batch")
                return
        header = read_header(chunk, start)
        size_bytes = header.batch_length + LENGTH_OVERHEAD_BYTES
        implausible = implausibility(header)
        if implausible is not None:
            order.reject(position, header, implausible)
            return
        if start + size_bytes > chunk_bytes:
            if position + size_bytes > file.size_bytes:
                order.reject(position, header, "the batch there does not end in the file")
                return
            chunk, chunk_position, start = file.read(position, max(READ_BYTES, size_bytes)), position, 0
            chunk_bytes = len(chunk)
        buffer = chunk[start : start + size_bytes]
        if not check_crc(buffer):
            order.reject(position, header, "the batch there has a wrong checksum")
            return
        if not order.accept(header, position, following):
            return
        yield TailBatch(position, RecordBatch(header, buffer))
        position += size_bytes


def batches_after_damage(
    file: LogFile, position: int, base_offset: int, greatest_epoch: int
) -> SlicedWork[BatchesAfterDamage]:
    """Return the valid batches that begin anywhere after `position`, with offsets that the segment can hold.

    The search looks for their fixed places: a leader epoch of `greatest_epoch` or less (checkpoints may lack recent
    epochs, so small ones always count), and the format's number.
    """
    pattern = _batch_pattern(greatest_epoch)
    count, least_offset, end_offset = 0, base_offset + MAX_RELATIVE_OFFSET, base_offset
    position += 1
    while position + HEADER_BYTES <= file.size_bytes:
        chunk = bytes(file.read(position, READ_BYTES))
        next_position = position + len(chunk) - (_LEADER_EPOCH_POSITION + _EPOCH_BYTES)
        start = _LEADER_EPOCH_POSITION
        while (found := pattern.search(chunk, start)) is not None:
            candidate = position + found.start() - _LEADER_EPOCH_POSITION
            batch = valid_batch_at(file, candidate)
            start = found.start() + 1
            if batch is None or not 0 <= batch.header.last_offset - base_offset <= MAX_RELATIVE_OFFSET:
                continue
            count += 1
            least_offset = min(least_offset, batch.header.base_offset)
            end_offset = max(end_offset, batch.header.last_offset + 1)
            # Bytes inside a valid batch are its content, even if they look like a batch.
            start += batch.header.size_bytes - 1
            if start >= len(chunk):
                next_position = candidate + batch.header.size_bytes
                break
        yield
        position = next_position
    return BatchesAfterDamage(count, least_offset, end_offset)


def valid_batch_at(file: LogFile, position: int) -> RecordBatch | None:
    """Return the whole batch with a right checksum that begins at a position; None when there is none.

    The fields that the checksum does not cover may be false, except the length.
    """
    header = header_at(file, position)
    if header is None or header.batch_length < SMALLEST_BATCH_LENGTH or position + header.size_bytes > file.size_bytes:
        return None
    buffer = file.read(position, header.size_bytes)
    return RecordBatch(header, buffer) if check_crc(buffer) else None


def _batch_pattern(greatest_epoch: int) -> re.Pattern[bytes]:
    """Return a pattern that matches leader epochs up to the greatest, perhaps more, and none; then the format's
    number."""
    greatest = max(greatest_epoch, SMALL_EPOCH).to_bytes(_EPOCH_BYTES, "big")
    zeros = len(greatest) - len(greatest.lstrip(b"\x00"))
    highest = re.escape(greatest[zeros : zeros + 1])
    epochs = b"\\x00" * zeros + b"[\\x00-" + highest + b"]" + b"." * (_EPOCH_BYTES - zeros - 1)
    return re.compile(b"(?:" + epochs + b"|" + _NO_EPOCH_PATTERN + b")\x02", re.DOTALL)
