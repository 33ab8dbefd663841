"""The versions that Apache Kafka 4.4 added: whom ApiVersions 5 means, offsets by topic id in a transaction, the message
of DeleteGroups 3, and static members of streams groups."""

from __future__ import annotations

from typing import Any

from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest
from fencepost.protocol.messages.group_membership import JoinGroupRequest, SyncGroupRequest
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.quorum import UnregisterControllerRequest
from tests.differences.exchange import GROUP, Exchange
from tests.differences.sequences import consumer_groups, streams_groups
from tests.differences.sequences.classic_groups import assigning, protocols
from tests.differences.sequences.streams_groups import LEAVE, LEAVE_FOR_NOW
from tests.differences.sequences.transactions import BUSY, Transactional

NO_ID = bytes(16)
NO_SUCH_ID = bytes(15) + b"\x63"
TXN_OFFSET_COMMIT = 6
DELETE_GROUPS = 3


def run(exchange: Exchange) -> None:
    whom_it_means(exchange)
    topic = exchange.create_topic("data", partitions=3)
    offsets(exchange, topic)
    offsets_of_members(exchange, topic)
    deletions(exchange, topic)
    for version in (0, 1):
        static_streams_members(exchange, version)
    exchange.ask("unregister: the only controller", UnregisterControllerRequest(1), 0)


def whom_it_means(exchange: Exchange) -> None:
    metadata = exchange.call(MetadataRequest(topics=[]), 12)
    cluster_id, node_id = metadata.cluster_id, metadata.brokers[0].node_id

    def only_whether_it_lists_apis(reply: Any) -> None:
        reply.api_keys = reply.api_keys[:1]
        reply.supported_features, reply.finalized_features = [], []

    for situation, cluster, node in (
        ("nobody", None, -1),
        ("this node", cluster_id, node_id),
        ("another node", cluster_id, node_id + 1),
        ("this cluster, no node", cluster_id, -1),
        ("this node, no cluster", None, node_id),
        ("another node, no cluster", None, node_id + 1),
        ("another cluster", "another", node_id),
        ("another cluster, no node", "another", -1),
        ("an empty cluster id", "", node_id),
        ("a negative node", cluster_id, -2),
    ):
        request = ApiVersionsRequest("asker", "1.0", cluster, node)
        exchange.ask(f"api versions: means {situation}", request, 5, only=only_whether_it_lists_apis)
    request = ApiVersionsRequest("a client", "1.0", "another", 77)
    exchange.ask("api versions: means another, by a wrong name", request, 5, only=only_whether_it_lists_apis)


class Committing:
    """Offsets of one transactional producer, by topic id."""

    def __init__(self, exchange: Exchange, base: str, topic: str) -> None:
        self.exchange = exchange
        self.own = Transactional(exchange, base, TXN_OFFSET_COMMIT)
        self.topic_id = exchange.topic_id(topic)

    def ask(
        self,
        situation: str,
        group_id: str,
        *,
        topic_ids: tuple[bytes, ...] | None = None,
        partitions: tuple[int, ...] = (0,),
        **fields: Any,
    ) -> None:
        committed = [TxnOffsetCommitRequestPartition(index, 5, committed_metadata="m") for index in partitions]
        topics = [
            TxnOffsetCommitRequestTopic(topic_id=topic_id, partitions=committed)
            for topic_id in topic_ids or (self.topic_id,)
        ]
        values: dict[str, Any] = {
            "transactional_id": self.own.transactional_id,
            "group_id": group_id,
            "producer_id": self.own.producer_id,
            "producer_epoch": self.own.epoch,
            "topics": topics,
        }
        request = TxnOffsetCommitRequest(**(values | fields))
        self.exchange.ask(f"offsets: {situation}", request, TXN_OFFSET_COMMIT, retry=BUSY)

    def ask_as(self, situation: str, group_id: str, member_id: str, epoch: int, **fields: Any) -> None:
        self.ask(situation, group_id, member_id=member_id, generation_id_or_member_epoch=epoch, **fields)


def offsets(exchange: Exchange, topic: str) -> None:
    committing = Committing(exchange, "committing", topic)
    group = exchange.name("group")
    exchange.find_coordinator(group, GROUP)
    ask, ask_as = committing.ask, committing.ask_as
    ask_as("a member of an unknown group", group, "somebody", 1)
    ask_as("a member of an unknown group, epoch 0", group, "somebody", 0)
    ask_as("a generation of an unknown group, no member", group, "", 3)
    ask_as("a member of an unknown group, no epoch", group, "somebody", -1)
    ask_as("a static member of an unknown group", group, "somebody", 1, group_instance_id="instance")
    ask("an unknown topic id", group, topic_ids=(NO_SUCH_ID,))
    ask("no topic id", group, topic_ids=(NO_ID,))
    ask("a known and an unknown topic id", group, topic_ids=(committing.topic_id, NO_SUCH_ID))
    ask("an offset", group)
    ask("an unknown partition", group, partitions=(0, 9, -1))
    ask("no topics", group, topics=[])
    ask("an empty group id", "")
    ask("an epoch never given", group, producer_epoch=7)
    ask_as("a member of an empty group", group, "somebody", 1)
    ask_as("a generation of an empty group, no member", group, "", 3)
    ask("an unknown topic id, an epoch never given", group, topic_ids=(NO_SUCH_ID,), producer_epoch=7)


def offsets_of_members(exchange: Exchange, topic: str) -> None:
    committing = Committing(exchange, "members", topic)
    group = consumer_groups.Group(exchange, "consumers", 1)
    join = group.request(
        "member",
        consumer_groups.JOIN,
        rebalance_timeout_ms=consumer_groups.TIMEOUT_MS,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    epoch = exchange.call(join, 1).member_epoch
    _ask_as_members("a consumer group", committing, group.group_id, "member", epoch)

    streams = streams_groups.Group(exchange, "streams", topic)
    epoch = exchange.call(streams.joining("member"), 1).member_epoch
    _ask_as_members("a streams group", committing, streams.group_id, "member", epoch)

    classic = exchange.name("classic")
    exchange.find_coordinator(classic, GROUP)
    joins = JoinGroupRequest(classic, 10_000, 10_000, "", protocol_type="consumer", protocols=protocols("range"))
    joins.member_id = exchange.call(joins, 4).member_id
    generation = exchange.call(joins, 4).generation_id
    exchange.call(
        SyncGroupRequest(classic, generation, joins.member_id, assignments=assigning((joins.member_id, b""))), 3
    )
    _ask_as_members("a classic group", committing, classic, joins.member_id, generation)


def _ask_as_members(kind: str, committing: Committing, group_id: str, member_id: str, epoch: int) -> None:
    ask_as = committing.ask_as
    ask_as(f"{kind}, its member", group_id, member_id, epoch)
    ask_as(f"{kind}, its member, an unknown topic id", group_id, member_id, epoch, topic_ids=(NO_SUCH_ID,))
    ask_as(f"{kind}, an epoch of the past", group_id, member_id, epoch - 1)
    ask_as(f"{kind}, an epoch of the future", group_id, member_id, epoch + 5)
    ask_as(f"{kind}, no epoch", group_id, member_id, -1)
    ask_as(f"{kind}, an unknown member", group_id, "nobody", epoch)
    ask_as(f"{kind}, an unknown static member", group_id, member_id, epoch, group_instance_id="instance")
    ask_as(f"{kind}, no member", group_id, "", epoch)
    committing.ask(f"{kind}, neither member nor epoch", group_id)


def deletions(exchange: Exchange, topic: str) -> None:
    committed, taken = exchange.name("committed"), consumer_groups.Group(exchange, "taken", 1)
    exchange.find_coordinator(committed, GROUP)
    topics = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 1)])]
    exchange.call(OffsetCommitRequest(committed, topics=topics), 9)
    join = taken.request(
        "member",
        consumer_groups.JOIN,
        rebalance_timeout_ms=consumer_groups.TIMEOUT_MS,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    exchange.call(join, 1)
    for situation, groups in {
        "an empty group": [committed],
        "it again": [committed],
        "a group with a member": [taken.group_id],
        "an empty group id": [""],
        "several": [exchange.name("missing"), taken.group_id, ""],
        "none": [],
    }.items():
        exchange.ask(f"delete: {situation}", DeleteGroupsRequest(groups), DELETE_GROUPS)


def static_streams_members(exchange: Exchange, version: int) -> None:
    topic = exchange.create_topic("words", partitions=2, version=version)
    group = streams_groups.Group(exchange, "static", topic, version=version)
    join, beat = group.join, group.beat
    join("static, an empty instance id", "a", instance_id="")
    beat("static, leaves an unknown group for now", "a", LEAVE_FOR_NOW, instance_id="one")
    first = join("static", "a", instance_id="one")
    first = group.beat_until_ready("static, with all tasks", "a", first.member_epoch, instance_id="one")
    epoch = first.member_epoch
    all_tasks = {**streams_groups.NOTHING, "active_tasks": first.active_tasks}
    beat("static, has all tasks", "a", epoch, instance_id="one", **all_tasks)
    group.describe("static")
    join("static, by another member", "b", instance_id="one")
    beat("static, an unknown instance", "a", epoch, instance_id="other")
    beat("static, no instance", "a", epoch)
    beat("static, another member's", "nobody", epoch, instance_id="one")
    beat("static, an epoch of the future", "a", epoch + 1, instance_id="one")
    beat("static, another member leaves for now", "b", LEAVE_FOR_NOW, instance_id="one")
    beat("static, an unknown instance leaves for now", "a", LEAVE_FOR_NOW, instance_id="other")
    beat("static, leaves for now without its instance", "a", LEAVE_FOR_NOW)
    beat("static, leaves for now", "a", LEAVE_FOR_NOW, instance_id="one")
    group.describe("static, away")
    beat("static, beats while away", "a", epoch, instance_id="one")
    back = join("static, back as another", "b", instance_id="one")
    group.describe("static, back")
    beat("static, by the member before", "a", epoch, instance_id="one")
    beat("static, back, continues", "b", back.member_epoch, instance_id="one")
    beat("static, leaves for now again", "b", LEAVE_FOR_NOW, instance_id="one")
    again = join("static, back as itself", "b", instance_id="one")
    beat("static, back as itself, continues", "b", again.member_epoch, instance_id="one")
    join("not static, with its member id", "b")
    beat("static, another member leaves for good", "a", LEAVE, instance_id="one")
    beat("static, leaves for good", "b", LEAVE, instance_id="one")
    group.describe("static, left")
    beat("static, leaves for good again", "b", LEAVE, instance_id="one")
