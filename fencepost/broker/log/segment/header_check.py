"""Check of headers that another process has written: once, before the batches are served.

The header at the end of a batch confirms its length, so a check reads one header further. If that leaves a gap of
offsets the length may reach over batches; then the checksum decides.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from fencepost.broker.log.segment.batch_scan import LARGE_BATCH_BYTES, SCAN_CHUNK_BYTES, header_at
from fencepost.broker.log.segment.checked_ranges import CheckedRange
from fencepost.broker.log.segment.header_plausibility import (
    CURRENT_MAGIC,
    SMALLEST_BATCH_LENGTH,
    HeaderFault,
    HeaderPlausibility,
    implausibility,
)
from fencepost.broker.log.segment.offset_index import OffsetIndex
from fencepost.broker.storage.disk import LogFile
from fencepost.protocol.record_batch import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, check_crc, read_header

MOST_HEADERS = 4_096
"""The most headers of one check, so that it takes some milliseconds; the next check does the rest."""
BYTES_LIKE_A_HEADER = 4_096
"""Computing the checksum of this many bytes takes about as long as checking one header."""
_FIELDS = struct.Struct(">qiib6xi")  # base offset, batch length, leader epoch, format, last offset delta


class CheckedHeaders(NamedTuple):
    """The checked range, and the fault behind it, if the check has met one."""

    checked: CheckedRange
    fault: HeaderFault | None


def check_headers(
    file: LogFile,
    checked: CheckedRange,
    order: HeaderPlausibility,
    index: OffsetIndex,
    base_offset: int,
    *,
    offset: int,
    wanted_end: int,
) -> CheckedHeaders:
    """Continue from the end of the checked range, at least beyond the batch that holds `offset`.

    order:      order of the batches, which follow on the checked range.
    index:      index of the segment that begins at `base_offset`; its entries must lead to batches.
    wanted_end: position up to which batches are to be checked, unless there are too many.
    """
    size_bytes = file.size_bytes
    entries = _index_entries(index, checked.end, base_offset, size_bytes)
    indexed = next(entries)
    _, position, next_offset, leader_epoch = checked
    confirmed = position, next_offset, leader_epoch  # the end of `checked`: the length before it is right
    count = 0
    fault: HeaderFault | None = None
    for fields in _headers(file, position):
        if fields is None:
            reason = f"the {size_bytes - position} bytes from there on are no batch"
            fault = HeaderFault(position, next_offset, None, reason)
            break
        first_offset, batch_length, epoch, magic, last_offset_delta = fields
        if (
            first_offset != next_offset
            or epoch != leader_epoch
            or magic != CURRENT_MAGIC
            or batch_length < SMALLEST_BATCH_LENGTH
            or last_offset_delta < 0
            or first_offset + last_offset_delta >= order.end_offset
            or position + batch_length + LENGTH_OVERHEAD_BYTES > size_bytes
        ):
            order.next_offset, order.leader_epoch = next_offset, leader_epoch
            fault = _fault_at(file, position, order)
            if fault is not None or (first_offset != next_offset and not _is_whole(file, confirmed[0], position)):
                break
            count += (first_offset != next_offset) * (position - confirmed[0]) // BYTES_LIKE_A_HEADER
        confirmed = position, next_offset, leader_epoch
        if next_offset > offset and (position >= wanted_end or count >= MOST_HEADERS):
            break
        last_offset = first_offset + last_offset_delta
        if position >= indexed[0]:
            if (position, last_offset) != indexed:
                reason = f"its index says that the batch at {indexed[0]} ends at offset {indexed[1]}"
                fault = HeaderFault(position, next_offset, first_offset, reason)
                break
            indexed = next(entries)
        count += 1
        next_offset, leader_epoch = last_offset + 1, epoch
        position += batch_length + LENGTH_OVERHEAD_BYTES
    ends_the_file = fault is None and position == size_bytes and next_offset == order.end_offset
    if ends_the_file or _is_whole(file, confirmed[0], position):
        return CheckedHeaders(CheckedRange(checked.start, position, next_offset, leader_epoch), fault)
    return CheckedHeaders(CheckedRange(checked.start, *confirmed), _wrong_length(*confirmed))


def _headers(file: LogFile, position: int) -> Iterator[tuple[int, int, int, int, int] | None]:
    """Yield the `_FIELDS` of one header after another; None for a rest of the file that is too short for one."""
    size_bytes = file.size_bytes
    chunk, chunk_position = memoryview(b""), position
    batch_bytes = 0
    while position < size_bytes:
        start = position - chunk_position
        if start + HEADER_BYTES > len(chunk):
            # Between large batches only the headers are read.
            chunk_bytes = SCAN_CHUNK_BYTES if batch_bytes < LARGE_BATCH_BYTES else HEADER_BYTES
            chunk, chunk_position, start = file.read(position, min(chunk_bytes, size_bytes - position)), position, 0
            if len(chunk) < HEADER_BYTES:
                yield None
                return
        fields = _FIELDS.unpack_from(chunk, start)
        yield fields
        batch_bytes = fields[1] + LENGTH_OVERHEAD_BYTES
        position += batch_bytes


def _index_entries(index: OffsetIndex, position: int, base_offset: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield position and last offset of the batches that the index names from a position on; then the file's end."""
    slot = bisect_left(index.positions, position)
    for entry in range(slot, len(index.positions)):
        yield index.positions[entry], base_offset + index.last_offsets[entry]
    yield size_bytes, -1


def _is_whole(file: LogFile, position: int, end_position: int) -> bool:
    """Whether a batch lies between two positions, by its checksum; also for an empty range."""
    return position == end_position or check_crc(file.read(position, end_position - position))


def _wrong_length(position: int, next_offset: int, _: int) -> HeaderFault:
    return HeaderFault(position, next_offset, None, "the batch there has a wrong length, or a wrong checksum")


def _fault_at(file: LogFile, position: int, order: HeaderPlausibility) -> HeaderFault | None:
    """Return the fault of a batch that does not simply continue the one before; None without a fault."""
    header = read_header(file.read(position, HEADER_BYTES))
    implausible = implausibility(header)
    if implausible is not None:
        order.reject(position, header, implausible)
    elif position + header.size_bytes > file.size_bytes:
        order.reject(position, header, "the batch there does not end in the file")
    else:
        order.accept(header, position, lambda: header_at(file, position + header.size_bytes))
    return order.fault
