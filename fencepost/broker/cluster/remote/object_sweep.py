"""The sweep: objects that no row names any more are removed, by one node at a time.

An object becomes garbage in the transaction that removes its last row, and is removed after a grace: a node may be
reading it. An object that never had a row, as its upload or its commit failed, is garbage once its uploader gives it
up, or is fenced: then none of its rows can be committed any more. Those of fenced uploaders are found by listing all
objects. No clock decides whether an object is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from fencepost.broker.cluster.objects.abandoned import AbandonedObjects
from fencepost.broker.cluster.objects.names import cluster_prefix
from fencepost.broker.cluster.objects.store import ObjectStore, ObjectStoreError, ObjectStoreRefusedError
from fencepost.broker.cluster.remote.segment_rows import GarbageTable
from fencepost.broker.cluster.tail.tail_store import StoreUnavailableError
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks

log = get_logger(__name__)

SWEEP: Final = Place("sweep of objects", Policy.RETRY)

INTERVAL_S: Final = 60.0
GRACE_S: Final = 10 * 60.0
LISTING_INTERVAL_S: Final = 24 * 60 * 60.0
"""A listing costs a request for each thousand objects."""
REMOVED_TOGETHER_COUNT: Final = 1000
REFUSALS_IN_A_ROW: Final = 20
"""Objects that the store refuses to remove, one by one, until the others of a request count as refused, too."""
MOST_REFUSED: Final = 10_000
"""Names that were refused, in memory. Beyond it nothing is removed until they are tried again."""
REFUSED_AGAIN_S: Final = 60 * 60.0
"""After this time, objects that were refused are tried again."""


class ObjectSweep:
    """The sweep of one node. grace_s: how long garbage stays; longer if the database is restored to earlier times.

    removed_count: objects that were removed since the start. refused_count: objects that the store refuses to remove,
    as of the last attempt: their rows stay garbage, and others are removed.
    """

    def __init__(
        self,
        store: ObjectStore,
        table: GarbageTable,
        cluster_id: str,
        abandoned: AbandonedObjects,
        *,
        grace_s: float = GRACE_S,
    ) -> None:
        self.grace_s = grace_s
        self.removed_count = 0
        self._store = store
        self._table = table
        self._cluster_id = cluster_id
        self._abandoned = abandoned
        self._refused: set[str] = set()
        self._refused_again_at_s = 0.0
        self._refusal = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def refused_count(self) -> int:
        return len(self._refused)

    def start(self) -> None:
        """Begin to sweep, in the background."""
        self._task = SWEEP.start_retrying(self._run)

    async def close(self) -> None:
        """Stop; another node, or a later sweep, does the rest."""
        await end_tasks(self._task)
        self._task = None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        list_at_s = loop.time() + INTERVAL_S
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.discard_abandoned()
                await self.remove_garbage()
                if loop.time() >= list_at_s:
                    await self.find_orphans()
                    list_at_s = loop.time() + LISTING_INTERVAL_S
            except (ObjectStoreError, StoreUnavailableError) as error:
                log.warning("sweep_waits", reason=str(error))

    async def discard_abandoned(self) -> int:
        """Make garbage of the objects that this node has given up; returns their number. Every node does.

        Raises StoreUnavailableError; the next call continues.
        """
        count = 0
        while names := self._abandoned.first(REMOVED_TOGETHER_COUNT):
            count += await self._table.discard(names)
            self._abandoned.forget(names)
        return count

    async def remove_garbage(self) -> int:
        """Find garbage, remove the objects that have been garbage for the grace, and return their number.

        Raises ObjectStoreError, StoreUnavailableError; the next call continues.
        """
        if not await self._table.holds_sweep():
            return 0
        await self._table.find()
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._refused_again_at_s:
            self._refused.clear()
        knew_refused = bool(self._refused)
        removed_count = 0
        while len(self._refused) < MOST_REFUSED and (names := await self._due()):
            refused = await self._delete(names)
            self._refused.update(refused)
            removed = [name for name in names if name not in self._refused]
            await self._table.removed(removed)
            removed_count += len(removed)
            if refused and not knew_refused:
                self._refused_again_at_s = now_s + REFUSED_AGAIN_S
        if removed_count:
            self.removed_count += removed_count
            log.info("objects_removed", objects=removed_count)
        if self._refused and not knew_refused:
            log.warning(
                "objects_not_removed",
                objects=len(self._refused),
                first=min(self._refused),
                reason=self._refusal,
                remedy="let the keys remove objects (s3:DeleteObject), or end the lock of the bucket; tried each hour",
            )
        return removed_count

    async def _due(self) -> Sequence[str]:
        names = await self._table.due(self.grace_s, REMOVED_TOGETHER_COUNT + len(self._refused))
        return [name for name in names if name not in self._refused][:REMOVED_TOGETHER_COUNT]

    async def _delete(self, names: Sequence[str]) -> Sequence[str]:
        """Remove objects; returns those that the store refuses to remove. Raises ObjectStoreError."""
        try:
            await self._store.delete(names)
        except ObjectStoreRefusedError as error:
            self._refusal = str(error)
        else:
            return ()
        refused: list[str] = []
        in_a_row = 0
        for number, name in enumerate(names, 1):
            try:
                await self._store.delete([name])
                in_a_row = 0
            except ObjectStoreRefusedError:
                refused.append(name)
                in_a_row += 1
                if in_a_row == REFUSALS_IN_A_ROW:
                    return [*refused, *names[number:]]
        return refused

    async def find_orphans(self) -> int:
        """Make objects of fenced uploaders garbage that no row names; returns how many. Raises ObjectStoreError,
        StoreUnavailableError."""
        if not await self._table.holds_sweep():
            return 0
        orphans_count = 0
        async for page in self._store.list(cluster_prefix(self._cluster_id)):
            orphans_count += await self._table.add_orphans([one.name for one in page])
        if orphans_count:
            log.info("orphans_found", objects=orphans_count)
        return orphans_count
