"""Scan of a log file's batches by their headers, with one chunk of the file in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fencepost.broker.log.segment.header_plausibility import HeaderFault, HeaderPlausibility, implausibility
from fencepost.broker.storage.disk import LogFile, StorageError
from fencepost.protocol.record_batch import HEADER_BYTES, BatchHeader, check_crc, read_header

SCAN_CHUNK_BYTES = 64 * 1024
LARGE_BATCH_BYTES = 8 * 1024


class DamagedLogError(StorageError):
    """A place in a log file that cannot be the next batch. The batches before it can still be read."""


class ScannedBatch(NamedTuple):
    """A batch's header and its position in the file."""

    position: int
    header: BatchHeader


def scan_batches(file: LogFile, position: int, end_position: int, order: HeaderPlausibility) -> Iterator[ScannedBatch]:
    """Yield the batches between two positions, the first of which is the start of a batch.

    Ends before a batch that reaches beyond `end_position` or is not the next one; `order.fault` has the reason. Checks
    checksums only before a gap between offsets, where a false length may reach over batches: `order.fault` is then
    about the last batch.
    """
    chunk = memoryview(b"")
    chunk_position = position
    in_chunk = size_bytes = 0
    previous: ScannedBatch | None = None

    def following() -> BatchHeader | None:
        start = in_chunk + size_bytes
        if start + HEADER_BYTES <= len(chunk):
            return read_header(chunk, start)
        return header_at(file, position + size_bytes)

    while position < end_position:
        in_chunk = position - chunk_position
        if in_chunk + HEADER_BYTES > len(chunk):
            # Between large batches only the headers are read.
            chunk_bytes = SCAN_CHUNK_BYTES if size_bytes < LARGE_BATCH_BYTES else HEADER_BYTES
            chunk = file.read(position, min(chunk_bytes, end_position - position))
            chunk_position = position
            in_chunk = 0
            if len(chunk) < HEADER_BYTES:
                order.reject(position, None, f"the {len(chunk)} bytes from there on are no batch")
                return
        header = read_header(chunk, in_chunk)
        size_bytes = header.size_bytes
        implausible = implausibility(header)
        if implausible is not None:
            order.reject(position, header, implausible)
            return
        if position + size_bytes > end_position:
            order.reject(position, header, "the batch there does not end in the file")
            return
        expected_offset = order.next_offset
        if not order.accept(header, position, following):
            return
        if header.base_offset != expected_offset and previous is not None:
            previous_header = previous.header
            if not check_crc(file.read(previous.position, previous_header.size_bytes)):
                offset = previous_header.base_offset
                order.fault = HeaderFault(
                    previous.position, offset, offset, "the batch there has a wrong length or checksum"
                )
                return
        previous = ScannedBatch(position, header)
        yield previous
        position += size_bytes


def header_at(file: LogFile, position: int) -> BatchHeader | None:
    """Return the header at a position, plausible or not; None if the file ends before it does."""
    found = file.read(position, HEADER_BYTES)
    return read_header(found) if len(found) == HEADER_BYTES else None


def damaged(path: str, fault: HeaderFault) -> DamagedLogError:
    """Return the exception for a place in a log file where the next batch does not begin."""
    return DamagedLogError(
        f"{path} is damaged at position {fault.position}: no batch from offset {fault.expected_offset} on begins "
        f"there: {fault.reason}"
    )
