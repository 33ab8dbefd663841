"""Whatever members of both protocols do, and wherever the broker crashes: no partition has two owners, a shard loaded
from the log is the shard that wrote it, and the group settles once it is left in peace.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.broker.group.consumer.group import ConsumerGroup
from fencepost.broker.group.decision_builder import GroupConfig, GroupTimes
from fencepost.broker.group.shard import GroupShard
from tests.support.consumer_group import ClassicModelMember, GroupWorld, ModelMember
from tests.support.group_shard import RECORD

TOPICS = ("orders", "payments", "parcels")
ACTIONS = ("step", "step", "step", "step_all", "add", "add_static", "add_regex", "add_classic", "leave", "go_away")
EVENTS = ("delete", "subscribe", "grow", "create", "advance", "expire", "crash")
ROUNDS_TO_SETTLE = 30

numbers = st.integers(0, 7)
steps = st.lists(st.tuples(st.sampled_from((*ACTIONS, *EVENTS)), numbers, numbers), min_size=8, max_size=40)


class Clients:
    """Carries random steps out."""

    def __init__(self) -> None:
        config = GroupConfig(
            initial_rebalance_delay_ms=0,
            consumer_times=lambda _: GroupTimes(session_timeout_ms=10_000, assignment_interval_ms=0),
        )
        self.world = GroupWorld(config=config, orders=3, payments=2)
        self.members: list[ModelMember | ClassicModelMember] = []
        self._count = 0

    def step(self, which: int, how: int) -> None:
        if self.members:
            self.members[which % len(self.members)].step()

    def step_all(self, which: int, how: int) -> None:
        for member in self.members:
            member.step()

    def add(self, which: int, how: int, **options: Any) -> None:
        self._count += 1
        assignor = (None, "range", "uniform")[how % 3]
        topics = () if "regex" in options else TOPICS[which % 2 : 1 + which % 3]
        if not topics and "regex" not in options and not isinstance(self.world.shard._groups.get("g"), ConsumerGroup):
            # A member without subscription converts a classic group as it is, in Kafka too: members without their share
            # get none until something else changes.
            topics = TOPICS[:1]
        self._join(self.world.member(f"member-{self._count}", *topics, assignor=assignor, **options))

    def add_static(self, which: int, how: int) -> None:
        instance_id = f"instance-{how % 2}"
        if all(getattr(member, "instance_id", None) != instance_id for member in self.members):
            self.add(which, how, instance_id=instance_id)

    def add_regex(self, which: int, how: int) -> None:
        self.add(which, how, regex=("pa.*", "orders|parcels", "o.*")[how % 3])

    def add_classic(self, which: int, how: int) -> None:
        self._join(ClassicModelMember(self.world, *TOPICS[which % 2 : 1 + which % 3]))

    def _join(self, member: ModelMember | ClassicModelMember) -> None:
        member.step()
        self.members.append(member)

    def leave(self, which: int, how: int) -> None:
        if self.members:
            self.members.pop(which % len(self.members)).leave()

    def go_away(self, which: int, how: int) -> None:
        """Of static members, for a while; others just fall silent."""
        if self.members:
            member = self.members.pop(which % len(self.members))
            if isinstance(member, ModelMember) and member.instance_id is not None and member.epoch > 0:
                member.leave(-2)

    def subscribe(self, which: int, how: int) -> None:
        modern = [member for member in self.members if isinstance(member, ModelMember) and member.epoch > 0]
        if modern:
            member = modern[which % len(modern)]
            member.topics = list(TOPICS[how % 3 :])
            if member.heartbeat(subscribed_topic_names=member.topics).error_code:
                member.epoch, member.owned = 0, set()

    def grow(self, which: int, how: int) -> None:
        topic = self.world.topics.get(TOPICS[which % 2])
        assert topic is not None
        self.world.grow(topic.name, topic.partition_count + 1)

    def create(self, which: int, how: int) -> None:
        if self.world.topics.get("parcels") is None:
            self.world.grow("parcels", 2)

    def advance(self, which: int, how: int) -> None:
        self.world.advance(1 + how * 500)

    def delete(self, which: int, how: int) -> None:
        """Refused while the group has members; nothing of it may be left after."""
        self.world.run(self.world.shard.delete_group("g"))

    def expire(self, which: int, how: int) -> None:
        self.world.advance(11_000)

    def crash(self, which: int, how: int) -> None:
        self.world.crash()

    # What is true at any time

    def check(self) -> None:
        self.check_owners()
        assert state_of(self.world.replayed().shard) == state_of(self.world.shard)
        assert state_of(compacted(self.world)) == state_of(self.world.shard)

    def check_owners(self) -> None:
        group = self.world.shard._groups.get("g")
        if isinstance(group, ConsumerGroup):
            # Those that the group does not know any more are zombies, which it fences when they come back.
            owned = [
                partition for member in self.members if member.member_id in group.members for partition in member.owned
            ]
            assert len(owned) == len(set(owned)), "a partition has two owners"

    def check_that_all_settle(self) -> None:
        for _ in range(ROUNDS_TO_SETTLE):
            self.step_all(0, 0)
            self.world.advance(1_000)
            self.check_owners()
        self.check()
        # Each subscribed partition has an owner, and each member knows the group's assignment.
        owned = [partition for member in self.members for partition in member.owned]
        assert sorted(owned) == sorted(
            (topic.name, partition)
            for topic in self.world.topics.all()
            if any(self._wants(member, topic.name) for member in self.members)
            for partition in range(topic.partition_count)
        )

    def _wants(self, member: ModelMember | ClassicModelMember, topic: str) -> bool:
        if isinstance(member, ModelMember):
            group = self.world.consumer_group()
            return topic in group.subscription_of(group.members[member.member_id])
        return topic in member.topics


def state_of(shard: GroupShard) -> dict[str, Any]:
    """What records say of the groups of the consumer protocol."""
    return {
        group_id: (
            group.group_epoch,
            group.metadata_hash,
            group.assignment_epoch,
            group.members,
            group.static_members,
            group.target,
            group.regexes,
            group.subscribed_topics(),
            group._owners,
        )
        for group_id, group in shard._groups.items()
        if isinstance(group, ConsumerGroup)
    }


def compacted(world: GroupWorld) -> GroupShard:
    """A shard loaded from a log of which only the last record of each key is left."""
    last = {entry[0]: index for index, (kind, entry) in enumerate(world.log) if kind == RECORD}
    shard = GroupShard(world.config, world.topics)
    for index in sorted(last.values()):
        shard.apply(*world.log[index][1])
    shard.loaded(world.now_ms)
    return shard


@settings(max_examples=60, deadline=None)
@given(steps)
def test_members_of_both_protocols_share_a_group_through_crashes(sequence: list[tuple[str, int, int]]) -> None:
    clients = Clients()
    for action, which, how in sequence:
        getattr(clients, action)(which, how)
        clients.check()
    clients.check_that_all_settle()


def test_a_group_changes_to_the_consumer_protocol_and_back_while_it_is_used() -> None:
    clients = Clients()
    clients.add_classic(0, 0)
    clients.add_classic(0, 0)
    clients.check_that_all_settle()
    assert kind_of(clients) == "classic"
    clients.add(0, 0)
    clients.check_that_all_settle()
    assert kind_of(clients) == "consumer"
    clients.leave(2, 0)
    clients.check_that_all_settle()
    assert kind_of(clients) == "classic"


def kind_of(clients: Clients) -> str:
    return clients.world.shard._groups["g"].group_type
