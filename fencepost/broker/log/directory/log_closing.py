"""Closing of a directory's logs: as a clean stop closes them, for another node, and for a stop with a shared log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SHORT_SLICE_S, run_in_slices
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.log.directory.log_opening import LOADS_PER_TURN, WRITTEN_BACK_TOGETHER_COUNT
from fencepost.broker.log.durability.flusher import Flusher
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.storage.disk import Disk

log = get_logger(__name__)

LONGEST_SYNC_TO_MOVE_S = 5.0
"""How long a planned move waits for the disk; after that the next leader recovers the unsynced records."""
LONGEST_LAST_FLUSH_S = 5.0
"""How long a stop waits for a shared log."""


async def sync_all(path: str, disk: Disk, logs: Iterable[PartitionLog], flusher: Flusher) -> None:
    """Write each log's files for a clean stop, and sync all logs. Raises StorageError. path: the log directory."""
    unsynced = []
    for count, partition_log in enumerate(logs):
        if count % LOADS_PER_TURN == 0:
            await asyncio.sleep(0)
        if await run_in_slices(partition_log.prepare_close(), SHORT_SLICE_S):
            unsynced.append(partition_log)
    if len(unsynced) >= WRITTEN_BACK_TOGETHER_COUNT:
        await disk.write_back(path)
    for partition_log in unsynced:
        flusher.request(partition_log)
    await flusher.drain()


async def close_to_move(
    logs: Mapping[TopicPartition, PartitionLog], flusher: Flusher
) -> dict[TopicPartition, LastLeaderState]:
    """Sync logs that another node is to lead, if that takes at most five seconds; return how each of them is left."""
    for partition_log in logs.values():
        partition_log.begin_closing_to_move()
    for partition_log in logs.values():
        if await run_in_slices(partition_log.prepare_close(), SHORT_SLICE_S):
            flusher.request(partition_log)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_SYNC_TO_MOVE_S):
            await flusher.drain()
    return {name: _left_off(partition_log) for name, partition_log in logs.items()}


def _left_off(partition_log: PartitionLog) -> LastLeaderState:
    durability = partition_log.durability
    recovery_point = durability.recovery_point
    is_synced = recovery_point == partition_log.log_end_offset and not durability.has_side_files
    return LastLeaderState(recovery_point, partition_log.log_start_offset, is_synced and not partition_log.is_offline)


async def flush_last(path: str, logs: Iterable[PartitionLog], flusher: Flusher) -> None:
    """Have the shared log commit the rest. Records it has not committed in time were not acknowledged either."""
    for partition_log in logs:
        if partition_log.high_watermark < partition_log.log_end_offset and not partition_log.is_offline:
            flusher.request(partition_log)
    try:
        async with asyncio.timeout(LONGEST_LAST_FLUSH_S):
            await flusher.drain()
    except TimeoutError:
        log.warning("last_flush_not_committed", path=path, waited_s=LONGEST_LAST_FLUSH_S)
