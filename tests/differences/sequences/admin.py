"""Groups as an administrator sees them: DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

from fencepost.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from fencepost.protocol.messages.group_membership import JoinGroupRequest
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.differences.exchange import GROUP, Exchange
from tests.differences.sequences.classic_groups import protocols

TIMEOUT_MS = 30_000


def run(exchange: Exchange) -> None:
    topic = exchange.create_topic("consumed")
    for version in exchange.versions(DescribeGroupsRequest):
        descriptions(exchange, version, topic)
    lists(exchange)
    for version in exchange.versions(DeleteGroupsRequest):
        deletions(exchange, version, topic)


def with_offsets(exchange: Exchange, base: str, version: int, topic: str) -> str:
    """An empty group with an offset."""
    group = exchange.name(base, version)
    exchange.find_coordinator(group, GROUP)
    offsets = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 5)])]
    exchange.call(OffsetCommitRequest(group, topics=offsets), 9)
    return group


def with_member(exchange: Exchange, base: str, version: int) -> str:
    """A group whose one member has joined and brought no assignment yet."""
    group = exchange.name(base, version)
    exchange.find_coordinator(group, GROUP)
    joining = JoinGroupRequest(group, TIMEOUT_MS, TIMEOUT_MS, protocol_type="consumer", protocols=protocols("range"))
    exchange.call(joining, 3)
    return group


def descriptions(exchange: Exchange, version: int, topic: str) -> None:
    def ask(situation: str, *groups: str, operations: bool = False) -> None:
        exchange.ask(f"describe: {situation}", DescribeGroupsRequest(list(groups), operations), version)

    empty, joined = (
        with_offsets(exchange, "described-empty", version, topic),
        with_member(exchange, "described", version),
    )
    ask("none")
    ask("an unknown group", exchange.name("nobody"))
    ask("an empty group id", "")
    ask("a group with offsets", empty)
    ask("a group with a member", joined)
    ask("with operations", empty, operations=True)
    ask("three", empty, exchange.name("nobody"), joined)
    ask("one twice", empty, empty)


def lists(exchange: Exchange) -> None:
    """Only filters that let nothing through are the same whatever else there is."""
    for version in exchange.versions(ListGroupsRequest, lowest=4):
        exchange.ask("list: an unknown state", ListGroupsRequest(["Nothing"]), version)
        exchange.ask("list: a dead one", ListGroupsRequest(["Dead"]), version)
        exchange.ask("list: an empty state", ListGroupsRequest([""]), version)
        if version >= 5:
            exchange.ask("list: an unknown type", ListGroupsRequest([], ["nothing"]), version)
            exchange.ask(
                "list: an unknown and a known type", ListGroupsRequest(["Dead"], ["nothing", "classic"]), version
            )


def deletions(exchange: Exchange, version: int, topic: str) -> None:
    def ask(situation: str, *groups: str) -> None:
        exchange.ask(f"delete: {situation}", DeleteGroupsRequest(list(groups)), version)

    empty, joined = with_offsets(exchange, "deleted", version, topic), with_member(exchange, "busy", version)
    ask("none")
    ask("an unknown group", exchange.name("nobody"))
    ask("an empty group id", "")
    ask("a group with a member", joined)
    ask("an unknown and a busy one", exchange.name("nobody"), joined)
    ask("a group with offsets", empty)
    ask("a group that was deleted", empty)
    twice = with_offsets(exchange, "deleted-twice", version, topic)
    ask("one twice", twice, twice)
