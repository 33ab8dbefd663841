"""Share groups (KIP-932): members, descriptions, sessions, records that are lent and given back, and offsets."""

from __future__ import annotations

from typing import Any

from fencepost.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest
from fencepost.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from fencepost.protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from fencepost.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from fencepost.protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    DeleteShareStatePartition,
    DeleteShareStateTopic,
    InitializeShareGroupStateRequest,
    InitializeShareStatePartition,
    InitializeShareStateTopic,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    ReadShareStatePartition,
    ReadShareStateTopic,
    WriteShareGroupStateRequest,
    WriteShareStatePartition,
    WriteShareStateTopic,
)
from fencepost.protocol.stored.share_group_state import StateBatch
from tests.differences.exchange import GROUP, Exchange, batch

NO_SUCH_ID = bytes(15) + b"\x63"
JOIN, LEAVE = 0, -1
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
STRANGER = "AAAAAAAAAAAAAAAAAAAAAg"
ACCEPT = 1


def run(exchange: Exchange) -> None:
    exchange.remember(MEMBER, "the member")
    exchange.remember(STRANGER, "a stranger")
    topic = exchange.create_topic("shared", partitions=1)
    exchange.fill(topic, batch(3), batch(3), batch(3))
    members(exchange, topic)
    sessions(exchange, topic)
    offsets(exchange, topic)
    states(exchange, topic)


def joined_group(exchange: Exchange, base: str, topic: str) -> str:
    group = exchange.name(base)
    exchange.find_coordinator(group, GROUP)
    for _ in range(100):
        request = ShareGroupHeartbeatRequest(group, MEMBER, JOIN, subscribed_topic_names=[topic])
        reply = exchange.call(request, 1)
        if reply.assignment is not None and reply.assignment.topic_partitions:
            break
    return group


def members(exchange: Exchange, topic: str) -> None:
    group = exchange.name("members")
    exchange.find_coordinator(group, GROUP)
    for version in exchange.versions(ShareGroupHeartbeatRequest):

        def beat(situation: str, member: str, epoch: int, version: int = version, **fields: Any) -> None:
            values: dict[str, Any] = {"group_id": group} | fields
            request = ShareGroupHeartbeatRequest(member_id=member, member_epoch=epoch, **values)
            exchange.ask(f"heartbeat: {situation}", request, version)

        beat("an empty group id", MEMBER, JOIN, group_id="", subscribed_topic_names=[topic])
        beat("no member id", "", JOIN, subscribed_topic_names=[topic])
        beat("no subscription", MEMBER, JOIN)
        beat("an empty subscription", MEMBER, JOIN, subscribed_topic_names=[])
        beat("an empty rack", MEMBER, JOIN, rack_id="", subscribed_topic_names=[topic])
        beat("an epoch of -2", MEMBER, -2)
        beat("an unknown group", MEMBER, 3, group_id=exchange.name("nobody"))
        beat("an unknown group is left", MEMBER, LEAVE, group_id=exchange.name("nobody"))
        beat("an unknown topic", STRANGER, JOIN, subscribed_topic_names=["nothing"])
        beat("a stranger leaves", STRANGER, LEAVE)
        beat("a stranger leaves again", STRANGER, LEAVE)
        beat("an unknown member", STRANGER, 4)
    for version in exchange.versions(ShareGroupDescribeRequest):
        for situation, groups in {
            "none": [],
            "an unknown group": [exchange.name("nobody")],
            "an empty group id": [""],
        }.items():
            exchange.ask(f"describe: {situation}", ShareGroupDescribeRequest(groups), version)
    exchange.ask("described as a classic group", DescribeGroupsRequest([group]), 6)
    exchange.ask("deleted", DeleteGroupsRequest([group]), 2)


def sessions(exchange: Exchange, topic: str) -> None:
    topic_id = exchange.topic_id(topic)
    for version in exchange.versions(ShareFetchRequest):

        def fetch(
            situation: str,
            group: str | None,
            epoch: int,
            *partitions: int,
            version: int = version,
            topic_id: bytes = topic_id,
            acknowledged: tuple[int, int, int] | None = None,
            **fields: Any,
        ) -> None:
            batches = [] if acknowledged is None else [_acknowledgement(*acknowledged)]
            wanted = [ShareFetchPartition(partition, batches) for partition in partitions]
            topics = [ShareFetchTopic(topic_id, wanted)] if partitions else []
            values: dict[str, Any] = {
                "member_id": MEMBER,
                "max_wait_ms": 200,
                "min_bytes": 0,
                "max_records": 3,
                "batch_size": 3,
                "topics": topics,
            }
            request = ShareFetchRequest(group_id=group, share_session_epoch=epoch, **(values | fields))
            exchange.ask(f"fetch: {situation}", request, version)

        group = joined_group(exchange, f"fetching-{version}", topic)
        fetch("no group", None, 0, 0)
        fetch("an empty group id", "", 0, 0)
        fetch("no member", group, 0, 0, member_id=None)
        fetch("an empty member id", group, 0, 0, member_id="")
        fetch("an epoch without session", group, 4, 0)
        fetch("the end of no session", group, -1)
        fetch("acknowledged in the first request", group, 0, 0, acknowledged=(0, 2, ACCEPT))
        for version_of_acknowledge in exchange.versions(ShareAcknowledgeRequest, lowest=version, highest=version):
            partition = ShareAcknowledgePartition(0, [_acknowledged(0, 2, ACCEPT)])
            topics = [ShareAcknowledgeTopic(topic_id, [partition])]
            for situation, given_group, epoch in (
                ("no group", None, 1),
                ("an epoch without session", exchange.name("nobody"), 5),
                ("an epoch of 0", group, 0),
            ):
                request = ShareAcknowledgeRequest(given_group, MEMBER, epoch, topics=topics)
                exchange.ask(f"acknowledge: {situation}", request, version_of_acknowledge)


def _acknowledgement(first: int, last: int, kind: int) -> AcknowledgementBatch:
    return AcknowledgementBatch(first, last, [kind])


def _acknowledged(first: int, last: int, kind: int) -> AcknowledgementBatch:
    return AcknowledgementBatch(first, last, [kind])


def offsets(exchange: Exchange, topic: str) -> None:
    empty = joined_group(exchange, "emptied", topic)
    exchange.call(ShareGroupHeartbeatRequest(empty, MEMBER, LEAVE), 1)
    busy = joined_group(exchange, "busy", topic)
    nobody = exchange.name("nobody")
    for version in exchange.versions(DescribeShareGroupOffsetsRequest):

        def describe(situation: str, group: str, *topics: tuple[str, list[int]], version: int = version) -> None:
            wanted = [DescribeShareGroupOffsetsRequestTopic(name, partitions) for name, partitions in topics]
            groups = [DescribeShareGroupOffsetsRequestGroup(group, wanted)]
            exchange.ask(f"offsets: {situation}", DescribeShareGroupOffsetsRequest(groups), version)

        describe("an unknown group", nobody, (topic, [0]))
        describe("an empty group id", "", (topic, [0]))
        describe("an unknown topic", empty, ("nothing", [0]))
        describe("an unknown partition", empty, (topic, [7]))
        describe("no topics", empty)
        exchange.ask("offsets: none", DescribeShareGroupOffsetsRequest([]), version)
    for version in exchange.versions(AlterShareGroupOffsetsRequest):

        def alter(situation: str, group: str, *topics: tuple[str, int], version: int = version) -> None:
            wanted = [
                AlterShareGroupOffsetsRequestTopic(name, [AlterShareGroupOffsetsRequestPartition(partition, 2)])
                for name, partition in topics
            ]
            exchange.ask(f"alter offsets: {situation}", AlterShareGroupOffsetsRequest(group, wanted), version)

        alter("an unknown group", nobody, (topic, 0))
        alter("an empty group id", "", (topic, 0))
        alter("a group with a member", busy, (topic, 0))
        alter("an unknown topic", empty, ("nothing", 0))
        alter("an unknown partition", empty, (topic, 7))
        alter("an offset", empty, (topic, 0))
        alter("nothing", empty)
    for version in exchange.versions(DeleteShareGroupOffsetsRequest):

        def delete(situation: str, group: str, *topics: str, version: int = version) -> None:
            wanted = [DeleteShareGroupOffsetsRequestTopic(name) for name in topics]
            exchange.ask(f"delete offsets: {situation}", DeleteShareGroupOffsetsRequest(group, wanted), version)

        delete("an unknown group", nobody, topic)
        delete("a group with a member", busy, topic)
        delete("an unknown topic", empty, "nothing")
        delete("nothing", empty)
        delete("a topic", empty, topic)


def states(exchange: Exchange, topic: str) -> None:
    """What brokers keep with the share coordinator."""
    for version in exchange.versions(WriteShareGroupStateRequest):
        _states(exchange, exchange.topic_id(topic), version)


def _states(exchange: Exchange, topic_id: bytes, version: int) -> None:
    group = exchange.name("kept", version)
    among = "" if version else " (among writes of version 0)"

    def initialize(
        situation: str, *partitions: tuple[int, int, int], group: str = group, topic_id: bytes = topic_id
    ) -> None:
        wanted = [InitializeShareStatePartition(*partition) for partition in partitions]
        request = InitializeShareGroupStateRequest(group, [InitializeShareStateTopic(topic_id, wanted)])
        exchange.ask(f"initialize state: {situation}{among}", request, 0)

    def read(situation: str, *partitions: tuple[int, int], group: str = group, topic_id: bytes = topic_id) -> None:
        wanted = [ReadShareStatePartition(*partition) for partition in partitions]
        request = ReadShareGroupStateRequest(group, [ReadShareStateTopic(topic_id, wanted)])
        exchange.ask(f"read state: {situation}{among}", request, 0)

    def write(
        situation: str,
        *partitions: tuple[int, int, int, int, int, list[StateBatch]],
        group: str = group,
        topic_id: bytes = topic_id,
        version: int = version,
    ) -> None:
        wanted = [WriteShareStatePartition(*partition) for partition in partitions]
        request = WriteShareGroupStateRequest(group, [WriteShareStateTopic(topic_id, wanted)])
        exchange.ask(f"write state: {situation}{among}", request, version)

    def delete(situation: str, *partitions: int, group: str = group, topic_id: bytes = topic_id) -> None:
        wanted = [DeleteShareStatePartition(partition) for partition in partitions]
        request = DeleteShareGroupStateRequest(group, [DeleteShareStateTopic(topic_id, wanted)])
        exchange.ask(f"delete state: {situation}{among}", request, 0)

    def summarize(
        situation: str,
        *partitions: tuple[int, int],
        group: str = group,
        topic_id: bytes = topic_id,
        version: int = version,
    ) -> None:
        wanted = [ReadShareStatePartition(*partition) for partition in partitions]
        request = ReadShareGroupStateSummaryRequest(group, [ReadShareStateTopic(topic_id, wanted)])
        exchange.ask(f"summary of state: {situation}{among}", request, version)

    initialize("no group", (0, 1, 0), group="")
    initialize("no partition")
    initialize("a negative partition", (-1, 1, 0))
    initialize("an unknown partition", (7, 1, 0))
    initialize("an unknown topic", (0, 1, 0), topic_id=NO_SUCH_ID)
    read("before there is any", (0, 0))
    write("before there is any", (0, 1, 0, 0, 0, []))
    summarize("before there is any", (0, 0))
    delete("before there is any", 0)
    initialize("at 5", (0, 3, 5))
    initialize("in an older state epoch", (0, 2, 5))
    initialize("in the same state epoch", (0, 3, 5))
    read("initialized", (0, 0))
    write("some", (0, 3, 0, 5, 2, [StateBatch(5, 6, 2, 1), StateBatch(7, 9, 0, 1)]))
    write("more, over the same", (0, 3, 0, -1, 3, [StateBatch(7, 7, 4, 2)]))
    read("written", (0, 0))
    summarize("written", (0, 0))
    read("by a later leader", (0, 4))
    read("by an earlier leader", (0, 3))
    read("by a leader without an epoch", (0, -1))
    summarize("by an earlier leader", (0, 3))
    write("by an earlier leader", (0, 3, 3, 5, 2, []))
    write("in an older state epoch", (0, 2, 4, 5, 2, []))
    write("without epochs", (0, -1, -1, 6, 2, []))
    write("by a later leader", (0, 3, 6, 6, 2, []))
    write("by the one before", (0, 3, 5, 6, 2, []))
    read("after that", (0, 6))
    read("an unknown partition", (7, 0))
    write("an unknown partition", (7, 1, 0, 0, 0, []))
    summarize("an unknown partition", (7, 0))
    delete("an unknown partition", 7)
    read("a negative partition", (-1, 0))
    write("a negative partition", (-1, 1, 0, 0, 0, []))
    summarize("a negative partition", (-1, 0))
    delete("a negative partition", -1)
    read("no group", (0, 0), group="")
    write("no group", (0, 1, 0, 0, 0, []), group="")
    summarize("no group", (0, 0), group="")
    delete("no group", 0, group="")
    read("no partition")
    delete("all", 0)
    read("after its deletion", (0, 6))
