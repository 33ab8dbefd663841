"""Upload of the files of sealed segments to the object store, and their download.

An object that no row names in the end is garbage: see `AbandonedObjects`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import Sequence
from typing import Final

from fencepost.broker.cluster.objects.abandoned import AbandonedObjects
from fencepost.broker.cluster.objects.checksums import (
    BYTES_PER_STEP,
    CHECKSUM_BYTES,
    WrongContentError,
    check_batches,
    checksum_in_steps,
    checksum_of_file,
    checksums_of_blocks,
)
from fencepost.broker.cluster.objects.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SegmentName,
)
from fencepost.broker.cluster.objects.names import suffixes as suffixes_of
from fencepost.broker.cluster.objects.object_ids import ObjectIds, Uploader
from fencepost.broker.cluster.objects.store import (
    ObjectMissingError,
    ObjectStore,
    ObjectStoreError,
    ObjectTooShortError,
)
from fencepost.broker.cluster.remote.segment_rows import Leadership
from fencepost.broker.cluster.tail.tail_store import PartitionKey, StoreUnavailableError
from fencepost.broker.kernel.sliced_work import SLICE_S, SlicedWork, run_in_slices
from fencepost.broker.kernel.threads import on_a_thread
from fencepost.broker.log.files.file_names import file_name
from fencepost.broker.log.files.producer_snapshot import NO_OFFSET, CorruptSnapshot, decoding_steps
from fencepost.broker.log.segment.batch_scan import DamagedLogError
from fencepost.broker.log.segment.block_layout import BLOCK_BYTES, encode_block_checksums
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from fencepost.broker.storage.disk import Disk, LogFile, StorageError, storage_error

READ_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
"""Files that a read of a segment needs."""


class SegmentObjects:
    """The objects of all sealed segments of one cluster.

    disk:        has the files that they are made from and become.
    abandoned:   takes the names that no row will have.
    block_bytes: size of the blocks of stored log files that have a checksum each.
    """

    def __init__(
        self,
        store: ObjectStore,
        cluster_id: str,
        disk: Disk,
        abandoned: AbandonedObjects | None = None,
        *,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._ids = ObjectIds()
        self._abandoned = AbandonedObjects() if abandoned is None else abandoned
        self._block_bytes = block_bytes
        self._store = store
        self._cluster_id = cluster_id
        self._disk = disk

    def name(self, key: PartitionKey, sealed: RemoteSegmentMetadata) -> SegmentName:
        """The names of a segment's objects."""
        return SegmentName(self._cluster_id, key.topic_id, key.partition, sealed.base_offset, sealed.object_id)

    def names(self, key: PartitionKey, sealed: RemoteSegmentMetadata) -> list[str]:
        """The names of all objects of a segment."""
        return self.name(key, sealed).files(sealed.end_offset, has_aborted=sealed.has_aborted)

    def new_id(self, leadership: Leadership) -> uuid.UUID:
        """An object id for a segment that is sealed under a leadership."""
        return self._ids.new(Uploader(leadership.node_id, leadership.fence))

    def abandon(self, key: PartitionKey, sealed: RemoteSegmentMetadata) -> None:
        """Let the objects of a segment become garbage that no row names, and none will."""
        self._abandoned.add(self.names(key, sealed))

    async def upload(self, key: PartitionKey, sealed: RemoteSegmentMetadata, directory: str) -> RemoteSegmentMetadata:
        """Store the files of a segment; return it with their checksums and its stable end.

        Raises ObjectStoreError; StorageError if a file cannot be read, or the log file is damaged: then the store
        may have the only good copy. Objects that are stored by then are abandoned.

        The log file comes last: it takes the longest, and the others are the cheaper ones to lose.
        """
        try:
            return await self._upload(key, sealed, directory)
        except BaseException:
            self.abandon(key, sealed)
            raise

    async def _upload(self, key: PartitionKey, sealed: RemoteSegmentMetadata, directory: str) -> RemoteSegmentMetadata:
        name = self.name(key, sealed)
        found = {}
        stable_end, block_checksums = None, None
        for suffix in reversed(suffixes_of(has_aborted=sealed.has_aborted)):
            path = f"{directory}/{_file(sealed, suffix)}"
            object_name = name.file(suffix, sealed.end_offset)
            if suffix == LOG_SUFFIX:
                found[suffix], block_checksums = await self._check(path, sealed)
                try:
                    await self._store.put_file(object_name, path)
                except OSError as error:
                    raise storage_error("read", path, error) from error
            else:
                # The hashed bytes must be those that are sent: an index may be rewritten meanwhile.
                content = self._disk.read_file(path)
                if content is None:
                    raise StorageError(f"{path} is missing")
                found[suffix] = await run_in_slices(checksum_in_steps([memoryview(content)]), SLICE_S)
                if suffix == SNAPSHOT_SUFFIX:
                    stable_end = await run_in_slices(_stable_end(content, sealed.end_offset), SLICE_S)
                await self._store.put(object_name, content)
        checksums = b"".join(found[one] for one in suffixes_of(has_aborted=sealed.has_aborted))
        return sealed._replace(checksums=checksums, stable_end=stable_end, block_checksums=block_checksums)

    async def _check(self, path: str, sealed: RemoteSegmentMetadata) -> tuple[bytes, bytes]:
        """Check a log file by the CRCs of its batches; return its checksum, and those of its blocks, encoded. Raises
        StorageError."""
        file = self._disk.open(path)
        try:
            await run_in_slices(check_batches(file, sealed), SLICE_S)
            whole, blocks = await run_in_slices(checksums_of_blocks(file, self._block_bytes), SLICE_S)
            return whole, encode_block_checksums(self._block_bytes, blocks)
        finally:
            file.close()

    async def download(
        self, key: PartitionKey, sealed: RemoteSegmentMetadata, directory: str, suffixes: Sequence[str] = READ_SUFFIXES
    ) -> Downloaded:
        """Write files of a segment into a directory, under other names.

        Raises StoreUnavailableError; StorageError if an object is missing, has another size or holds other bytes
        than were stored, or the disk fails. Nothing is left there then.
        """
        name = self.name(key, sealed)
        downloaded = Downloaded(self._disk)
        parts = []
        for suffix in suffixes_of(has_aborted=sealed.has_aborted):
            if suffix in suffixes:
                path = downloaded.add(f"{directory}/{_file(sealed, suffix)}")
                parts.append(self._download(name.file(suffix, sealed.end_offset), sealed, suffix, path))
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

    async def download_block(self, key: PartitionKey, sealed: RemoteSegmentMetadata, block: int) -> bytes:
        """Read one block of a segment's log file. Raises as `download` does."""
        layout = sealed.blocks
        assert layout is not None, "a segment without checksums of blocks is downloaded as a whole"
        object_name = self.name(key, sealed).file(LOG_SUFFIX)
        start = layout.start(block)
        try:
            content = await self._store.get_range(object_name, start, layout.length(block))
        except ObjectMissingError as error:
            raise StorageError(f"records are lost: {error}, which a row names") from error
        except ObjectTooShortError as error:
            raise WrongContentError(f"{object_name} has fewer than its {sealed.size_bytes} bytes: {error}") from error
        except ObjectStoreError as error:
            raise StoreUnavailableError(str(error)) from error
        if await _checksum(content) != layout.checksum(block):
            raise WrongContentError(
                f"{object_name} does not hold, from position {start} on, the bytes that were stored there: "
                "restore it from a copy of the bucket"
            )
        return content

    async def _download(self, object_name: str, sealed: RemoteSegmentMetadata, suffix: str, path: str) -> None:
        try:
            found_bytes = await self._store.get_file(object_name, path)
        except ObjectMissingError as error:
            raise StorageError(f"records are lost: {error}, which a row names") from error
        except ObjectStoreError as error:
            raise StoreUnavailableError(str(error)) from error
        except OSError as error:
            raise storage_error("write", path, error) from error
        if suffix == LOG_SUFFIX and found_bytes != sealed.size_bytes:
            raise WrongContentError(f"{object_name} has {found_bytes} bytes instead of {sealed.size_bytes}")
        file = self._disk.open(path)
        try:
            await run_in_slices(check_object(object_name, file, sealed, suffix), SLICE_S)
        finally:
            file.close()


async def _checksum(content: bytes) -> bytes:
    """The checksum of bytes; of many on a thread, so that readers of tails do not wait for it."""
    if len(content) <= BYTES_PER_STEP:
        return hashlib.sha256(content).digest()
    return await on_a_thread(lambda: hashlib.sha256(content).digest())


def _stable_end(snapshot: bytes, end_offset: int) -> SlicedWork[int | None]:
    """The first offset of an open transaction by the producers' state at an offset, else that offset; None if the state
    cannot be read."""
    producers = yield from decoding_steps(snapshot, end_offset)
    if isinstance(producers, CorruptSnapshot):
        return None
    open_offsets = (one.current_transaction_first_offset for one in producers)
    return min((offset for offset in open_offsets if offset != NO_OFFSET), default=end_offset)


def check_object(
    object_name: str, file: LogFile, sealed: RemoteSegmentMetadata, suffix: str, *, has_to_match_blocks: bool = False
) -> SlicedWork[None]:
    """Check a file of a segment that came from the store; its blocks, too, if they have to match. Raises
    WrongContentError."""
    expected = expected_checksum(sealed, suffix)
    if expected is not None:
        blocks = sealed.blocks if has_to_match_blocks and suffix == LOG_SUFFIX else None
        if blocks is None:
            found, of_blocks = (yield from checksum_of_file(file)), b""
        else:
            found, parts = yield from checksums_of_blocks(file, blocks.block_bytes)
            of_blocks = b"".join(parts)
        if found == expected and blocks is not None and of_blocks != blocks.checksums:
            raise WrongContentError(f"{object_name} is as it was stored, and the checksums of its blocks are not")
        if found != expected:
            raise WrongContentError(
                f"{object_name} does not hold the bytes that were stored there: restore it from a copy of the bucket"
            )
    elif suffix == LOG_SUFFIX:
        try:
            yield from check_batches(file, sealed)
        except DamagedLogError as error:
            reason = str(error).replace(file.path, object_name)
            raise WrongContentError(f"{reason}. Restore it from a copy of the bucket") from error


def expected_checksum(sealed: RemoteSegmentMetadata, suffix: str) -> bytes | None:
    """The checksum of a file of a segment, by its row; None if the row has none."""
    if sealed.checksums is None:
        return None
    slot = suffixes_of(has_aborted=sealed.has_aborted).index(suffix)
    return sealed.checksums[slot * CHECKSUM_BYTES : (slot + 1) * CHECKSUM_BYTES]


class Downloaded:
    """Files beside their final paths, so that no other download of the same segment finds them."""

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


def _file(sealed: RemoteSegmentMetadata, suffix: str) -> str:
    return file_name(sealed.end_offset if suffix == SNAPSHOT_SUFFIX else sealed.base_offset, suffix)
