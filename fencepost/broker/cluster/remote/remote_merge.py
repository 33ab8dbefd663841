"""Merge of small remote segments: a slow topic, or many topics that share the budget of the tails, would else leave
an ever larger number of objects and rows.

The merged segment is written into the scratch, takes the place of the others in the log, and is sealed in place of
their rows as a compacted one is; their objects become garbage then. Compacted topics are left to compaction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from fencepost.broker.cluster.remote.remote_log_state import RemoteLogState, RemoteLogStates
from fencepost.broker.cluster.remote.upload_plan import (
    MERGED_COUNT,
    StoredSegment,
    UploadLimits,
    merge_limits,
    plan_merge,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from fencepost.broker.log.compaction.rewriting import RewritingAbandonedError
from fencepost.broker.log.compaction.segment_merge import merge_segments
from fencepost.broker.log.retention.retention import UNLIMITED
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

MERGING = Place("merging of sealed segments", Policy.RETRY)
MERGE = Place("merge of a log's segments", Policy.RETRY)

INTERVAL_S: Final = 10.0
SHARE_OF_TIME: Final = 0.2
"""Of the time between two merges: brokers have other things to do, and merging can wait."""
SHARE_OF_SCRATCH: Final = 0.25
"""The largest share of the scratch that one merge may need for the segments that it fetches."""
REST_S: Final = 600.0
"""How long a log rests after a merge has failed."""


class RemoteMerge:
    """Merges the sealed segments of one node's logs, one log at a time.

    limits:        may be replaced at any time. scratch_bytes: of the node.
    merged_count:  segments that were merged into others since the start.
    """

    def __init__(
        self,
        kept: RemoteLogStates,
        *,
        limits: UploadLimits,
        scratch_bytes: int,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.scratch_bytes = scratch_bytes
        self.merged_count = 0
        self._kept = kept
        self._monotonic_s = monotonic_s
        self._rests_until_s: dict[TopicPartition, float] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to merge, in the background."""
        self._task = MERGING.start_retrying(self._run)

    async def close(self) -> None:
        """Stop. A merge that is under way is cancelled."""
        await end_tasks(self._task)
        self._task = None

    async def _run(self) -> None:
        while True:
            began_s = self._monotonic_s()
            await self.merge_once()
            took_s = self._monotonic_s() - began_s
            await asyncio.sleep(max(INTERVAL_S, took_s * (1 / SHARE_OF_TIME - 1)))

    async def merge_once(self) -> int:
        """Make one merge in the first log of each that has one due; returns how many segments were merged."""
        now_s = self._monotonic_s()
        self._rests_until_s = {name: until_s for name, until_s in self._rests_until_s.items() if until_s > now_s}
        due = [kept.log.topic_partition async for kept in self._kept.each() if self._plan(kept) is not None]
        return sum([await self._merge(name) for name in due])

    def _plan(self, kept: RemoteLogState) -> tuple[int, int] | None:
        name, config = kept.log.topic_partition, kept.log.config
        sealed = kept.log.segments.sealed
        if (
            config.is_compacted
            or name in self._rests_until_s
            or len(sealed) < MERGED_COUNT
            or any(one.size_bytes and one not in kept.stored for one in sealed)
        ):
            return None
        has_retention = "delete" in config.cleanup_policy
        limits = merge_limits(
            self.limits,
            is_internal=name.topic in INTERNAL_TOPICS,
            segment_bytes=config.segment_bytes,
            segment_ms=config.segment_ms,
            retention_bytes=config.retention_bytes if has_retention else UNLIMITED,
            retention_ms=config.retention_ms if has_retention else UNLIMITED,
        )
        most_bytes = int(self.scratch_bytes * SHARE_OF_SCRATCH)
        stored = [
            StoredSegment(one.base_offset, one.end_offset, one.size_bytes, one.max_timestamp_ms)
            for segment in sealed
            if (one := kept.stored.get(segment)) is not None and one.end_offset > kept.log.log_start_offset
        ]
        return plan_merge(stored, limits._replace(size_bytes=min(limits.size_bytes, most_bytes)))

    async def _merge(self, name: TopicPartition) -> int:
        """Merge segments of a log, and let it rest if that fails. Returns how many were merged."""
        kept = self._kept.get(name)
        planned = None if kept is None else self._plan(kept)
        if kept is None or planned is None:
            return 0
        count = sum(planned[0] <= one.base_offset < planned[1] for one in kept.log.segments.sealed)
        try:
            merged = await merge_segments(kept.log, *planned)
        except (RewritingAbandonedError, StorageError) as error:
            if kept.is_led:
                self._rest(name)
                log.warning("segments_not_merged", topic=name.topic, partition=name.partition, reason=str(error))
            return 0
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._rest(name)
            MERGE.failed(error, concerns=name)
            return 0
        if merged is None:
            return 0
        self.merged_count += count
        log.info(
            "segments_merged",
            topic=name.topic,
            partition=name.partition,
            base_offset=merged.base_offset,
            end_offset=planned[1],
            segments=count,
            size_bytes=merged.size_bytes,
        )
        return count

    def _rest(self, name: TopicPartition) -> None:
        self._rests_until_s[name] = self._monotonic_s() + REST_S
