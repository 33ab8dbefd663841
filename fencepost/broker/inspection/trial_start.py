"""Trial start: runs a broker's own start code over a disk that keeps its writes in memory.

The reported result of the next start is therefore its real one. Its log lines are collected instead of written.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from fencepost.broker.config import Settings
from fencepost.broker.coordination.replay import Replay
from fencepost.broker.coordination.shard import Shard
from fencepost.broker.group.decision_builder import GroupConfig
from fencepost.broker.group.shard import GroupShard
from fencepost.broker.hosting.broker_configs import BrokerConfigs
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import LogEvent, events_to
from fencepost.broker.kernel.topic_partition import (
    CONSUMER_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from fencepost.broker.log.directory.directory_files import CLEAN_SHUTDOWN_FILE
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.image import MetadataImage
from fencepost.broker.metadata.sqlite import SqliteMetadataStore
from fencepost.broker.share.shard import ShareStateShard
from fencepost.broker.storage.disk import Disk, StorageError
from fencepost.broker.transaction.limits import TransactionLimits
from fencepost.broker.transaction.shard import TransactionShard
from fencepost.protocol.primitives import DecodeError


@dataclass
class TriedPartition:
    """The result of a start for one partition.

    topic_id:       id from the metadata; None if they have no such topic.
    is_stray:       whether it is left alone, as it belongs to no known topic.
    offline_reason: None if it is served.
    coordinator_reason: cause for which its coordinator cannot load it; None if it can, or there is none.
    """

    topic_id: bytes | None = None
    config: LogConfig = field(default_factory=LogConfig)
    log_end_offset: int = 0
    offline_reason: str | None = None
    is_stray: bool = False
    coordinator_reason: str | None = None
    events: list[LogEvent] = field(default_factory=list)


@dataclass
class TriedStart:
    """The result of a start for a data directory.

    refused: cause of its failure; None if it succeeds.
    topics:  the names of the known topics, by id.
    """

    partitions: dict[TopicPartition, TriedPartition] = field(default_factory=dict)
    refused: str | None = None
    topics: dict[bytes, str] = field(default_factory=dict)


@contextlib.contextmanager
def collected_events() -> Iterator[list[LogEvent]]:
    """Collect the broker's log lines instead of writing them."""
    events: list[LogEvent] = []

    def collect(_: str, level: str, event: LogEvent) -> None:
        event["level"] = level
        events.append(event)

    with events_to(collect):
        yield events


async def try_start(
    data_directory: str,
    disk: Disk,
    store: SqliteMetadataStore,
    settings: Settings,
    clock: Clock,
    *,
    as_after_crash: bool,
) -> TriedStart:
    """Start the logs and coordinators of a directory, and stop them; nothing is written to the disk.

    as_after_crash: ignore a clean stop.
    """
    if as_after_crash:
        disk.delete(os.path.join(data_directory, CLEAN_SHUTDOWN_FILE))
    tried = TriedStart()
    with collected_events() as events:
        try:
            await _open(data_directory, disk, store, settings, clock, tried)
        except StorageError as error:
            tried.refused = str(error)
        except Exception as error:  # noqa: BLE001  # a start must not raise it; if it does, that is the finding
            tried.refused = f"it fails with {type(error).__name__}: {error}"
    for event in events:
        name = _partition_of(event, data_directory)
        if name is not None and event["event"] == "partition_not_opened":
            tried.partitions.setdefault(name, TriedPartition(offline_reason=str(event.get("reason"))))
        if name in tried.partitions:
            tried.partitions[name].events.append(event)
            if event["event"] == "stray_partition_found":
                tried.partitions[name].is_stray = True
    return tried


async def _open(
    data_directory: str,
    disk: Disk,
    store: SqliteMetadataStore,
    settings: Settings,
    clock: Clock,
    tried: TriedStart,
) -> None:
    await BrokerConfigs(store, settings).open()
    logs = LogDirectory(data_directory, disk=disk, clock=clock)
    topics = Topics(store, logs, settings)
    try:
        await topics.open()
        tried.topics = {topic.topic_id: topic.name for topic in topics.metadata.all()}
        await topics.ensure_opened()
        for partition_log in logs.logs():
            tried.partitions[partition_log.topic_partition] = await _tried(partition_log, topics)
    finally:
        await topics.close()


async def _tried(partition_log: PartitionLog, topics: Topics) -> TriedPartition:
    name = partition_log.topic_partition
    topic = topics.metadata.get(name.topic)
    is_known = topic is not None and name.partition < topic.partition_count
    tried = TriedPartition(
        topic.topic_id if is_known and topic is not None else None,
        partition_log.config,
        partition_log.log_end_offset,
        partition_log.offline_reason,
    )
    if tried.offline_reason is None:
        shard = coordinator_shard(partition_log.topic_partition.topic, topics)
        if shard is not None:
            only_latest = isinstance(shard, TransactionShard)
            try:
                await Replay(partition_log, shard, only_latest_count=only_latest, is_wanted=lambda: True).run()
            except (StorageError, DecodeError, ValueError, LookupError) as error:
                tried.coordinator_reason = str(error) or type(error).__name__
    return tried


def coordinator_shard(topic: str, topics: Topics | None = None) -> Shard | None:
    """Return the shard that a coordinator builds from one of its partitions; None if there is no coordinator."""
    if topic == CONSUMER_OFFSETS_TOPIC:
        return GroupShard(GroupConfig(), MetadataImage() if topics is None else topics.metadata)
    if topic == TRANSACTION_STATE_TOPIC:
        return TransactionShard(limits=TransactionLimits(), take_producer_id=lambda: 0)
    if topic == SHARE_GROUP_STATE_TOPIC:
        return ShareStateShard(updates_per_snapshot=1)
    return None


def _partition_of(event: LogEvent, data_directory: str) -> TopicPartition | None:
    if "topic" in event and isinstance(event.get("partition"), int):
        return TopicPartition(event["topic"], event["partition"])
    path = event.get("path")
    if not isinstance(path, str) or not path.startswith(data_directory + "/"):
        return None
    topic, dash, number = path[len(data_directory) + 1 :].split("/")[0].rpartition("-")
    return TopicPartition(topic, int(number)) if dash and number.isdecimal() else None
