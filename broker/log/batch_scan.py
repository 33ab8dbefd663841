"""Walking over the batches of a log file by their headers, a chunk of the file in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.disk import LogFile, StorageError
from protocol.record_batch import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, BatchHeader, read_header

SCAN_CHUNK_BYTES = 64 * 1024
CURRENT_MAGIC = 2
SMALLEST_BATCH_LENGTH = HEADER_BYTES - LENGTH_OVERHEAD_BYTES


class DamagedLogError(StorageError):
    """A log file holds something that cannot be the next batch. What precedes it can still be read."""


class ScannedBatch(NamedTuple):
    """A batch's header and where in the file it starts."""

    position: int
    header: BatchHeader


def scan_batches(file: LogFile, position: int, end_position: int) -> Iterator[ScannedBatch]:
    """The batches between two positions, the first of which is the start of a batch.

    Ends before a batch that does not lie wholly before `end_position` or whose header is not one. Checksums are not
    looked at.
    """
    chunk = memoryview(b"")
    chunk_position = position
    while position + HEADER_BYTES <= end_position:
        in_chunk = position - chunk_position
        if in_chunk + HEADER_BYTES > len(chunk):
            chunk = file.read(position, min(SCAN_CHUNK_BYTES, end_position - position))
            chunk_position = position
            in_chunk = 0
            if len(chunk) < HEADER_BYTES:
                return
        header = read_header(chunk, in_chunk)
        if not is_plausible(header) or position + header.size_bytes > end_position:
            return
        yield ScannedBatch(position, header)
        position += header.size_bytes


def scan_whole(file: LogFile, position: int, end_position: int) -> Iterator[ScannedBatch]:
    """As `scan_batches`, for those who must not take a part for the whole.

    Raises DamagedLogError where the batches do not reach `end_position`.
    """
    for scanned in scan_batches(file, position, end_position):
        yield scanned
        position = scanned.position + scanned.header.size_bytes
    if position != end_position:
        raise damaged(file.path, position)


def damaged(path: str, position: int, offset: int | None = None) -> DamagedLogError:
    """The error for a place in a log file where no batch begins."""
    which = "batch" if offset is None else f"batch from offset {offset} on"
    return DamagedLogError(f"{path} is damaged at position {position}: no {which} begins there")


def is_plausible(header: BatchHeader) -> bool:
    """Whether a header can be one, so that its length may be trusted enough to read that much."""
    return (
        header.magic == CURRENT_MAGIC
        and header.batch_length >= SMALLEST_BATCH_LENGTH
        and header.base_offset >= 0
        and header.last_offset_delta >= 0
    )
