"""A data directory that was restored to an earlier moment: made safe for clients of the lost history.

Clients may know offsets, leader epochs, producer ids and epochs of transactional ids that were given out after that
moment. New numbers must differ from all of these, so they begin far above the restored ones. The logs are opened as a
broker opens them, and closed as by a clean stop; the metadata are changed last.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Final, NamedTuple

from fencepost.broker.cluster.leases.lease_store import read_leases
from fencepost.broker.cluster.leases.lease_table import PartitionLease
from fencepost.broker.cluster.processes.node_directories import is_node_directory
from fencepost.broker.config import Settings, readable_configs
from fencepost.broker.hosting.broker_configs import BrokerConfigs
from fencepost.broker.hosting.topic_rules import log_config
from fencepost.broker.inspection.directory_lock import exclusive_use
from fencepost.broker.inspection.trial_start import collected_events
from fencepost.broker.inspection.verification import directories_of
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.append.skipped_offsets import offsets_to_skip, skipped_spans
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.directory.log_opening import OWN_LEADER_EPOCH
from fencepost.broker.log.files.checkpoints import ZERO_TOPIC_ID
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.shared_sqlite import SKIPPED_EPOCHS, SharedSqliteMetadataStore, prepare_shared
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore
from fencepost.broker.storage.disk import Disk, StorageError
from fencepost.broker.transaction import producer_ids

SHOWN_OFFLINE: Final = 5


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


class RestoredDirectories:
    """One such work on a directory, used exclusively.

    skipped_offsets: number of offsets that each log leaves out.
    is_shared:       whether the directory is that of several processes.
    """

    def __init__(self, data_directory: str, disk: Disk, settings: Settings, clock: Clock, skipped_offsets: int) -> None:
        self._path = data_directory
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._skipped_offsets = skipped_offsets
        self._metadata_path = os.path.join(data_directory, FILE_NAME)
        self.is_shared = any(is_node_directory(name) for name in os.listdir(data_directory))
        self._topics: Mapping[str, TopicMetadata] = {}
        self._leases: Mapping[TopicPartition, PartitionLease] = {}
        self._configs: dict[str, LogConfig] = {}

    async def make_safe(self) -> RestoredDirectory:
        """Raise the next offsets and the leader epochs of all logs, and the producer ids. It may be run again.

        Raises StorageError; logs may have been changed then, and the next run continues.
        """
        if not self._disk.exists(self._metadata_path):
            raise StorageError(f"there is no {self._metadata_path}: restore the whole directory first")
        on_restoring = {producer_ids.BLOCK_KEY: producer_ids.above_reserved_blocks}
        if self.is_shared:
            await prepare_shared(self._metadata_path, on_restoring=on_restoring)
            store: SqliteMetadataStore = SharedSqliteMetadataStore(self._metadata_path)
        else:
            store = SqliteMetadataStore(self._metadata_path, on_restoring=on_restoring)
        async with AsyncExitStack() as cleanup:
            cleanup.push_async_callback(store.close)
            await store.open()
            await BrokerConfigs(store, self._settings).open()
            self._topics = {topic.name: topic for topic in await store.load_topics()}
            if self.is_shared:
                self._leases = await store.transaction(lambda database: read_leases(database).table.partitions)
            directories: list[LogDirectory] = []
            for path in directories_of(self._path):
                directory = LogDirectory(
                    path, disk=self._disk, clock=self._clock, cleaner_backoff_ms=None, files_move=self.is_shared
                )
                cleanup.push_async_callback(directory.close)
                await directory.open(self._config, partial(self._epoch, path))
                directories.append(directory)
            self._create_missing(directories)
            logs = [log for directory in directories for log in directory.logs()]
            self._require_online(logs)
            epochs = {log.topic_partition: self._make_log_safe(log) for log in logs}
            for log in logs:
                await log.flushed()
            for directory in reversed(directories):
                await directory.close()
            await store.transaction(lambda database: self._raise_numbers(database, epochs))
        return RestoredDirectory(self._path, len(self._topics), len(logs), self._skipped_offsets)

    def _config(self, topic: str) -> LogConfig:
        """The settings of a topic's logs, as the broker has them."""
        if topic not in self._configs:
            readable, _ = readable_configs(self._topics[topic].configs)
            self._configs[topic] = log_config(readable, self._settings)
        return self._configs[topic]

    def _epoch(self, directory: str, name: TopicPartition) -> int | None:
        """The leader epoch of a partition, for the log directory; None of a directory that belongs to no topic."""
        topic = self._topics.get(name.topic)
        if topic is None or name.partition >= topic.partition_count:
            return None
        topic_id = PartitionFiles(self._disk, f"{directory}/{name}").read_topic_id()
        if topic_id not in (topic.topic_id, ZERO_TOPIC_ID):
            return None
        return self._leases[name].epoch if name in self._leases else OWN_LEADER_EPOCH

    def _create_missing(self, directories: list[LogDirectory]) -> None:
        """Create logs whose topic was created just before the restored moment: they begin as far above as the others.

        Raises StorageError, also for a log that has been lost.
        """
        for topic in self._topics.values():
            for name in topic.partitions():
                if any(directory.get(name) is not None for directory in directories):
                    continue
                if name in self._leases and self._leases[name].is_created:
                    raise StorageError(
                        f"{self._path} has no directory of {name}: restore all of it, or delete {topic.name} after a "
                        "start, and then run this again"
                    )
                directories[0].create(name, topic.topic_id, self._config(topic.name))

    def _require_online(self, logs: list[PartitionLog]) -> None:
        offline = [str(log.topic_partition) for log in logs if log.is_offline]
        if offline:
            shown = ", ".join(offline[:SHOWN_OFFLINE]) + (", …" if len(offline) > SHOWN_OFFLINE else "")
            raise StorageError(
                f"damaged partitions of {self._path}: {shown}. `fencepost log verify` says what to "
                "do; then run this again"
            )

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
        if self.is_shared:
            database.execute("UPDATE partitions SET leader_epoch = leader_epoch + ?", (SKIPPED_EPOCHS,))
            database.executemany(
                "UPDATE partitions SET leader_epoch = max(leader_epoch, ?), was_closed = 0, is_created = 1 "
                "WHERE topic_id = ? AND partition = ?",
                [(epoch, self._topics[name.topic].topic_id, name.partition) for name, epoch in epochs.items()],
            )


async def after_restore(
    data_directory: str, disk: Disk, settings: Settings, clock: Clock, skipped_offsets: int | None = None
) -> RestoredDirectory:
    """Make a restored data directory safe. Raises StorageError, also while a broker runs on it.

    skipped_offsets: number of offsets that each log leaves out; None: by the time since the restored moment.
    """
    if skipped_offsets is None:
        skipped_offsets = offsets_to_skip(lost_time_s(data_directory, clock.now_ms()))
    restored = RestoredDirectories(data_directory, disk, settings, clock, skipped_offsets)
    with ExitStack() as cleanup, collected_events():
        cleanup.enter_context(exclusive_use(data_directory, may_create=True))
        if not restored.is_shared:
            cleanup.close()  # the log directory locks it
        return await restored.make_safe()
