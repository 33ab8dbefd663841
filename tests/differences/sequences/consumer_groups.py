"""Groups of the consumer protocol (KIP-848): joining, staying, leaving, fencing, describing, committing."""

from __future__ import annotations

from typing import Any

from fencepost.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest
from fencepost.protocol.messages.group_membership import HeartbeatRequest, JoinGroupRequest
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.differences.exchange import GROUP, Exchange
from tests.differences.sequences.classic_groups import protocols

NO_SUCH_ID = bytes(15) + b"\x63"
JOIN, LEAVE, LEAVE_FOR_NOW = 0, -1, -2
TIMEOUT_MS = 30_000


def run(exchange: Exchange) -> None:
    for version in exchange.versions(ConsumerGroupHeartbeatRequest):
        topic = exchange.create_topic("assigned", partitions=4, version=version)
        refusals(exchange, version, topic)
        alone(exchange, version, topic)
        together(exchange, version, topic)
        static(exchange, version, topic)
    unknown_groups(exchange)


class Group:
    """Heartbeats of one group. Member ids are the client's own, which both versions take."""

    def __init__(self, exchange: Exchange, base: str, version: int) -> None:
        self.exchange = exchange
        self.version = version
        self.group_id = exchange.name(base, version)
        exchange.find_coordinator(self.group_id, GROUP)

    def request(self, member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(self.group_id, member_id, epoch, **fields)

    def beat(self, situation: str, member_id: str, epoch: int, **fields: Any) -> Any:
        return self.exchange.ask(f"heartbeat: {situation}", self.request(member_id, epoch, **fields), self.version)

    def join(self, situation: str, member_id: str, *topics: str, **fields: Any) -> Any:
        values: dict[str, Any] = {
            "rebalance_timeout_ms": TIMEOUT_MS,
            "subscribed_topic_names": list(topics),
            "topic_partitions": [],
        }
        return self.beat(situation, member_id, JOIN, **(values | fields))

    def describe(self, situation: str) -> None:
        request = ConsumerGroupDescribeRequest([self.group_id])
        for version in self.exchange.versions(ConsumerGroupDescribeRequest, lowest=self.version, highest=self.version):
            self.exchange.ask(f"describe: {situation}", request, version)


def owned(topic_id: bytes, *partitions: int) -> list[ConsumerGroupHeartbeatTopicPartitions]:
    return [ConsumerGroupHeartbeatTopicPartitions(topic_id, list(partitions))]


def refusals(exchange: Exchange, version: int, topic: str) -> None:
    group = Group(exchange, "refused", version)
    join, beat = group.join, group.beat
    join("a member without id", "", topic)
    join("no time-out", "a", topic, rebalance_timeout_ms=-1)
    join("a time-out of 0", "zero", topic, rebalance_timeout_ms=0)
    join("partitions that it owns", "a", topic, topic_partitions=owned(NO_SUCH_ID, 1))
    join("no word about partitions", "a", topic, topic_partitions=None)
    join("no subscription", "a", subscribed_topic_names=None)
    join("an empty subscription", "empty")
    join("an unknown assignor", "a", topic, server_assignor="best")
    join("an empty assignor", "a", topic, server_assignor="")
    join("an empty instance id", "a", topic, instance_id="")
    join("an empty rack", "a", topic, rack_id="")
    if version >= 1:
        join("a regular expression that is none", "a", subscribed_topic_names=None, subscribed_topic_regex="(")
    beat("an unknown member", "nobody", 3)
    beat("an unknown member leaves", "nobody", LEAVE)
    beat("an unknown member leaves for now", "nobody", LEAVE_FOR_NOW)
    beat("an epoch of -3", "a", -3)
    group.group_id = ""
    join("an empty group id", "a", topic)
    group.group_id = exchange.name("never-seen", version)
    beat("an unknown group", "a", 3)
    beat("an unknown group is left", "a", LEAVE)


def alone(exchange: Exchange, version: int, topic: str) -> None:
    group = Group(exchange, "alone", version)
    topic_id = exchange.topic_id(topic)
    reply = group.join("alone", "member", topic)
    epoch = reply.member_epoch
    group.describe("alone, joined")
    group.beat("alone, nothing new", "member", epoch)
    group.beat("alone, owns all", "member", epoch, topic_partitions=owned(topic_id, 0, 1, 2, 3))
    group.beat("alone, all fields", "member", epoch, **_all_fields(topic, owned(topic_id, 0, 1, 2, 3)))
    group.describe("alone, stable")
    group.beat("alone, an epoch of the future", "member", epoch + 1)
    group.beat("alone, an epoch of the past", "member", epoch - 1)
    group.beat("alone, an unknown member", "other", epoch)
    group.beat("alone, partitions of an unknown topic", "member", epoch, topic_partitions=owned(NO_SUCH_ID, 1))
    group.join("alone, joins again", "member", topic)
    wider = group.beat(
        "alone, subscribes to a topic that is not there", "member", epoch, subscribed_topic_names=[topic, "nothing"]
    )
    epoch = wider.member_epoch or epoch
    offsets(exchange, group, topic, epoch)
    classic_words(exchange, group)
    exchange.ask(f"delete in version {version}: a group with a member", DeleteGroupsRequest([group.group_id]), 2)
    group.beat("alone, leaves", "member", LEAVE)
    group.beat("alone, leaves again", "member", LEAVE)
    group.describe("alone, empty")
    exchange.ask(f"delete in version {version}: an empty group", DeleteGroupsRequest([group.group_id]), 2)
    group.describe("alone, deleted")


def _all_fields(topic: str, partitions: list[ConsumerGroupHeartbeatTopicPartitions]) -> dict[str, Any]:
    return {
        "rebalance_timeout_ms": TIMEOUT_MS,
        "subscribed_topic_names": [topic],
        "server_assignor": "uniform",
        "topic_partitions": partitions,
    }


def offsets(exchange: Exchange, group: Group, topic: str, epoch: int) -> None:
    topic_id = exchange.topic_id(topic)
    committed = [OffsetCommitRequestPartition(0, 5)]
    for situation, member, given_epoch in (
        ("the member", "member", epoch),
        ("an epoch of the past", "member", epoch - 1),
        ("an epoch of the future", "member", epoch + 5),
        ("an unknown member", "nobody", epoch),
        ("no member", "", -1),
    ):
        for version in exchange.versions(OffsetCommitRequest, lowest=8):
            topics = [OffsetCommitRequestTopic(topic, topic_id, committed)]
            request = OffsetCommitRequest(group.group_id, given_epoch, member, topics=topics)
            exchange.ask(f"commit in version {group.version}: {situation}", request, version)
        for version in exchange.versions(OffsetFetchRequest, lowest=9):
            wanted = [OffsetFetchRequestTopics(topic, topic_id, [0])]
            groups = [OffsetFetchRequestGroup(group.group_id, member or None, given_epoch, wanted)]
            name = f"fetch in version {group.version}: {situation}"
            exchange.ask(name, OffsetFetchRequest(groups=groups), version)
    deleted = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])]
    exchange.ask(f"delete offsets in version {group.version}", OffsetDeleteRequest(group.group_id, deleted), 0)


def classic_words(exchange: Exchange, group: Group) -> None:
    """What the classic protocol says to a group of the new one."""
    for version in exchange.versions(DescribeGroupsRequest):
        name = f"classic in version {group.version}: described"
        exchange.ask(name, DescribeGroupsRequest([group.group_id]), version)
    for version in exchange.versions(HeartbeatRequest):
        name = f"classic in version {group.version}: heartbeat"
        exchange.ask(name, HeartbeatRequest(group.group_id, 1, "member"), version)
    joining = JoinGroupRequest(
        group.group_id, TIMEOUT_MS, TIMEOUT_MS, protocol_type="connect", protocols=protocols("range")
    )
    for version in exchange.versions(JoinGroupRequest):
        exchange.ask(f"classic in version {group.version}: joined by connect", joining, version)


def together(exchange: Exchange, version: int, topic: str) -> None:
    group = Group(exchange, "together", version)
    topic_id = exchange.topic_id(topic)
    first = group.join("of two, the first", "a", topic, server_assignor="range")
    everything = owned(topic_id, 0, 1, 2, 3)
    group.beat("of two, the first has all", "a", first.member_epoch, topic_partitions=everything)
    second = group.join("of two, the second", "b", topic, server_assignor="range")
    group.describe("of two, both joined")
    group.beat("of two, the second waits", "b", second.member_epoch)
    group.beat("of two, the first is to give up some", "a", first.member_epoch)
    group.beat("of two, the first still has them", "a", first.member_epoch, topic_partitions=everything)
    moved = group.beat(
        "of two, the first gave them up", "a", first.member_epoch, topic_partitions=owned(topic_id, 0, 1)
    )
    group.beat("of two, the second gets them", "b", second.member_epoch)
    group.beat("of two, the second has them", "b", second.member_epoch, topic_partitions=owned(topic_id, 2, 3))
    group.beat("of two, the first by its old epoch", "a", first.member_epoch, topic_partitions=everything)
    group.describe("of two, stable")
    group.beat("of two, the first leaves", "a", LEAVE)
    rest = group.beat("of two, the second after that", "b", moved.member_epoch)
    group.beat("of two, the second has all", "b", rest.member_epoch, topic_partitions=everything)
    group.describe("of two, the second has all")


def static(exchange: Exchange, version: int, topic: str) -> None:
    group = Group(exchange, "static", version)
    topic_id = exchange.topic_id(topic)
    first = group.join("static", "s1", topic, instance_id="instance")
    epoch = first.member_epoch
    group.beat("static, has all", "s1", epoch, instance_id="instance", topic_partitions=owned(topic_id, 0, 1, 2, 3))
    group.join("static, by another member", "s2", topic, instance_id="instance")
    group.beat("static, an unknown instance", "s1", epoch, instance_id="other")
    group.beat("static, another member's", "s9", epoch, instance_id="instance")
    group.beat("static, without its instance", "s1", epoch)
    group.beat("static, leaves for now", "s1", LEAVE_FOR_NOW, instance_id="instance")
    group.describe("static, away")
    group.beat("static, beats while away", "s1", epoch, instance_id="instance")
    back = group.join("static, back as another", "s2", topic, instance_id="instance")
    group.describe("static, back")
    group.beat("static, by the member before", "s1", epoch, instance_id="instance")
    group.beat("static, back, goes on", "s2", back.member_epoch, instance_id="instance")
    group.beat("static, leaves for good", "s2", LEAVE, instance_id="instance")
    group.describe("static, left")


def unknown_groups(exchange: Exchange) -> None:
    for version in exchange.versions(ConsumerGroupDescribeRequest):

        def ask(situation: str, *groups: str, version: int = version) -> None:
            exchange.ask(f"describe: {situation}", ConsumerGroupDescribeRequest(list(groups)), version)

        ask("none")
        ask("an unknown group", exchange.name("nobody"))
        ask("an empty group id", "")
        ask("an unknown group twice", exchange.name("nobody"), exchange.name("nobody"))
