"""A data directory that was restored to an earlier moment: made safe for clients of the lost history.

Clients may know offsets, leader epochs, producer ids and epochs of transactional ids that were given out after that
moment. New numbers must differ from all of these, so they begin far above the restored ones. The logs are opened as a
broker opens them, and closed as by a clean stop; the metadata are changed last.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

from fencepost.broker.config import Settings
from fencepost.broker.inspection.stopped_directory import StoppedDirectory, open_stopped
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.append.skipped_offsets import offsets_to_skip, skipped_spans
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.shared_sqlite import SKIPPED_EPOCHS
from fencepost.broker.storage.disk import Disk
from fencepost.broker.transaction import producer_ids


class RestoredDirectory(NamedTuple):
    """A restored data directory, by its counts. skipped_offsets: number of offsets that each log leaves out."""

    data_directory: str
    topics: int
    partitions: int
    skipped_offsets: int


def lost_time_s(data_directory: str, now_ms: int) -> float:
    """The seconds since anything was written into a directory whose files have kept their times."""
    newest_s = 0.0
    for place, _, names in os.walk(data_directory):
        for name in names:
            newest_s = max(newest_s, os.stat(os.path.join(place, name)).st_mtime)
    return max(0.0, now_ms / 1000 - newest_s)


class _RestoredDirectory:
    """One such work on an opened directory. skipped_offsets: number of offsets that each log leaves out."""

    def __init__(self, opened: StoppedDirectory, clock: Clock, skipped_offsets: int) -> None:
        self._opened = opened
        self._clock = clock
        self._skipped_offsets = skipped_offsets

    async def make_safe(self) -> RestoredDirectory:
        """Raise the next offsets and the leader epochs of all logs, and the producer ids. It may be run again.

        Raises StorageError; logs may have been changed then, and the next run continues.
        """
        opened = self._opened
        logs = opened.logs()
        epochs = {log.topic_partition: self._make_log_safe(log) for log in logs}
        for log in logs:
            await log.flushed()
        await opened.close_logs()
        await opened.store.transaction(lambda database: self._raise_numbers(database, epochs))
        return RestoredDirectory(opened.path, len(opened.topics), len(logs), self._skipped_offsets)

    def _make_log_safe(self, log: PartitionLog) -> int:
        """Return the new leader epoch."""
        log.lead(log.leader_epoch + SKIPPED_EPOCHS)
        spans = skipped_spans(log.log_end_offset, self._skipped_offsets)
        log.skip_offsets(spans, now_ms=self._clock.now_ms())
        return log.leader_epoch

    def _raise_numbers(self, database: sqlite3.Connection, epochs: Mapping[TopicPartition, int]) -> None:
        """Write the numbers after the restored ones, in one transaction. epochs: those in which the logs now are."""
        found = {key: bytes(value) for key, value in database.execute("SELECT key, value FROM versioned_values")}
        for key, value in producer_ids.after_restore(found).items():
            database.execute(
                "INSERT INTO versioned_values VALUES (?, ?, 1) "
                "ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = version + 1",
                (key, value),
            )
        if self._opened.is_shared:
            database.execute("UPDATE partitions SET leader_epoch = leader_epoch + ?", (SKIPPED_EPOCHS,))
            database.executemany(
                "UPDATE partitions SET leader_epoch = max(leader_epoch, ?), was_closed = 0, is_created = 1 "
                "WHERE topic_id = ? AND partition = ?",
                [(epoch, self._opened.topics[name.topic].topic_id, name.partition) for name, epoch in epochs.items()],
            )


async def after_restore(
    data_directory: str, disk: Disk, settings: Settings, clock: Clock, skipped_offsets: int | None = None
) -> RestoredDirectory:
    """Make a restored data directory safe. Raises StorageError, also while a broker runs on it.

    skipped_offsets: number of offsets that each log leaves out; None: by the time since the restored moment.
    """
    if skipped_offsets is None:
        skipped_offsets = offsets_to_skip(lost_time_s(data_directory, clock.now_ms()))
    async with open_stopped(data_directory, disk, settings, clock, purpose="run this again") as opened:
        return await _RestoredDirectory(opened, clock, skipped_offsets).make_safe()
