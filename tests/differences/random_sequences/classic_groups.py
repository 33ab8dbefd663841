"""Members of one classic group that come, join again, fall behind, are replaced and leave, in whatever state it is.

Joins and syncs wait for each other; what the members know of their generation is mostly, but not always, right.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from fencepost.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest
from tests.differences.exchange import ATTEMPTS, GROUP, PAUSE_S, Exchange
from tests.differences.random_sequences.any_group import AnyGroup, Wanted
from tests.differences.random_sequences.hashes import BUCKETS_COUNT, bucket
from tests.differences.random_sequences.steps import SlicedWork
from tests.differences.random_sequences.waiting import DEAD, JOINING, SYNCING, Waiting

STEPS_COUNT: Final = 60
MAX_MEMBERS: Final = 4
PARTITIONS_COUNT: Final = 2
TIMEOUT_MS: Final = 600_000  # far longer than a run
SHORT_TIMEOUT_MS: Final = 1_500
PROTOCOLS: Final = ("range", "roundrobin", "sticky")
INSTANCES: Final = ("i", "j")
STRANGER: Final = "somebody"
STABLE: Final = "Stable"
LAST_PLAIN_JOIN: Final = 3  # with later ones a member gets its id first
FIRST_STATIC_JOIN: Final = 5
FIRST_STATIC: Final = 3  # of SyncGroup, Heartbeat and LeaveGroup
FIRST_STATIC_COMMIT: Final = 7
LAST_COMMIT_BY_NAME: Final = 9
GONE: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


@dataclass
class Member:
    """What a client knows of itself; `version` is the one at which it joins."""

    name: str
    version: int
    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    protocol: str = "range"
    protocols: tuple[str, ...] = PROTOCOLS
    topics: tuple[str, ...] = ()
    user_data: int = 0
    roster: list[str] = field(default_factory=list)  # of the generation, as its leader got it
    seat: int | None = None  # see _Run.take_a_seat


class _Run:
    def __init__(self, exchange: Exchange, random: Random) -> None:
        self.steps = SlicedWork(exchange, random)
        self.exchange = exchange
        self.random = random
        self.topics = [exchange.create_topic(base, partitions=PARTITIONS_COUNT) for base in ("data", "more")]
        self.topic_ids = {topic: exchange.topic_id(topic) for topic in self.topics}
        self.group = exchange.name("group")
        self.as_any = AnyGroup(self.steps, self.group)
        exchange.find_coordinator(self.group, GROUP)
        exchange.call(DescribeGroupsRequest([self.group]), 5)  # what is begun is not repeated until it is loaded
        self.waiting = Waiting(exchange, self.group)
        self.members: list[Member] = []
        self.leaders: set[str] = set()  # members that may lead: only one does, but not every reply says which
        self.count = 0
        self.rebalance_timeout_ms = TIMEOUT_MS

    def run(self) -> None:
        actions = (
            (8, self.join_new),
            (7, self.join_again),
            (14, self.all_join),
            (8, self.sync_any),
            (14, self.all_sync),
            (8, self.heartbeat),
            (5, self.leave),
            (7, self.commit),
            (3, self.fetch_offsets),
            (4, self.describe),
            (2, self.commit_in_transaction),
            (2, self.delete_offsets),
            (1, self.delete_group),
            (2, self.as_any.list_it),
            (2, self.as_any.describe_as_any),
            (1, lambda: self.as_any.pass_by(ShareGroupHeartbeatRequest, StreamsGroupHeartbeatRequest)),
        )
        self.establish()
        for _ in range(STEPS_COUNT):
            self.steps.take(actions)
            self.waiting.settle()
            self.establish()
        self.all_join()
        self.all_sync()
        self.describe()
        if self.steps.happens(0.4):
            self.run_out_of_time()
        self.leave_all()
        self.describe()
        self.fetch_offsets()

    # Members that send requests

    def member(self) -> Member | None:
        return self.random.choice(self.members) if self.members else None

    def idle(self) -> list[Member]:
        """Those of which no request waits."""
        return [member for member in self.members if not self.waiting.is_waiting_for_reply(member.name)]

    def generation(self, member: Member) -> int:
        """Mostly the one that a member got."""
        return member.generation + self.random.choice((-1, 1)) if self.steps.happens(0.1) else member.generation

    def member_id(self, member: Member) -> str:
        return STRANGER if self.steps.happens(0.04) else member.member_id

    def instance(self, member: Member) -> str | None:
        if member.instance is not None and self.steps.happens(0.06):
            return self.random.choice((None, "k", *INSTANCES))
        return member.instance

    def words(self, *, member_id: str, generation: int, instance: str | None, member: Member) -> str:
        """Another value than the one that the member got."""
        found = []
        if member_id != member.member_id:
            found.append("as a stranger")
        if generation != member.generation:
            found.append(f"in generation {generation - member.generation:+d}")
        if instance != member.instance:
            found.append(f"as instance {instance}")
        return ", ".join(("", *found))

    # Joining

    def establish(self) -> None:
        """Have a group: Kafka keeps one even when a join has failed, which is declared, and looked at elsewhere."""
        while self.waiting.state() == DEAD:
            self.count += 1
            self.members = [Member(f"m{self.count}", self.steps.version(JoinGroupRequest, highest=LAST_PLAIN_JOIN))]
            self.join(self.members[0], is_plain=True)

    def join_new(self) -> None:
        if len(self.members) >= MAX_MEMBERS:
            return
        self.count += 1
        is_static = self.steps.happens(0.4)
        version = self.steps.version(JoinGroupRequest, lowest=FIRST_STATIC_JOIN if is_static else 0)
        member = Member(f"m{self.count}", version, self.random.choice(INSTANCES) if is_static else None)
        self.describe_itself(member)
        if member.instance is not None:
            # The former member with the instance is gone; if it led, the new one may lead.
            former = [other for other in self.members if other.instance == member.instance]
            self.members = [other for other in self.members if other not in former]
            if any(other.name in self.leaders for other in former):
                self.leaders.add(member.name)
        self.members.append(member)
        self.take_a_seat(member)
        self.join(member)
        if member.member_id and member.generation < 0 and self.steps.happens(0.8) and member in self.idle():
            self.join(member)

    def take_a_seat(self, member: Member) -> None:
        """Get an id whose hash lies where it is wanted: by that it is decided which of several members leads next.

        Only a member that gets an id before it joins can give it back for another one.
        """
        free = sorted(set(range(MAX_MEMBERS)) - {other.seat for other in self.members})
        if member.version <= LAST_PLAIN_JOIN or member.instance is not None or not free:
            return
        seat = self.random.choice(free)
        for _ in range(ATTEMPTS):
            reply = self.exchange.call(self.join_request(member, ""), member.version)
            if reply.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                return
            if bucket(reply.member_id) * MAX_MEMBERS // BUCKETS_COUNT == seat:
                member.member_id, member.seat = reply.member_id, seat
                self.exchange.remember(reply.member_id, f"the id of {member.name}")
                return
            given_back = MemberIdentity(reply.member_id)
            self.exchange.call(LeaveGroupRequest(self.group, reply.member_id, [given_back]), FIRST_STATIC)

    def describe_itself(self, member: Member) -> None:
        # Most speak the second one, so that there is something in common while others come and go.
        spoken = {PROTOCOLS[1]} if self.steps.happens(0.9) else set()
        spoken.update(self.random.sample(PROTOCOLS, self.random.randint(1, len(PROTOCOLS))))
        preferred = sorted(spoken)
        self.random.shuffle(preferred)
        member.protocols = tuple(preferred)
        member.topics = tuple(sorted(self.random.sample(self.topics, self.random.randint(0, len(self.topics)))))
        member.user_data = self.random.randint(0, 9)

    def join_again(self) -> None:
        idle = self.idle()
        if not idle:
            return
        member = self.random.choice(idle)
        if self.steps.happens(0.4):
            self.describe_itself(member)
        elif self.steps.happens(0.1):
            member.version = self.steps.version(
                JoinGroupRequest, lowest=FIRST_STATIC_JOIN if member.instance is not None else 0
            )
        self.join(member)

    def all_join(self) -> None:
        """Everybody finds out that there is something to join, as consumers do."""
        if self.waiting.state() != JOINING:
            return
        for member in list(self.members):
            if not self.waiting.is_waiting_for_reply(member.name):
                self.join(member)
            if member.member_id and member.generation < 0 and not self.waiting.is_waiting_for_reply(member.name):
                self.join(member)

    def join(self, member: Member, *, is_plain: bool = False) -> None:
        member_id = member.member_id if is_plain else self.member_id(member)
        is_odd_type = self.steps.happens(0.03) and not is_plain
        request = self.join_request(member, member_id)
        if is_odd_type:
            request.protocol_type = "connect"
        words = self.words(member_id=member_id, generation=member.generation, instance=member.instance, member=member)
        kind_of_join = "anew" if not member.member_id else "again"
        instance = "" if member.instance is None else f" as {member.instance}"
        description = (
            f"{member.name}{instance} joins {kind_of_join} with {'+'.join(member.protocols)} {member.user_data}{words}"
        )
        if is_odd_type:
            description += ", of another type"
        situation = self.steps.situation(description)
        self.waiting.begin(
            member.name, situation, request, member.version, lambda reply: self.joined(member, member_id, reply)
        )

    def join_request(self, member: Member, member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            self.group,
            session_timeout_ms=TIMEOUT_MS,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=member.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name, self.metadata(member)) for name in member.protocols],
        )

    def joined(self, member: Member, member_id: str, reply: JoinGroupResponse | None) -> None:
        if reply is None or member_id != member.member_id:
            return
        if not reply.error_code:
            member.member_id, member.generation = reply.member_id, reply.generation_id
            member.protocol = reply.protocol_name or member.protocol
            if reply.leader == reply.member_id:
                self.leaders = {member.name}
                member.roster = [other.member_id for other in reply.members]
            else:
                member.roster = []
        elif reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = reply.member_id
        elif reply.error_code in GONE or not member.member_id:
            self.gone(member)
        elif reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            member.protocols = PROTOCOLS

    def gone(self, member: Member) -> None:
        if member in self.members and self.steps.happens(0.5):
            self.members.remove(member)
        member.member_id, member.generation, member.roster, member.seat = "", -1, [], None

    def metadata(self, member: Member) -> bytes:
        """A subscription as consumers write it, version 0: Kafka never answers when it cannot read one."""
        names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in member.topics)
        user_data = b"%d" % member.user_data
        return struct.pack(">hi", 0, len(member.topics)) + names + struct.pack(">i", len(user_data)) + user_data

    def run_out_of_time(self) -> None:
        """Some join again and others do not, for longer than they may."""
        self.rebalance_timeout_ms = SHORT_TIMEOUT_MS
        if self.waiting.state() != STABLE or len(self.idle()) < len(self.members):
            return
        for _ in range(2):  # the first member may have got its reply before the last one joined
            for member in list(self.members):
                if member.member_id and not self.waiting.is_waiting_for_reply(member.name):
                    self.join(member, is_plain=True)
        self.await_end_of(JOINING)
        self.all_sync()
        self.await_end_of(SYNCING)
        self.describe()
        punctual = [member for member in self.idle() if member.seat is not None and member.generation >= 0]
        if self.waiting.state() != STABLE or not punctual:
            return
        for member in punctual[: self.random.choice((1, 1, 2))]:
            self.join(member, is_plain=True)
        self.await_end_of(JOINING)
        self.describe()
        if self.steps.happens(0.5):
            self.all_sync()
        self.await_end_of(SYNCING)
        self.await_end_of(JOINING)
        self.describe()

    def await_end_of(self, state: str) -> None:
        for _ in range(ATTEMPTS):
            if self.waiting.state() != state:
                break
            time.sleep(PAUSE_S)
        self.waiting.settle()

    # Syncing

    def sync_any(self) -> None:
        idle = [member for member in self.idle() if member.generation >= 0]
        if idle:
            self.sync(self.random.choice(idle))

    def all_sync(self) -> None:
        if self.waiting.state() != SYNCING:
            return
        # The leader comes last, or the others would not have to wait; now and then it is the other way round.
        idle = [member for member in self.idle() if member.generation >= 0]
        for member in sorted(idle, key=lambda member: bool(member.roster) ^ self.steps.happens(0.2)):
            if not self.waiting.is_waiting_for_reply(member.name):
                self.sync(member)

    def sync(self, member: Member) -> None:
        version = self.steps.version(
            SyncGroupRequest, lowest=FIRST_STATIC if member.instance is not None and self.steps.happens(0.95) else 0
        )
        member_id, generation, instance = self.member_id(member), self.generation(member), self.instance(member)
        protocol = self.random.choice(PROTOCOLS) if self.steps.happens(0.05) else member.protocol
        assignments = []
        number = self.random.randint(0, 9)
        # The order of the others is one of hashes: all of them get the same, or nothing.
        is_leader_left_out, are_others_left_out = self.steps.happens(0.1), self.steps.happens(0.1)
        for other in member.roster:
            is_leader = other == member.member_id
            if not (is_leader_left_out if is_leader else are_others_left_out):
                assignments.append(SyncGroupRequestAssignment(other, b"leads" if is_leader else b"%d" % number))
        assigning = f" and assigns {number} to {len(assignments)}" if member.roster else ""
        words = self.words(member_id=member_id, generation=generation, instance=instance, member=member)
        request = SyncGroupRequest(
            self.group,
            generation,
            member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=assignments,
        )
        situation = self.steps.situation(f"{member.name} syncs by {protocol}{assigning}{words}")

        def then(reply: Any) -> None:
            if reply is not None and reply.error_code in GONE and member_id == member.member_id:
                self.gone(member)

        self.waiting.begin(member.name, situation, request, version, then)

    # Staying and leaving

    def heartbeat(self) -> None:
        member = self.member()
        if member is None:
            return
        version = self.steps.version(HeartbeatRequest, lowest=FIRST_STATIC if member.instance is not None else 0)
        member_id, generation, instance = self.member_id(member), self.generation(member), self.instance(member)
        words = self.words(member_id=member_id, generation=generation, instance=instance, member=member)
        request = HeartbeatRequest(self.group, generation, member_id, instance)
        self.steps.ask(f"{member.name} shows that it is alive{words}", request, version)

    def leave(self) -> None:
        member = self.member()
        if member is None:
            return
        if self.waiting.state() == SYNCING and self.waiting.is_waiting_for_reply(member.name):
            return  # Kafka would never answer its sync
        described = self.exchange.call(DescribeGroupsRequest([self.group]), 5).groups[0]
        if member.name in self.leaders and len(described.members) > 2:
            ids = {one.member_id for one in described.members}
            left = [other for other in self.members if other is not member and other.member_id in ids]
            if len(left) == len(ids) - 1 and all(other.seat is not None for other in left):
                self.leaders = {min(left, key=lambda other: other.seat or 0).name}
                self.leave_together([member])
                return
            # Which of the others leads from then on is a matter of hashes that are made at random; with one left there
            # is no choice.
            others = [other for other in left if other in self.idle()]
            if len(others) == len(ids) - 1:
                self.leave_together([*others[1:], member])
            return
        self.leave_together([member])

    def leave_all(self) -> None:
        if len(self.idle()) == len(self.members):  # or one of several that wait would lead, by its hash
            self.leave_together(list(self.members))

    def leave_together(self, members: list[Member]) -> None:
        names = "+".join(member.name for member in members)
        is_single = len(members) == 1 and members[0].instance is None
        version = self.steps.version(LeaveGroupRequest, lowest=0 if is_single else FIRST_STATIC)
        identities = []
        for member in members:
            is_by_instance = member.instance is not None and self.steps.happens(0.4)
            identities.append(MemberIdentity("" if is_by_instance else member.member_id, member.instance))
        if version >= FIRST_STATIC and self.steps.happens(0.1):
            identities.append(MemberIdentity(STRANGER))
            names += "+a stranger"
        request = LeaveGroupRequest(self.group, identities[0].member_id if identities else "", identities)
        reply = self.steps.ask(f"{names} leave", request, version)
        if reply is None:
            return
        for member in members:
            if self.steps.happens(0.7) and member in self.members:
                self.members.remove(member)
                member.member_id, member.generation, member.roster, member.seat = "", -1, [], None
        self.waiting.settle()

    # Offsets

    def commit(self) -> None:
        member = self.member()
        member_id, generation, instance, words = "", -1, None, ""
        kind_of_join = "a stranger"
        if member is not None and not self.steps.happens(0.1):
            kind_of_join = member.name
            member_id, generation, instance = self.member_id(member), self.generation(member), self.instance(member)
            words = self.words(member_id=member_id, generation=generation, instance=instance, member=member)
        lowest = FIRST_STATIC_COMMIT if instance is not None else 0
        version = self.steps.version(OffsetCommitRequest, lowest=lowest, highest=LAST_COMMIT_BY_NAME)
        topic = self.random.choice(self.topics)
        offset = self.random.randint(0, 99)
        partition = self.random.randrange(PARTITIONS_COUNT)
        request = OffsetCommitRequest(
            self.group,
            generation,
            member_id,
            group_instance_id=instance,
            topics=[OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(partition, offset)])],
        )
        self.steps.ask(f"{kind_of_join} commits {offset} of {partition}{words}", request, version)

    def fetch_offsets(self) -> None:
        wanted = [Wanted(topic, self.topic_ids[topic], list(range(PARTITIONS_COUNT))) for topic in self.topics]
        member = self.member()
        if member is None or self.steps.happens(0.5):
            self.as_any.fetch_offsets("a stranger", wanted)
        else:
            member_id, generation = self.member_id(member), self.generation(member)
            words = self.words(member_id=member_id, generation=generation, instance=member.instance, member=member)
            self.as_any.fetch_offsets(f"{member.name}{words}", wanted, member_id, generation)

    def commit_in_transaction(self) -> None:
        member_id, generation, instance, kind_of_join = "", -1, None, "a stranger"
        member = self.member()
        if member is not None and not self.steps.happens(0.2):
            member_id, generation, instance = self.member_id(member), self.generation(member), self.instance(member)
            kind_of_join = member.name
            kind_of_join += self.words(member_id=member_id, generation=generation, instance=instance, member=member)
        partition = self.random.randrange(PARTITIONS_COUNT)
        self.as_any.commit_in_transaction(
            kind_of_join, self.random.choice(self.topics), partition, member_id, generation, instance
        )

    def delete_offsets(self) -> None:
        deleted = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)]) for topic in self.topics]
        self.steps.ask("delete offsets of both topics", OffsetDeleteRequest(self.group, deleted), 0)

    # The group as a whole

    def describe(self) -> None:
        version = self.steps.version(DescribeGroupsRequest)
        self.steps.ask("describe the group", DescribeGroupsRequest([self.group]), version)

    def delete_group(self) -> None:
        version = self.steps.version(DeleteGroupsRequest)
        self.steps.ask("delete the group", DeleteGroupsRequest([self.group]), version)


def run(exchange: Exchange, random: Random) -> None:
    _Run(exchange, random).run()
