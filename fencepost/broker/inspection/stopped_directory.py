"""The data directory of a broker that does not run, opened as the broker opens it: its metadata and all of its logs.

After an unclean stop the logs are recovered. The logs are closed as by a clean stop.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from typing import Final

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
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.directory.log_opening import OWN_LEADER_EPOCH
from fencepost.broker.log.files.checkpoints import ZERO_TOPIC_ID
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.shared_sqlite import SharedSqliteMetadataStore, prepare_shared
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore
from fencepost.broker.storage.disk import Disk, StorageError
from fencepost.broker.transaction import producer_ids

SHOWN_OFFLINE: Final = 5


class StoppedDirectory:
    """One opened directory.

    topics:    all topics, by name.
    store:     its metadata.
    is_shared: whether the directory is that of several processes.
    purpose:   the step that an operator repeats after repairing a fault, for messages.
    """

    def __init__(self, path: str, disk: Disk, settings: Settings, clock: Clock, purpose: str) -> None:
        self.path = path
        self.topics: Mapping[str, TopicMetadata] = {}
        self.is_shared = any(is_node_directory(name) for name in os.listdir(path))
        self.store: SqliteMetadataStore
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._purpose = purpose
        self._leases: Mapping[TopicPartition, PartitionLease] = {}
        self._configs: dict[str, LogConfig] = {}
        self._directories: list[LogDirectory] = []

    async def open(self, cleanup: AsyncExitStack) -> None:
        """Open the metadata and all logs; `cleanup` closes them. Raises StorageError."""
        metadata_path = os.path.join(self.path, FILE_NAME)
        if not self._disk.exists(metadata_path):
            raise StorageError(
                f"there is no {metadata_path}: {self.path} is no data directory of a broker, or only a part of one was "
                "restored: restore the whole directory first"
            )
        on_restoring = {producer_ids.BLOCK_KEY: producer_ids.above_reserved_blocks}
        if self.is_shared:
            await prepare_shared(metadata_path, on_restoring=on_restoring)
            self.store = SharedSqliteMetadataStore(metadata_path)
        else:
            self.store = SqliteMetadataStore(metadata_path, on_restoring=on_restoring)
        cleanup.push_async_callback(self.store.close)
        await self.store.open()
        await BrokerConfigs(self.store, self._settings).open()
        self.topics = {topic.name: topic for topic in await self.store.load_topics()}
        if self.is_shared:
            self._leases = await self.store.transaction(lambda database: read_leases(database).table.partitions)
        for path in directories_of(self.path):
            directory = LogDirectory(
                path, disk=self._disk, clock=self._clock, cleaner_backoff_ms=None, files_move=self.is_shared
            )
            cleanup.push_async_callback(directory.close)
            await directory.open(self._config, partial(self._epoch, path))
            self._directories.append(directory)
        self._create_missing()
        self._require_online()

    def logs(self) -> list[PartitionLog]:
        """All logs."""
        return [log for directory in self._directories for log in directory.logs()]

    def cleaned_offset(self, name: TopicPartition) -> int:
        """The offset up to which a compacted log is clean."""
        return max(directory.cleaned_offset(name) for directory in self._directories)

    async def close_logs(self) -> None:
        """Close all logs, as by a clean stop. Raises StorageError."""
        for directory in reversed(self._directories):
            await directory.close()

    def _config(self, topic: str) -> LogConfig:
        """The settings of a topic's logs, as the broker has them."""
        if topic not in self._configs:
            readable, _ = readable_configs(self.topics[topic].configs)
            self._configs[topic] = log_config(readable, self._settings)
        return self._configs[topic]

    def _epoch(self, directory: str, name: TopicPartition) -> int | None:
        """The leader epoch of a partition, for the log directory; None of a directory that belongs to no topic."""
        topic = self.topics.get(name.topic)
        if topic is None or name.partition >= topic.partition_count:
            return None
        topic_id = PartitionFiles(self._disk, f"{directory}/{name}").read_topic_id()
        if topic_id not in (topic.topic_id, ZERO_TOPIC_ID):
            return None
        return self._leases[name].epoch if name in self._leases else OWN_LEADER_EPOCH

    def _create_missing(self) -> None:
        """Create logs whose topic was created just before the broker ended.

        Raises StorageError, also for a log that has been lost.
        """
        for topic in self.topics.values():
            for name in topic.partitions():
                if any(directory.get(name) is not None for directory in self._directories):
                    continue
                if name in self._leases and self._leases[name].is_created:
                    raise StorageError(
                        f"{self.path} has no directory of {name}: restore all of it, or delete {topic.name} after a "
                        f"start, and then {self._purpose}"
                    )
                self._directories[0].create(name, topic.topic_id, self._config(topic.name))

    def _require_online(self) -> None:
        offline = [str(log.topic_partition) for log in self.logs() if log.is_offline]
        if offline:
            shown = ", ".join(offline[:SHOWN_OFFLINE]) + (", …" if len(offline) > SHOWN_OFFLINE else "")
            raise StorageError(
                f"damaged partitions of {self.path}: {shown}. `fencepost log verify` says what to "
                f"do; then {self._purpose}"
            )


@asynccontextmanager
async def open_stopped(
    data_directory: str, disk: Disk, settings: Settings, clock: Clock, *, purpose: str
) -> AsyncIterator[StoppedDirectory]:
    """Open a data directory for exclusive use, without the broker's log lines. purpose: see `StoppedDirectory`.

    Raises StorageError, also while a broker runs on it, or if a log is damaged or lost.
    """
    opened = StoppedDirectory(data_directory, disk, settings, clock, purpose)
    async with AsyncExitStack() as cleanup:
        cleanup.enter_context(collected_events())
        lock = cleanup.enter_context(ExitStack())
        lock.enter_context(exclusive_use(data_directory, may_create=True))
        if not opened.is_shared:
            lock.close()  # the log directory locks it
        await opened.open(cleanup)
        yield opened
