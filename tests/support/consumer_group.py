"""Members of a group of the consumer protocol on a shard with a log in memory, as clients behave."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fencepost.broker.group.consumer.group import ConsumerGroup, ConsumerGroupState
from fencepost.broker.group.decision_builder import GroupConfig, GroupTimes
from fencepost.broker.group.modern import HeartbeatContext
from fencepost.broker.metadata.image import MetadataImage, TopicMetadata
from fencepost.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from fencepost.protocol.messages.group_membership import JoinGroupResponse
from fencepost.protocol.schema import encode
from tests.support.group_shard import ShardHarness, Waiting

Partitions = set[tuple[str, int]]


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")[:16]


def image(**partition_counts: int) -> MetadataImage:
    topics = MetadataImage()
    for name, partition_count in partition_counts.items():
        topics.put(TopicMetadata(name, topic_id(name), partition_count))
    return topics


class GroupWorld(ShardHarness):
    """A shard whose groups assign at every change, unless the configuration says otherwise."""

    def __init__(self, *, config: GroupConfig | None = None, **partition_counts: int) -> None:
        super().__init__(
            config
            or GroupConfig(initial_rebalance_delay_ms=0, consumer_times=lambda _: GroupTimes(assignment_interval_ms=0)),
            topics=image(**partition_counts),
        )

    def grow(self, name: str, partition_count: int) -> None:
        """Create a topic, or give it more partitions."""
        self.topics.put(TopicMetadata(name, topic_id(name), partition_count))

    def send(self, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(**{"group_id": "g", **fields})
        sender = HeartbeatContext("client", "/127.0.0.1", f"made-{next(self._suffixes)}")
        response: ConsumerGroupHeartbeatResponse = self.run(
            self.shard.consumer_heartbeat(request, version, sender, self.now_ms)
        )
        return response

    def member(self, member_id: str, *topics: str, **options: Any) -> ModelMember:
        return ModelMember(self, member_id, topics, **options)

    def consumer_group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.shard._groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def crash(self) -> None:
        """Go on with a shard that is loaded from the log; waiting members get no reply."""
        self.shard = self.replayed().shard
        self.waiting.clear()

    def settle(self, members: Iterable[ModelMember], limit: int = 30) -> int:
        """Let members send heartbeats in turn until the group is stable; how many rounds that took."""
        members = list(members)
        for round_number in range(limit):
            if self.consumer_group(members[0].group_id).state is ConsumerGroupState.STABLE:
                return round_number
            for member in members:
                member.heartbeat()
                owners = [owned for other in members for owned in other.owned]
                assert len(owners) == len(set(owners)), "a partition has two owners"
        raise AssertionError("the group did not settle")


class ModelMember:
    """A member that takes and revokes partitions at once as assigned, and reports them with its next heartbeat."""

    def __init__(
        self,
        world: GroupWorld,
        member_id: str,
        topics: Iterable[str],
        *,
        group_id: str = "g",
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.world = world
        self.group_id = group_id
        self.member_id = member_id
        self.topics = list(topics)
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.epoch = 0
        self.owned: Partitions = set()
        self._has_news = False

    def join(self) -> ConsumerGroupHeartbeatResponse:
        self.epoch = 0
        self.owned = set()
        return self._take(
            self._send(
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=self.topics,
                subscribed_topic_regex=self.regex,
                server_assignor=self.assignor,
                topic_partitions=[],
            )
        )

    def heartbeat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        if self._has_news:
            fields.setdefault("topic_partitions", self.reported())
            self._has_news = False
        return self._take(self._send(**fields))

    def step(self) -> None:
        """What a client does next: join, or show that it is alive; one that was fenced joins again."""
        if self.epoch <= 0:
            self.join()
            return
        if self.heartbeat().error_code:
            self.epoch = 0
            self.owned = set()

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        self.epoch = epoch
        self.owned = set()
        return self._send()

    def reported(self) -> list[ConsumerGroupHeartbeatTopicPartitions]:
        return [
            ConsumerGroupHeartbeatTopicPartitions(
                topic_id=topic_id(name), partitions=sorted(index for topic, index in self.owned if topic == name)
            )
            for name in sorted({name for name, _ in self.owned})
        ]

    def _send(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        return self.world.send(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            **fields,
        )

    def _take(self, response: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                names = {topic.topic_id: topic.name for topic in self.world.topics.all()}
                assigned = {
                    (names[topic.topic_id], partition)
                    for topic in response.assignment.topic_partitions
                    if topic.topic_id in names
                    for partition in topic.partitions
                }
                self._has_news = True
                self.owned = assigned
        return response


class ClassicModelMember:
    """A member of the classic protocol that rebalances the cooperative way: it joins again to give something up, and
    keeps the rest meanwhile. As a leader it shares in turns, and joins again when its topics have grown since: a group
    does not watch topics for members of this protocol.
    """

    def __init__(self, world: GroupWorld, *topics: str, group_id: str = "g") -> None:
        self.world = world
        self.group_id = group_id
        self.topics = list(topics)
        self.member_id = ""
        self.owned: Partitions = set()
        self.generation_id = -1
        self._waiting: Waiting | None = None
        self._has_to_join = True
        self._joined: JoinGroupResponse | None = None
        self._shared_counts: dict[str, int] | None = None  # partitions of each topic, as of its last shares as a leader

    def step(self) -> None:
        """The next request of a client, or the answer to the last one."""
        if self._waiting is not None and self._waiting.token in self.world.waiting:
            return
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting.is_answered:
            self._take(waiting.answer)
        elif waiting is not None or self._has_to_join or self._shared_counts not in (None, self._counts()):
            self._joined = self._shared_counts = None
            self._take(self.world.join(self.group_id, self.member_id, protocols={"range": self._subscription()}))
        elif self._joined is not None:
            self._take(self.world.sync(self.member_id, self.generation_id, self._shares(), group_id=self.group_id))
        else:
            self._heed(self.world.heartbeat(self.member_id, self.generation_id, group_id=self.group_id))

    def leave(self) -> None:
        self.world.leave(self.member_id, group_id=self.group_id)
        self._reset()

    def _take(self, answer: Any) -> None:
        if isinstance(answer, Waiting):
            self._waiting = answer
        elif answer.error_code:
            if isinstance(answer, JoinGroupResponse) and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            else:
                self._heed(answer.error_code)
        elif isinstance(answer, JoinGroupResponse):
            self.member_id, self.generation_id = answer.member_id, answer.generation_id
            self._joined, self._has_to_join = answer, False
        else:
            self._joined = None
            assigned = {
                (topic.topic, partition)
                for topic in decode_assignment(answer.assignment).assigned_partitions
                for partition in topic.partitions
            }
            # A member that has to revoke partitions reports them by joining again.
            self._has_to_join = not self.owned <= assigned
            self.owned = assigned

    def _heed(self, error: int) -> None:
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            self._joined, self._has_to_join = None, True
        elif error == ErrorCode.ILLEGAL_GENERATION:
            self._joined, self._has_to_join = None, True
            self.generation_id, self.owned = -1, set()
        elif error:
            self._reset()

    def _reset(self) -> None:
        self.member_id, self.generation_id, self.owned = "", -1, set()
        self._waiting = self._joined = self._shared_counts = None
        self._has_to_join = True

    def _subscription(self) -> bytes:
        names = sorted({name for name, _ in self.owned})
        subscription = ConsumerProtocolSubscription(
            topics=self.topics,
            owned_partitions=[
                ConsumerProtocolTopicPartitions(
                    topic=name, partitions=sorted(index for topic, index in self.owned if topic == name)
                )
                for name in names
            ],
        )
        return b"\0\1" + bytes(encode(subscription, 1))

    def _counts(self) -> dict[str, int]:
        return {topic.name: topic.partition_count for topic in self.world.topics.all()}

    def _shares(self) -> dict[str, bytes]:
        """What a leader gives to everybody: only what nobody else still owns."""
        assert self._joined is not None
        if self._joined.leader == self.member_id:
            self._shared_counts = self._counts()
        subscriptions = {member.member_id: decode_subscription(member.metadata) for member in self._joined.members}
        owners = {
            (topic.topic, partition): member_id
            for member_id, subscription in subscriptions.items()
            for topic in subscription.owned_partitions
            for partition in topic.partitions
        }
        shares: dict[str, list[ConsumerProtocolTopicPartitions]] = {member_id: [] for member_id in subscriptions}
        for topic in self.world.topics.all():
            wanting = sorted(member_id for member_id, wanted in subscriptions.items() if topic.name in wanted.topics)
            for index, member_id in enumerate(wanting):
                partitions = [
                    partition
                    for partition in range(index, topic.partition_count, len(wanting))
                    if owners.get((topic.name, partition), member_id) == member_id
                ]
                shares[member_id].append(ConsumerProtocolTopicPartitions(topic=topic.name, partitions=partitions))
        return {
            member_id: encode_assignment(ConsumerProtocolAssignment(assigned_partitions=owned), 1)
            for member_id, owned in shares.items()
        }
