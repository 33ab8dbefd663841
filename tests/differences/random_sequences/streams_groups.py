"""Members of a streams group that get tasks, give them up or keep them, come back with old epochs, and leave.

Kafka creates the internal topics of a topology behind its answer; they are waited for before the group is asked again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from fencepost.protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatTopology,
)
from fencepost.protocol.streams_topology import (
    StreamsCopartitionGroup,
    StreamsEndpoint,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTaskIds,
    StreamsTopicInfo,
)
from tests.differences.exchange import ATTEMPTS, GROUP, PAUSE_S, Exchange
from tests.differences.random_sequences.any_group import AnyGroup, Wanted
from tests.differences.random_sequences.hashes import ids_apart
from tests.differences.random_sequences.steps import SlicedWork

STEPS_COUNT: Final = 60
MEMBERS_COUNT: Final = 3
JOIN, LEAVE = 0, -1
GROUP_RESOURCE, SET = 32, 0
TIMEOUT_MS: Final = 60_000  # longer than a run
EAGER: Final = {
    "streams.initial.rebalance.delay.ms": "0",
    "streams.assignment.interval.ms": "0",
    "streams.session.timeout.ms": "60000",
}
STANDBY_REPLICAS: Final = "streams.num.standby.replicas"
INTERNAL_TOPICS_ARE_MISSING: Final = 3
HEARSAY_S: Final = 0.3  # the coordinator hears of new topics after clients do, and nothing tells when
COMMITS_BY_EPOCH: Final = 9  # the version of OffsetCommit from which on members of these groups may
KINDS: Final = ("active_tasks", "standby_tasks", "warmup_tasks")

Tasks = dict[str, list[StreamsTaskIds]]


@dataclass
class Member:
    """The replies that a member has got. tasks: by kind, as in its last reply with tasks."""

    base: str
    member_id: str
    process_id: str
    epoch: int = JOIN
    earlier_epochs: list[int] = field(default_factory=list)
    tasks: Tasks = field(default_factory=dict)
    endpoint_epoch: int = 0


class _Run:
    def __init__(self, exchange: Exchange, random: Random) -> None:
        self.steps = SlicedWork(exchange, random)
        self.exchange = exchange
        self.random = random
        self.partitions_count = random.randint(1, 3)
        self.topic = exchange.create_topic("words", partitions=self.partitions_count)
        self.topic_id = exchange.topic_id(self.topic)
        self.group = exchange.name("group")
        self.as_any = AnyGroup(self.steps, self.group)
        self.is_stateful = random.random() < 0.7
        self.has_repartition = random.random() < 0.5
        self.is_waiting = False
        self.may_lack_source_topics = False
        processes = ids_apart(random, MEMBERS_COUNT)
        member_ids = ids_apart(random, MEMBERS_COUNT)
        if self.steps.happens(0.4):
            processes[1] = processes[0]
        self.members = []
        for number in range(MEMBERS_COUNT):
            member = Member(f"member {'abc'[number]}", member_ids[number], processes[number])
            exchange.remember(member.member_id, member.base)
            self.members.append(member)

    def run(self) -> None:
        self.exchange.find_coordinator(self.group, GROUP)
        self.change_configs({**EAGER, STANDBY_REPLICAS: str(self.random.randint(0, 2))})
        self.join(self.members[0])
        actions = (
            (8, self.join_any),
            (22, self.beat_any),
            (14, self.acknowledge_any),
            (6, self.beat_with_a_wrong_epoch),
            (4, self.beat_with_wrong_tasks),
            (4, self.leave_any),
            (3, self.join_with_another_topology),
            (1, self.ask_for_shutdown),
            (8, self.describe),
            (5, self.commit_offsets),
            (3, self.fetch_offsets),
            (2, self.commit_in_transaction),
            (1, self.delete_offsets),
            (2, self.as_any.list_it),
            (2, self.as_any.describe_as_any),
            (2, self.pass_by),
            (2, self.change_standby_replicas),
            (1, self.delete),
        )
        for _ in range(STEPS_COUNT):
            self.steps.take(actions)
        for member in self.members:
            if member.epoch != JOIN:
                self.beat(member, member.epoch)
        self.describe()
        # All members leave: a later list of groups of the same broker must not show it among the stable ones.
        for member in self.joined():
            self.beat(member, LEAVE)

    # What the application is

    @property
    def internal_topics(self) -> list[str]:
        changelogs = [f"{self.group}-changelog"] if self.is_stateful else []
        return changelogs + ([f"{self.group}-repartition"] if self.has_repartition else [])

    def topology(self, epoch: int = 0) -> StreamsGroupHeartbeatTopology:
        compact = [StreamsKeyValue("cleanup.policy", "compact")]
        repartition = f"{self.group}-repartition"
        changelogs = [StreamsTopicInfo(f"{self.group}-changelog", topic_configs=compact)] if self.is_stateful else []
        if not self.has_repartition:
            only = StreamsSubtopology("0", source_topics=[self.topic], state_changelog_topics=changelogs)
            return StreamsGroupHeartbeatTopology(epoch, [only])
        first = StreamsSubtopology("0", source_topics=[self.topic], repartition_sink_topics=[repartition])
        second = StreamsSubtopology(
            "1",
            state_changelog_topics=changelogs,
            repartition_source_topics=[StreamsTopicInfo(repartition)],
            copartition_groups=[StreamsCopartitionGroup(repartition_source_topics=[0])],
        )
        return StreamsGroupHeartbeatTopology(epoch, [first, second])

    # Settings

    def change_configs(self, configs: dict[str, str]) -> None:
        """Return when the broker goes by them."""
        wanted = [IncrementalAlterableConfig(name, SET, value) for name, value in configs.items()]
        request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(GROUP_RESOURCE, self.group, wanted)])
        shown = ", ".join(f"{name}={value}" for name, value in configs.items() if name not in EAGER)
        self.steps.ask(f"the group has {shown}", request, 1)
        described = DescribeConfigsRequest([DescribeConfigsResource(GROUP_RESOURCE, self.group, list(configs))])
        for _ in range(ATTEMPTS):
            reply = self.exchange.call(described, 4)
            if {config.name: config.value for config in reply.results[0].configs} == configs:
                break
            time.sleep(PAUSE_S)
        time.sleep(PAUSE_S)  # Kafka shows what it is about to go by

    def change_standby_replicas(self) -> None:
        self.change_configs({STANDBY_REPLICAS: str(self.random.randint(0, 2))})

    # Members

    def joined(self) -> list[Member]:
        return [member for member in self.members if member.epoch != JOIN]

    def join_any(self) -> None:
        absent = [member for member in self.members if member.epoch == JOIN]
        self.join(self.random.choice(absent if absent and self.steps.happens(0.85) else self.members))

    def join(self, member: Member, topology: StreamsGroupHeartbeatTopology | None = None, what: str = "") -> None:
        request = StreamsGroupHeartbeatRequest(
            self.group,
            member.member_id,
            JOIN,
            rebalance_timeout_ms=TIMEOUT_MS,
            topology=topology or self.topology(),
            process_id=member.process_id,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
        words = [f"{member.base} joins{what}"]
        if self.steps.happens(0.4):
            request.client_tags = [StreamsKeyValue("zone", self.random.choice("xy"))]
            words.append(f"in zone {request.client_tags[0].value}")
        if self.steps.happens(0.3) and not self.may_lack_source_topics:
            request.user_endpoint = StreamsEndpoint("localhost", 8080 + self.members.index(member))
            words.append("with an endpoint")
        if self.steps.happens(0.05):
            request.instance_id = "i"
            words.append("as an instance")
        if self.steps.happens(0.05):
            request.active_tasks = [StreamsTaskIds("0", [0])]
            words.append("with a task")
        self.ask(", ".join(words), member, request)

    def join_with_another_topology(self) -> None:
        member = self.random.choice(self.members)
        if self.steps.happens(0.5):
            self.join(member, self.topology(epoch=1), " with a newer topology")
        else:
            if not self.joined():
                # Kafka, asked for the partitions behind an endpoint while it does not know the topics, says
                # UNKNOWN_SERVER_ERROR; which is declared.
                self.may_lack_source_topics = True
            other = self.topology()
            other.subtopologies[0].source_topics = [self.exchange.name("nothing")]
            self.join(member, other, " with another topology")

    def beat_any(self) -> None:
        if not self.joined():
            self.join_any()
            return
        member = self.random.choice(self.joined())
        self.beat(member, member.epoch)

    def acknowledge_any(self) -> None:
        """The member says what it has: all that it was given."""
        if not self.joined():
            self.join_any()
            return
        member = self.random.choice(self.joined())
        self.beat(member, member.epoch, ", has its tasks", **member.tasks)

    def beat_with_a_wrong_epoch(self) -> None:
        member = self.random.choice(self.members)
        epoch = max(1, member.epoch + self.random.choice((1, 4)))
        if member.earlier_epochs and self.steps.happens(0.7):
            epoch = self.random.choice(member.earlier_epochs[-2:])
        if self.steps.happens(0.5):
            self.beat(member, epoch, ", has its tasks", **member.tasks)
        else:
            self.beat(member, epoch)

    def beat_with_wrong_tasks(self) -> None:
        member = self.random.choice(self.members)
        subtopology, partition = self.random.choice(("0", "1", "7")), self.random.randint(0, self.partitions_count)
        tasks: Tasks = {each: [] for each in KINDS}
        kind = self.random.choice(KINDS)
        tasks[kind] = [StreamsTaskIds(subtopology, [partition])]
        self.beat(member, max(1, member.epoch), f", has {subtopology}_{partition} as {kind}", **tasks)

    def leave_any(self) -> None:
        joined = self.joined()
        member = self.random.choice(joined if joined and self.steps.happens(0.9) else self.members)
        self.beat(member, LEAVE)

    def ask_for_shutdown(self) -> None:
        if self.joined():
            member = self.random.choice(self.joined())
            self.beat(member, member.epoch, ", asks for shutdown", shutdown_application=True)

    def beat(self, member: Member, epoch: int, what: str = "", **fields: Any) -> None:
        request = StreamsGroupHeartbeatRequest(self.group, member.member_id, epoch, **fields)
        if self.steps.happens(0.5):
            request.endpoint_information_epoch = member.endpoint_epoch
            what += f", knows endpoints {member.endpoint_epoch}"
        self.ask(f"{member.base} in epoch {epoch}{what}", member, request)

    def ask(self, description: str, member: Member, request: StreamsGroupHeartbeatRequest) -> None:
        reply = self.steps.ask(description, request, self.steps.version(StreamsGroupHeartbeatRequest))
        if reply is None or reply.error_code:
            return
        if request.member_epoch == LEAVE:
            member.epoch, member.tasks, member.earlier_epochs = JOIN, {}, []
            return
        if reply.member_epoch != member.epoch:
            if member.epoch != JOIN:
                member.earlier_epochs.append(member.epoch)
            member.epoch = reply.member_epoch
        member.endpoint_epoch = reply.endpoint_information_epoch
        if reply.active_tasks is not None:
            member.tasks = {kind: getattr(reply, kind) for kind in KINDS}
        if not self.is_waiting and any(
            status.status_code == INTERNAL_TOPICS_ARE_MISSING for status in reply.status or ()
        ):
            self.is_waiting = True
            self.wait_for_internal_topics()
            self.beat(member, member.epoch)
            self.is_waiting = False

    def wait_for_internal_topics(self) -> None:
        wanted = [MetadataRequestTopic(name=name) for name in self.internal_topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        for _ in range(ATTEMPTS):
            reply = self.exchange.call(request, 12)
            if all(topic.error_code == ErrorCode.NONE for topic in reply.topics):
                break
            time.sleep(PAUSE_S)
        time.sleep(HEARSAY_S)

    # What is to be seen of it

    def describe(self) -> None:
        joined = self.joined()
        if joined:
            # Kafka shows what a heartbeat has found of the topics once something was written down after it.
            self.beat(joined[0], joined[0].epoch)
            self.commit(joined[0], joined[0].epoch)
        version = self.steps.version(StreamsGroupDescribeRequest)
        self.steps.ask("describe", StreamsGroupDescribeRequest([self.group]), version)

    def commit_offsets(self) -> None:
        member = self.random.choice(self.members)
        version = self.steps.version(
            OffsetCommitRequest, lowest=0 if self.steps.happens(0.15) else 8, highest=COMMITS_BY_EPOCH
        )
        self.commit(member, member.epoch + self.random.choice((0, 0, 0, -1, 1)), version)

    def commit(self, member: Member, epoch: int, version: int = COMMITS_BY_EPOCH) -> None:
        offset = self.random.randint(0, 9)
        topics = [OffsetCommitRequestTopic(self.topic, partitions=[OffsetCommitRequestPartition(0, offset)])]
        request = OffsetCommitRequest(self.group, epoch, member.member_id, topics=topics)
        self.steps.ask(f"{member.base} in epoch {epoch} commits {offset}", request, version)

    def fetch_offsets(self) -> None:
        wanted = [Wanted(self.topic, self.topic_id, [0])]
        if self.steps.happens(0.4):
            self.as_any.fetch_offsets("a stranger", wanted)
        else:
            member = self.random.choice(self.members)
            epoch = member.epoch + self.random.choice((0, 0, 0, -1, 1))
            self.as_any.fetch_offsets(f"{member.base} in epoch {epoch}", wanted, member.member_id, epoch)

    def commit_in_transaction(self) -> None:
        member = self.random.choice(self.members)
        epoch = member.epoch + self.random.choice((0, 0, 0, -1, 1))
        member_name = f"{member.base} in epoch {epoch}"
        self.as_any.commit_in_transaction(member_name, self.topic, 0, member.member_id, epoch)

    def delete_offsets(self) -> None:
        topics = [OffsetDeleteRequestTopic(self.topic, [OffsetDeleteRequestPartition(0)])]
        self.steps.ask("delete the offset", OffsetDeleteRequest(self.group, topics), 0)

    def pass_by(self) -> None:
        if self.joined():
            self.as_any.pass_by(
                ConsumerGroupHeartbeatRequest,
                HeartbeatRequest,
                JoinGroupRequest,
                LeaveGroupRequest,
                ShareGroupHeartbeatRequest,
                SyncGroupRequest,
            )

    def delete(self) -> None:
        for member in self.joined():
            if self.steps.happens(0.9):
                self.beat(member, LEAVE)
        version = self.steps.version(DeleteGroupsRequest)
        reply = self.steps.ask("delete", DeleteGroupsRequest([self.group]), version)
        if reply is not None and not reply.results[0].error_code:
            self.may_lack_source_topics = False


def run(exchange: Exchange, random: Random) -> None:
    _Run(exchange, random).run()
