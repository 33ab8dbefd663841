"""Classic groups: joining, assigning, heartbeats, leaving, static members, and every wrong generation and id."""

from __future__ import annotations

import struct
from typing import Any

from fencepost.protocol.messages.group_admin import DescribeGroupsRequest
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.schema import schema_of
from tests.differences.exchange import GROUP, Exchange

SESSION_TIMEOUT_MS = 30_000
REQUIRES_MEMBER_ID = 4  # from this version of JoinGroup on


class Group:
    """Requests of one group, at one version of JoinGroup and the versions of the other APIs that came with it."""

    def __init__(self, exchange: Exchange, base: str, version: int) -> None:
        self.exchange = exchange
        self.version = version
        self.group_id = exchange.name(base, version)
        exchange.find_coordinator(self.group_id, GROUP)

    def joining(self, member_id: str = "", **fields: Any) -> JoinGroupRequest:
        values: dict[str, Any] = {
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "rebalance_timeout_ms": SESSION_TIMEOUT_MS,
            "protocol_type": "consumer",
            "protocols": protocols("range"),
        }
        return JoinGroupRequest(group_id=self.group_id, member_id=member_id, **(values | fields))

    def join(self, situation: str, member_id: str = "", **fields: Any) -> Any:
        """Join, and join again with the id that is given to newcomers; returns the last reply."""
        reply = self.exchange.ask(f"join: {situation}", self.joining(member_id, **fields), self.version)
        if not member_id and reply.member_id and reply.error_code:
            name = f"join: {situation}, with the id given"
            reply = self.exchange.ask(name, self.joining(reply.member_id, **fields), self.version)
        return reply

    def new_member_id(self, **fields: Any) -> str:
        """The id that the broker gives to a newcomer; empty where it only does so to members."""
        if self.version < REQUIRES_MEMBER_ID:
            return ""
        member_id: str = self.exchange.call(self.joining(**fields), self.version).member_id
        return member_id

    def sync(self, situation: str, generation: int, member_id: str, **fields: Any) -> Any:
        values: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"} | fields
        return self._ask(f"sync: {situation}", SyncGroupRequest(self.group_id, generation, member_id, **values))

    def heartbeat(self, situation: str, generation: int, member_id: str, **fields: Any) -> Any:
        request = HeartbeatRequest(self.group_id, generation, member_id, **fields)
        return self._ask(f"heartbeat: {situation}", request)

    def leave(self, situation: str, *members: MemberIdentity) -> Any:
        member_id = members[0].member_id if members else ""
        return self._ask(f"leave: {situation}", LeaveGroupRequest(self.group_id, member_id, list(members)))

    def describe(self, situation: str) -> None:
        self._ask(f"describe: {situation}", DescribeGroupsRequest([self.group_id]))

    def at(self, situation: str, request: Any) -> tuple[str, int]:
        """What to call a situation, and the version that belongs to ours, of an API that has fewer of them."""
        highest = schema_of(type(request)).versions.last
        if self.version <= highest:
            return situation, self.version
        return f"{situation} (joined in version {self.version})", highest

    def _ask(self, situation: str, request: Any) -> Any:
        name, version = self.at(situation, request)
        return self.exchange.ask(name, request, version)


def protocols(*names: str) -> list[JoinGroupRequestProtocol]:
    """Each with a subscription as consumers write it, version 0: Kafka never answers when it cannot read one."""
    subscription = struct.pack(">hih", 0, 1, 5) + b"topic"
    return [
        JoinGroupRequestProtocol(name, subscription + struct.pack(">i", len(name)) + name.encode()) for name in names
    ]


def assigning(*assignments: tuple[str, bytes]) -> list[SyncGroupRequestAssignment]:
    return [SyncGroupRequestAssignment(member_id, assignment) for member_id, assignment in assignments]


def run(exchange: Exchange) -> None:
    for version in exchange.versions(JoinGroupRequest):
        refusals(exchange, version)
        alone(exchange, version)
        together(exchange, version)
        if version >= 5:
            static(exchange, version)


def refusals(exchange: Exchange, version: int) -> None:
    group = Group(exchange, "refused", version)
    group.join("a session that is too short", session_timeout_ms=1)
    group.join("a session that is too long", session_timeout_ms=2_000_000_000)
    group.join("a negative session", session_timeout_ms=-1)
    group.join("no protocols", protocols=[])
    group.join("no protocol type", protocol_type="")
    group.join("an unknown member", "somebody")
    group.sync("an unknown group", 1, "somebody")
    group.heartbeat("an unknown group", 1, "somebody")
    group.leave("an unknown group", MemberIdentity("somebody"))
    if version >= 3:
        group.leave("nobody")
    group.describe("an unknown group")
    group.group_id = ""
    group.join("an empty group id")
    group.sync("an empty group id", 1, "somebody")
    group.heartbeat("an empty group id", 1, "somebody")
    group.leave("an empty group id", MemberIdentity("somebody"))
    group.describe("an empty group id")


def alone(exchange: Exchange, version: int) -> None:
    group = Group(exchange, "alone", version)
    reply = group.join("the first", protocols=protocols("range", "roundrobin"))
    member, generation = reply.member_id, reply.generation_id
    group.describe("joined, not synced")
    group.heartbeat("before the assignment", generation, member)
    group.sync("another generation", generation + 1, member)
    group.sync("an earlier generation", generation - 1, member)
    group.sync("an unknown member", generation, "somebody")
    if version >= 5:
        group.sync("another protocol", generation, member, protocol_name="roundrobin")
        group.sync("another protocol type", generation, member, protocol_type="connect")
        group.sync("no protocol", generation, member, protocol_name=None, protocol_type=None)
    assignments = assigning((member, b"all of it"), ("stranger", b"something"))
    group.sync("the leader", generation, member, assignments=assignments)
    group.sync("the leader again", generation, member, assignments=assigning((member, b"other")))
    group.describe("stable")
    group.heartbeat("stable", generation, member)
    group.heartbeat("another generation", generation + 1, member)
    group.heartbeat("an unknown member", generation, "somebody")
    group.heartbeat("an empty member", generation, "")
    group.join("other protocols", protocols=protocols("sticky"))
    group.join("another protocol type", protocol_type="connect")
    group.join("the member again, unchanged", member, protocols=protocols("range", "roundrobin"))
    group.join("the member again, changed", member, protocols=protocols("roundrobin"))
    commits(exchange, group, generation, member)
    group.leave("an unknown member", MemberIdentity("somebody"))
    group.leave("the last", MemberIdentity(member))
    group.leave("the last again", MemberIdentity(member))
    group.heartbeat("after leaving", generation, member)
    group.describe("empty")
    group.join("other protocols, now that it is empty", protocols=protocols("sticky"))


def commits(exchange: Exchange, group: Group, generation: int, member: str) -> None:
    """What a member of a group may commit; the group is about to be assigned again."""
    topic = exchange.create_topic("committed", version=group.version)
    if group.version < 2:
        return
    offsets = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 5)])]
    for situation, given_generation, given_member in (
        ("the member", generation, member),
        ("another generation", generation + 9, member),
        ("an unknown member", generation, "somebody"),
        ("no member", -1, ""),
        ("a member without generation", -1, member),
    ):
        request = OffsetCommitRequest(group.group_id, given_generation, given_member, topics=offsets)
        exchange.ask(f"commit: {situation}", request, group.version)


def together(exchange: Exchange, version: int) -> None:
    """Two members, of which the first has to join again."""
    group = Group(exchange, "together", version)
    first = group.join("of two, the first")
    leader = first.member_id
    group.sync("of two, the first", first.generation_id, leader, assignments=assigning((leader, b"all")))
    second_id = group.new_member_id()
    waiting = exchange.begin("join: of two, the second", group.joining(second_id), version)
    heartbeat = HeartbeatRequest(group.group_id, first.generation_id, leader)
    name, heartbeat_version = group.at("heartbeat: while another joins", heartbeat)
    exchange.ask_until(name, heartbeat, heartbeat_version, lambda reply: reply.error_code != 0)
    group.describe("while another joins")
    group.sync("while another joins", first.generation_id, leader)
    again = group.join("of two, the first again", leader)
    second = exchange.finish(waiting)
    follower, generation = second.member_id, second.generation_id
    group.describe("joined, not synced, of two")
    syncing = SyncGroupRequest(group.group_id, generation, follower, protocol_type="consumer", protocol_name="range")
    name, sync_version = group.at("sync: of two, the follower", syncing)
    pending = exchange.begin(name, syncing, sync_version)
    assignments = assigning((leader, b"one half"), (follower, b"the other half"))
    group.sync("of two, the leader", again.generation_id, leader, assignments=assignments)
    exchange.finish(pending)
    group.heartbeat("of two, the follower", generation, follower)
    group.join("the follower again, unchanged", follower)
    if version >= 3:
        group.leave("both and a stranger", *map(MemberIdentity, (leader, follower, "somebody")))
    else:
        group.leave("of two, the leader", MemberIdentity(leader))
        exchange.ask_until(
            "heartbeat: after another left",
            HeartbeatRequest(group.group_id, generation, follower),
            heartbeat_version,
            lambda reply: reply.error_code != 0,
        )
        group.leave("of two, the follower", MemberIdentity(follower))


def static(exchange: Exchange, version: int) -> None:
    group = Group(exchange, "static", version)
    first = group.join("static", group_instance_id="instance")
    member, generation = first.member_id, first.generation_id
    group.sync("static", generation, member, group_instance_id="instance", assignments=assigning((member, b"all")))
    group.heartbeat("static", generation, member, group_instance_id="instance")
    group.heartbeat("static, another member id", generation, "somebody", group_instance_id="instance")
    group.heartbeat("static, an unknown instance", generation, member, group_instance_id="other")
    group.sync("static, another member id", generation, "somebody", group_instance_id="instance")
    group.join("static, another member id", "somebody", group_instance_id="instance")
    group.join("static, an unknown instance", member, group_instance_id="other")
    back = group.join("static, back without an id", group_instance_id="instance")
    group.heartbeat("static, by the id before", generation, member, group_instance_id="instance")
    group.heartbeat("static, by the id now", back.generation_id, back.member_id, group_instance_id="instance")
    group.sync("static, back", back.generation_id, back.member_id, group_instance_id="instance")
    group.join(
        "static, back with other protocols", group_instance_id="instance", protocols=protocols("sticky", "range")
    )
    group.describe("static")
    group.leave("static, by another member id", MemberIdentity("somebody", "instance"))
    group.leave("static, an unknown instance", MemberIdentity("", "other"))
    group.leave("static, by instance", MemberIdentity("", "instance"))
    group.leave("static, again", MemberIdentity("", "instance"))
    group.describe("static, left")
