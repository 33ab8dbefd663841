"""Members of one group of the consumer protocol that come, fall behind, are replaced and leave, while topics come, grow
and go; among them members of the classic protocol, who take the group along when they are the only ones left.

Members choose their own ids, and Kafka goes by the hashes of these when it assigns uniformly: so groups that do have
one topic, and all others ask for ranges. What Kafka does in its own time is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartitions,
    decode_assignment,
    encode_assignment,
)
from protocol.errors import ErrorCode
from protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest
from protocol.messages.group_membership import (
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
from protocol.messages.group_offsets import (
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
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from protocol.messages.transaction_admin import DescribeTransactionsRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.schema import encode
from scripts.diffing.exchange import ATTEMPTS, GROUP, PAUSE_S, TRANSACTION, Exchange
from scripts.diffing.generated.steps import Steps
from scripts.diffing.generated.waiting import JOINING, SYNCING, Waiting

STEPS_COUNT: Final = 60
MAX_MEMBERS: Final = 4
MAX_PARTITIONS: Final = 6
MEMBER_IDS: Final = "abcdefghijklmno"
"""Of members of the consumer protocol, in the order of their hashes, too."""
CLASSIC_MEMBER_IDS: Final = "pqrstuvwxyz"
INSTANCES: Final = ("i", "j")
CLASSIC_INSTANCES: Final = ("k", "l")
STRANGER: Final = "somebody"
JOIN, LEAVE, LEAVE_FOR_NOW = 0, -1, -2
NEVER: Final = -1
TIMEOUT_MS: Final = 600_000  # far longer than a run
UNIFORM, RANGE = "uniform", "range"
DATA, MORE, LATE = "data", "more", "late"
GROUP_CONFIG: Final = 32
SETTINGS: Final = {"consumer.assignment.interval.ms": "0", "consumer.session.timeout.ms": "60000"}
"""Each change is assigned at once, however soon it follows another."""
COORDINATOR_PARTITIONS_COUNT: Final = 5
FIRST_WITH_REGEX: Final = 1  # version of ConsumerGroupHeartbeat
FIRST_STATIC_JOIN: Final = 5
FIRST_COMMIT_WITH_EPOCHS: Final = 9
FIRST_COMMIT_BY_ID: Final = 10
BUSY: Final = (ErrorCode.CONCURRENT_TRANSACTIONS,)
FENCED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
CLASSIC_MEMBER: Final = 0

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


class _Run:
    def __init__(self, exchange: Exchange, random: Random) -> None:
        self.steps = Steps(exchange, random)
        self.exchange = exchange
        self.random = random
        self.topics = {DATA: 3, MORE: 2}
        self.ids: dict[str, bytes] = {}
        self.names = {base: exchange.name(base) for base in (DATA, MORE, LATE)}
        for base, count in self.topics.items():
            self.ids[base] = exchange.topic_id(exchange.create_topic(base, partitions=count))
        self.bases = {topic_id: base for base, topic_id in self.ids.items()}
        self.assignor = self.random.choice((UNIFORM, RANGE, RANGE, RANGE))
        self.wants_classic = self.assignor == RANGE and self.steps.happens(0.5)
        self.group = exchange.name("group")
        exchange.find_coordinator(self.group, GROUP)
        self.configure(self.group)
        self.waiting = Waiting(exchange, self.group)
        self.members: list[Member] = []
        self.classic: list[ClassicMember] = []
        self.was_consumer = False
        self.counts = {"consumer": 0, "classic": 0}
        self.probe = self.begin_to_probe()
        self.probe_epoch = JOIN
        self.see_topics()
        self.producer: tuple[int, int] | None = None

    def run(self) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (8, self.join_new),
            (30, self.beat_any),
            (5, self.change_subscription),
            (5, self.leave),
            (8, self.commit),
            (4, self.fetch_offsets),
            (2, self.delete_offsets),
            (2, self.commit_in_transaction),
            (10, self.describe),
            (2, self.describe_as_classic),
            (1, self.delete_group),
            (3, self.grow),
            (1, self.create),
            (1, self.delete),
            (10, self.settle),
        ]
        if self.wants_classic:
            actions += [(8, self.join_classic), (14, self.go_on_as_classic), (3, self.leave_classic)]
        self.join_new()
        for _ in range(STEPS_COUNT):
            self.steps.take(actions)
            self.await_migration()
            self.waiting.settle()
        self.settle()
        self.describe()
        self.fetch_offsets()

    # What is around the group

    def configure(self, group: str) -> None:
        configs = [IncrementalAlterableConfig(name, 0, value) for name, value in SETTINGS.items()]
        self.exchange.call(
            IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(GROUP_CONFIG, group, configs)]), 1
        )
        wanted = DescribeConfigsRequest([DescribeConfigsResource(GROUP_CONFIG, group, list(SETTINGS))])
        for _ in range(ATTEMPTS):
            found = self.exchange.call(wanted, 4).results[0].configs
            if {config.name: config.value for config in found} == SETTINGS:
                break
            time.sleep(PAUSE_S)

    def begin_to_probe(self) -> str:
        """Another group of the same coordinator: what that one has seen of the topics, ours sees, too."""
        index = coordinator_partition(self.group)
        bases = (f"probe{number}" for number in range(1_000))
        name = next(name for name in map(self.exchange.name, bases) if coordinator_partition(name) == index)
        self.exchange.find_coordinator(name, GROUP)
        return name

    def see_topics(self) -> None:
        """Return when the coordinator knows the topics as they are."""
        before = self.described_epoch(self.probe)
        for _ in range(ATTEMPTS):
            request = ConsumerGroupHeartbeatRequest(self.probe, "probe", self.probe_epoch)
            if self.probe_epoch == JOIN:
                request.rebalance_timeout_ms, request.topic_partitions = TIMEOUT_MS, []
                request.subscribed_topic_names = list(self.names.values())
            self.probe_epoch = self.exchange.call(request, 1).member_epoch
            if self.described_epoch(self.probe) > before:
                return
            time.sleep(PAUSE_S)

    def described(self, group: str) -> Any:
        return self.exchange.call(ConsumerGroupDescribeRequest([group]), 1).groups[0]

    def described_epoch(self, group: str) -> int:
        epoch: int = self.described(group).group_epoch
        return epoch

    def await_migration(self) -> None:
        """A group that only has classic members left becomes classic soon, and these have to join again."""
        for _ in range(ATTEMPTS):
            described = self.described(self.group)
            if not described.error_code:
                self.was_consumer = True
                if not described.members or any(one.member_type != CLASSIC_MEMBER for one in described.members):
                    return
            elif not self.was_consumer or self.waiting.state() != "Stable":
                self.was_consumer = False
                return
            time.sleep(PAUSE_S)

    def is_consumer_group(self) -> bool:
        return not self.described(self.group).error_code

    # Topics

    def grow(self) -> None:
        base = self.random.choice(list(self.topics))
        if self.topics[base] >= MAX_PARTITIONS:
            return
        self.topics[base] += 1
        topics = [CreatePartitionsTopic(self.names[base], self.topics[base], None)]
        self.steps.ask(f"{base} grows", CreatePartitionsRequest(topics, 5_000), 3)
        self.see_topics()

    def create(self) -> None:
        if LATE in self.ids:
            return
        self.topics[LATE] = 2
        self.ids[LATE] = self.exchange.topic_id(self.exchange.create_topic(LATE, partitions=2))
        self.bases[self.ids[LATE]] = LATE
        self.exchange.note(self.steps.situation("there is a third topic"), 0, LATE)
        self.see_topics()

    def delete(self) -> None:
        if MORE not in self.topics or self.steps.happens(0.5):
            return
        del self.topics[MORE]
        self.steps.ask("more is deleted", DeleteTopicsRequest([DeleteTopicState(self.names[MORE])], [], 5_000), 6)
        self.see_topics()

    # Members of the consumer protocol

    def join_new(self) -> None:
        if len(self.members) >= MAX_MEMBERS or self.counts["consumer"] >= len(MEMBER_IDS):
            return
        instance = self.random.choice(INSTANCES) if self.steps.happens(0.3) else None
        if instance is not None and any(other.instance == instance and other.epoch > 0 for other in self.members):
            if self.steps.happens(0.7):
                return
        else:
            self.members = [other for other in self.members if other.instance is None or other.instance != instance]
        member = Member(
            MEMBER_IDS[self.counts["consumer"]], self.steps.version(ConsumerGroupHeartbeatRequest), instance
        )
        self.counts["consumer"] += 1
        member.topics = self.some_topics()
        self.members.append(member)
        self.join(member)

    def some_topics(self) -> tuple[str, ...]:
        if self.assignor == UNIFORM:
            return (DATA,)
        bases = sorted(self.names)
        return tuple(sorted(self.random.sample(bases, self.random.choice((1, 1, 2, 2, 3)))))

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
            "subscribed_topic_names": [self.names[base] for base in member.topics],
            "server_assignor": self.assignor,
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
            foreign = {base: [0, 1] for base in self.topics}
            self.beat(member, epoch, f"has the first ones{words}", topic_partitions=self.partitions(foreign))
        elif roll < 0.8:
            self.beat(member, epoch, f"has nothing{words}", topic_partitions=[])
        else:
            self.beat(member, epoch, f"says nothing{words}")

    def settle(self) -> None:
        """Everybody does what it is told."""
        for member in list(self.members):
            if member.epoch > 0:
                partitions = self.partitions(member.assigned)
                self.beat(member, member.epoch, "settles", owned=member.assigned, topic_partitions=partitions)

    def beat(self, member: Member, epoch: int, what: str, *, owned: Partitions | None = None, **fields: Any) -> Any:
        member_id, instance = member.member_id, member.instance
        words = ""
        # Whoever joins is what it says it is: to a member that becomes a static one Kafka assigns nothing at first.
        if epoch != JOIN and self.steps.happens(0.02):
            member_id, words = STRANGER, ", as a stranger"
        elif epoch != JOIN and self.steps.happens(0.02):
            instance = None if instance is not None else INSTANCES[0]
            words = f", as instance {instance}"
        request = ConsumerGroupHeartbeatRequest(self.group, member_id, epoch, instance, **fields)
        reply = self.steps.ask(f"{self.who(member)} {what}{words}", request, member.version)
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
                self.bases[topic.topic_id]: list(topic.partitions) for topic in reply.assignment.topic_partitions
            }

    def who(self, member: Member) -> str:
        return member.member_id if member.instance is None else f"{member.member_id} as {member.instance}"

    def partitions(self, owned: Partitions) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(self.ids[base], sorted(owned[base])) for base in sorted(owned)
        ]

    def change_subscription(self) -> None:
        members = [member for member in self.members if member.epoch > 0]
        if not members or self.assignor == UNIFORM:
            return
        member = self.random.choice(members)
        if not member.has_regex and member.version >= FIRST_WITH_REGEX and self.steps.happens(0.4):
            self.subscribe_by_regex(member)
            return
        member.topics = self.some_topics()
        fields: dict[str, Any] = {"subscribed_topic_names": [self.names[base] for base in member.topics]}
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
            # Nobody who has a pattern has names, too.
            reply = self.beat(member, member.epoch, "wants nothing", subscribed_topic_names=[])
            if reply is None or reply.error_code:
                return
        # Or the one epoch for the topics and for the pattern would be two in Kafka.
        self.settle()
        member.has_regex, member.topics = True, ()
        regex = f"({DATA}|{MORE}){self.names[DATA].removeprefix(DATA)}"
        before = self.described(self.group)
        is_resolved = any(one.subscribed_topic_regex and one.member_id != member.member_id for one in before.members)
        is_subscribed = any(one.subscribed_topic_regex and one.member_id == member.member_id for one in before.members)
        fields: dict[str, Any] = {"subscribed_topic_regex": regex}
        epoch = max(member.epoch, JOIN)
        if epoch == JOIN:
            fields |= {
                "rebalance_timeout_ms": TIMEOUT_MS,
                "server_assignor": self.assignor,
                "topic_partitions": [],
                "subscribed_topic_names": [],
            }
        request = ConsumerGroupHeartbeatRequest(self.group, member.member_id, epoch, member.instance, **fields)
        reply = self.exchange.call(request, FIRST_WITH_REGEX)
        self.exchange.note(
            self.steps.situation(f"{self.who(member)} wants what matches a pattern"), 1, reply.error_code
        )
        self.take_in(member, epoch, reply, None)
        if reply.error_code:
            return
        for _ in range(0 if is_resolved or is_subscribed else ATTEMPTS):
            if self.described_epoch(self.group) > before.group_epoch:
                break
            request = ConsumerGroupHeartbeatRequest(self.group, member.member_id, member.epoch, member.instance)
            self.take_in(member, member.epoch, self.exchange.call(request, FIRST_WITH_REGEX), None)
            time.sleep(PAUSE_S)
        # What it is told on its way may come earlier or later.
        for _ in range(3):
            partitions = self.partitions(member.assigned)
            request = ConsumerGroupHeartbeatRequest(
                self.group, member.member_id, member.epoch, member.instance, topic_partitions=partitions
            )
            self.take_in(member, member.epoch, self.exchange.call(request, FIRST_WITH_REGEX), member.assigned)
        partitions = self.partitions(member.assigned)
        self.beat(member, member.epoch, "goes on with the pattern", owned=member.assigned, topic_partitions=partitions)
        # The one before is an epoch that only Kafka may have had.
        member.previous_epoch = NEVER

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

    # Members of the classic protocol

    def join_classic(self) -> None:
        if len(self.classic) >= 2 or self.counts["classic"] >= len(CLASSIC_MEMBER_IDS):
            return
        name = CLASSIC_MEMBER_IDS[self.counts["classic"]]
        taken = {member.instance for member in self.classic}
        free = [instance for instance in CLASSIC_INSTANCES if instance not in taken]
        # A member without an instance id gets an id that sorts at random, unless it joins with one of its own, which
        # is possible while others make it a group of the consumer protocol.
        is_static = not self.described(self.group).members or (bool(free) and self.steps.happens(0.5))
        # Which of several leads once the group is classic is a matter of hashes, too, where the broker made an id.
        if self.classic and (is_static or any(other.instance is not None for other in self.classic)):
            return
        self.counts["classic"] += 1
        version = self.steps.version(JoinGroupRequest, lowest=FIRST_STATIC_JOIN if is_static else 0)
        member = ClassicMember(name, version, "" if is_static else name, free[0] if is_static else None)
        member.topics = self.some_topics()[:1]  # their order in an assignment is one of hashes
        self.classic.append(member)
        self.join_as_classic(member)

    def idle(self) -> list[ClassicMember]:
        return [member for member in self.classic if not self.waiting.has_begun(member.name)]

    def go_on_as_classic(self) -> None:
        """One of these members does what comes next, or something else."""
        idle = self.idle()
        if not idle:
            return
        member = self.random.choice(idle)
        state = "" if self.is_consumer_group() else self.waiting.state()
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
        if member.member_id and not self.described(self.group).members and self.waiting.state() in ("Dead", "Empty"):
            self.forget_classic(member)  # Kafka keeps a group even when this join has failed
            return
        if self.steps.happens(0.15):
            member.topics = self.some_topics()[:1]
        owned = [ConsumerProtocolTopicPartitions(self.names[base], member.owned[base]) for base in sorted(member.owned)]
        subscription = ConsumerProtocolSubscription([self.names[base] for base in member.topics], None, owned)
        metadata = (1).to_bytes(2) + bytes(encode(subscription, 1))
        request = JoinGroupRequest(
            self.group,
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
            for index, other in enumerate(self.classic):
                given = [
                    ConsumerProtocolTopicPartitions(self.names[base], list(range(index, count, len(self.classic))))
                    for base, count in self.topics.items()
                    if base in other.topics
                ]
                assignment = encode_assignment(ConsumerProtocolAssignment(given), 1)
                assignments.append(SyncGroupRequestAssignment(other.member_id, assignment))
        request = SyncGroupRequest(
            self.group,
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
                bases = {name: base for base, name in self.names.items()}
                found = decode_assignment(reply.assignment).assigned_partitions
                member.owned = {bases[topic.topic]: list(topic.partitions) for topic in found}

        self.waiting.begin(member.name, situation, request, version, then)

    def beat_as_classic(self, member: ClassicMember) -> None:
        generation = member.generation + (self.random.choice((-1, 1)) if self.steps.happens(0.08) else 0)
        request = HeartbeatRequest(self.group, generation, member.member_id, member.instance)
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
        request = LeaveGroupRequest(self.group, member.member_id, [identity])
        self.steps.ask(f"{member.name} leaves as a classic one", request, version)
        self.forget_classic(member)

    def forget_classic(self, member: ClassicMember) -> None:
        if member in self.classic:
            self.classic.remove(member)

    # Offsets

    def committer(self) -> tuple[str, str, int, str | None]:
        """Who commits: what to call it, its member id, its epoch and its instance id."""
        known: list[Member | ClassicMember] = [member for member in self.members if member.epoch > 0]
        known += [member for member in self.classic if member.generation > 0]
        if not known or self.steps.happens(0.15):
            if self.steps.happens(0.7):
                return "nobody", "", -1, None
            return "a stranger", STRANGER, 2, None
        member = self.random.choice(known)
        epoch = member.epoch if isinstance(member, Member) else member.generation
        change = self.random.choice((0, 0, 0, 0, -1, -1, -2, 1))
        who = self.who(member) if isinstance(member, Member) else member.name
        return f"{who} in epoch {epoch + change}", member.member_id, epoch + change, member.instance

    def commit(self) -> None:
        who, member_id, epoch, instance = self.committer()
        lowest = 7 if self.steps.happens(0.1) else FIRST_COMMIT_WITH_EPOCHS
        version = self.steps.version(OffsetCommitRequest, lowest=lowest)
        base = self.random.choice(list(self.topics))
        partitions = self.random.sample(range(self.topics[base]), self.random.choice((1, 1, 2)))
        offset = self.random.randint(0, 99)
        topic = OffsetCommitRequestTopic(
            self.names[base] if version < FIRST_COMMIT_BY_ID else "",
            self.ids[base],
            [OffsetCommitRequestPartition(partition, offset) for partition in partitions],
        )
        request = OffsetCommitRequest(self.group, epoch, member_id, instance, topics=[topic])
        self.steps.ask(f"{who} commits {offset} of {partitions} of {base}", request, version)

    def fetch_offsets(self) -> None:
        who, member_id, epoch, _ = self.committer()
        version = self.steps.version(OffsetFetchRequest, lowest=9)
        wanted = [
            OffsetFetchRequestTopics(
                self.names[base] if version < FIRST_COMMIT_BY_ID else "", self.ids[base], list(range(self.topics[base]))
            )
            for base in self.topics
        ]
        groups = [OffsetFetchRequestGroup(self.group, member_id or None, epoch, wanted)]
        self.steps.ask(f"{who} fetches the offsets", OffsetFetchRequest(groups=groups), version)

    def delete_offsets(self) -> None:
        deleted = [
            OffsetDeleteRequestTopic(self.names[base], [OffsetDeleteRequestPartition(0)]) for base in self.topics
        ]
        self.steps.ask("delete offsets of all topics", OffsetDeleteRequest(self.group, deleted), 0)

    def commit_in_transaction(self) -> None:
        transactional_id = self.exchange.name("transaction")
        if self.producer is None:
            self.exchange.find_coordinator(transactional_id, TRANSACTION)
            begun = self.exchange.call(InitProducerIdRequest(transactional_id, TIMEOUT_MS), 4, retry=BUSY)
            self.producer = begun.producer_id, begun.producer_epoch
        who, member_id, epoch, instance = self.committer()
        self.exchange.call(AddOffsetsToTxnRequest(transactional_id, *self.producer, self.group), 3, retry=BUSY)
        base = self.random.choice(list(self.topics))
        partition, offset = self.random.randrange(self.topics[base]), self.random.randint(0, 99)
        committed = [TxnOffsetCommitRequestPartition(partition, offset)]
        request = TxnOffsetCommitRequest(
            transactional_id,
            self.group,
            *self.producer,
            generation_id=epoch,
            member_id=member_id,
            group_instance_id=instance,
            topics=[TxnOffsetCommitRequestTopic(self.names[base], committed)],
        )
        what = f"{who} commits {offset} of {partition} of {base} in a transaction"
        self.steps.ask(what, request, self.steps.version(TxnOffsetCommitRequest, lowest=3, highest=4), retry=BUSY)
        self.exchange.call(EndTxnRequest(transactional_id, *self.producer, self.steps.happens(0.7)), 4, retry=BUSY)
        for _ in range(ATTEMPTS):
            state = self.exchange.call(DescribeTransactionsRequest([transactional_id]), 0).transaction_states[0]
            if state.transaction_state.startswith(("Complete", "Empty")):
                break
            time.sleep(PAUSE_S)

    # The group as a whole

    def describe(self) -> None:
        version = self.steps.version(ConsumerGroupDescribeRequest)
        self.steps.ask("describe the group", ConsumerGroupDescribeRequest([self.group]), version)
        if not self.is_consumer_group():
            self.describe_as_classic()

    def describe_as_classic(self) -> None:
        version = self.steps.version(DescribeGroupsRequest)
        self.steps.ask("describe the group as a classic one", DescribeGroupsRequest([self.group]), version)

    def delete_group(self) -> None:
        self.steps.ask("delete the group", DeleteGroupsRequest([self.group]), 2)


def coordinator_partition(group: str) -> int:
    """Which partition of `__consumer_offsets` a group belongs to."""
    hashed = 0
    for character in group:
        hashed = (hashed * 31 + ord(character)) & 0xFFFFFFFF
    return (hashed & 0x7FFFFFFF if hashed < 1 << 31 else (1 << 32) - hashed) % COORDINATOR_PARTITIONS_COUNT


def run(exchange: Exchange, random: Random) -> None:
    _Run(exchange, random).run()
