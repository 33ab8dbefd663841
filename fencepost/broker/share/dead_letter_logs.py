"""Dead-letter topics as share partitions write them: found, checked, created if the broker may, and appended to, here
or on the node that leads the partition.

Source: KIP-1191; Kafka's ShareGroupDLQStateManager and ShareGroupDLQValidator.
"""

from __future__ import annotations

from typing import Final

from fencepost.broker.config import Settings
from fencepost.broker.hosting.peers import Peers, PeerUnreachable, received_error
from fencepost.broker.hosting.topics import DEFAULT_PARTITION_COUNT, Topics
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.append.large_batch_checks import LargeBatches
from fencepost.broker.log.log_types import AppendResult
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.share.dead_letters import DeadLetterTarget
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.compression import TooLargeForOneStepError
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.record_batch import read_header

PRODUCE_VERSION: Final = 13
"""Names topics by id: nothing is written to another topic of the same name."""
ALL_REPLICAS: Final = -1
TIME_OUT_S: Final = 15.0

ENABLE: Final = "errors.deadletterqueue.group.enable"
CREATED_WITH: Final = {ENABLE: "true", "message.timestamp.type": "CreateTime"}
"""Configs of a topic that the broker creates, as in Kafka."""


class NoDeadLetterTopic(Exception):  # noqa: N818  # an expected outcome
    """There is no dead-letter topic that may be written; the message says why, for operators."""


class DeadLetterLogs:
    """Refusals of `append` are values: those of an append or of Produce, and LEADER_NOT_AVAILABLE."""

    def __init__(self, topics: Topics, settings: Settings, clock: Clock, peers: Peers | None) -> None:
        self._topics = topics
        self._settings = settings
        self._clock = clock
        self._peers = peers
        self._large = LargeBatches()

    async def target(self, name: str, source_partition: int) -> DeadLetterTarget:
        """Return the partition for the dead letters of a partition; create the topic if it is missing and the broker
        may. Raises NoDeadLetterTopic, StorageError."""
        topic = self._topics.metadata.get(name)
        prefix = self._settings.errors_deadletterqueue_topic_name_prefix
        may_create = self._settings.errors_deadletterqueue_auto_create_topics_enable
        if topic is None and not may_create:
            raise NoDeadLetterTopic(
                f"the topic {name} does not exist, and errors.deadletterqueue.auto.create.topics.enable is false"
            )
        if name.startswith("__"):
            raise NoDeadLetterTopic(f"the name of the topic {name} begins with __")
        if not name.startswith(prefix):
            raise NoDeadLetterTopic(
                f"the name of the topic {name} does not begin with {prefix}, as "
                "errors.deadletterqueue.topic.name.prefix asks for"
            )
        if topic is None:
            topic = await self._create(name)
        target = self._target(topic, source_partition % topic.partition_count)
        if not self._topics.log_config(name).errors_deadletterqueue_group_enable:
            raise NoDeadLetterTopic(f"the topic {name} has {ENABLE}=false")
        return target

    async def _create(self, name: str) -> TopicMetadata:
        error, message = await self._topics.create(name, DEFAULT_PARTITION_COUNT, CREATED_WITH)
        topic = self._topics.metadata.get(name)
        if topic is None:
            raise NoDeadLetterTopic(f"the topic {name} cannot be created: {message or error.name}")
        return topic

    async def of_copy(self, topic_id: bytes, partition: int) -> DeadLetterTarget | None:
        """Return the partition that a copy was decided for; None if its topic was deleted since.

        Raises NoDeadLetterTopic while it is uncertain: another topic would get the records a second time.
        """
        topic = self._topics.metadata.get_by_id(topic_id)
        if topic is None:
            has_caught_up = await self._topics.catch_up()
            topic = self._topics.metadata.get_by_id(topic_id)
            if topic is None and not has_caught_up:
                raise NoDeadLetterTopic("the topic of the copy is not known here, and the metadata cannot be read")
        return None if topic is None else self._target(topic, partition)

    def _target(self, topic: TopicMetadata, partition: int) -> DeadLetterTarget:
        maximum_bytes = self._topics.log_config(topic.name).max_message_bytes
        return DeadLetterTarget(topic.name, topic.topic_id, partition, maximum_bytes)

    async def append(self, target: DeadLetterTarget, batch: bytearray) -> ErrorCode:
        """Append a batch with a producer id and wait until it is durable; a batch that is there already is not appended
        again. A refusal leaves open whether it was appended, unless it is about the batch itself."""
        place = TopicPartition(target.topic, target.partition)
        here = self._topics.log(place)
        topic = self._topics.metadata.get(target.topic)
        if topic is None or topic.topic_id != target.topic_id:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if here is None:
            return await self._append_elsewhere(target, place, batch)
        view, now_ms = memoryview(batch), self._clock.now_ms()
        try:
            try:
                appended = here.append(view, now_ms=now_ms)
            except TooLargeForOneStepError:  # the topic compresses, and a record is large
                checked = await self._large.check(view, read_header(view), here.append_rules(), now_ms)
                if isinstance(checked, AppendResult):
                    return checked.error
                appended = here.append(view, now_ms=now_ms, checked=checked)
            if appended.error is NO_ERROR:
                await here.flushed()
        except TooLargeForOneStepError:
            return ErrorCode.KAFKA_STORAGE_ERROR  # the rules have changed meanwhile
        except StorageError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return appended.error

    async def _append_elsewhere(self, target: DeadLetterTarget, place: TopicPartition, batch: bytearray) -> ErrorCode:
        leader = self._topics.placement.leader(place)
        if self._peers is None or leader is None:
            return ErrorCode.LEADER_NOT_AVAILABLE
        data = TopicProduceData(
            topic_id=target.topic_id, partition_data=[PartitionProduceData(target.partition, memoryview(batch))]
        )
        request = ProduceRequest(acks=ALL_REPLICAS, timeout_ms=int(TIME_OUT_S * 1000), topic_data=[data])
        try:
            response = await self._peers.request(leader.node_id, request, PRODUCE_VERSION, TIME_OUT_S)
        except PeerUnreachable:
            return ErrorCode.LEADER_NOT_AVAILABLE
        found = [partition for topic in response.responses for partition in topic.partition_responses]
        if len(found) != 1:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return received_error(found[0].error_code)
