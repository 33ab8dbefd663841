"""Topics of the cluster: their metadata, and the logs of the partitions that this node leads, kept in step.

Only `Topics` knows which partitions this broker has.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from fencepost.broker.config import (
    AlterationRefusal,
    ConfigValue,
    Settings,
    check_topic_configs,
    describe_topic_configs,
)
from fencepost.broker.hosting.arrivals import Arrivals
from fencepost.broker.hosting.background_opening import BackgroundOpening
from fencepost.broker.hosting.hosted_logs import HostedLogs, report_not_admitted
from fencepost.broker.hosting.moves_under_way import MovesUnderWay
from fencepost.broker.hosting.placement import NO_PORT, NodeAddress, Placement, SingleNodePlacement
from fencepost.broker.hosting.store_poll import StorePoll
from fencepost.broker.hosting.topic_rules import (
    check_topic_name,
    internal_topic,
    refused_factor,
    refused_internal_configs,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.random_ids import random_uuid
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.log.directory.log_directory import NO_LAST_STATES, LogDirectory
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.reads.time_search import Searches
from fencepost.broker.metadata.image import MetadataImage, TopicMetadata, collision_key
from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import NO_PROBLEM, ErrorCode, ErrorWithMessage

log = get_logger(__name__)

REFRESH = Place("refresh of the metadata", Policy.RETRY)
ADMISSION = Place("admission of a partition", Policy.RETRY)
READMISSION = Place("admission of partitions that could not be served before", Policy.RETRY)
CHANGE = Place("change of a topic", Policy.REPORT)

ADMITTED_TOGETHER = 64
"""Partitions that are opened, and whose recovered records are synced, before any of them is served."""
FIRST_READMISSION_PAUSE_S = 1.0
LONGEST_READMISSION_PAUSE_S = 10.0
DEFAULT_PARTITION_COUNT = -1
"""In place of a number of partitions: that of `num.partitions`."""

T = TypeVar("T")


class Topics:
    """Creates, changes and deletes topics: first in the store, which decides, then in the log directory, then in the
    image.

    After a crash between these steps, `open` creates the logs that the store expects and finishes the deletions that it
    has recorded. The store reports the changes of other nodes, the placement the moves of partitions. Changes run one
    at a time; reading is a look-up in memory.
    placement:              this node leads all partitions, unless given.
    arrivals:               prepares, with a placement, the directories of partitions that other nodes led.
    on_created, on_deleted: called in the step that makes the topic visible, or just before its logs are deleted.
    on_led:                 called when a partition of a known topic moved to this node, or is led in a new epoch.
    moves_under_way:        partitions that move to other nodes.
    searches:               the searches by timestamp, in any log.
    on_resigned:            called before a partition moves to another node, or is led in a new epoch; nothing has been
                            appended since the placement changed.
    """

    def __init__(
        self,
        store: MetadataStore,
        logs: LogDirectory,
        settings: Settings,
        *,
        placement: Placement | None = None,
        arrivals: Arrivals | None = None,
        new_topic_id: Callable[[], bytes] | None = None,
    ) -> None:
        self.metadata = MetadataImage()
        self.placement = placement or SingleNodePlacement(NodeAddress(settings.node_id, "", NO_PORT))
        self.on_created: list[Callable[[TopicMetadata], None]] = []
        self.on_deleted: list[Callable[[TopicMetadata], None]] = []
        self.on_led: list[Callable[[PartitionLog], None]] = []
        self.on_resigned: list[Callable[[TopicPartition], None]] = []
        self.moves_under_way = MovesUnderWay()
        self.searches = Searches()
        self._store = store
        self._logs = logs
        self._settings = settings
        self._new_topic_id = new_topic_id or _random_topic_id
        self._arrivals = arrivals
        self._hosted = HostedLogs(logs, self.placement, settings, arrivals)
        self._partition_logs = self._hosted.by_partition
        self._arriving: set[TopicPartition] = set()
        self._to_admit: dict[TopicPartition, None] = {}  # those of them that no round has begun with
        self._admission: asyncio.Task[None] | None = None
        self._refused: dict[TopicPartition, None] = {}  # could not be served, and wait for another attempt
        self._readmission: asyncio.Task[None] | None = None
        self._collisions: dict[str, str] = {}
        self._changing = asyncio.Lock()
        self._background_opening = BackgroundOpening(logs, self._hosted, self.metadata, self._changing)
        self._hosting: dict[str, TopicMetadata] = {}  # their logs are being made or opened; then they are known
        self._deleted: dict[bytes, TopicMetadata] = {}  # by the placement; the metadata are yet to be read again
        self._is_outdated = False
        self._refreshing: asyncio.Task[None] | None = None
        self._store_poll = StorePoll(self._look_at_store)
        self._tasks: set[asyncio.Task[None]] = set()
        self._changes: set[asyncio.Task[Any]] = set()
        self._context = contextvars.copy_context()

    async def open(self) -> None:
        """Load the topics, open the log directory and make the two agree. Raises StorageError."""
        async with self._changing:
            self.placement.on_changed.append(self._placement_changed)
            self._store.on_topics_changed.append(self._topics_changed)
            topics = await self._store.load_topics()
            for topic in topics:
                self.metadata.put(topic)
            await self._logs.open(
                self.log_config,
                self._hosted.leader_epoch,
                patience_s=self._opening_time_s(),
                last_state=NO_LAST_STATES if self._arrivals is None else self._arrivals.all_last_states(),
            )
            for topic in await self._store.load_deletions():
                # The record of a deletion is removed only when startup finds no files of the topic. The files on
                # the other nodes' disks are not known here.
                if not await self._hosted.delete(topic) and isinstance(self.placement, SingleNodePlacement):
                    await self._store.finish_deletion(topic.topic_id)
            for topic in topics:
                self._hosted.report_missing(topic)
                self._collisions[collision_key(topic.name)] = topic.name
                self._admit_later(await self._hosted.host(topic))
            self._hosted.report_strays()
        self._background_opening.begin()

    def _opening_time_s(self) -> float | None:
        """Longest time for which startup opens logs before it serves clients. None if partitions move: a leader must
        know its log at once, so all are opened."""
        is_alone = isinstance(self.placement, SingleNodePlacement)
        return self._settings.fencepost_start_opening_logs_ms / 1000 if is_alone else None

    async def close(self) -> None:
        """Stop following the store and the placement. The logs stay open."""
        await self._background_opening.close()
        await self._store_poll.close()
        await asyncio.gather(*self._changes, return_exceptions=True)
        if self._placement_changed in self.placement.on_changed:
            self.placement.on_changed.remove(self._placement_changed)
            self._store.on_topics_changed.remove(self._topics_changed)
        await end_tasks(*self._tasks)

    def log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition hosted here. A deferred log is opened now, or as the next one."""
        found = self._partition_logs.get(topic_partition)
        if found is None and topic_partition in self._background_opening:
            return self._background_opening.open_on_demand(topic_partition)
        return found

    def serves(self, topic_partition: TopicPartition) -> bool:
        """Whether the log of a partition is open and served here."""
        return topic_partition in self._partition_logs

    def is_unopened(self, topic_partition: TopicPartition) -> bool:
        """Whether this node leads the partition and has deferred its log."""
        return topic_partition in self._background_opening

    async def ensure_opened(self) -> None:
        """Wait until all deferred logs are open, except those that cannot be opened."""
        await self._background_opening.ensure_opened()

    def error_of_absent_log(self, topic_partition: TopicPartition) -> ErrorCode:
        """The error for a partition without a log here: UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER if another
        node leads it, or if its log is still arriving or deferred."""
        if topic_partition in self._arriving:  # perhaps of a topic that is not known yet
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        topic = self.metadata.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not self.placement.is_local(topic_partition):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if topic_partition in self._background_opening:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def has_leaders(self, name: str) -> bool:
        """Whether all partitions of a topic are served, as far as this node knows: each has a leader, and none is still
        being opened here."""
        topic = self.metadata.get(name)
        return topic is None or all(
            each not in self._arriving and self.placement.leader(each) is not None for each in topic.partitions()
        )

    def log_config(self, name: str) -> LogConfig:
        """The settings of a topic's logs; the defaults if there is no such topic."""
        topic = self.metadata.get(name)
        return self._hosted.config(name, topic.configs if topic is not None else {})

    def topic_config(self, name: str) -> list[ConfigValue] | None:
        """Every config of a topic with its effective value and the value's source; None if there is no such topic."""
        topic = self.metadata.get(name)
        return None if topic is None else describe_topic_configs(topic.configs, self._settings)

    @property
    def directory(self) -> LogDirectory:
        """The log directory, which has all logs that are hosted here."""
        return self._logs

    async def delete_records(self, before_offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, ErrorCode]:
        """Raise the log start offsets of partitions hosted here; see `LogDirectory`. Raises StorageError."""
        return await self._logs.delete_records(before_offsets)

    # Creating

    def check_new(self, name: str, configs: Mapping[str, str | None]) -> ErrorWithMessage:
        """Check the name and the configs of a new topic, which `check_create` does first.

        INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_CONFIG.
        """
        reason = check_topic_name(name)
        if reason is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, reason
        other = self._collisions.get(collision_key(name))
        if self.metadata.get(name) is not None or other == name:  # that another node has created is here at once
            return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists."
        if other is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, _collides(name, other)
        reason = check_topic_configs(configs, self._settings) or refused_internal_configs(name, configs, self._settings)
        if reason is not None:
            return ErrorCode.INVALID_CONFIG, reason
        return NO_PROBLEM

    def refused_factor(self, factor: int) -> str | None:
        """The reason to refuse a topic with this replication factor, or None."""
        return refused_factor(factor, 1 + len(self.placement.other_nodes()), self._settings)

    def check_create(self, name: str, partition_count: int, configs: Mapping[str, str | None]) -> ErrorWithMessage:
        """Check whether `create` would accept this, for validate_only. Messages are for people.

        As `check_new`; INVALID_PARTITIONS, POLICY_VIOLATION (too many partitions).
        Source: Kafka's ReplicationControlManager.createTopics.
        """
        outcome = self.check_new(name, configs)
        if outcome[0] is not ErrorCode.NONE:
            return outcome
        if partition_count != DEFAULT_PARTITION_COUNT and partition_count <= 0:
            return ErrorCode.INVALID_PARTITIONS, f"A topic has at least 1 partition; got {partition_count}"
        reason = self._too_many(self._partition_count(partition_count))
        if reason is not None:
            return ErrorCode.POLICY_VIOLATION, reason
        return NO_PROBLEM

    async def create(self, name: str, partition_count: int, configs: Mapping[str, str | None]) -> ErrorWithMessage:
        """Create a topic. partition_count: DEFAULT_PARTITION_COUNT for `num.partitions`. Errors: see `check_create`;
        StorageError.

        Other requests are served while its logs are created. They see the topic, with all its partitions, when this
        returns.
        """
        return await self._uncancelled(self._check_and_create(name, partition_count, configs))

    async def _check_and_create(
        self, name: str, partition_count: int, configs: Mapping[str, str | None]
    ) -> ErrorWithMessage:
        async with self._changing:
            outcome = self.check_create(name, partition_count, configs)
            if outcome[0] is not ErrorCode.NONE:
                return outcome
            given = {config: text for config, text in configs.items() if text is not None}
            if name in INTERNAL_TOPICS:  # as a coordinator would create it; clients may, too, as in Kafka
                given = {**internal_topic(name, self._settings).configs, **given}
            return await self._create(name, self._partition_count(partition_count), given)

    async def ensure_internal(self, name: str) -> TopicMetadata:
        """Return an internal topic; create it with Kafka's configs if it is missing. Raises StorageError."""
        topic = self.metadata.get(name)
        if topic is not None:
            return topic
        await self._uncancelled(self._create_internal(name))
        created = self.metadata.get(name)
        assert created is not None
        return created

    async def _create_internal(self, name: str) -> None:
        async with self._changing:
            if self.metadata.get(name) is None:
                wanted = internal_topic(name, self._settings)
                error, message = await self._create(name, wanted.partition_count, wanted.configs)
                if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise StorageError(f"{name} could not be created: {message}")

    async def _uncancelled(self, change: Coroutine[Any, Any, T]) -> T:
        """Finish a change even if the request for it is cancelled, so that store and logs stay in step."""
        task = CHANGE.start(change, expected=(StorageError,))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _create(self, name: str, partition_count: int, configs: Mapping[str, str]) -> ErrorWithMessage:
        topic = TopicMetadata(name, self._new_topic_id(), partition_count, MappingProxyType(dict(configs)))
        stray = self._hosted.find_stray(topic)
        if stray is not None:
            # Appending to records of an unknown past would hand them to consumers as this topic's.
            message = f"The data directory has a directory {stray} that belongs to no known topic; move it away first"
            log.error("topic_creation_refused", topic=name, reason=message)
            return ErrorCode.KAFKA_STORAGE_ERROR, message
        await self._hosted.remove_leftovers(topic)
        if not await self._store.create_topic(topic):
            await self._refresh()
            return self._taken_by_another_node(name)
        self._hosting[name] = topic
        try:
            made = await self._hosted.create_logs(topic)
        except Exception:
            # Recorded as a deletion, so that the next start deletes files that cannot be deleted now.
            await self._store.delete_topic(name, topic.topic_id)
            await self._hosted.delete(topic)
            raise
        finally:
            del self._hosting[name]
        # From here on in one step: no request sees a part of it.
        if topic.topic_id in self._deleted:
            return NO_PROBLEM  # another node has deleted it by now: the refresh that follows deletes its logs
        self._hosted.serve_created(made, topic)
        self._collisions[collision_key(name)] = name
        self.metadata.put(topic)
        for hook in self.on_created:
            hook(topic)
        log.info("topic_created", topic=name, partitions=partition_count)
        return NO_PROBLEM

    def _taken_by_another_node(self, name: str) -> ErrorWithMessage:
        """The refusal of a name that was free here, and not in the store."""
        other = self._collisions.get(collision_key(name), name)
        if other == name:  # also if it has been deleted meanwhile
            return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists."
        return ErrorCode.INVALID_TOPIC_EXCEPTION, _collides(name, other)

    # Changing and deleting

    async def delete(self, name: str, topic_id: bytes | None = None) -> ErrorCode:
        """Delete a topic and its logs: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED, INVALID_TOPIC_EXCEPTION
        (internal). Requests do not see it any more before its files are deleted; this returns after that.

        topic_id: the expected id, else UNKNOWN_TOPIC_ID; any topic with this name, unless given.
        """
        return await self._uncancelled(self._delete(name, topic_id))

    async def _delete(self, name: str, topic_id: bytes | None) -> ErrorCode:
        async with self._changing:
            while True:
                topic = self.metadata.get(name)
                if topic_id is not None and (topic is None or topic.topic_id != topic_id):
                    return ErrorCode.UNKNOWN_TOPIC_ID
                if topic is None:
                    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if not self._settings.delete_topic_enable:
                    return ErrorCode.TOPIC_DELETION_DISABLED
                if topic.is_internal:
                    return ErrorCode.INVALID_TOPIC_EXCEPTION
                if await self._store.delete_topic(name, topic.topic_id):
                    break
                await self._refresh()  # another node has deleted it, and perhaps created another
            await self._stop_serving(topic)
            log.info("topic_deleted", topic=name, partitions=topic.partition_count)
            return ErrorCode.NONE

    async def _stop_serving(self, topic: TopicMetadata) -> None:
        """Remove a topic that the store has deleted, and its files. The caller holds `_changing`."""
        self._forget(topic)
        await self._hosted.delete(topic)

    def _forget(self, topic: TopicMetadata) -> None:
        """Remove a topic that the store has deleted; nothing happens if that is done already."""
        known = self.metadata.get(topic.name)
        if known is None or known.topic_id != topic.topic_id:
            return
        self.metadata.remove(topic.name)
        for hook in self.on_deleted:
            hook(topic)
        self._collisions.pop(collision_key(topic.name), None)
        self._hosted.forget(topic)

    def _forget_deleted(self, name: str) -> None:
        """Remove a topic, in this step, that the placement says is deleted: every later request is for the next topic
        of its name. A refresh deletes the files, as soon as no other change is under way."""
        for topic in (self.metadata.get(name), self._hosting.get(name)):
            if topic is not None and self.placement.was_deleted(topic.topic_id):
                self._forget(topic)
                self._deleted[topic.topic_id] = topic
                self._begin_refresh()

    def check_add_partitions(self, name: str, new_count: int) -> ErrorWithMessage:
        """Check whether `add_partitions` would accept this, for validate_only."""
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
        return NO_PROBLEM

    async def add_partitions(self, name: str, new_count: int) -> ErrorWithMessage:
        """Grow a topic to `new_count` partitions. UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, POLICY_VIOLATION;
        StorageError. Other requests are served while the logs are created."""
        return await self._uncancelled(self._add_partitions(name, new_count))

    async def _add_partitions(self, name: str, new_count: int) -> ErrorWithMessage:
        async with self._changing:
            while True:
                outcome = self.check_add_partitions(name, new_count)
                topic = self.metadata.get(name)
                if outcome[0] is not ErrorCode.NONE or topic is None:
                    return outcome
                grown = dataclasses.replace(topic, partition_count=new_count)
                await self._hosted.remove_leftovers(grown, topic.partition_count)
                if await self._store.set_partition_count(
                    name, new_count, topic_id=topic.topic_id, before=topic.partition_count
                ):
                    break
                await self._refresh()  # another node has changed it
            try:
                refused = await self._hosted.host(grown)
            except Exception:
                # No client knows of the new partitions yet. If they stay, the next start or attempt uses them.
                if self._hosted.undo_growth(grown, topic.partition_count):
                    await self._store.set_partition_count(
                        name, topic.partition_count, topic_id=topic.topic_id, before=new_count
                    )
                raise
            if topic.topic_id not in self._deleted:  # meanwhile, by another node
                self.metadata.put(grown)
            self._admit_later(refused)
            log.info("partitions_added", topic=name, partitions=new_count)
            return NO_PROBLEM

    async def alter_configs(self, name: str, configs: Mapping[str, str | None]) -> ErrorWithMessage:
        """Replace the configs of a topic. UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG; StorageError."""
        return await self.change_configs(name, lambda _: configs)

    async def change_configs(
        self,
        name: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str | None] | AlterationRefusal],
        *,
        validate_only: bool = False,
    ) -> ErrorWithMessage:
        """Replace the configs of a topic by the result of `change`; they apply from the next request on.

        `change`'s errors, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION. Raises StorageError.
        """
        async with self._changing:
            while True:
                topic = self.metadata.get(name)
                configs = change({} if topic is None else topic.configs)
                if isinstance(configs, AlterationRefusal):
                    return configs.error, configs.message
                reason = check_topic_name(name)
                if reason is not None:
                    return ErrorCode.INVALID_TOPIC_EXCEPTION, reason
                reason = check_topic_configs(configs, self._settings)
                if reason is not None:
                    return ErrorCode.INVALID_CONFIG, reason
                # Kafka's ConfigurationControlManager checks last that the resource exists.
                if topic is None:
                    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic {name!r} does not exist."
                given = MappingProxyType({config: text for config, text in configs.items() if text is not None})
                if validate_only or given == topic.configs:
                    return NO_PROBLEM
                if await self._store.set_topic_configs(name, given, topic_id=topic.topic_id, before=topic.configs):
                    break
                await self._refresh()  # another node has changed it
            if topic.topic_id not in self._deleted:  # meanwhile, by another node
                self._set_configs(dataclasses.replace(topic, configs=given))
            log.info("topic_configs_altered", topic=name, configs=dict(given))
            return NO_PROBLEM

    def settings_changed(self) -> None:
        """Give all logs the broker's current defaults, for configs that their topics do not set."""
        self._hosted.settings_changed()
        configs = {topic.name: self._hosted.config(topic.name, topic.configs) for topic in self.metadata.all()}
        for topic_partition, partition_log in self._partition_logs.items():
            config = configs.get(topic_partition.topic)
            if config is not None:
                partition_log.configure(config)

    def _set_configs(self, topic: TopicMetadata) -> None:
        self.metadata.put(topic)
        new_config = self.log_config(topic.name)
        for topic_partition in topic.partitions():
            partition_log = self._partition_logs.get(topic_partition)
            if partition_log is not None:
                partition_log.configure(new_config)

    def _partition_count(self, partition_count: int) -> int:
        return self._settings.num_partitions if partition_count == DEFAULT_PARTITION_COUNT else partition_count

    def _too_many(self, added_count: int) -> str | None:
        limit = self._settings.fencepost_max_partitions
        if self.metadata.partition_count + added_count <= limit:
            return None
        return f"{added_count} more partitions would exceed the {limit} that fencepost.max.partitions allows"

    # Changes of other nodes

    def _topics_changed(self) -> None:
        # Changes of other nodes are followed in this node's own context, not in the caller's.
        self._context.copy().run(self._begin_refresh)

    def _begin_refresh(self) -> None:
        self._is_outdated = True
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._keep(REFRESH.start_retrying(self._refresh_while_outdated))

    async def catch_up(self) -> bool:
        """Load the topics that other nodes have created, changed and deleted, within a time limit: see `StorePoll`.

        A client may have seen the change at another node already, and would take this node's state for the answer.
        Returns whether this node knows all that was changed before the call.
        """
        return not self.placement.other_nodes() or await self._store_poll.catch_up()

    async def _look_at_store(self) -> None:
        await self._store.follow()
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])

    async def _refresh_while_outdated(self) -> None:
        while self._is_outdated:
            async with self._changing:
                self._is_outdated = False
                try:
                    await self._refresh()
                except StorageError as error:
                    log.error("metadata_refresh_failed", reason=str(error))  # noqa: TRY400  # the reason says it all
                except BaseException:
                    self._is_outdated = True
                    raise

    async def _refresh(self) -> None:
        """Follow the store. The caller holds `_changing`. Raises StorageError."""
        deleted = list(self._deleted.values())
        topics = await self._store.load_topics()
        # The topics may be from before a deletion that the placement has reported meanwhile.
        stored = {topic.name: topic for topic in topics if topic.topic_id not in self._deleted}
        for topic in deleted:
            await self._hosted.delete(topic)
            self._deleted.pop(topic.topic_id, None)
        for known in list(self.metadata.all()):
            found = stored.get(known.name)
            if found is None or found.topic_id != known.topic_id:
                await self._stop_serving(known)
                log.info("topic_deletion_applied", topic=known.name)
        for topic in stored.values():
            previous = self.metadata.get(topic.name)
            if previous == topic:
                continue
            self._collisions[collision_key(topic.name)] = topic.name
            known_count = 0 if previous is None else previous.partition_count
            if topic.partition_count > known_count:
                await self._hosted.remove_leftovers(topic, known_count)
            self._hosting[topic.name] = topic
            try:
                self._admit_later(await self._hosted.host(topic))
            finally:
                del self._hosting[topic.name]
            if topic.topic_id in self._deleted:
                continue  # meanwhile
            self._set_configs(topic)
            if previous is None:
                for hook in self.on_created:
                    hook(topic)
            log.info("topic_change_applied", topic=topic.name, partitions=topic.partition_count)

    # Partitions that move between nodes

    def _placement_changed(self, topic_partition: TopicPartition) -> None:
        self.moves_under_way.end(topic_partition)
        self._context.copy().run(self._follow_placement, topic_partition)

    def _follow_placement(self, topic_partition: TopicPartition) -> None:
        self._forget_deleted(topic_partition.topic)
        is_local = self.placement.is_local(topic_partition)
        partition_log = self._partition_logs.get(topic_partition)
        if self._hosted.has_earlier(topic_partition):
            # Every later request is for the topic that has the name now. The files go with the deletion.
            if partition_log is not None:
                for resigned in self.on_resigned:
                    resigned(topic_partition)
            self._hosted.release(topic_partition)
            partition_log = None
            log.info("deleted_partition_released", topic=topic_partition.topic, partition=topic_partition.partition)
        if partition_log is None:
            if is_local:
                self._begin_admission(topic_partition)
            else:
                self._arriving.discard(topic_partition)
                # Startup may have opened it and not served it yet: if it comes back, its files are different.
                self._hosted.release(topic_partition)
            return
        leader_epoch = self.placement.leader_epoch(topic_partition)
        if is_local and leader_epoch <= partition_log.leader_epoch:
            return
        for resigned in self.on_resigned:
            resigned(topic_partition)
        if is_local:
            partition_log.lead(leader_epoch)
            self._notify_led(partition_log)
        else:
            self._hosted.release(topic_partition)
            log.info("partition_released", topic=topic_partition.topic, partition=topic_partition.partition)

    def _begin_admission(self, topic_partition: TopicPartition) -> None:
        self._arriving.add(topic_partition)
        self._to_admit[topic_partition] = None
        if self._admission is None or self._admission.done():
            self._admission = self._keep(ADMISSION.start_retrying(self._admit_arriving))

    def _admit_later(self, names: Iterable[TopicPartition]) -> None:
        """Try again, after a pause, to lead partitions that cannot be served: a disk may be full only for a while."""
        self._refused.update({name: None for name in names if name not in self._partition_logs})
        self._arriving.update(self._refused)
        if self._refused and (self._readmission is None or self._readmission.done()):
            self._readmission = self._keep(READMISSION.start_retrying(self._readmit))

    async def _readmit(self) -> None:
        pause_s = FIRST_READMISSION_PAUSE_S
        while self._refused:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_READMISSION_PAUSE_S)
            for name in list(self._refused):
                if name in self._arriving:  # else it has been served meanwhile, or has moved
                    self._begin_admission(name)
                del self._refused[name]
            if self._admission is not None:
                await asyncio.wait([self._admission])

    async def _admit_arriving(self) -> None:
        """Begin to lead the partitions that have come to this node since the last round, all together.

        A partition that cannot be served stays arriving, and is tried again later.
        """
        while self._to_admit:
            names, self._to_admit = self._to_admit, {}
            try:
                async with self._changing:
                    await self._admit(list(names))
            except StorageError as error:
                for name in names:
                    report_not_admitted(name, error)
                self._admit_later(names)
            except BaseException:
                self._to_admit = {**names, **self._to_admit}
                raise

    async def _admit(self, names: Sequence[TopicPartition]) -> None:
        """Lead partitions that other nodes led until now. The caller holds `_changing`. Raises StorageError."""
        # A coordinator decides by the topics that it knows: they must be no older than its leadership.
        await self._refresh()
        wanted = []
        for name in names:
            topic = self.metadata.get(name.topic)
            if (
                topic is not None
                and name.partition < topic.partition_count
                and name not in self._partition_logs
                and self.placement.is_local(name)
            ):
                wanted.append((name, topic))
            elif name not in self._to_admit:  # else it has come again meanwhile
                self._arriving.discard(name)
        wanted.sort(key=lambda one: one[0].topic not in INTERNAL_TOPICS)  # coordinators keep many clients waiting
        for start in range(0, len(wanted), ADMITTED_TOGETHER):
            await self._lead(wanted[start : start + ADMITTED_TOGETHER])

    async def _lead(self, wanted: Sequence[tuple[TopicPartition, TopicMetadata]]) -> None:
        errors = await self._hosted.lead(wanted)
        self._admit_later(errors)
        for name, topic in wanted:
            partition_log = self._partition_logs.get(name)
            if name in errors:
                report_not_admitted(name, errors[name])
            elif partition_log is not None:
                if name not in self._to_admit:
                    self._arriving.discard(name)
                self._notify_led(partition_log)
            elif not self._hosted.is_of(topic, name):
                pass  # its metadata or its placement follow, and it arrives again
            elif self.metadata.get(name.topic) is not topic or not self.placement.is_local(name):
                self._arriving.discard(name)

    async def hand_over(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, LastLeaderState]:
        """Stop serving partitions that are about to move, and close their logs; returns how each was left.

        By now another node leads them in the placement.
        """
        self.moves_under_way.begin(names)
        for name in names:
            if name in self._partition_logs:
                for resigned in self.on_resigned:
                    resigned(name)
        return await self._hosted.close_to_move(names)

    def _notify_led(self, partition_log: PartitionLog) -> None:
        name = partition_log.topic_partition
        log.info("partition_led", topic=name.topic, partition=name.partition, leader_epoch=partition_log.leader_epoch)
        for hook in self.on_led:
            hook(partition_log)

    def _keep(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _collides(name: str, other: str) -> str:
    return f"Topic {name!r} collides with existing topic: {other}: '.' and '_' count as the same"


def _random_topic_id() -> bytes:
    return random_uuid(os.urandom(16))
