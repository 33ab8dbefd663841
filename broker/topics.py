"""The topics hosted here: metadata and logs kept in step. The one place that knows which partitions this broker has."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

import structlog

from broker.config import ConfigValue, Settings, check_topic_configs, describe_topic_configs
from broker.disk import StorageError
from broker.log.checkpoints import ZERO_TOPIC_ID
from broker.log.log_config import LogConfig
from broker.log.log_directory import LogDirectory
from broker.log.partition_log import PartitionLog
from broker.metadata.image import MetadataImage, TopicMetadata
from broker.metadata.store import MetadataStore
from broker.topic_partition import INTERNAL_TOPICS, TopicPartition
from broker.topic_rules import check_topic_name, collision_key, internal_topic, log_config
from protocol.errors import ErrorCode

log = structlog.get_logger(__name__)

DEFAULT_PARTITION_COUNT = -1
"""In place of a number of partitions: as many as `num.partitions` says."""

Outcome = tuple[ErrorCode, str | None]
_DONE: Outcome = (ErrorCode.NONE, None)


class Topics:
    """Creates, changes and deletes topics: first in the store, which decides, then in the log directory, then in the
    image.

    A crash between the steps is made good by `open`: logs that the store expects are created, deletions that it has
    recorded are
    finished. Changes run one at a time; reading is a look-up in memory.
    on_created, on_deleted: called in the step that makes the topic visible, or just before its logs go.
    """

    def __init__(
        self,
        store: MetadataStore,
        logs: LogDirectory,
        settings: Settings,
        *,
        new_topic_id: Callable[[], bytes] | None = None,
    ) -> None:
        self.metadata = MetadataImage()
        self.on_created: list[Callable[[TopicMetadata], None]] = []
        self.on_deleted: list[Callable[[TopicMetadata], None]] = []
        self._store = store
        self._logs = logs
        self._settings = settings
        self._new_topic_id = new_topic_id or _random_topic_id
        self._partition_logs: dict[TopicPartition, PartitionLog] = {}
        self._collisions: dict[str, str] = {}
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """Load the topics, open the log directory and bring the two into step. Raises StorageError."""
        topics = await self._store.load_topics()
        for topic in topics:
            self.metadata.put(topic)
        await self._logs.open(self.log_config)
        for topic in await self._store.load_deletions():
            # Only what a start finds is on the disk for sure: the record goes when nothing is found any more.
            if not self._delete_logs(topic):
                await self._store.finish_deletion(topic.topic_id)
        for topic in topics:
            self._report_missing(topic)
            self._host(topic)
        self._report_strays()

    def log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition hosted here."""
        return self._partition_logs.get(topic_partition)

    def log_config(self, name: str) -> LogConfig:
        """The settings of a topic's logs; those of a topic without configs when there is no such topic."""
        topic = self.metadata.get(name)
        return self._log_config(name, topic.configs if topic is not None else {})

    def topic_config(self, name: str) -> list[ConfigValue] | None:
        """Every config of a topic with its effective value and where that comes from; None when there is no such
        topic."""
        topic = self.metadata.get(name)
        return None if topic is None else describe_topic_configs(topic.configs, self._settings)

    # Creating

    def check_create(
        self, name: str, partition_count: int, configs: Mapping[str, str | None], *, is_own: bool = False
    ) -> Outcome:
        """Whether `create` would accept this; what validate_only asks. Messages are for people.

        INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, POLICY_VIOLATION (too many partitions),
        INVALID_CONFIG.
        Source: Kafka's ReplicationControlManager.createTopics.
        """
        reason = check_topic_name(name)
        if reason is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, reason
        if self.metadata.get(name) is not None:
            return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists"
        if name in INTERNAL_TOPICS and not is_own:
            return (
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic {name!r} is created by the broker itself when it is needed",
            )
        other = self._collisions.get(collision_key(name))
        if other is not None:
            return (
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic {name!r} collides with {other!r}: '.' and '_' count as the same",
            )
        if partition_count != DEFAULT_PARTITION_COUNT and partition_count <= 0:
            return ErrorCode.INVALID_PARTITIONS, f"A topic has at least 1 partition; got {partition_count}"
        reason = self._too_many(self._partition_count(partition_count))
        if reason is not None:
            return ErrorCode.POLICY_VIOLATION, reason
        reason = check_topic_configs(configs, self._settings)
        if reason is not None:
            return ErrorCode.INVALID_CONFIG, reason
        return _DONE

    async def create(self, name: str, partition_count: int, configs: Mapping[str, str | None]) -> Outcome:
        """Create a topic. partition_count: DEFAULT_PARTITION_COUNT for `num.partitions`. Errors: see `check_create`;
        StorageError."""
        async with self._changing:
            outcome = self.check_create(name, partition_count, configs)
            if outcome[0] is not ErrorCode.NONE:
                return outcome
            given = {config: text for config, text in configs.items() if text is not None}
            return await self._create(name, self._partition_count(partition_count), given)

    async def ensure_internal(self, name: str) -> TopicMetadata:
        """`__transaction_state` or `__consumer_offsets`, created with Kafka's configs when it is missing. Raises
        StorageError."""
        topic = self.metadata.get(name)
        if topic is not None:
            return topic
        async with self._changing:
            if self.metadata.get(name) is None:
                wanted = internal_topic(name, self._settings)
                error, message = await self._create(name, wanted.partition_count, wanted.configs)
                if error is not ErrorCode.NONE:
                    raise StorageError(f"{name} could not be created: {message}")
        created = self.metadata.get(name)
        assert created is not None
        return created

    async def _create(self, name: str, partition_count: int, configs: Mapping[str, str]) -> Outcome:
        stray = next((tp for tp in _partitions(name, partition_count) if self._logs.get(tp) is not None), None)
        if stray is not None:
            # Appending to records of an unknown past would hand them to consumers as this topic's.
            message = f"The data directory has a directory {stray} that belongs to no known topic; move it away first"
            log.error("topic_creation_refused", topic=name, reason=message)
            return ErrorCode.KAFKA_STORAGE_ERROR, message
        self._logs.make_way(_partitions(name, partition_count))
        topic = TopicMetadata(name, self._new_topic_id(), partition_count, MappingProxyType(dict(configs)))
        if not await self._store.create_topic(topic):
            return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists"
        try:
            self._host(topic)
        except StorageError:
            self._forget(topic)
            # Recorded as a deletion, so that the next start clears away what cannot be cleared away now.
            await self._store.delete_topic(name)
            self._delete_logs(topic)
            raise
        self.metadata.put(topic)
        for hook in self.on_created:
            hook(topic)
        log.info("topic_created", topic=name, partitions=partition_count)
        return _DONE

    # Changing and deleting

    async def delete(self, name: str) -> ErrorCode:
        """Delete a topic and its logs: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED, INVALID_TOPIC_EXCEPTION
        (internal)."""
        async with self._changing:
            topic = self.metadata.get(name)
            if topic is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not self._settings.delete_topic_enable:
                return ErrorCode.TOPIC_DELETION_DISABLED
            if topic.is_internal:
                return ErrorCode.INVALID_TOPIC_EXCEPTION
            await self._store.delete_topic(name)
            self.metadata.remove(name)
            for hook in self.on_deleted:
                hook(topic)
            self._forget(topic)
            self._delete_logs(topic)
            log.info("topic_deleted", topic=name, partitions=topic.partition_count)
            return ErrorCode.NONE

    def check_add_partitions(self, name: str, new_count: int) -> Outcome:
        """Whether `add_partitions` would accept this; what validate_only asks."""
        topic = self.metadata.get(name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}"
        if topic.is_internal:
            return ErrorCode.INVALID_PARTITIONS, f"The number of partitions of {name!r} is fixed"
        if new_count == topic.partition_count:
            return ErrorCode.INVALID_PARTITIONS, f"Topic {name!r} already has {new_count} partitions"
        if new_count < topic.partition_count:
            return (
                ErrorCode.INVALID_PARTITIONS,
                f"Topic {name!r} has {topic.partition_count} partitions; {new_count} would be fewer",
            )
        reason = self._too_many(new_count - topic.partition_count)
        if reason is not None:
            return ErrorCode.POLICY_VIOLATION, reason
        return _DONE

    async def add_partitions(self, name: str, new_count: int) -> Outcome:
        """Grow a topic to `new_count` partitions. UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, POLICY_VIOLATION;
        StorageError."""
        async with self._changing:
            outcome = self.check_add_partitions(name, new_count)
            topic = self.metadata.get(name)
            if outcome[0] is not ErrorCode.NONE or topic is None:
                return outcome
            self._logs.make_way(_partitions(name, new_count)[topic.partition_count :])
            await self._store.set_partition_count(name, new_count)
            grown = dataclasses.replace(topic, partition_count=new_count)
            self._host(grown)
            self.metadata.put(grown)
            log.info("partitions_added", topic=name, partitions=new_count)
            return _DONE

    async def alter_configs(self, name: str, configs: Mapping[str, str | None]) -> Outcome:
        """Replace the configs of a topic. UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG; StorageError."""
        async with self._changing:
            topic = self.metadata.get(name)
            if topic is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}"
            reason = check_topic_configs(configs, self._settings)
            if reason is not None:
                return ErrorCode.INVALID_CONFIG, reason
            given = MappingProxyType({config: text for config, text in configs.items() if text is not None})
            await self._store.set_topic_configs(name, given)
            self.metadata.put(dataclasses.replace(topic, configs=given))
            new_config = self.log_config(name)
            for topic_partition in _partitions(name, topic.partition_count):
                partition_log = self._partition_logs.get(topic_partition)
                if partition_log is not None:
                    partition_log.config = new_config
            log.info("topic_configs_altered", topic=name, configs=dict(given))
            return _DONE

    def _partition_count(self, partition_count: int) -> int:
        return self._settings.num_partitions if partition_count == DEFAULT_PARTITION_COUNT else partition_count

    def _too_many(self, added_count: int) -> str | None:
        limit = self._settings.fencepost_max_partitions
        if self.metadata.partition_count + added_count <= limit:
            return None
        return f"{added_count} more partitions would exceed the {limit} that fencepost.max.partitions allows"

    # Logs

    def _host(self, topic: TopicMetadata) -> None:
        """Have a log for each partition of a topic."""
        self._collisions[collision_key(topic.name)] = topic.name
        config: LogConfig | None = None
        for topic_partition in _partitions(topic.name, topic.partition_count):
            if topic_partition in self._partition_logs:
                continue
            partition_log = self._logs.get(topic_partition)
            if partition_log is not None and partition_log.topic_id == ZERO_TOPIC_ID:
                self._logs.adopt(partition_log, topic.topic_id)
            if partition_log is not None and partition_log.topic_id != topic.topic_id:
                log.error(
                    "partition_of_other_topic_found",
                    topic=topic.name,
                    partition=topic_partition.partition,
                    path=partition_log.files.directory,
                    reason=f"its partition.metadata names topic {partition_log.topic_id.hex()} "
                    f"instead of {topic.topic_id.hex()}; it is not served. Restore the directory that belongs here",
                )
                continue
            if partition_log is None:
                config = config or self._log_config(topic.name, topic.configs)
                partition_log = self._logs.create(topic_partition, topic.topic_id, config)
            self._partition_logs[topic_partition] = partition_log

    def _log_config(self, name: str, configs: Mapping[str, str]) -> LogConfig:
        try:
            return log_config(configs, self._settings)
        except ValueError as error:
            # Configs are checked before they are stored, so only a changed broker or a repaired file leads here.
            log.error("topic_configs_unreadable", topic=name, reason=str(error))  # noqa: TRY400  # says all
            return log_config({}, self._settings)

    def _forget(self, topic: TopicMetadata) -> None:
        self._collisions.pop(collision_key(topic.name), None)
        for topic_partition in _partitions(topic.name, topic.partition_count):
            self._partition_logs.pop(topic_partition, None)

    def _delete_logs(self, topic: TopicMetadata) -> bool:
        """Delete the logs of a topic that is gone; whether there were any."""
        had_logs = False
        for topic_partition in _partitions(topic.name, topic.partition_count):
            partition_log = self._logs.get(topic_partition)
            if partition_log is not None and partition_log.topic_id == topic.topic_id:
                had_logs = True
                self._logs.delete(topic_partition)
        return had_logs

    def _report_missing(self, topic: TopicMetadata) -> None:
        """Say which partitions this start makes; after a crash in the middle of a creation that is as it should be."""
        missing = [tp.partition for tp in _partitions(topic.name, topic.partition_count) if self._logs.get(tp) is None]
        if missing:
            log.warning(
                "missing_partitions_created",
                topic=topic.name,
                partitions=missing,
                reason="their directories are not there: the topic was just being created, or they were removed",
            )

    def _report_strays(self) -> None:
        for partition_log in self._logs.logs():
            topic_partition = partition_log.topic_partition
            if self._partition_logs.get(topic_partition) is not partition_log:
                log.warning(
                    "stray_partition_found",
                    topic=topic_partition.topic,
                    partition=topic_partition.partition,
                    reason="it belongs to no known topic; it is neither served nor deleted",
                )


def _partitions(name: str, partition_count: int) -> list[TopicPartition]:
    return [TopicPartition(name, partition) for partition in range(partition_count)]


def _random_topic_id() -> bytes:
    """16 random bytes as a version 4 UUID, so never all zeros, which means "no id" on the wire."""
    random_bytes = bytearray(os.urandom(16))
    random_bytes[6] = random_bytes[6] & 0x0F | 0x40
    random_bytes[8] = random_bytes[8] & 0x3F | 0x80
    return bytes(random_bytes)
