"""Objects of large flushes: the bytes are put before the rows that point into them are committed.

An object whose rows are never committed is garbage: see `AbandonedObjects`.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterable, Sequence
from typing import Final

from fencepost.broker.cluster.objects.abandoned import AbandonedObjects
from fencepost.broker.cluster.objects.checksums import WrongContentError, are_batches, checksum_in_steps
from fencepost.broker.cluster.objects.names import flush_name
from fencepost.broker.cluster.objects.object_ids import ObjectIds, Uploader
from fencepost.broker.cluster.objects.store import (
    ObjectMissingError,
    ObjectStore,
    ObjectStoreError,
    ObjectStoreRefusedError,
    ObjectTooShortError,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SLICE_S, SlicedWork, run_in_slices
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
REMEDY: Final = "Restore it from a copy of the bucket"
READS: Final = 5
READ_FOR_S: Final = 5.0
"""Attempts to read an object, and the time for them: one attempt without an answer takes 10 s, and changes of topics
wait meanwhile."""


class FlushUploads:
    """The objects of the large flushes of one cluster. abandoned: takes the names that no row will have."""

    def __init__(self, store: ObjectStore, cluster_id: str, abandoned: AbandonedObjects | None = None) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._abandoned = AbandonedObjects() if abandoned is None else abandoned
        self._ids = ObjectIds()

    async def put(self, uploader: Uploader, contents: Sequence[bytes | memoryview]) -> uuid.UUID:
        """Store the contents, back to back, as a new object; return its id.

        Retries until it succeeds or is cancelled, each time with another name: a put that seemed to fail may arrive.
        """
        content = contents[0] if len(contents) == 1 else b"".join(contents)
        pause_s = FIRST_PAUSE_S
        while True:
            object_id = self._ids.new(uploader)
            try:
                await self._store.put(flush_name(self._cluster_id, object_id), content)
            except asyncio.CancelledError:
                self.abandon([object_id])
                raise
            except ObjectStoreError as error:
                self.abandon([object_id])
                report = log.error if isinstance(error, ObjectStoreRefusedError) else log.warning
                report("flush_not_stored", reason=str(error), size_bytes=len(content), again_after_s=round(pause_s, 2))
            else:
                return object_id
            await asyncio.sleep(pause_s * random.uniform(0.5, 1))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def abandon(self, object_ids: Iterable[uuid.UUID]) -> None:
        """Let objects become garbage that no row names, and none will."""
        self._abandoned.add(flush_name(self._cluster_id, object_id) for object_id in object_ids)

    async def get(self, object_id: uuid.UUID, position: int, length_bytes: int, checksum: bytes | None) -> bytes:
        """Read bytes of an object that rows point into. Raises StorageError, at once if it is missing or wrong."""
        content = await self._get(object_id, position, length_bytes)
        name = flush_name(self._cluster_id, object_id)
        await run_in_slices(check_flushed(name, position, memoryview(content), checksum), SLICE_S)
        return content

    async def _get(self, object_id: uuid.UUID, position: int, length_bytes: int) -> bytes:
        name = flush_name(self._cluster_id, object_id)
        pause_s = FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        until_s = loop.time() + READ_FOR_S
        for attempts_left in range(READS - 1, -1, -1):
            try:
                return await self._store.get_range(name, position, length_bytes)
            except ObjectMissingError as error:
                raise StorageError(f"records are lost: {error}, which rows of the log's end point to") from error
            except ObjectTooShortError as error:
                raise WrongContentError(f"{name} is shorter than it was stored: {error}. {REMEDY}") from error
            except ObjectStoreError as error:
                if not attempts_left or loop.time() > until_s:
                    raise StorageError(f"the end of a log cannot be read: {error}") from error
            await asyncio.sleep(pause_s * random.uniform(0.5, 1))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")


def check_flushed(name: str, position: int, content: memoryview, checksum: bytes | None) -> SlicedWork[None]:
    """Check bytes of an object that a row points to; without a checksum, the CRCs of the batches that they are.

    Raises WrongContentError.
    """
    if checksum is None:
        is_right = yield from are_batches(content)
    else:
        is_right = checksum == (yield from checksum_in_steps([content]))
    if not is_right:
        raise WrongContentError(
            f"{name} does not hold, from position {position} on, the {len(content)} bytes that were stored there. "
            f"{REMEDY}"
        )
