"""Log of a partition whose directory could not be opened: present, so that clients get an error, but offline.

Nothing in its directory is opened, written or deleted; the next start tries again.
"""

from __future__ import annotations

from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.storage.disk import StorageError


class UnreadableFile:
    """Stands for a log file that cannot be opened: its size is 0, and reading or writing it raises StorageError."""

    __slots__ = ("path",)

    size_bytes = 0

    def __init__(self, path: str) -> None:
        self.path = path

    def append(self, *buffers: bytes | bytearray | memoryview) -> None:
        raise self._absent()

    def read(self, position: int, length_bytes: int) -> memoryview:
        raise self._absent()

    def read_to_send(self, position: int, length_bytes: int) -> memoryview:
        raise self._absent()

    def send(self, descriptor: int, position: int, length_bytes: int) -> int:
        raise self._absent()

    def truncate(self, size_bytes: int) -> None:
        raise self._absent()

    def last_write_ms(self) -> int:
        raise self._absent()

    def set_last_write_ms(self, time_ms: int) -> None:
        raise self._absent()

    def release_room(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _absent(self) -> StorageError:
        return StorageError(f"{self.path} could not be opened")


def is_unreadable(segment: Segment) -> bool:
    """Whether a segment stands for files that could not be opened, of unknown size."""
    return isinstance(segment.batches.log, UnreadableFile)


def unreadable_segment(files: PartitionFiles, end_offset: int, index_interval_bytes: int) -> Segment:
    """Return the segment that stands for the whole log, with `end_offset` as its last known end."""
    return Segment(
        files.disk,
        files.directory,
        0,
        next_offset=end_offset,
        index_interval_bytes=index_interval_bytes,
        checksums=files.checksums,
        log_file=UnreadableFile(files.directory),
    )
