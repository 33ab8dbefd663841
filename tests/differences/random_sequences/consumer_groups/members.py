"""Members of the consumer protocol: what they know of themselves, and what they say in their heartbeats."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from tests.differences.exchange import ATTEMPTS, PAUSE_S
from tests.differences.random_sequences.consumer_groups.surroundings import (
    DATA,
    JOIN,
    MORE,
    TIMEOUT_MS,
    UNIFORM,
    Surroundings,
)

MAX_MEMBERS: Final = 4
SHORT_TIMEOUT_MS: Final = 500
MEMBER_IDS: Final = "abcdefghijklmno"
INSTANCES: Final = ("i", "j")
STRANGER: Final = "somebody"
LEAVE, LEAVE_FOR_NOW = -1, -2
NEVER: Final = -1
FIRST_WITH_REGEX: Final = 1  # version of ConsumerGroupHeartbeat
FENCED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)

Partitions = dict[str, list[int]]
"""By the base of the topic's name."""


@dataclass
class Member:
    """What a member of the consumer protocol knows of itself."""

    member_id: str
    version: int
    instance: str | None = None
    epoch: int = NEVER
    previous_epoch: int = NEVER
    topics: tuple[str, ...] = ()
    has_regex: bool = False
    assigned: Partitions = field(default_factory=dict)
    owned: Partitions = field(default_factory=dict)


class Members:
    """Those of one group."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.steps, self.exchange, self.random = around.steps, around.exchange, around.random
        self.members: list[Member] = []
        self._count = 0

    def join_new(self) -> None:
        if len(self.members) >= MAX_MEMBERS or self._count >= len(MEMBER_IDS):
            return
        instance = self.random.choice(INSTANCES) if self.steps.happens(0.3) else None
        if instance is not None and any(other.instance == instance and other.epoch > 0 for other in self.members):
            if self.steps.happens(0.7):
                return
        else:
            self.members = [other for other in self.members if other.instance is None or other.instance != instance]
        member = Member(MEMBER_IDS[self._count], self.steps.version(ConsumerGroupHeartbeatRequest), instance)
        self._count += 1
        member.topics = self.around.some_topics()
        self.members.append(member)
        self.join(member)

    def join(self, member: Member) -> None:
        if member.has_regex:
            self.subscribe_by_regex(member)
            return
        fields = self.all_fields(member) | {"topic_partitions": []}
        wrong = self.random.random()
        words = ""
        if wrong < 0.03:
            fields["rebalance_timeout_ms"], words = -1, ", without a time-out"
        elif wrong < 0.06:
            fields["topic_partitions"], words = self.partitions({DATA: [0]}), ", with a partition"
        self.beat(member, JOIN, f"joins for {'+'.join(member.topics)}{words}", **fields)

    def all_fields(self, member: Member) -> dict[str, Any]:
        return {
            "rebalance_timeout_ms": TIMEOUT_MS,
            "subscribed_topic_names": [self.around.names[base] for base in member.topics],
            "server_assignor": self.around.assignor,
        }

    def beat_any(self) -> None:
        if not self.members:
            self.join_new()
            return
        member = self.random.choice(self.members)
        if member.epoch <= 0:
            self.join(member)
            return
        epoch = member.epoch
        roll = self.random.random()
        if roll < 0.08 and member.previous_epoch >= 0:
            epoch = member.previous_epoch
        elif roll < 0.11:
            epoch += 1
        elif roll < 0.13:
            epoch = JOIN
        elif roll < 0.14:
            epoch = -3
        words = "" if epoch == member.epoch else f" in epoch {epoch}"
        roll = self.random.random()
        if epoch == JOIN:
            self.join(member)
            return
        if roll < 0.15:
            fields = self.all_fields(member) | {"topic_partitions": self.partitions(member.assigned)}
            if member.has_regex:
                del fields["subscribed_topic_names"]
            self.beat(member, epoch, f"says all{words}", owned=member.assigned, **fields)
        elif roll < 0.6:
            self.beat(
                member,
                epoch,
                f"has what it was told{words}",
                owned=member.assigned,
                topic_partitions=self.partitions(member.assigned),
            )
        elif roll < 0.72:
            partitions = self.partitions(member.owned)
            self.beat(member, epoch, f"still has what it had{words}", topic_partitions=partitions)
        elif roll < 0.77:
            foreign = {base: [0, 1] for base in self.around.topics}
            self.beat(member, epoch, f"has the first ones{words}", topic_partitions=self.partitions(foreign))
        elif roll < 0.8:
            self.beat(member, epoch, f"has nothing{words}", topic_partitions=[])
        else:
            self.beat(member, epoch, f"says nothing{words}")

    def settle(self) -> None:
        """Every member carries out its assignment."""
        for member in list(self.members):
            if member.epoch > 0:
                partitions = self.partitions(member.assigned)
                self.beat(member, member.epoch, "settles", owned=member.assigned, topic_partitions=partitions)

    def beat(self, member: Member, epoch: int, what: str, *, owned: Partitions | None = None, **fields: Any) -> Any:
        member_id, instance = member.member_id, member.instance
        words = ""
        # A member keeps its kind: Kafka assigns nothing at first to a member that becomes static.
        if epoch != JOIN and self.steps.happens(0.02):
            member_id, words = STRANGER, ", as a stranger"
        elif epoch != JOIN and self.steps.happens(0.02):
            instance = None if instance is not None else INSTANCES[0]
            words = f", as instance {instance}"
        request = ConsumerGroupHeartbeatRequest(self.around.group, member_id, epoch, instance, **fields)
        reply = self.steps.ask(f"{name_of(member)} {what}{words}", request, member.version)
        if member_id != member.member_id or self.steps.happens(0.04):
            return reply  # or it is lost
        self.take_in(member, epoch, reply, owned)
        return reply

    def take_in(self, member: Member, epoch: int, reply: Any, owned: Partitions | None) -> None:
        if reply is None:
            return
        if reply.error_code in FENCED:
            member.epoch, member.assigned, member.owned = NEVER, {}, {}
            return
        if reply.error_code or epoch < 0:
            return
        if owned is not None:
            member.owned = owned
        if epoch == JOIN:
            member.owned = {}
        if reply.member_epoch != member.epoch:
            member.previous_epoch = epoch
        member.epoch = reply.member_epoch
        if reply.assignment is not None:
            member.assigned = {
                self.around.bases[topic.topic_id]: list(topic.partitions) for topic in reply.assignment.topic_partitions
            }

    def partitions(self, owned: Partitions) -> list[ConsumerGroupHeartbeatTopicPartitions]:
        return [
            ConsumerGroupHeartbeatTopicPartitions(self.around.ids[base], sorted(owned[base])) for base in sorted(owned)
        ]

    def change_subscription(self) -> None:
        members = [member for member in self.members if member.epoch > 0]
        if not members or self.around.assignor == UNIFORM:
            return
        member = self.random.choice(members)
        if not member.has_regex and member.version >= FIRST_WITH_REGEX and self.steps.happens(0.4):
            self.subscribe_by_regex(member)
            return
        member.topics = self.around.some_topics()
        fields: dict[str, Any] = {"subscribed_topic_names": [self.around.names[base] for base in member.topics]}
        if member.has_regex:
            fields["subscribed_topic_regex"] = ""
            member.has_regex = False
        owned: Partitions | None = None
        if self.steps.happens(0.5):
            owned = member.assigned
            fields["topic_partitions"] = self.partitions(owned)
        self.beat(member, member.epoch, f"wants {'+'.join(member.topics)}", owned=owned, **fields)

    def subscribe_by_regex(self, member: Member) -> None:
        """Kafka looks for the topics in its own time, and only then a new epoch begins."""
        if not member.has_regex and member.topics and member.epoch > 0:
            # No member has both a pattern and names.
            reply = self.beat(member, member.epoch, "wants nothing", subscribed_topic_names=[])
            if reply is None or reply.error_code:
                return
        # Or the one epoch for the topics and for the pattern would be two in Kafka.
        self.settle()
        member.has_regex, member.topics = True, ()
        regex = f"({DATA}|{MORE}){self.around.names[DATA].removeprefix(DATA)}"
        before = self.around.described(self.around.group)
        is_resolved = any(one.subscribed_topic_regex and one.member_id != member.member_id for one in before.members)
        is_subscribed = any(one.subscribed_topic_regex and one.member_id == member.member_id for one in before.members)
        fields: dict[str, Any] = {"subscribed_topic_regex": regex}
        epoch = max(member.epoch, JOIN)
        if epoch == JOIN:
            fields |= {
                "rebalance_timeout_ms": TIMEOUT_MS,
                "server_assignor": self.around.assignor,
                "topic_partitions": [],
                "subscribed_topic_names": [],
            }
        request = ConsumerGroupHeartbeatRequest(self.around.group, member.member_id, epoch, member.instance, **fields)
        reply = self.exchange.call(request, FIRST_WITH_REGEX)
        self.exchange.note(self.steps.situation(f"{name_of(member)} wants what matches a pattern"), 1, reply.error_code)
        self.take_in(member, epoch, reply, None)
        if reply.error_code:
            return
        for _ in range(0 if is_resolved or is_subscribed else ATTEMPTS):
            if self.around.described_epoch(self.around.group) > before.group_epoch:
                break
            request = ConsumerGroupHeartbeatRequest(self.around.group, member.member_id, member.epoch, member.instance)
            self.take_in(member, member.epoch, self.exchange.call(request, FIRST_WITH_REGEX), None)
            time.sleep(PAUSE_S)
        # Replies during the reconciliation may come earlier or later.
        for _ in range(3):
            partitions = self.partitions(member.assigned)
            request = ConsumerGroupHeartbeatRequest(
                self.around.group, member.member_id, member.epoch, member.instance, topic_partitions=partitions
            )
            self.take_in(member, member.epoch, self.exchange.call(request, FIRST_WITH_REGEX), member.assigned)
        partitions = self.partitions(member.assigned)
        self.beat(member, member.epoch, "goes on with the pattern", owned=member.assigned, topic_partitions=partitions)
        # The one before is an epoch that only Kafka may have had.
        member.previous_epoch = NEVER

    def run_out_of_time(self) -> None:
        """Somebody is to give up partitions for a new member, and does not for longer than it may."""
        self.settle()
        staying = [member for member in self.members if member.epoch > 0 and not member.has_regex and member.assigned]
        if not staying or self._count >= len(MEMBER_IDS):
            return
        slow = max(staying, key=lambda member: sum(map(len, member.assigned.values())))
        fields = self.all_fields(slow) | {"rebalance_timeout_ms": SHORT_TIMEOUT_MS}
        fields["topic_partitions"] = self.partitions(slow.assigned)
        self.beat(slow, slow.epoch, "is in a hurry", owned=slow.assigned, **fields)
        new = Member(MEMBER_IDS[self._count], slow.version, topics=slow.topics)
        self._count += 1
        self.members.append(new)
        self.join(new)
        reply = self.beat(slow, slow.epoch, "hears of it", topic_partitions=self.partitions(slow.owned))
        if reply is None or reply.error_code or reply.assignment is None:
            return
        for _ in range(ATTEMPTS):
            described = self.around.described(self.around.group)
            if all(member.member_id != slow.member_id for member in described.members):
                break
            time.sleep(PAUSE_S)
        self.around.describe()
        self.beat(slow, slow.epoch, "comes too late")
        self.settle()

    def leave(self) -> None:
        if not self.members:
            return
        member = self.random.choice(self.members)
        is_for_now = self.steps.happens(0.6 if member.instance is not None else 0.05)
        epoch = LEAVE_FOR_NOW if is_for_now else LEAVE
        reply = self.beat(member, epoch, "leaves for now" if is_for_now else "leaves")
        if reply is None or reply.error_code:
            return
        member.epoch, member.assigned, member.owned = NEVER, {}, {}
        if self.steps.happens(0.5):
            self.members.remove(member)


def name_of(member: Member) -> str:
    """What to call a member."""
    return member.member_id if member.instance is None else f"{member.member_id} as {member.instance}"
