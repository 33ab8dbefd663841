"""Files of sealed segments on their way to the object store and back.

An object that an upload leaves behind when it is given up is an orphan, which the sweep finds by its age.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
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
from fencepost.broker.storage.disk import Disk, StorageError, storage_error

READ_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
"""What reading a segment takes."""


class SegmentObjects:
    """The objects of all sealed segments of one cluster. disk: has the files that they are made from and become."""

    def __init__(self, store: ObjectStore, cluster_id: str, disk: Disk) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._disk = disk

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
    ) -> Downloaded:
        """Write files of a segment into a directory, under other names.

        Raises StoreUnavailableError; StorageError where an object is missing or has another size, or the disk fails.
        Nothing is left there then.
        """
        name = self.name(key, sealed)
        downloaded = Downloaded(self._disk)
        parts = []
        for suffix in suffixes_of(has_aborted=sealed.has_aborted):
            if suffix in suffixes:
                path = downloaded.add(f"{directory}/{_file(sealed, suffix)}")
                size_bytes = sealed.size_bytes if suffix == LOG_SUFFIX else None
                parts.append(self._download(name.file(suffix, sealed.end_offset), size_bytes, path))
        try:
            ends = await asyncio.gather(*parts, return_exceptions=True)
        except BaseException:
            downloaded.discard()
            raise
        failures = [end for end in ends if end is not None]
        if failures:
            downloaded.discard()
            raise next((one for one in failures if not isinstance(one, StoreUnavailableError)), failures[0])
        return downloaded

    async def _download(self, object_name: str, size_bytes: int | None, path: str) -> None:
        try:
            found_bytes = await self._store.get_file(object_name, path)
        except ObjectMissingError as error:
            raise StorageError(f"records are lost: {error}, which a row names") from error
        except ObjectStoreError as error:
            raise StoreUnavailableError(str(error)) from error
        except OSError as error:
            raise storage_error("write", path, error) from error
        if size_bytes is not None and found_bytes != size_bytes:
            raise StorageError(f"{object_name} has {found_bytes} bytes instead of {size_bytes}")


class Downloaded:
    """Files that were written beside their places, where no other download of the same segment finds them."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._paths: list[tuple[str, str]] = []

    def add(self, path: str) -> str:
        """Add a file; return the path to write it to."""
        coming = f"{path}.{uuid.uuid4().hex}.coming"
        self._paths.append((coming, path))
        return coming

    def put_in_place(self) -> None:
        """Move the files to their places, in one step. Raises StorageError."""
        for coming, path in self._paths:
            self._disk.rename(coming, path)

    def discard(self) -> None:
        """Remove the files."""
        for coming, _ in self._paths:
            with contextlib.suppress(StorageError):
                self._disk.delete(coming)


def _file(sealed: SealedSegment, suffix: str) -> str:
    return file_name(sealed.end_offset if suffix == SNAPSHOT_SUFFIX else sealed.base_offset, suffix)
