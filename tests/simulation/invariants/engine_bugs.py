"""Bugs to plant in how brokers on an engine flush, seal, restore and hold their leases. Checkers must find them.

Some are in what stands in for SQL: the product has that decision in a statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID

from fencepost.broker.cluster.leases import lease_table as leases
from fencepost.broker.cluster.leases.lease_table import LeaseTable, Placed
from fencepost.broker.cluster.leases.local_lease import LocalLease
from fencepost.broker.cluster.objects.store import ObjectStoreError
from fencepost.broker.cluster.remote import upload_plan
from fencepost.broker.cluster.remote.segment_objects import SegmentObjects
from fencepost.broker.cluster.remote.segment_rows import Leadership
from fencepost.broker.cluster.tail.tail_log import TailLog
from fencepost.broker.cluster.tail.tail_store import NO_OBJECTS, FlushId, PartitionKey, StoreUnavailableError, TailRow
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from tests.simulation import engine, engine_rows
from tests.simulation.engine_rows import EngineRows


class _PlaceOfABug(Place):
    """Not one of the product's, at each of which an exception is planted."""


_LATER = _PlaceOfABug("planted flush", Policy.REPORT)


# Flushes


def a_flush_looks_at_its_fence_when_it_arrives() -> AbstractContextManager[Any]:
    return patch.object(engine, "USUAL_GUARD", engine.Guard.PLAIN_READ)


def a_flush_without_an_answer_counts_as_committed() -> AbstractContextManager[Any]:
    original = TailLog._commit

    async def commit(
        self: TailLog, fence: int, rows: Sequence[TailRow], sizes: Mapping[UUID, int] = NO_OBJECTS
    ) -> None:
        self._sequence += 1
        try:
            if await self._store.commit(FlushId(self._tenure.node_id, fence, self._sequence), rows, object_sizes=sizes):
                return
        except StoreUnavailableError:
            return
        await original(self, fence, rows, sizes)

    return patch.object(TailLog, "_commit", commit)


def flushes_count_as_committed_when_they_are_sent() -> AbstractContextManager[Any]:
    original = TailLog._commit

    async def commit(
        self: TailLog, fence: int, rows: Sequence[TailRow], sizes: Mapping[UUID, int] = NO_OBJECTS
    ) -> None:
        _LATER.start(original(self, fence, rows, sizes), expected=(OSError,))
        await asyncio.sleep(0)

    return patch.object(TailLog, "_commit", commit)


# SegmentUpload


def a_seal_removes_one_row_too_many() -> AbstractContextManager[Any]:
    def remove_one_more(
        rows: EngineRows, key: PartitionKey, _: Leadership, stored: RemoteSegmentMetadata
    ) -> RemoteSegmentMetadata:
        rows.tails[key].pop(stored.end_offset, None)
        return stored

    return _after_a_seal(remove_one_more)


def a_sealed_segment_has_the_epoch_of_who_seals_it() -> AbstractContextManager[Any]:
    def change_epoch(
        rows: EngineRows, key: PartitionKey, leadership: Leadership, stored: RemoteSegmentMetadata
    ) -> RemoteSegmentMetadata:
        changed = stored._replace(leader_epoch=leadership.leader_epoch)
        rows.segments[key][stored.base_offset] = changed
        return changed

    return _after_a_seal(change_epoch)


def _after_a_seal(
    change: Callable[[EngineRows, PartitionKey, Leadership, RemoteSegmentMetadata], RemoteSegmentMetadata],
) -> AbstractContextManager[Any]:
    """Change the rows in the transaction in which a sealed segment is stored. change: returns the segment as it is."""
    original = EngineRows.replace

    def replace(
        self: EngineRows, key: PartitionKey, leadership: Leadership, sealed: RemoteSegmentMetadata, **about: Any
    ) -> RemoteSegmentMetadata | None:
        stored = original(self, key, leadership, sealed, **about)
        return None if stored is None else change(self, key, leadership, stored)

    return patch.object(EngineRows, "replace", replace)


def an_upload_that_failed_counts() -> AbstractContextManager[Any]:
    original = SegmentObjects.upload

    async def upload(self: SegmentObjects, *about: Any) -> None:
        try:
            await original(self, *about)
        except ObjectStoreError:
            pass

    return patch.object(SegmentObjects, "upload", upload)


def nothing_is_rolled_for_the_budget() -> AbstractContextManager[Any]:
    return patch.object(upload_plan, "_rolls", lambda *_: [])


# The sweep


@contextmanager
def objects_of_flushes_count_as_orphans() -> Iterator[None]:
    """At once, and though rows name them."""

    def add_orphans(self: EngineRows, names: Sequence[str], *, now_s: float) -> int:
        with patch.object(self, "objects", {}):
            return self.discard(names, now_s=now_s)

    with patch.object(EngineRows, "add_orphans", add_orphans):
        yield


# Leases


def a_lease_lasts_for_ever() -> AbstractContextManager[Any]:
    return patch.object(LocalLease, "is_held", lambda self: True)


def a_topic_lacks_the_row_of_a_partition() -> AbstractContextManager[Any]:
    original = leases.decide_creation

    def decide_creation(table: LeaseTable, topic_id: bytes, names: Sequence[TopicPartition]) -> list[Placed]:
        return original(table, topic_id, names)[:2]

    return patch.object(engine_rows, "decide_creation", decide_creation)


# Topics that are created again


def a_flush_takes_rows_of_deleted_topics() -> AbstractContextManager[Any]:
    return patch.object(EngineRows, "led_rows", lambda rows, flush, sent: list(sent))
