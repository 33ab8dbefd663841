"""Transaction index file, the `.txnindex` of one segment: read at first use, appended to, replaced, deleted.

A segment without aborted transactions has no such file. Without the index, aborted records would count as committed;
its own segment is not enough to rebuild it: `broker.log.producers.producer_replay` does that.
"""

from __future__ import annotations

from fencepost.broker.log.files.segment_checksums import FileRecord, content_record
from fencepost.broker.log.segment.offset_index import CorruptIndexError
from fencepost.broker.log.segment.segment_batches import SegmentBatches
from fencepost.broker.log.segment.transaction_index import TransactionIndex, TransactionIndexEntry
from fencepost.broker.storage.disk import LogFile

_SUFFIX = ".txnindex"


class TransactionIndexFile:
    """The aborted transactions whose markers are in one segment.

    exists: whether there are any; their file may be missing all the same, until they are read.
    """

    __slots__ = ("_batches", "_file", "_files", "_index", "exists")

    def __init__(self, batches: SegmentBatches, *, exists: bool) -> None:
        self._batches = batches
        self._files = batches.files
        self._index: TransactionIndex | None = None if exists else TransactionIndex()
        self._file: LogFile | None = None  # while it is appended to
        self.exists = exists

    @property
    def index(self) -> TransactionIndex:
        """Raises CorruptIndexError, StorageError."""
        index = self._index
        if index is None:
            content = self._files.read_small(_SUFFIX)
            self._files.require_recorded(_SUFFIX, content)
            if content is None:
                raise CorruptIndexError("the file is missing")
            index = self._index = TransactionIndex.from_bytes(
                content, base_offset=self._batches.base_offset, end_offset=self._batches.bound_offset
            )
        return index

    def append(self, entry: TransactionIndexEntry) -> None:
        """Record a transaction whose abort marker has just been appended. Raises StorageError."""
        index = self.index
        if self._file is None:
            self._file = self._files.disk.open(self._files.path(_SUFFIX))
        self._file.append(entry.to_bytes())
        index.append(entry)
        self.exists = True

    def replace(self, index: TransactionIndex) -> None:
        """Replace the index by a rebuilt one. After a crash before it is on the disk, its checksum does not match, and
        it is rebuilt again. Raises StorageError."""
        self.close()
        if len(index):
            self._files.disk.write_file(self._files.path(_SUFFIX), index.to_bytes(), durable=False)
        elif self.exists:
            self._files.delete(_SUFFIX)
        self.adopt(index)
        self._files.record({_SUFFIX: content_record(index.to_bytes())}).close()

    def adopt(self, index: TransactionIndex) -> None:
        """Use an index whose file is in place already."""
        self._index = index
        self.exists = len(index) > 0

    def mark_missing(self) -> None:
        """Mark the index as missing, so that it is rebuilt before its first use."""
        self.exists = True
        self._index = None

    def record(self) -> FileRecord:
        """Return the record of the file for the list of checksums. Raises as `index`."""
        return content_record(self.index.to_bytes() if self.exists else b"")

    def open_file(self) -> list[LogFile]:
        """Open the file, if there is one; the caller syncs and closes it. Raises StorageError."""
        return [self._files.disk.open(self._files.path(_SUFFIX))] if self.exists else []

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def delete(self) -> None:
        """Delete the file. Raises StorageError."""
        self.close()
        if self.exists:
            self._files.delete(_SUFFIX)
