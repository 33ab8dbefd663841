"""Logs of the partitions that this node leads: their creation, opening, deletion and moves between nodes."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Mapping, Sequence

from fencepost.broker.config import Settings, readable_configs
from fencepost.broker.hosting.arrivals import Arrival, Arrivals, Found
from fencepost.broker.hosting.placement import Placement
from fencepost.broker.hosting.topic_rules import log_config
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import ArrivingLog, LastLeaderState
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.directory.log_opening import OWN_LEADER_EPOCH
from fencepost.broker.log.files.checkpoints import ZERO_TOPIC_ID
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.storage.disk import StorageError, remedy

log = get_logger(__name__)

CHANGED_PER_TURN = 4
"""Logs that are created or deleted without a pause for other requests; one takes up to 1 ms."""
LED_TOGETHER = 1_000
"""Partitions of a topic that one step of the event loop decides about; thousands would take it more than 20 ms."""


def report_not_admitted(name: TopicPartition, error: StorageError) -> None:
    """Log that a partition which this node leads cannot be served for now: the caller retries."""
    advice = "it is tried again by itself, within a minute"
    log.error(
        "partition_admission_failed",
        topic=name.topic,
        partition=name.partition,
        reason=str(error),
        remedy=advice if error.errno is None else f"{remedy(error)}; {advice}",
    )


class HostedLogs:
    """Keeps the log directory in step with the topics and with the placement of their partitions.

    by_partition: the logs that are served here.
    """

    def __init__(
        self, logs: LogDirectory, placement: Placement, settings: Settings, arrivals: Arrivals | None = None
    ) -> None:
        self.by_partition: dict[TopicPartition, PartitionLog] = {}
        self._logs = logs
        self._placement = placement
        self._settings = settings
        self._arrivals = arrivals
        self._configs: dict[frozenset[tuple[str, str]], LogConfig] = {}

    def leader_epoch(self, topic_partition: TopicPartition) -> int | None:
        """The epoch in which this node leads a partition, for the log directory; None if another node leads it."""
        placement = self._placement
        return placement.leader_epoch(topic_partition) if placement.is_local(topic_partition) else None

    def is_of(self, topic: TopicMetadata, topic_partition: TopicPartition) -> bool:
        """Whether the placement of a partition is of this topic. If not, the topic has been deleted and created again,
        and the metadata here are older or newer than the placement: the older of the two follows soon."""
        return self._placement.topic_id(topic_partition) in (None, topic.topic_id)

    def _leads(self, topic_partition: TopicPartition, topic: TopicMetadata) -> bool:
        return self._placement.is_local(topic_partition) and self.is_of(topic, topic_partition)

    def config(self, name: str, configs: Mapping[str, str]) -> LogConfig:
        """The settings of a topic's logs; one object for all topics with the same configs."""
        key = frozenset(configs.items())
        config = self._configs.get(key)
        if config is None:
            config = self._configs[key] = self._read_config(name, configs)
        return config

    def settings_changed(self) -> None:
        """Drop the cached settings: the broker's defaults have changed."""
        self._configs.clear()

    def _read_config(self, name: str, configs: Mapping[str, str]) -> LogConfig:
        readable, reasons = readable_configs(configs)
        if reasons:
            # Configs are checked before they are stored, so only another version of the broker or an edited file
            # leads here. The readable ones apply: without its retention or cleanup policy, a topic would lose records.
            log.error("topic_configs_unreadable", topic=name, reason="; ".join(reasons))
        config = log_config(readable, self._settings)
        if self._logs.is_scratch and not config.is_durable:
            # Readers would see records that are gone with the node.
            log.warning(
                "flush_interval_ignored",
                topic=name,
                flush_messages=config.flush_interval_messages,
                reason="in a cluster of several machines every acknowledgement waits until the records are committed",
            )
            config = dataclasses.replace(config, flush_interval_messages=1)
        return config

    # Creating and opening

    async def host(self, topic: TopicMetadata) -> Collection[TopicPartition]:
        """Serve a log for each partition of a topic that this node leads, except deferred ones.

        Other requests are served meanwhile. Raises StorageError if this node is alone; in a cluster a log that cannot
        be served is reported, and its partition returned.
        """
        unopened = self._logs.unopened
        names = [
            name
            for name in topic.partitions()
            if name not in self.by_partition and name not in unopened and self._leads(name, topic)
        ]
        if not names:
            return ()
        errors: dict[TopicPartition, StorageError] = {}
        for first in range(0, len(names), LED_TOGETHER):
            errors |= await self.lead([(name, topic) for name in names[first : first + LED_TOGETHER]])
            if errors and self._arrivals is None:
                raise next(iter(errors.values()))
        for name, error in errors.items():  # the others are served
            report_not_admitted(name, error)
        return errors.keys()

    async def create_logs(self, topic: TopicMetadata) -> list[PartitionLog]:
        """Create a log for each partition of a new topic that this node leads; `serve_created` serves them.

        Other requests are served meanwhile. Raises StorageError, also if a directory of that name exists.
        """
        config: LogConfig | None = None
        made = []
        for topic_partition in topic.partitions():
            if self._leads(topic_partition, topic):
                config = config or self.config(topic.name, topic.configs)
                made.append(self._create(topic_partition, topic, config))
                if len(made) % CHANGED_PER_TURN == 0:
                    await asyncio.sleep(0)
        if self._arrivals is not None:
            await self._arrivals.created({one.topic_partition: one.topic_id for one in made})
        return made

    def serve_created(self, made: Sequence[PartitionLog], topic: TopicMetadata) -> None:
        """Serve all logs of a new topic in one step, except those that moved to another node meanwhile."""
        config = self.config(topic.name, topic.configs)
        for partition_log in made:
            if not partition_log.is_deleted:
                partition_log.configure(config)  # the broker's defaults may have changed meanwhile
                self._serve(partition_log)

    async def lead(self, wanted: Sequence[tuple[TopicPartition, TopicMetadata]]) -> dict[TopicPartition, StorageError]:
        """Serve logs of partitions with their topics: those that are open, those whose directories are found now, and
        new ones. Returns the errors of those that cannot be served.

        Not served either are logs of another topic, and those that have moved to another node meanwhile, or whose topic
        was deleted and created again. Directories are prepared and logs are synced together, so that many do not wait
        for each other.
        """
        wanted = [(name, topic) for name, topic in wanted if self.is_of(topic, name)]
        topics = {name: topic for name, topic in wanted if self._logs.get(name) is None}
        epochs = {name: self._placement.leader_epoch(name) for name in topics}
        try:
            await self._forget_earlier(list(topics))
        except StorageError as error:
            return dict.fromkeys(topics, error)
        arrivals = await self._arrive(list(topics))
        errors = {name: arrival.error for name, arrival in arrivals.items() if arrival.error is not None}
        errors |= await self._logs.serve(
            ArrivingLog(
                name,
                self.config(topic.name, topic.configs),
                epochs[name],
                arrival.last_state,
                arrival.sealed,
                arrival.durable_end,
            )
            for name, topic in topics.items()
            if (arrival := arrivals[name]).found is Found.HERE
        )
        created: dict[TopicPartition, bytes] = {}
        for count, (name, topic) in enumerate(wanted, 1):
            if count % CHANGED_PER_TURN == 0:
                await asyncio.sleep(0)
            if name in errors:
                continue
            if name in epochs and not (self.leader_epoch(name) == epochs[name] and self.is_of(topic, name)):
                # It moved while its files were read; if it came back, they may be different now, or another topic's.
                self._logs.release(name)
                continue
            try:
                if self._lead_one(name, topic, arrivals.get(name)):
                    created[name] = topic.topic_id
            except StorageError as error:
                errors[name] = error
        if created and self._arrivals is not None:
            await self._arrivals.created(created)
        return errors

    async def _forget_earlier(self, names: Sequence[TopicPartition]) -> None:
        """Forget the checkpoints here of partitions whose directories are elsewhere: they are from the time when this
        node led them last, perhaps for earlier topics with their names. Raises StorageError."""
        if self._arrivals is not None:
            await self._logs.remove_leftovers([name for name in names if not self._logs.has_directory(name)])

    async def _arrive(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, Arrival]:
        if self._arrivals is not None:
            return await self._arrivals.prepare(names)
        return {name: Arrival(Found.HERE if self._logs.has_directory(name) else Found.NOWHERE) for name in names}

    def _lead_one(self, name: TopicPartition, topic: TopicMetadata, arrival: Arrival | None) -> bool:
        """Serve one log that is open or new; return whether it was created. Raises StorageError."""
        partition_log = self._logs.get(name)
        if partition_log is not None:
            self._serve_found(partition_log, topic)
            return False
        if arrival is not None and arrival.found is Found.MISSING:
            log.error(
                "partition_directory_missing",
                topic=name.topic,
                partition=name.partition,
                reason="it has been created, and is in the directory of no node; it is not served, and not begun anew",
                remedy="put it back into the directory of any node, and restart the broker",
            )
            return False
        if self._arrivals is None and self._placement.leader_epoch(name) > OWN_LEADER_EPOCH:
            log.warning(
                "partition_directory_missing",
                topic=name.topic,
                partition=name.partition,
                reason="it has been led before, but there are no files of it here; it begins anew, empty",
            )
        self._serve(self._create(name, topic, self.config(topic.name, topic.configs)))
        return True

    def serve_opened(self, topic_partition: TopicPartition, topic: TopicMetadata | None) -> PartitionLog | None:
        """Serve a log that was opened in the background; None if it belongs to no known topic. Raises StorageError."""
        partition_log = self._logs.get(topic_partition)
        if topic is None or topic_partition.partition >= topic.partition_count:
            self._report_stray(topic_partition)
            return None
        if partition_log is None:  # its directory was empty
            return self._serve(self._create(topic_partition, topic, self.config(topic.name, topic.configs)))
        return self._serve_found(partition_log, topic)

    def _serve_found(self, partition_log: PartitionLog, topic: TopicMetadata) -> PartitionLog | None:
        topic_partition = partition_log.topic_partition
        if partition_log.topic_id == ZERO_TOPIC_ID:
            self._logs.open_arrived(partition_log, topic.topic_id)
        if partition_log.topic_id != topic.topic_id:
            log.error(
                "partition_of_other_topic_found",
                topic=topic.name,
                partition=topic_partition.partition,
                path=partition_log.files.directory,
                reason=f"its partition.metadata names topic {partition_log.topic_id.hex()} "
                f"instead of {topic.topic_id.hex()}; it is not served. Restore the directory that belongs here",
            )
            return None
        return self._serve(partition_log)

    def _create(self, topic_partition: TopicPartition, topic: TopicMetadata, config: LogConfig) -> PartitionLog:
        leader_epoch = self._placement.leader_epoch(topic_partition)
        return self._logs.create(topic_partition, topic.topic_id, config, leader_epoch=leader_epoch)

    def _serve(self, partition_log: PartitionLog) -> PartitionLog:
        topic_partition = partition_log.topic_partition
        leader_epoch = self._placement.leader_epoch(topic_partition)
        if leader_epoch > partition_log.leader_epoch:
            partition_log.lead(leader_epoch)
        self.by_partition[topic_partition] = partition_log
        return partition_log

    # Releasing and deleting

    def has_earlier(self, topic_partition: TopicPartition) -> bool:
        """Whether the open log of a partition is of a deleted topic whose name another topic has by now, according to
        the placement."""
        partition_log = self._logs.get(topic_partition)
        topic_id = self._placement.topic_id(topic_partition)
        return (
            partition_log is not None
            and topic_id is not None
            and partition_log.topic_id not in (topic_id, ZERO_TOPIC_ID)
        )

    def release(self, topic_partition: TopicPartition) -> None:
        """Stop serving a partition that moves to another node; its directory is not changed."""
        self.by_partition.pop(topic_partition, None)
        self._logs.release(topic_partition)

    def forget(self, topic: TopicMetadata) -> None:
        """Stop serving the logs of a topic."""
        for topic_partition in topic.partitions():
            partition_log = self.by_partition.get(topic_partition)
            if partition_log is not None and partition_log.topic_id == topic.topic_id:
                del self.by_partition[topic_partition]

    async def close_to_move(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, LastLeaderState]:
        """Stop serving partitions, and close their logs so that another node need not recover them."""
        for name in names:
            self.by_partition.pop(name, None)
        return await self._logs.close_to_move(names)

    async def delete(self, topic: TopicMetadata) -> bool:
        """Delete the logs of a deleted topic; returns whether there were any. Other requests are served meanwhile.

        Raises StorageError.
        """
        had_logs = False
        for count, topic_partition in enumerate(topic.partitions(), 1):
            partition_log = self._logs.get(topic_partition)
            if partition_log is None:
                had_logs |= self._logs.delete_renamed_directories(topic_partition, topic.topic_id)
            elif partition_log.topic_id == topic.topic_id:
                had_logs = True
                self._logs.delete(topic_partition)
            if count % CHANGED_PER_TURN == 0:
                await asyncio.sleep(0)
        return had_logs

    def undo_growth(self, grown: TopicMetadata, first_partition: int) -> bool:
        """Delete the logs that were created for a topic's new partitions, from `first_partition` on.

        Deletes none and returns False if one of them has records, or may have. Raises StorageError.
        """
        added = [one for name in grown.partitions()[first_partition:] if (one := self._logs.get(name)) is not None]
        if any(one.log_end_offset or one.is_offline for one in added):
            return False
        for partition_log in added:
            self.by_partition.pop(partition_log.topic_partition, None)
            self._logs.delete(partition_log.topic_partition)
        return True

    # Found at startup

    def find_stray(self, topic: TopicMetadata) -> TopicPartition | None:
        """A log with the name of a partition of a topic that is about to be created."""
        return next((name for name in topic.partitions() if self._has_directory(name)), None)

    def _has_directory(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._logs.unopened or self._logs.get(topic_partition) is not None

    async def remove_leftovers(self, topic: TopicMetadata, first_partition: int = 0) -> None:
        """Remove the entries of earlier partitions from the checkpoints, before new ones are created from
        `first_partition` on. Raises StorageError."""
        await self._logs.remove_leftovers(topic.partitions()[first_partition:])

    def report_missing(self, topic: TopicMetadata) -> None:
        """Log the partitions that this start creates; they are normal after a crash during a topic's creation."""
        if self._arrivals is not None:
            return  # those of other nodes are prepared when they are led
        missing = [
            name.partition
            for name in topic.partitions()
            if not self._has_directory(name) and self._placement.is_local(name)
        ]
        if missing:
            log.warning(
                "missing_partitions_created",
                topic=topic.name,
                partitions=missing,
                reason="their directories are not there: the topic was just being created, or they were removed",
            )

    def report_strays(self) -> None:
        """Log the open logs that belong to no known topic."""
        for partition_log in self._logs.logs():
            topic_partition = partition_log.topic_partition
            if self.by_partition.get(topic_partition) is not partition_log:
                self._report_stray(topic_partition)

    def _report_stray(self, topic_partition: TopicPartition) -> None:
        log.warning(
            "stray_partition_found",
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            reason="it belongs to no known topic; it is neither served nor deleted",
        )
