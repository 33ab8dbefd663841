"""Checksums of objects: SHA-256 of the bytes, stored in the rows that name the objects.

A name says nothing about the bytes: the store may return an older version, a part, or another object's. Rows that
were written before there were checksums have none; then the CRCs of the batches are compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.broker.log.segment.batch_scan import damaged
from fencepost.broker.log.segment.header_plausibility import HeaderPlausibility, implausibility
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from fencepost.broker.log.segment.tail_scan import checked_batches
from fencepost.broker.storage.disk import LogFile, StorageError
from fencepost.protocol.record_batch import HEADER_BYTES, check_crc, read_header

CHECKSUM_BYTES: Final = hashlib.sha256().digest_size
BYTES_PER_STEP: Final = 1024 * 1024
"""Hashed in one step of the event loop: 1 ms if the processor has instructions for it, else 3 ms."""
BATCHES_PER_STEP: Final = 200


class WrongContentError(StorageError):
    """An object holds other bytes than were stored under its name."""


def checksum_in_steps(contents: Iterable[memoryview]) -> SlicedWork[bytes]:
    """Compute the checksum of contents, back to back."""
    digest = hashlib.sha256()
    for content in contents:
        for start in range(0, len(content), BYTES_PER_STEP):
            digest.update(content[start : start + BYTES_PER_STEP])
            yield
    return digest.digest()


def checksum_of_file(file: LogFile) -> SlicedWork[bytes]:
    """Compute the checksum of a file. Raises StorageError."""
    digest = hashlib.sha256()
    for position in range(0, file.size_bytes, BYTES_PER_STEP):
        digest.update(file.read(position, BYTES_PER_STEP))
        yield
    return digest.digest()


def checksums_of_blocks(file: LogFile, block_bytes: int) -> SlicedWork[tuple[bytes, list[bytes]]]:
    """Compute the checksum of a file, and those of its blocks. Raises StorageError."""
    whole = hashlib.sha256()
    blocks = []
    for start in range(0, file.size_bytes, block_bytes):
        block = hashlib.sha256()
        end = min(start + block_bytes, file.size_bytes)
        for position in range(start, end, BYTES_PER_STEP):
            content = file.read(position, min(BYTES_PER_STEP, end - position))
            whole.update(content)
            yield
            block.update(content)
            yield
        blocks.append(block.digest())
    return whole.digest(), blocks


def check_batches(file: LogFile, sealed: RemoteSegmentMetadata) -> SlicedWork[None]:
    """Check that a log file holds batches of a segment with right CRCs, and nothing else. Raises DamagedLogError."""
    order = HeaderPlausibility(
        sealed.base_offset, sealed.end_offset, may_skip=True, greatest_epoch=max(sealed.leader_epoch, 0)
    )
    for count, _ in enumerate(checked_batches(file, order), 1):
        if count % BATCHES_PER_STEP == 0:
            yield
    if order.fault is not None:
        raise damaged(file.path, order.fault)


def are_batches(content: memoryview) -> SlicedWork[bool]:
    """Whether bytes are whole batches with right CRCs, back to back."""
    position = count = 0
    while position < len(content):
        batch = content[position:]
        if len(batch) < HEADER_BYTES:
            return False
        header = read_header(batch)
        if implausibility(header) is not None or not check_crc(batch[: header.size_bytes]):
            return False
        position += header.size_bytes
        count += 1
        if count % BATCHES_PER_STEP == 0:
            yield
    return position == len(content)
