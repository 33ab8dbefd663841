"""Streams groups (KIP-1071): topologies and their topics, joining, sharing tasks, fencing, describing, committing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from fencepost.protocol.messages.group_membership import HeartbeatRequest, JoinGroupRequest
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
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
from tests.differences.exchange import GROUP, Exchange
from tests.differences.sequences.classic_groups import protocols

JOIN, LEAVE, LEAVE_FOR_NOW = 0, -1, -2
TIMEOUT_MS = 30_000
PAUSE_S = 0.3
GROUP_RESOURCE, SET = 32, 0
COMMITS = {0: (8, 9), 1: (10,)}
LAST_DELETES = {0: 2, 1: 3}
"""Versions of OffsetCommit and DeleteGroups, which are asked beside each version of the heartbeat."""
EAGER = {"streams.initial.rebalance.delay.ms": "0", "streams.assignment.interval.ms": "0"}
NOTHING: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}


def run(exchange: Exchange) -> None:
    versions = exchange.versions(StreamsGroupHeartbeatRequest)
    for version in versions:
        topic = exchange.create_topic("words", partitions=2, version=version)
        refusals(exchange, topic, version)
        topologies(exchange, topic, version)
        alone(exchange, topic, version)
        together(exchange, topic, version)
        classic_member_first(exchange, topic, version)
    if versions:
        other_kinds(exchange, exchange.create_topic("words", partitions=2))


class Group:
    """Heartbeats of one group; its application repartitions a topic and counts."""

    def __init__(
        self,
        exchange: Exchange,
        base: str,
        topic: str,
        *,
        version: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        self.exchange = exchange
        self.topic = topic
        self.version = version or 0
        self.group_id = exchange.name(base, version)
        exchange.find_coordinator(self.group_id, GROUP)
        wanted = [IncrementalAlterableConfig(name, SET, value) for name, value in {**EAGER, **(configs or {})}.items()]
        resource = IncrementalAlterConfigsResource(GROUP_RESOURCE, self.group_id, wanted)
        exchange.call(IncrementalAlterConfigsRequest([resource]), 1)
        exchange.settle()

    def topology(self, source: str | None = None, epoch: int = 0) -> StreamsGroupHeartbeatTopology:
        compact = [StreamsKeyValue("cleanup.policy", "compact")]
        repartition, changelog = f"{self.group_id}-repartition", f"{self.group_id}-changelog"
        return StreamsGroupHeartbeatTopology(
            epoch,
            [
                StreamsSubtopology("0", source_topics=[source or self.topic], repartition_sink_topics=[repartition]),
                StreamsSubtopology(
                    "1",
                    state_changelog_topics=[StreamsTopicInfo(changelog, topic_configs=compact)],
                    repartition_source_topics=[StreamsTopicInfo(repartition)],
                    copartition_groups=[StreamsCopartitionGroup(repartition_source_topics=[0])],
                ),
            ],
        )

    def request(self, member_id: str, epoch: int, **fields: Any) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            **{"group_id": self.group_id, "member_id": member_id, **fields}, member_epoch=epoch
        )

    def joining(self, member_id: str, **fields: Any) -> StreamsGroupHeartbeatRequest:
        values: dict[str, Any] = {
            "rebalance_timeout_ms": TIMEOUT_MS,
            "topology": self.topology(),
            "process_id": f"process-{member_id}",
            "client_tags": [StreamsKeyValue("zone", "a")],
            **NOTHING,
        }
        return self.request(member_id, JOIN, **(values | fields))

    def beat(self, situation: str, member_id: str, epoch: int, **fields: Any) -> Any:
        return self.exchange.ask(f"heartbeat: {situation}", self.request(member_id, epoch, **fields), self.version)

    def join(self, situation: str, member_id: str, **fields: Any) -> Any:
        return self.exchange.ask(f"join: {situation}", self.joining(member_id, **fields), self.version)

    def beat_until_ready(self, situation: str, member_id: str, epoch: int, **fields: Any) -> Any:
        """Until the internal topics are there, however many heartbeats that takes."""
        epochs = [epoch]

        def is_ready(reply: Any) -> bool:
            epochs[0] = reply.member_epoch
            return not reply.status and reply.active_tasks is not None

        for _ in range(100):
            time.sleep(PAUSE_S)  # so that all of them are there at once
            reply = self.exchange.call(self.request(member_id, epochs[0], **fields), self.version)
            if is_ready(reply):
                break
        self.beat(situation, member_id, epochs[0], **fields)
        return reply

    def describe(self, situation: str) -> None:
        self.exchange.ask(f"describe: {situation}", StreamsGroupDescribeRequest([self.group_id]), self.version)


def refusals(exchange: Exchange, topic: str, version: int) -> None:
    group = Group(exchange, "refused", topic, version=version)
    join, beat = group.join, group.beat
    join("no member id", "")
    join("no time-out", "a", rebalance_timeout_ms=-1)
    join("tasks that it has", "a", active_tasks=[StreamsTaskIds("0", [0])])
    join("standby tasks that it has", "a", standby_tasks=[StreamsTaskIds("0", [0])])
    join("warm-up tasks that it has", "a", warmup_tasks=[StreamsTaskIds("0", [0])])
    join("no topology", "a", topology=None)
    join("an empty rack", "a", rack_id="")
    beat("an unknown group", "a", 3)
    beat("an unknown group is left", "a", LEAVE)
    beat("left for now", "a", LEAVE_FOR_NOW)
    beat("an epoch of -3", "a", -3)
    beat("one kind of tasks only", "a", 1, active_tasks=[])
    beat("a topology later on", "a", 1, topology=group.topology())
    join("an empty group id", "a", group_id="")
    for situation, groups in {"none": [], "an unknown group": [group.group_id], "an empty group id": [""]}.items():
        exchange.ask(f"describe: {situation}", StreamsGroupDescribeRequest(groups), version)


def topologies(exchange: Exchange, topic: str, version: int) -> None:
    group = Group(exchange, "topologies", topic, version=version)
    group.join("an internal topic of Kafka", "a", topology=group.topology("__consumer_offsets"))
    group.join("a topic that cannot be", "a", topology=group.topology("a b"))
    fixed = group.topology()
    fixed.subtopologies[1].state_changelog_topics[0].partitions = 2
    group.join("a changelog with partitions", "a", topology=fixed)
    pattern = group.topology()
    pattern.subtopologies[0].source_topic_regex = ["w.*"]
    group.join("a pattern", "a", topology=pattern)
    endless = group.topology()
    endless.subtopologies[0].repartition_sink_topics = []
    group.join("a repartition topic that nobody writes", "a", topology=endless)
    loop = group.topology()
    loop.subtopologies[0].source_topics = []
    loop.subtopologies[0].repartition_source_topics = loop.subtopologies[1].repartition_source_topics
    group.join("a loop", "a", topology=loop)
    missing = Group(exchange, "missing", topic, version=version)
    reply = missing.join("a topic that is missing", "a", topology=missing.topology(exchange.name("nothing")))
    missing.describe("a topic that is missing")
    missing.beat("a topic that is missing", "a", reply.member_epoch)
    unlike = Group(exchange, "unlike", topic, version=version)
    other = exchange.create_topic("three", partitions=3, version=version)
    joined = unlike.topology()
    joined.subtopologies[0].source_topics = [topic, other]
    joined.subtopologies[0].copartition_groups = [StreamsCopartitionGroup([0, 1])]
    unlike.join("topics that are not partitioned alike", "a", topology=joined)
    existing = Group(exchange, "existing", topic, version=version)
    exists = existing.topology()
    exists.subtopologies[1].state_changelog_topics[0].name = exchange.create_topic(
        "existing-changelog", partitions=1, version=version
    )
    existing.join("an internal topic with other partitions", "a", topology=exists)
    existing.describe("an internal topic with other partitions")


def alone(exchange: Exchange, topic: str, version: int) -> None:
    group = Group(exchange, "alone", topic, version=version)
    delete = LAST_DELETES[version]
    reply = group.join("alone", "member", user_endpoint=StreamsEndpoint("localhost", 8080))
    reply = group.beat_until_ready("alone, with all tasks", "member", reply.member_epoch)
    epoch = reply.member_epoch
    all_tasks = {**NOTHING, "active_tasks": [StreamsTaskIds("0", [0, 1]), StreamsTaskIds("1", [0, 1])]}
    group.beat("alone, has all tasks", "member", epoch, **all_tasks)
    group.describe("alone")
    group.beat(
        "alone, knows the endpoints", "member", epoch, endpoint_information_epoch=reply.endpoint_information_epoch
    )
    group.beat("alone, an epoch of the future", "member", epoch + 1)
    group.beat("alone, an epoch of the past", "member", epoch - 1, **all_tasks)
    foreign = {**NOTHING, "active_tasks": [StreamsTaskIds("7", [0])]}
    group.beat("alone, an unknown subtopology", "member", epoch, **foreign)
    foreign = {**NOTHING, "standby_tasks": [StreamsTaskIds("1", [2])]}
    group.beat("alone, an unknown task", "member", epoch, **foreign)
    group.beat("alone, an unknown member", "nobody", epoch)
    group.beat("alone, an unknown member leaves", "nobody", LEAVE)
    group.join("another topology", "member", topology=group.topology(exchange.name("nothing")))
    group.join("a newer topology", "member", topology=group.topology(epoch=1))
    group.join("again", "member")
    offsets(exchange, group, epoch)
    group.beat("alone, asks for shutdown", "member", epoch, shutdown_application=True)
    exchange.ask("delete: a group with a member", DeleteGroupsRequest([group.group_id]), delete)
    group.beat("alone, leaves", "member", LEAVE)
    group.beat("alone, leaves again", "member", LEAVE)
    group.describe("empty")
    exchange.ask("delete: an empty group", DeleteGroupsRequest([group.group_id]), delete)
    group.describe("deleted")


def offsets(exchange: Exchange, group: Group, epoch: int) -> None:
    topic_id = exchange.topic_id(group.topic)
    for situation, member, given_epoch in (
        ("the member", "member", epoch),
        ("an epoch of the past", "member", epoch - 1),
        ("an epoch of the future", "member", epoch + 5),
        ("an unknown member", "nobody", epoch),
        ("no member", "", -1),
    ):
        topics = [OffsetCommitRequestTopic(group.topic, topic_id, [OffsetCommitRequestPartition(0, 5)])]
        request = OffsetCommitRequest(group.group_id, given_epoch, member, topics=topics)
        for version in COMMITS[group.version]:
            exchange.ask(f"commit: {situation}", request, version)
    read = [OffsetDeleteRequestTopic(group.topic, [OffsetDeleteRequestPartition(0)])]
    situation = f"delete offsets: a topic that is read, version {group.version}"
    exchange.ask(situation, OffsetDeleteRequest(group.group_id, read), 0)


def together(exchange: Exchange, topic: str, version: int) -> None:
    group = Group(exchange, "together", topic, version=version, configs={"streams.num.standby.replicas": "1"})
    first = group.join("the first of two", "first")
    first = group.beat_until_ready("the first of two, with all tasks", "first", first.member_epoch)
    all_tasks = {**NOTHING, "active_tasks": first.active_tasks}
    group.beat("the first of two, has all tasks", "first", first.member_epoch, **all_tasks)
    second = group.join("the second of two", "second")
    revoking = group.beat("the first of two, is to give up", "first", first.member_epoch)
    group.describe("while one gives up")
    group.beat("the second of two, waits", "second", second.member_epoch)
    given_up = {**NOTHING, "active_tasks": revoking.active_tasks}
    first = group.beat("the first of two, has given up", "first", first.member_epoch, **given_up)
    second = group.beat("the second of two, gets tasks", "second", second.member_epoch)
    first = group.beat("the first of two, gets standby tasks", "first", first.member_epoch)
    group.describe("of two")
    request = ListGroupsRequest(types_filter=["streams"], states_filter=["Stable"])
    exchange.ask(f"list: streams, version {version}", request, 5)
    group.beat("the second of two, leaves", "second", LEAVE)
    group.beat("the first of two, is alone", "first", first.member_epoch)
    group.beat("the first of two, leaves", "first", LEAVE)


def classic_member_first(exchange: Exchange, topic: str, version: int) -> None:
    classic = Group(exchange, "classic", topic, version=version)
    joins = classic_join(classic.group_id)
    joins.member_id = exchange.call(joins, 4).member_id
    exchange.call(joins, 4)
    classic.join("a classic group", "member")
    classic.describe("a classic group")


def classic_join(group_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(group_id, 10_000, 10_000, "", protocol_type="consumer", protocols=protocols("range"))


def other_kinds(exchange: Exchange, topic: str) -> None:
    group = Group(exchange, "streams", topic)
    group.join("of other kinds", "member")
    joins = classic_join(group.group_id)
    exchange.ask("joined by a classic member", joins, 4)
    share = exchange.name("share")
    exchange.find_coordinator(share, GROUP)
    exchange.call(ShareGroupHeartbeatRequest(share, "member", JOIN, subscribed_topic_names=[topic]), 1)
    joins.group_id = share
    exchange.ask("a share group joined by a classic member", joins, 4)
    exchange.ask("a classic heartbeat", HeartbeatRequest(group.group_id, 1, "member"), 4)
    exchange.ask("described as a classic group", DescribeGroupsRequest([group.group_id]), 6)
