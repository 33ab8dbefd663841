"""Batches of one segment: its log file, their bounds, the check of the next one, and their checksums.

It knows no index: callers pass in positions, which they have from an index or from a scan.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from fencepost.broker.log.files.leader_epochs import UNKNOWN_EPOCH
from fencepost.broker.log.segment.batch_scan import DamagedLogError, damaged, scan_batches
from fencepost.broker.log.segment.header_plausibility import (
    MAX_RELATIVE_OFFSET,
    NO_EPOCHS,
    HeaderFault,
    HeaderPlausibility,
)
from fencepost.broker.log.segment.segment_files import SegmentFiles
from fencepost.broker.storage.disk import LogFile
from fencepost.broker.storage.file_slice import FileSlice
from fencepost.protocol.record_batch import LENGTH_OVERHEAD_BYTES, BatchHeader, RecordBatch, check_crc, read_header

NO_RECORDS = memoryview(b"")
SMALL_READ_BYTES = 64 * 1024  # read at once, even lazily, with its surroundings; more than is copied into a reply
EXTENT = struct.Struct(">qi11xi")
"""The fields of a header that determine the end of a batch: base offset, batch length, last offset delta."""
_NOT_APPENDED_TO = 2**63 - 1  # above all offsets


class SegmentRead(NamedTuple):
    """Whole batches, and the position after the last one. A lazy read leaves many of them in `slice`, not in memory."""

    records: memoryview
    end_position: int
    slice: FileSlice | None = None


class SegmentBatches:
    """The log file of a segment, and the known facts of its batches.

    base_offset:  offset of the first record it may hold.
    next_offset:  offset after its last record; `base_offset` when empty.
    may_skip:     whether compaction may have left gaps between the offsets of its batches.
    known_epochs: leader epochs of its log; a batch whose epoch no other batch confirms is judged by them.
    last_batch_offset, last_batch_position: the batch appended last, which readers at the end of the log ask for next.
    It begins at or above this offset.
    """

    __slots__ = (
        "_first_timestamp_ms",
        "base_offset",
        "files",
        "known_epochs",
        "last_batch_offset",
        "last_batch_position",
        "log",
        "may_skip",
        "next_offset",
    )

    def __init__(
        self, files: SegmentFiles, log_file: LogFile, base_offset: int, *, next_offset: int, may_skip: bool
    ) -> None:
        self.files = files
        self.log = log_file
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.may_skip = may_skip
        self.known_epochs = NO_EPOCHS
        self.last_batch_offset = _NOT_APPENDED_TO
        self.last_batch_position = 0
        self._first_timestamp_ms: int | None = None

    # Content of the file

    @property
    def first_timestamp_ms(self) -> int | None:
        """The greatest timestamp of the first batch, from which the age of the segment counts.

        None when the segment is empty, NO_TIMESTAMP (-1) if the records of that batch have no time.
        """
        if self._first_timestamp_ms is None:
            for batch in scan_batches(self.log, 0, self.log.size_bytes, self.order_from_start()):
                self._first_timestamp_ms = batch.header.max_timestamp_ms
                break
        return self._first_timestamp_ms

    def begin(self, max_timestamp_ms: int) -> None:
        """Note the first batch of the file, which has just been appended."""
        self._first_timestamp_ms = max_timestamp_ms

    def forget_content(self) -> None:
        """Forget the content of the file, before its batches are given to `add_scanned` again."""
        self._first_timestamp_ms = None
        self.next_offset = self.base_offset

    def add_scanned(self, last_offset: int, max_timestamp_ms: int) -> None:
        """Note the next batch of the file."""
        if self._first_timestamp_ms is None:
            self._first_timestamp_ms = max_timestamp_ms
        self.next_offset = last_offset + 1

    def truncate(self, position: int) -> None:
        """Cut the file. Raises StorageError."""
        self.log.truncate(position)
        self.last_batch_offset = _NOT_APPENDED_TO

    def reopen(self) -> None:
        """Open the file, which was renamed, under its final name. Raises StorageError."""
        self.log = self.files.disk.open(self.files.path(".log"))

    # Which batch can be the next

    @property
    def bound_offset(self) -> int:
        """Offset above all records of the file; if its end is not known yet, above all that its indexes can hold."""
        is_known = self.next_offset > self.base_offset
        return self.next_offset if is_known else self.base_offset + MAX_RELATIVE_OFFSET + 1

    def order_at(self, next_offset: int, leader_epoch: int = UNKNOWN_EPOCH) -> HeaderPlausibility:
        """Return the check for a batch that should begin with `next_offset`, and for those after it."""
        return HeaderPlausibility(
            next_offset,
            self.bound_offset,
            may_skip=self.may_skip,
            leader_epoch=leader_epoch,
            known_epochs=self.known_epochs,
        )

    def order_from_start(self) -> HeaderPlausibility:
        return self.order_at(self.base_offset)

    # Single batches

    def read_last(self, max_bytes: int, *, minimum_one_batch: bool) -> SegmentRead | None:
        """Read the batch appended last, at its remembered position. None if it is too large for one read, or if
        the file holds something else, which a walk through the file reports."""
        position = self.last_batch_position
        size_bytes = self.log.size_bytes - position
        if not 0 < size_bytes <= SMALL_READ_BYTES or (size_bytes > max_bytes and not minimum_one_batch):
            return None
        chunk = self.log.read(position, size_bytes)
        if len(chunk) < EXTENT.size:
            return None
        base_offset, length, last_offset_delta = EXTENT.unpack_from(chunk)
        if (
            base_offset < self.last_batch_offset
            or base_offset + last_offset_delta + 1 != self.next_offset
            or length + LENGTH_OVERHEAD_BYTES != len(chunk)
        ):
            return None
        return SegmentRead(chunk, position + len(chunk))

    def has_batch_below(self, bound_offset: int, position: int) -> bool:
        """Return whether the batch at a position is below the bound."""
        if self.next_offset <= bound_offset:
            return True
        header = self.log.read(position, EXTENT.size)
        if len(header) < EXTENT.size:
            return False
        base_offset, _, last_offset_delta = EXTENT.unpack_from(header)
        last_offset: int = base_offset + last_offset_delta
        return last_offset < bound_offset

    def checked_batch(self, position: int, header: BatchHeader) -> RecordBatch:
        """Read a batch and compare its checksum. Raises DamagedLogError."""
        buffer = self.log.read(position, header.size_bytes)
        if not check_crc(buffer):
            raise self.wrong_checksum(position, header)
        return RecordBatch(read_header(buffer), buffer)

    def wrong_checksum(self, position: int, header: BatchHeader) -> DamagedLogError:
        """Return the error for a batch whose checksum does not match."""
        offset = header.base_offset
        return self.damaged(HeaderFault(position, offset, offset, "the batch there has a wrong checksum"))

    def damaged(self, fault: HeaderFault) -> DamagedLogError:
        return damaged(self.files.path(".log"), fault)
