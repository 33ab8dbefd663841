"""Files of sealed segments on their way to the object store and back.

An object that an upload leaves behind when it is given up is an orphan, which the sweep finds by its age.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

from fencepost.broker.cluster.objects.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SegmentName,
)
from fencepost.broker.cluster.objects.names import suffixes as suffixes_of
from fencepost.broker.cluster.objects.store import ObjectMissingError, ObjectStore, ObjectStoreError
from fencepost.broker.cluster.tail_store import PartitionKey, StoreUnavailableError
from fencepost.broker.log.away_segments import SealedSegment
from fencepost.broker.log.segment_files import file_name
from fencepost.broker.storage.disk import StorageError, storage_error

READ_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
"""What reading a segment takes."""
_COMING_SUFFIX = ".coming"


class SegmentObjects:
    """The objects of all sealed segments of one cluster."""

    def __init__(self, store: ObjectStore, cluster_id: str) -> None:
        self._store = store
        self._cluster_id = cluster_id

    def name(self, key: PartitionKey, sealed: SealedSegment) -> SegmentName:
        """The names of a segment's objects."""
        return SegmentName(self._cluster_id, key.topic_id, key.partition, sealed.base_offset, sealed.object_id)

    def names(self, key: PartitionKey, sealed: SealedSegment) -> list[str]:
        """The names of all objects of a segment."""
        return self.name(key, sealed).files(sealed.end_offset, has_aborted=sealed.has_aborted)

    async def upload(self, key: PartitionKey, sealed: SealedSegment, directory: str) -> None:
        """Store the files of a segment. Raises ObjectStoreError; StorageError where a file cannot be read.

        The log file comes last: it takes the longest, and the others are the cheaper ones to lose.
        """
        name = self.name(key, sealed)
        for suffix in reversed(suffixes_of(has_aborted=sealed.has_aborted)):
            path = f"{directory}/{_file(sealed, suffix)}"
            try:
                await self._store.put_file(name.file(suffix, sealed.end_offset), path)
            except OSError as error:
                raise storage_error("read", path, error) from error

    async def download(
        self, key: PartitionKey, sealed: SealedSegment, directory: str, suffixes: Sequence[str] = READ_SUFFIXES
    ) -> None:
        """Write files of a segment into a directory; those that are there already stay.

        A file is there whole or not at all. Raises StoreUnavailableError; StorageError where an object is missing or
        has another size, or the disk fails.
        """
        name = self.name(key, sealed)
        wanted = [suffix for suffix in suffixes_of(has_aborted=sealed.has_aborted) if suffix in suffixes]
        await asyncio.gather(*(self._download(name, sealed, directory, suffix) for suffix in wanted))

    async def _download(self, name: SegmentName, sealed: SealedSegment, directory: str, suffix: str) -> None:
        path = f"{directory}/{_file(sealed, suffix)}"
        if _exists(path):
            return
        coming = f"{path}{_COMING_SUFFIX}"
        object_name = name.file(suffix, sealed.end_offset)
        try:
            _remove(coming)
            try:
                size_bytes = await self._store.get_file(object_name, coming)
            except ObjectMissingError as error:
                raise StorageError(f"records are lost: {error}, which a row names") from error
            except ObjectStoreError as error:
                raise StoreUnavailableError(str(error)) from error
            if suffix == LOG_SUFFIX and size_bytes != sealed.size_bytes:
                raise StorageError(f"{object_name} has {size_bytes} bytes instead of {sealed.size_bytes}")
            os.rename(coming, path)
        except StorageError:
            _remove(coming)
            raise
        except OSError as error:
            raise storage_error("write", path, error) from error


def _file(sealed: SealedSegment, suffix: str) -> str:
    return file_name(sealed.end_offset if suffix == SNAPSHOT_SUFFIX else sealed.base_offset, suffix)


def _exists(path: str) -> bool:
    return os.path.exists(path)


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)
