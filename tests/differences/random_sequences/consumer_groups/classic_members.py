"""Members of the classic protocol, in a group of the consumer protocol and in what becomes of it when the others go."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from fencepost.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartitions,
    decode_assignment,
    encode_assignment,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from fencepost.protocol.schema import encode
from tests.differences.exchange import ATTEMPTS, PAUSE_S
from tests.differences.random_sequences.consumer_groups.members import FENCED, NEVER, Partitions
from tests.differences.random_sequences.consumer_groups.surroundings import TIMEOUT_MS, Surroundings
from tests.differences.random_sequences.waiting import JOINING, SYNCING, Waiting

CLASSIC_MEMBER_IDS: Final = "pqrstuvwxyz"
MAX_CLASSIC_MEMBERS: Final = 3
CLASSIC_INSTANCES: Final = ("k", "l")
CLASSIC_MEMBER: Final = 0  # as a type in ConsumerGroupDescribe
FIRST_STATIC_JOIN: Final = 5


@dataclass
class ClassicMember:
    """What a member of the classic protocol knows of itself; the broker makes the ids of static ones."""

    name: str
    version: int
    member_id: str
    instance: str | None = None
    generation: int = NEVER
    topics: tuple[str, ...] = ()
    owned: Partitions = field(default_factory=dict)
    leads: bool = False


class ClassicMembers:
    """Those of one group."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.steps, self.exchange, self.random = around.steps, around.exchange, around.random
        self.waiting = Waiting(around.exchange, around.group)
        self.members: list[ClassicMember] = []
        self._was_consumer = False
        self._count = 0

    def await_migration(self) -> None:
        """A group that only has classic members left becomes classic soon, and these have to join again."""
        for _ in range(ATTEMPTS):
            described = self.around.described(self.around.group)
            if not described.error_code:
                self._was_consumer = True
                if not described.members or any(one.member_type != CLASSIC_MEMBER for one in described.members):
                    return
            elif not self._was_consumer or self.waiting.state() != "Stable":
                self._was_consumer = False
                return
            time.sleep(PAUSE_S)

    def join_classic(self) -> None:
        if len(self.members) >= MAX_CLASSIC_MEMBERS or self._count >= len(CLASSIC_MEMBER_IDS):
            return
        name = CLASSIC_MEMBER_IDS[self._count]
        taken = {member.instance for member in self.members}
        free = [instance for instance in CLASSIC_INSTANCES if instance not in taken]
        # A member without an instance id gets an id that sorts at random, unless it joins with one of its own, which
        # is possible while others make it a group of the consumer protocol.
        is_static = not self.around.described(self.around.group).members or (bool(free) and self.steps.happens(0.5))
        # Which of several leads once the group is classic is a matter of the hashes of ids, also of those that the
        # broker makes at random: of members that it gave one there is one at most.
        if self.members and (is_static or any(other.instance is not None for other in self.members)):
            return
        self._count += 1
        version = self.steps.version(JoinGroupRequest, lowest=FIRST_STATIC_JOIN if is_static else 0)
        member = ClassicMember(name, version, "" if is_static else name, free[0] if is_static else None)
        member.topics = self.around.some_topics()[:1]  # their order in an assignment is one of hashes
        self.members.append(member)
        self.join_as_classic(member)

    def idle(self) -> list[ClassicMember]:
        return [member for member in self.members if not self.waiting.is_waiting_for_reply(member.name)]

    def go_on_as_classic(self) -> None:
        """One of these members does what comes next, or something else."""
        idle = self.idle()
        if not idle:
            return
        member = self.random.choice(idle)
        state = "" if self.around.is_consumer_group() else self.waiting.state()
        if state == SYNCING and member.generation >= 0:
            for other in sorted(idle, key=lambda one: one.leads):
                if other.generation >= 0:
                    self.sync_as_classic(other)
            return
        if state == JOINING:
            for other in idle:
                self.join_as_classic(other)
            return
        action = self.random.random()
        if member.generation < 0 or action < 0.2:
            self.join_as_classic(member)
        elif action < 0.6:
            self.beat_as_classic(member)
        else:
            self.sync_as_classic(member)

    def join_as_classic(self, member: ClassicMember) -> None:
        if (
            member.member_id
            and not self.around.described(self.around.group).members
            and self.waiting.state() in ("Dead", "Empty")
        ):
            self.forget_classic(member)  # Kafka keeps a group even when this join has failed
            return
        if self.steps.happens(0.15):
            member.topics = self.around.some_topics()[:1]
        owned = [
            ConsumerProtocolTopicPartitions(self.around.names[base], member.owned[base])
            for base in sorted(member.owned)
        ]
        subscription = ConsumerProtocolSubscription([self.around.names[base] for base in member.topics], None, owned)
        metadata = (1).to_bytes(2) + bytes(encode(subscription, 1))
        request = JoinGroupRequest(
            self.around.group,
            session_timeout_ms=TIMEOUT_MS,
            rebalance_timeout_ms=TIMEOUT_MS,
            member_id=member.member_id,
            group_instance_id=member.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", metadata)],
        )
        situation = self.steps.situation(f"{member.name} joins as a classic one for {'+'.join(member.topics)}")

        def then(reply: JoinGroupResponse | None) -> None:
            if reply is None:
                return
            if not reply.error_code:
                member.member_id, member.generation = reply.member_id, reply.generation_id
                member.leads = reply.leader == reply.member_id
            elif reply.error_code in FENCED:
                self.forget_classic(member)

        self.waiting.begin(member.name, situation, request, member.version, then)

    def sync_as_classic(self, member: ClassicMember) -> None:
        generation = member.generation + (self.random.choice((-1, 1)) if self.steps.happens(0.08) else 0)
        assignments = []
        if member.leads:
            for index, other in enumerate(self.members):
                given = [
                    ConsumerProtocolTopicPartitions(
                        self.around.names[base], list(range(index, count, len(self.members)))
                    )
                    for base, count in self.around.topics.items()
                    if base in other.topics
                ]
                assignment = encode_assignment(ConsumerProtocolAssignment(given), 1)
                assignments.append(SyncGroupRequestAssignment(other.member_id, assignment))
        request = SyncGroupRequest(
            self.around.group,
            generation,
            member.member_id,
            group_instance_id=member.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        words = "" if generation == member.generation else f" in generation {generation}"
        situation = self.steps.situation(f"{member.name} syncs{words}")
        version = self.steps.version(SyncGroupRequest, lowest=3)

        def then(reply: SyncGroupResponse | None) -> None:
            if reply is None:
                return
            if reply.error_code in FENCED:
                self.forget_classic(member)
            elif not reply.error_code and reply.assignment:
                bases = {name: base for base, name in self.around.names.items()}
                found = decode_assignment(reply.assignment).assigned_partitions
                member.owned = {bases[topic.topic]: list(topic.partitions) for topic in found}

        self.waiting.begin(member.name, situation, request, version, then)

    def beat_as_classic(self, member: ClassicMember) -> None:
        generation = member.generation + (self.random.choice((-1, 1)) if self.steps.happens(0.08) else 0)
        request = HeartbeatRequest(self.around.group, generation, member.member_id, member.instance)
        words = "" if generation == member.generation else f" in generation {generation}"
        version = self.steps.version(HeartbeatRequest, lowest=3)
        reply = self.steps.ask(f"{member.name} shows that it is alive{words}", request, version)
        if reply is None:
            return
        if reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS and self.steps.happens(0.8):
            self.join_as_classic(member)
        elif reply.error_code in FENCED:
            self.forget_classic(member)

    def leave_classic(self) -> None:
        idle = self.idle()
        if not idle:
            return
        member = self.random.choice(idle)
        identity = MemberIdentity(member.member_id, member.instance)
        version = self.steps.version(LeaveGroupRequest, lowest=3)
        request = LeaveGroupRequest(self.around.group, member.member_id, [identity])
        self.steps.ask(f"{member.name} leaves as a classic one", request, version)
        self.forget_classic(member)

    def forget_classic(self, member: ClassicMember) -> None:
        if member in self.members:
            self.members.remove(member)
