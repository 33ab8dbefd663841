"""Files of one segment: their paths, and their lines in the partition's list of checksums.

The parts of a segment, from `SegmentBatches` to `TransactionIndexFile`, find their files through it.
Source: Kafka's LogFileUtils.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from crc32c import crc32c

from fencepost.broker.log.files.checkpoints import CorruptCheckpointError
from fencepost.broker.log.files.file_names import NOTED_SUFFIXES, file_name
from fencepost.broker.log.files.segment_checksums import START_SUFFIX, FileRecord, SegmentChecksums
from fencepost.broker.log.files.small_file import read_small
from fencepost.broker.log.segment.offset_index import CorruptIndexError
from fencepost.broker.log.segment.tail_scan import valid_batch_at
from fencepost.broker.storage.disk import Disk, LogFile, StorageError
from fencepost.protocol.record_batch import CRC_POSITION, HEADER_BYTES, read_header

START_BYTES = 256
"""Length of the start of a log file by which it is recognised: the first batch's header with its checksum, and more."""


def forget_segments(checksums: SegmentChecksums, base_offsets: Iterable[int]) -> LogFile:
    """Remove the lines of segments from the list of checksums, so that their files are no longer compared or expected.

    Returns the list's file, which the caller syncs and closes. Raises StorageError.
    """
    return checksums.add({file_name(offset, suffix): None for offset in base_offsets for suffix in NOTED_SUFFIXES})


class SegmentFiles:
    """The files of one segment, named by its base offset and a suffix (`.log`).

    disk: disk of the files.
    """

    __slots__ = ("_base_offset", "_checksums", "_directory", "_is_start_noted", "disk")

    def __init__(self, disk: Disk, directory: str, base_offset: int, checksums: SegmentChecksums) -> None:
        self.disk = disk
        self._directory = directory
        self._base_offset = base_offset
        self._checksums = checksums
        self._is_start_noted = False

    def path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self._base_offset, suffix)}"

    def rename(self, suffix: str, new_suffix: str) -> None:
        """Rename a closed file. Raises StorageError."""
        self.disk.rename(self.path(suffix), self.path(new_suffix))

    def delete(self, suffix: str) -> None:
        """Delete a file, if it exists. Raises StorageError."""
        self.disk.delete(self.path(suffix))

    def read_small(self, suffix: str) -> bytes | None:
        """Read a side file; None if there is none. Raises CorruptIndexError if the disk cannot read it, StorageError if
        it could not read others either."""
        try:
            return read_small(self.disk, self.path(suffix))
        except CorruptCheckpointError as error:
            raise CorruptIndexError(str(error)) from error

    # Checksums, with which a later start compares the files

    def recorded(self, suffix: str) -> FileRecord | None:
        """Return a file's record in the list of checksums. Raises StorageError."""
        return self._checksums.get(file_name(self._base_offset, suffix))

    def require_recorded(self, suffix: str, content: bytes | None) -> None:
        """Require a side file to have its recorded content. Raises CorruptIndexError, StorageError."""
        if not self._checksums.matches(file_name(self._base_offset, suffix), content):
            raise CorruptIndexError("it is not what was written into it")

    def record(self, records: Mapping[str, FileRecord | None]) -> LogFile:
        """Record how files were written, by their suffixes; None removes a line.

        Returns the list's file; the caller closes it, and syncs it if that matters. Raises StorageError.
        """
        return self._checksums.add({file_name(self._base_offset, suffix): one for suffix, one in records.items()})

    def forget_records(self) -> LogFile:
        """Remove the lines of the files, which are about to change, from the list of checksums."""
        return forget_segments(self._checksums, [self._base_offset])

    def record_start(self, log_file: LogFile) -> None:
        """Record the start of the log file, so that a later start of the broker recognises another partition's file.

        Called once the first batch is on the disk. Where the disk has no room for the line, it is tried again later.
        """
        if not self._is_start_noted:
            try:
                if self.recorded(START_SUFFIX) is None:
                    self.record({START_SUFFIX: start_record(log_file)}).close()
            except StorageError:
                return  # a full disk is no reason to take a log offline that need not be written
            self._is_start_noted = True

    def is_of_another_log(self, log_file: LogFile) -> bool:
        """Whether the log file begins with a valid batch that is not the one that was written there.

        The checksum of that batch distinguishes another file from this one with damage. Raises StorageError.
        """
        return has_other_start(log_file, self.recorded(START_SUFFIX))


def start_record(log_file: LogFile) -> FileRecord | None:
    """Return the record of the start of a log file; None if it holds no header."""
    start = log_file.read(0, HEADER_BYTES)
    if len(start) < HEADER_BYTES:
        return None
    size_bytes = max(HEADER_BYTES, min(read_header(start).size_bytes, log_file.size_bytes, START_BYTES))
    return FileRecord(size_bytes, _start_check(log_file, size_bytes))


def has_other_start(file: LogFile, noted: FileRecord | None) -> bool:
    """Whether a log file begins with a valid batch that is not the noted one. Raises StorageError."""
    if noted is None or file.size_bytes < noted.size_bytes:
        return False
    return _start_check(file, noted.size_bytes) != noted.check and valid_batch_at(file, 0) is not None


def has_start(file: LogFile, noted: FileRecord | None) -> bool:
    """Whether a log file begins with the noted batch. Raises StorageError."""
    if noted is None or not noted.size_bytes or file.size_bytes < noted.size_bytes:
        return False
    return _start_check(file, noted.size_bytes) == noted.check and valid_batch_at(file, 0) is not None


def _start_check(file: LogFile, size_bytes: int) -> int:
    """The CRC-32C of the start of a log file, without the fields that the first batch's own CRC does not cover."""
    check: int = crc32c(file.read(CRC_POSITION, size_bytes - CRC_POSITION))
    return check
