"""List of segment checksums, the file `segment-checksums`: how the files of a partition were last written.

One line per file: name, size in bytes, a check value, and a CRC-32C of the line. The check value of a `.log` file is
the offset at which the next segment begins, that of every other file the CRC-32C of its content. Lines are appended; a
file's last line counts; a size and check of `-` remove it. So the next start or read notices, without reading the log,
a file of another partition or time, and one that was deleted or cut at a batch's end. A file without a line is
accepted: logs of Apache Kafka have no such list, and it may be deleted.

Three kinds of lines concern no whole file. `….log.start` has the size and CRC-32C of a log file's beginning, which
reveals one of another partition, also after the file has grown. `directory` has the number of the partition and the
CRC-32C of the topic's name, which reveals the directory of another partition. `log-start` has, as its size, the offset
that DeleteRecords has moved the log's start to; of it and the one in `log-start-offset-checkpoint` the greater is the
newer, as a start never falls.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from crc32c import crc32c

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.log.files.checkpoints import CorruptCheckpointError
from fencepost.broker.log.files.small_file import read_small
from fencepost.broker.storage.disk import Disk, LogFile

log = get_logger(__name__)

CHECKSUMS_FILE = "segment-checksums"
_HEADER = b"1\n"
_EARLIER_HEADER = b"0\n"
DIRECTORY_NAME = "directory"
LOG_START_NAME = "log-start"
START_SUFFIX = ".log.start"
_LOG_NAME = re.compile(r"(\d{20})\.log")
_START_NAME = re.compile(r"(\d{20})\.log\.start")
_FORGOTTEN = "-"
_FIELD_COUNT = 4
_SUPERFLUOUS_LINES = 100


class FileRecord(NamedTuple):
    """A file as it was written. `check`: see above."""

    size_bytes: int
    check: int


def content_record(content: bytes | memoryview | None) -> FileRecord:
    """Return the record of a side file with this content; an empty and a missing one are the same."""
    return FileRecord(len(content), crc32c(content)) if content else FileRecord(0, 0)


class SegmentChecksums:
    """The list of one partition."""

    __slots__ = ("_directory", "_disk", "_is_loaded", "_knows_deletions", "_line_count", "_path", "_records")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory_record(directory)
        self._path = f"{directory}/{CHECKSUMS_FILE}"
        self._records: dict[str, FileRecord] = {}
        self._line_count = 0
        self._is_loaded = False
        self._knows_deletions = True

    @property
    def knows_deletions(self) -> bool:
        """Whether lines of deleted segments have been removed. Raises StorageError."""
        self._load()
        return self._knows_deletions

    @property
    def knows_files(self) -> bool:
        """Whether there is a list. Every log that this broker has created or written has one. Raises StorageError."""
        self._load()
        return bool(self._records)

    def segments(self) -> list[tuple[int, FileRecord]]:
        """Return the records of log files that hold something, by base offset, rising. Raises StorageError."""
        self._load()
        found = []
        for name, record in self._records.items():
            match = _LOG_NAME.fullmatch(name)
            if match is not None and record.size_bytes:
                found.append((int(match[1]), record))
        return sorted(found)

    def starts(self) -> list[tuple[int, FileRecord]]:
        """Return the beginnings of log files, by base offset, rising: their first batches are on the disk. Raises
        StorageError.

        Leaves out files that have a line as a whole.
        """
        self._load()
        found = []
        for name, record in self._records.items():
            match = _START_NAME.fullmatch(name)
            if match is not None and f"{match[1]}.log" not in self._records:
                found.append((int(match[1]), record))
        return sorted(found)

    @property
    def is_of_another_directory(self) -> bool:
        """Whether the list was written in the directory of another partition. Raises StorageError."""
        self._load()
        return self._records.get(DIRECTORY_NAME, self._directory) != self._directory

    @property
    def log_start_offset(self) -> int:
        """The log's start as DeleteRecords has set it last; 0 if it never has. Raises StorageError."""
        record = self.get(LOG_START_NAME)
        return 0 if record is None else record.size_bytes

    def note_log_start(self, offset: int) -> None:
        """Record a start that the checkpoint has already. Raises StorageError."""
        if offset > self.log_start_offset:
            self.add({LOG_START_NAME: FileRecord(offset, 0)}).close()

    def get(self, name: str) -> FileRecord | None:
        """Return the record of a file. Raises StorageError."""
        self._load()
        return self._records.get(name)

    def names(self) -> list[str]:
        """Return the names of files with a record. Raises StorageError."""
        self._load()
        return list(self._records)

    def matches(self, name: str, content: bytes | memoryview | None) -> bool:
        """Whether a side file has its recorded content; True without a record. Raises StorageError."""
        known = self.get(name)
        return known is None or known == content_record(content)

    def add(self, records: Mapping[str, FileRecord | None]) -> LogFile:
        """Add records of written files; None removes one.

        Returns the list's file; the caller closes it, and syncs it if that matters. Raises StorageError.
        """
        self._load()
        file = self._disk.open(self._path)
        if DIRECTORY_NAME not in self._records:
            records = {DIRECTORY_NAME: self._directory, **records}
        lines = b"".join(_encode(name, record) for name, record in records.items())
        file.append(lines if file.size_bytes else _HEADER + lines)
        for name, record in records.items():
            if record is None:
                self._records.pop(name, None)
            else:
                self._records[name] = record
        self._line_count += len(records)
        return file

    def drop(self) -> None:
        """Delete the list: from now on all files are accepted. Raises StorageError."""
        self._disk.delete(self._path)
        self._records.clear()
        self._line_count = 0
        self._is_loaded = self._knows_deletions = True

    def tidy(self, names: Collection[str]) -> None:
        """Rewrite the list when it is much longer than its lines about the existing files, `names`.

        Raises StorageError.
        """
        if not self._is_loaded:
            return
        if self._knows_deletions and self._line_count <= 2 * len(names) + _SUPERFLUOUS_LINES:
            return
        kept = {DIRECTORY_NAME, LOG_START_NAME, *names}
        self._records = {name: record for name, record in self._records.items() if name in kept}
        self._line_count = len(self._records)
        lines = b"".join(_encode(name, record) for name, record in self._records.items())
        self._disk.write_file(self._path, _HEADER + lines, durable=False)
        self._knows_deletions = True

    def _load(self) -> None:
        if self._is_loaded:
            return
        reason = "it does not end, or begin, as it should"
        try:
            content = read_small(self._disk, self._path)
        except CorruptCheckpointError as error:
            content, reason = b"", str(error)
        self._is_loaded = True
        if content is None or content == _HEADER:
            return
        lines = bytes(content).split(b"\n")
        header = lines[0] + b"\n"
        self._knows_deletions = header != _EARLIER_HEADER
        is_whole = header in (_HEADER, _EARLIER_HEADER) and lines[-1] == b""
        for line in lines[1:-1] if is_whole else ():
            decoded = _decode(line)
            if decoded is None:
                is_whole = False
                break
            name, record = decoded
            self._line_count += 1
            if record is None:
                self._records.pop(name, None)
            else:
                self._records[name] = record
        if not is_whole:
            # A line cut by a loss of power, or damage. A list with gaps could contradict sound files.
            log.warning("segment_checksums_dropped", path=self._path, reason=reason)
            self._records.clear()
            self._line_count = 0
            self._knows_deletions = True
            self._disk.write_file(self._path, _HEADER, durable=False)


def directory_record(directory: str) -> FileRecord:
    """Return the line by which a list names the partition whose directory it is in."""
    topic, _, partition = directory.rpartition("/")[2].rpartition("-")
    return FileRecord(int(partition) if partition.isdecimal() else 0, crc32c(topic.encode()))


def _encode(name: str, record: FileRecord | None) -> bytes:
    fields = f"{name} {_FORGOTTEN} {_FORGOTTEN}" if record is None else f"{name} {record.size_bytes} {record.check}"
    return f"{fields} {crc32c(fields.encode()):08x}\n".encode()


def _decode(line: bytes) -> tuple[str, FileRecord | None] | None:
    """Decode a line; None for a damaged one."""
    start, _, checksum = line.rpartition(b" ")
    if checksum != b"%08x" % crc32c(start):
        return None
    fields = start.decode(errors="replace").split(" ")
    if len(fields) != _FIELD_COUNT - 1:
        return None
    name, size, check = fields
    if size == _FORGOTTEN:
        return name, None
    return (name, FileRecord(int(size), int(check))) if size.isdecimal() and check.isdecimal() else None
