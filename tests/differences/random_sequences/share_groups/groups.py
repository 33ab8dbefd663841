"""Share groups as their coordinator knows them: settings, members that join and leave, and where they stand.

What Kafka does behind its answers is waited for: state that coordinators make for share partitions, and settings that
brokers learn of.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.group_admin import DeleteGroupsRequest, ListGroupsRequest
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
from tests.differences.connection import Connection
from tests.differences.exchange import ATTEMPTS, GROUP, PAUSE_S
from tests.differences.random_sequences.hashes import ordered_id
from tests.differences.random_sequences.share_groups.topics import Place, SharedTopics
from tests.differences.random_sequences.steps import SlicedWork

MEMBERS_PER_GROUP: Final = 3
JOIN, LEAVE = 0, -1
GROUP_RESOURCE, SET = 32, 0
NOTHING: Final = "nothing"
"""What a topic would be called that does not exist."""
MEMBERLESS: Final = "three"
"""A group that nobody joins."""
NO_SUCH_PARTITION: Final = 7
LEAVE_TIME: Final = {  # so that nothing runs out while a sequence is asked
    "share.record.lock.duration.ms": "60000",
    "share.session.timeout.ms": "60000",
    "share.assignment.interval.ms": "0",
}


@dataclass
class Member:
    """The replies that a member has got, and what it has done with its session so far.

    base: what descriptions call it. wanted: topics that it has subscribed to. session: partitions that it reads.
    amiss: others that it asked for, too, which do not exist. lent: ranges that it has not acknowledged. done: ranges
    that it has.
    """

    base: str
    group: str
    member_id: str
    connection: Connection
    epoch: int = JOIN
    wanted: list[str] = field(default_factory=list)
    session_epoch: int | None = None
    session: list[Place] = field(default_factory=list)
    amiss: list[Place] = field(default_factory=list)
    lent: dict[Place, list[tuple[int, int]]] = field(default_factory=dict)
    done: dict[Place, list[tuple[int, int]]] = field(default_factory=dict)


class ShareGroups:
    """One or two groups with their members.

    known: by group, of which topics there is state. loaded: by group, the partitions that a member has fetched since.
    """

    def __init__(self, steps: SlicedWork, topics: SharedTopics) -> None:
        self.steps = steps
        self.exchange = steps.exchange
        self.random = steps.random
        self.topics = topics
        self.names = ["one", "two"][: self.random.randint(1, 2)]
        self.members = [self._member(group, number) for group in self.names for number in range(MEMBERS_PER_GROUP)]
        self.known: dict[str, set[str]] = {group: set() for group in (*self.names, MEMBERLESS)}
        self.loaded: dict[str, set[Place]] = {group: set() for group in (*self.names, MEMBERLESS)}

    def _member(self, group: str, number: int) -> Member:
        base = f"{group}/{'abc'[number]}"
        member_id = ordered_id(self.random, number)
        self.exchange.remember(member_id, base)
        return Member(base, group, member_id, self.exchange.connect())

    # Settings

    def configure(self) -> None:
        """The settings that the groups begin with."""
        self.exchange.find_coordinator(self.exchange.name(MEMBERLESS), GROUP)
        for group in self.names:
            self.exchange.find_coordinator(self.exchange.name(group), GROUP)
            self._change_configs(
                group,
                {
                    **LEAVE_TIME,
                    "share.auto.offset.reset": self.random.choice(("earliest", "earliest", "latest")),
                    "share.isolation.level": self.random.choice(("read_committed", "read_uncommitted")),
                    "share.delivery.count.limit": str(self.random.choice((2, 3, 5, 6))),
                    "share.partition.max.record.locks": self.random.choice(("100", "2000")),
                    "share.renew.acknowledge.enable": self.random.choice(("true", "true", "false")),
                },
            )

    def change_a_config(self) -> None:
        name, values = self.random.choice(
            (
                ("share.isolation.level", ("read_committed", "read_uncommitted")),
                ("share.delivery.count.limit", ("2", "3", "4", "6", "8")),
                ("share.auto.offset.reset", ("earliest", "latest")),
                ("share.renew.acknowledge.enable", ("true", "false")),
            )
        )
        self._change_configs(self.random.choice(self.names), {name: self.random.choice(values)})

    def _change_configs(self, group: str, configs: dict[str, str]) -> None:
        """Return when the broker goes by them."""
        name = self.exchange.name(group)
        wanted = [IncrementalAlterableConfig(key, SET, value) for key, value in configs.items()]
        request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(GROUP_RESOURCE, name, wanted)])
        what = ", ".join(f"{key}={value}" for key, value in configs.items() if key not in LEAVE_TIME)
        self.steps.ask(f"{group} has {what}", request, 1)
        shown = DescribeConfigsRequest([DescribeConfigsResource(GROUP_RESOURCE, name, list(configs))])
        for _ in range(ATTEMPTS):
            reply = self.exchange.call(shown, 4)
            if {config.name: config.value for config in reply.results[0].configs} == configs:
                break
            time.sleep(PAUSE_S)
        time.sleep(PAUSE_S)  # Kafka shows what it is about to go by

    # Membership

    def members_of(self, group: str) -> list[Member]:
        return [member for member in self.members if member.group == group]

    def has_members(self, group: str) -> bool:
        return any(member.epoch for member in self.members_of(group))

    def join(self, member: Member) -> None:
        self.beat(member, JOIN, self._subscription())

    def _subscription(self) -> list[str]:
        # Which of several topics a member has to read of goes by the hashes of their ids, which are made at random.
        wanted = self.random.choice(self.topics.names)
        return [wanted, NOTHING] if self.steps.happens(0.1) else [wanted]

    def heartbeat(self) -> None:
        member = self.random.choice(self.members)
        if member.epoch == JOIN or self.steps.happens(0.1):
            self.join(member)
            return
        epoch = member.epoch
        if self.steps.happens(0.3):
            epoch = max(1, epoch + self.random.choice((-2, -1, 1, 5)))
        elif self.steps.happens(0.2):
            epoch = LEAVE
        self.beat(member, epoch, self._subscription() if self.steps.happens(0.4) else None)

    def beat(self, member: Member, epoch: int, bases: Sequence[str] | None) -> None:
        request = ShareGroupHeartbeatRequest(self.exchange.name(member.group), member.member_id, epoch)
        what = f"{member.base} of epoch {epoch}"
        if bases is not None and epoch != LEAVE:
            request.subscribed_topic_names = [self.exchange.name(base) for base in bases]
            what += f" wants {listed(bases)}"
        reply = self.steps.ask(f"heartbeat: {what}", request, self.steps.version(ShareGroupHeartbeatRequest))
        if reply.error_code:
            return
        member.epoch = max(JOIN, reply.member_epoch)
        if bases is not None and epoch != LEAVE:
            member.wanted = list(bases)
        if epoch != LEAVE:
            self.known[member.group] |= set(member.wanted) - {NOTHING}
        self._settle(member.group)

    def _settle(self, group: str) -> None:
        """Return when all share partitions that members want have state."""
        name = self.exchange.name(group)
        for _ in range(ATTEMPTS):
            described = self.exchange.call(ShareGroupDescribeRequest([name]), 1).groups[0]
            wanted = {topic for member in described.members for topic in member.subscribed_topic_names}
            reply = self.exchange.call(
                DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(name, None)]), 1
            )
            known = {topic.topic_name: len(topic.partitions) for topic in reply.groups[0].topics}
            if all(
                known.get(self.exchange.name(base)) == count
                for base, count in self.topics.partition_counts.items()
                if self.exchange.name(base) in wanted
            ):
                return
            time.sleep(PAUSE_S)

    def grow_a_topic(self) -> None:
        """Nobody asks for the further partition before members have made its state; by then it may have records."""
        base = self.random.choice(self.topics.names)
        if not self.topics.can_grow(base):
            self.topics.produce()
            return
        self.topics.grow(base)
        for group in self.known:
            self.known[group].discard(base)
        for member in self.members:
            if member.epoch != JOIN and base in member.wanted:
                self.beat(member, member.epoch, None)

    # What is there

    def describe_group(self) -> None:
        self.describe(self.random.choice((*self.names, MEMBERLESS)))

    def describe(self, group: str) -> None:
        self.steps.ask(f"describe {group}", ShareGroupDescribeRequest([self.exchange.name(group)]), 1)

    def list_groups(self) -> None:
        # Other groups are on the broker, too; those of the run alone are described.
        states = ShareGroupDescribeRequest([self.exchange.name(group) for group in self.names])
        self.steps.ask("describe all groups", states, 1)
        reply = self.exchange.call(ListGroupsRequest(types_filter=["share"]), 5)
        own = {self.exchange.name(group) for group in self.names}
        found = sorted((one.group_id.split("-")[0], one.group_state) for one in reply.groups if one.group_id in own)
        self.exchange.note(self.steps.situation("listed"), 5, [list(one) for one in found])

    def describe_offsets(self) -> None:
        bases = self.random.choice((None, self.topics.names, [*self.topics.names, NOTHING]))
        self.offsets_of(self.random.choice((*self.names, MEMBERLESS)), bases)

    def offsets_of(self, group: str, bases: Sequence[str] | None) -> None:
        version = self.steps.version(DescribeShareGroupOffsetsRequest)
        wanted = None
        if bases is not None:
            counts = self.topics.partition_counts
            wanted = [
                DescribeShareGroupOffsetsRequestTopic(self.exchange.name(base), list(range(counts.get(base, 1))))
                for base in bases
            ]
        request = DescribeShareGroupOffsetsRequest(
            [DescribeShareGroupOffsetsRequestGroup(self.exchange.name(group), wanted)]
        )
        self.steps.ask(f"offsets of {group} in {listed(bases)}", request, version)

    # Offsets, of groups without members only

    def alter_offsets(self, group: str) -> None:
        altered: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
        words = []
        for place in self.random.sample(self.topics.places, self.random.randint(1, len(self.topics.places))):
            offset = -1 if self.steps.happens(0.05) else self.random.randint(0, self.topics.ends[place] + 1)
            altered.setdefault(place.base, []).append(AlterShareGroupOffsetsRequestPartition(place.partition, offset))
            words.append(f"{place} to {offset}")
            self.loaded[group].discard(place)
        if self.steps.happens(0.1):
            base = self.random.choice(list(altered))
            altered[base].append(AlterShareGroupOffsetsRequestPartition(NO_SUCH_PARTITION, 1))
            words.append(f"{Place(base, NO_SUCH_PARTITION)} to 1")
        topics = [AlterShareGroupOffsetsRequestTopic(self.exchange.name(base), one) for base, one in altered.items()]
        if self.steps.happens(0.1):
            nothing = AlterShareGroupOffsetsRequestPartition(0, 1)
            topics.append(AlterShareGroupOffsetsRequestTopic(self.exchange.name(NOTHING), [nothing]))
            words.append(f"{NOTHING} to 1")
        request = AlterShareGroupOffsetsRequest(self.exchange.name(group), topics)
        reply = self.steps.ask(f"alter {group}: {', '.join(words)}", request, 0)
        if not reply.error_code:
            self.known[group] |= altered.keys()

    def delete_offsets(self, group: str) -> None:
        bases = self.random.sample(self.topics.names, self.random.randint(1, len(self.topics.names)))
        if self.steps.happens(0.1):
            bases.append(NOTHING)
        topics = [DeleteShareGroupOffsetsRequestTopic(self.exchange.name(base)) for base in bases]
        request = DeleteShareGroupOffsetsRequest(self.exchange.name(group), topics)
        reply = self.steps.ask(f"delete {group}: {listed(bases)}", request, 0)
        if not reply.error_code:
            self.known[group] -= set(bases)
            self.loaded[group] -= {place for place in self.topics.places if place.base in bases}

    def delete(self, group: str) -> None:
        version = self.steps.version(DeleteGroupsRequest)
        reply = self.steps.ask(f"delete {group}", DeleteGroupsRequest([self.exchange.name(group)]), version)
        if not reply.results[0].error_code:
            self.loaded[group].clear()
            self.known[group].clear()


def listed(names: Sequence[object] | None) -> str:
    """Names as descriptions have them."""
    return "all" if names is None else " ".join(map(str, names)) or "nothing new"
