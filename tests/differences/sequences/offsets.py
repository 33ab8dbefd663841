"""OffsetCommit, OffsetFetch, OffsetDelete from outside of groups, FindCoordinator, and offsets under transactions."""

from __future__ import annotations

from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.differences.exchange import GROUP, Exchange
from tests.differences.sequences.transactions import Transactional

BY_ID = 10
MANY_GROUPS = 8
NO_SUCH_ID = bytes(15) + b"\x63"


def run(exchange: Exchange) -> None:
    topic = exchange.create_topic("consumed", partitions=3)
    other = exchange.create_topic("consumed-too")
    coordinators(exchange)
    for version in exchange.versions(OffsetCommitRequest):
        commits(exchange, version, topic, other)
    filled = filled_group(exchange, topic, other)
    for version in exchange.versions(OffsetFetchRequest):
        fetches(exchange, version, filled, topic, other)
    for version in exchange.versions(OffsetDeleteRequest):
        deletions(exchange, version, filled, topic)
    exchange.call(DeleteGroupsRequest([""]), 2)  # there is one now, and other themes do not expect it


def coordinators(exchange: Exchange) -> None:
    for version in exchange.versions(FindCoordinatorRequest):
        exchange.find_coordinator("warm", GROUP)

        def ask(situation: str, *keys: str, key_type: int = 0, version: int = version) -> None:
            key = keys[0] if keys else ""
            request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=list(keys))
            exchange.ask(f"coordinator: {situation}", request, version)

        ask("of a group", exchange.name("group"))
        ask("of an empty group", "")
        if version >= 1:
            ask("of a transaction", exchange.name("transaction"), key_type=1)
            ask("of an empty transaction", "", key_type=1)
            ask("of an unknown type", exchange.name("group"), key_type=7)
            ask("of a negative type", exchange.name("group"), key_type=-1)
        if version >= 4:
            ask("of two groups", exchange.name("group"), exchange.name("other"))
            ask("of nothing")
            ask("of one twice", exchange.name("group"), exchange.name("group"))
        if version >= 6:
            ask("of a share group, ill-formed", "group", key_type=2)


def commits(exchange: Exchange, version: int, topic: str, other: str) -> None:
    group = exchange.name("committing", version)
    exchange.find_coordinator(group, GROUP)

    def at(name: str, *partitions: OffsetCommitRequestPartition) -> OffsetCommitRequestTopic:
        if version < BY_ID:
            return OffsetCommitRequestTopic(name=name, partitions=list(partitions))
        topic_id = exchange.topic_id(name) if name in (topic, other) else NO_SUCH_ID
        return OffsetCommitRequestTopic(topic_id=topic_id, partitions=list(partitions))

    def ask(situation: str, *topics: OffsetCommitRequestTopic, **fields: Any) -> None:
        values: dict[str, Any] = {"group_id": group} | fields
        exchange.ask(f"commit: {situation}", OffsetCommitRequest(topics=list(topics), **values), version)

    def partition(
        index: int = 0, offset: int = 5, metadata: str | None = "m", **more: int
    ) -> OffsetCommitRequestPartition:
        return OffsetCommitRequestPartition(index, offset, committed_metadata=metadata, **more)

    ask("an offset", at(topic, partition()))
    ask("several", at(topic, partition(1), partition(2)), at(other, partition()))
    ask("no topics")
    ask("a topic without partitions", at(topic))
    ask("an unknown topic", at("nothing", partition()))
    ask("an unknown and a known topic", at("nothing", partition()), at(topic, partition()))
    ask("an empty name", at("", partition()))
    ask("an unknown partition", at(topic, partition(9)))
    ask("a negative partition", at(topic, partition(-1)))
    ask("a partition twice", at(topic, partition(0, 7), partition(0, 8)))
    ask("a negative offset", at(topic, partition(0, -1)))
    ask("a very negative offset", at(topic, partition(0, -100)))
    ask("the largest offset", at(topic, partition(0, 2**63 - 1)))
    ask("no metadata", at(topic, partition(metadata=None)))
    ask("metadata of the largest size", at(topic, partition(metadata="m" * 4096)))
    ask("metadata that is too large", at(topic, partition(metadata="m" * 4097)))
    ask("one with too much metadata and one without", at(topic, partition(metadata="m" * 4097), partition(1)))
    ask("a leader epoch", at(topic, partition(committed_leader_epoch=0)))
    ask("an epoch of the future", at(topic, partition(committed_leader_epoch=9)))
    ask("an unknown member", at(topic, partition()), member_id="somebody", generation_id_or_member_epoch=1)
    ask("a member without generation", at(topic, partition()), member_id="somebody")
    ask("a generation without member", at(topic, partition()), generation_id_or_member_epoch=3)
    ask("an empty group id", at(topic, partition()), group_id="")
    ask("a retention time of 0", at(topic, partition()), retention_time_ms=0)
    fresh = exchange.name("never-seen", version)
    ask("a new group with a generation", at(topic, partition()), group_id=fresh, generation_id_or_member_epoch=3)
    ask(
        "a new group with a member",
        at(topic, partition()),
        group_id=fresh,
        member_id="a",
        generation_id_or_member_epoch=0,
    )
    if version >= 7:
        ask("an unknown instance", at(topic, partition()), group_instance_id="instance")


def filled_group(exchange: Exchange, topic: str, other: str) -> str:
    """A group with offsets, one of them under a transaction that stays open."""
    group = exchange.name("filled")
    exchange.find_coordinator(group, GROUP)
    offsets = [
        OffsetCommitRequestTopic(
            topic,
            partitions=[
                OffsetCommitRequestPartition(0, 5, committed_metadata="five"),
                OffsetCommitRequestPartition(1, 6, committed_leader_epoch=0, committed_metadata=None),
            ],
        ),
        OffsetCommitRequestTopic(other, partitions=[OffsetCommitRequestPartition(0, 7)]),
    ]
    exchange.call(OffsetCommitRequest(group, topics=offsets), 9)
    own = Transactional(exchange, "holds", 0)
    held = TxnOffsetCommitRequestTopic(
        topic, partitions=[TxnOffsetCommitRequestPartition(1, 60), TxnOffsetCommitRequestPartition(2, 70)]
    )
    request = TxnOffsetCommitRequest(own.transactional_id, group, own.producer_id, own.epoch, topics=[held])
    exchange.call(request, 5, retry=(ErrorCode.CONCURRENT_TRANSACTIONS,))
    return group


def fetches(exchange: Exchange, version: int, filled: str, topic: str, other: str) -> None:
    def wanted(group: str, *topics: tuple[str, list[int]], **fields: Any) -> OffsetFetchRequestGroup:
        if version < BY_ID:
            named = [OffsetFetchRequestTopics(name=name, partition_indexes=partitions) for name, partitions in topics]
        else:
            ids = [exchange.topic_id(name) if name in (topic, other) else NO_SUCH_ID for name, _ in topics]
            named = [
                OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=partitions)
                for topic_id, (_, partitions) in zip(ids, topics, strict=True)
            ]
        return OffsetFetchRequestGroup(group, topics=named, **fields)

    def ask(situation: str, group: str, *topics: tuple[str, list[int]], stable: bool = False, **fields: Any) -> None:
        old = [OffsetFetchRequestTopic(name, partitions) for name, partitions in topics]
        groups = [wanted(group, *topics, **fields)] if version >= MANY_GROUPS else []
        request = OffsetFetchRequest(group, old, groups, require_stable=stable)
        exchange.ask(f"fetch: {situation}", request, version)

    ask("an offset", filled, (topic, [0]))
    ask("several", filled, (topic, [0, 1]), (other, [0]))
    ask("under a transaction", filled, (topic, [1, 2]))
    ask("no partitions", filled, (topic, []))
    ask("no topics", filled)
    ask("one without offset", filled, (topic, [9]))
    ask("a negative partition", filled, (topic, [-1]))
    ask("an unknown topic", filled, ("nothing", [0]))
    ask("an unknown and a known topic", filled, ("nothing", [0]), (topic, [0]))
    ask("an empty name", filled, ("", [0]))
    ask("a partition twice", filled, (topic, [0, 0]))
    ask("an unknown group", exchange.name("nobody"), (topic, [0]))
    ask("an empty group id", "", (topic, [0]))
    if version >= 7:
        ask("stable", filled, (topic, [0, 1, 2]), stable=True)
    if version >= 2:
        everything = OffsetFetchRequestGroup(filled, topics=None)
        groups = [everything] if version >= MANY_GROUPS else []
        for stable in (False, True) if version >= 7 else (False,):
            request = OffsetFetchRequest(filled, None, groups, require_stable=stable)
            exchange.ask(f"fetch: all{', stable' if stable else ''}", request, version)
        nobody = exchange.name("nobody")
        groups = [OffsetFetchRequestGroup(nobody, topics=None)] if version >= MANY_GROUPS else []
        exchange.ask("fetch: all of an unknown group", OffsetFetchRequest(nobody, None, groups), version)
    if version >= MANY_GROUPS:
        groups = [wanted(filled, (topic, [0])), wanted("", (topic, [0])), wanted(exchange.name("nobody"), (topic, [1]))]
        exchange.ask("fetch: three groups", OffsetFetchRequest(groups=groups), version)
        exchange.ask("fetch: no groups", OffsetFetchRequest(), version)
        exchange.ask("fetch: a group twice", OffsetFetchRequest(groups=[groups[0], groups[0]]), version)
    if version >= 9:
        ask("an unknown member", filled, (topic, [0]), member_id="somebody", member_epoch=1)
        ask("a member epoch without member", filled, (topic, [0]), member_epoch=1)
        ask("an empty member", filled, (topic, [0]), member_id="", member_epoch=0)


def deletions(exchange: Exchange, version: int, filled: str, topic: str) -> None:
    def ask(situation: str, group: str, *topics: tuple[str, list[int]]) -> None:
        wanted = [
            OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in partitions])
            for name, partitions in topics
        ]
        exchange.ask(f"delete: {situation}", OffsetDeleteRequest(group, wanted), version)

    ask("an offset", filled, (topic, [0]))
    ask("one that is gone", filled, (topic, [0]))
    ask("one that never was", filled, (topic, [2]))
    ask("an unknown partition", filled, (topic, [9]))
    ask("an unknown topic", filled, ("nothing", [0]))
    ask("an unknown and a known topic", filled, ("nothing", [0]), (topic, [1]))
    ask("no topics", filled)
    ask("no partitions", filled, (topic, []))
    ask("an unknown group", exchange.name("nobody"), (topic, [0]))
    ask("an empty group id", "", (topic, [0]))
    ask("a partition twice", filled, (topic, [1, 1]))
