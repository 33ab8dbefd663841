"""Whatever members, topics and time do to a streams group: no task is two members' to process, everything is run in the
end, and a shard that is loaded from the log is the one that has lived through it."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fencepost.broker.group.decision_builder import StreamsTimes
from fencepost.broker.group.modern import MemberState
from fencepost.broker.group.streams.group import StreamsGroup
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest
from tests.protocol.message_strategies import SHORT, Case, messages
from tests.support.streams_group import CHANGELOG, REPARTITION, SENDER, ModelMember, StreamsWorld, config

NAMES = st.sampled_from(["a", "b", "c", "d"])


def content(group: Any) -> dict[str, Any]:
    """What of a group its records say; the rest lives in memory only."""
    assert isinstance(group, StreamsGroup)
    in_memory = {"memory", "_processes"}
    held = {key: sorted(names) for key, names in group._processes.items()}
    return {name: value for name, value in vars(group).items() if name not in in_memory} | {"processes": held}


class StreamsGroupMachine(RuleBasedStateMachine):
    world: StreamsWorld
    members: dict[str, ModelMember]

    @initialize(
        delay_ms=st.sampled_from([0, 3_000]), interval_ms=st.sampled_from([0, 1_000]), standbys=st.integers(0, 2)
    )
    def begin(self, delay_ms: int, interval_ms: int, standbys: int) -> None:
        times = StreamsTimes(45_000, 5_000, interval_ms, delay_ms, standbys)
        self.world = StreamsWorld(config_of_groups=config(times))
        self.members = {}

    @rule(name=NAMES, process=st.sampled_from(["p", "q", "r"]))
    def join(self, name: str, process: str) -> None:
        if name not in self.members:
            self.members[name] = self.world.member(name, process=process)
            assert self.members[name].join().response.error_code == ErrorCode.NONE

    @rule(name=NAMES)
    def beat(self, name: str) -> None:
        member = self.members.get(name)
        if member is None:
            return
        if member.beat().response.error_code != ErrorCode.NONE:
            del self.members[name]  # silent for too long

    @rule(name=NAMES)
    def answer_is_lost(self, name: str) -> None:
        member = self.members.get(name)
        if member is None:
            return
        before = member.epoch, dict(member.active), dict(member.standby)
        member.beat()
        member.epoch, member.active, member.standby = before
        member.has_changed = True  # after a failed request the member reports everything again
        if member.beat().response.error_code == ErrorCode.FENCED_MEMBER_EPOCH:
            member.join()

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        member = self.members.pop(name, None)
        if member is not None:
            member.leave()

    @rule(duration_ms=st.sampled_from([100, 1_000, 10_000, 46_000]))
    def wait(self, duration_ms: int) -> None:
        self.world.advance(duration_ms)

    @rule(topic=st.sampled_from([REPARTITION, CHANGELOG]))
    def lose_topic(self, topic: str) -> None:
        if self.world.topics.get(topic) is not None:
            self.world.topics.remove(topic)

    @rule()
    def crash(self) -> None:
        self.world.crash()

    @invariant()
    def a_loaded_shard_is_the_same(self) -> None:
        if not hasattr(self, "world"):
            return
        groups, loaded = self.world.shard._groups, self.world.replayed().shard._groups
        assert groups.keys() == loaded.keys()
        if groups:
            assert content(groups["g"]) == content(loaded["g"])
            self.world.check_invariants()

    def teardown(self) -> None:
        """In the end everybody comes back until all is settled: every task has one that runs it."""
        if not getattr(self, "members", None):
            return
        for _ in range(8):
            for name in list(self.members):
                if self.members[name].beat().response.error_code != ErrorCode.NONE:
                    self.members[name].join()
            self.world.advance(1_100)
        for _ in range(10):
            self.world.settle(*self.members.values(), rounds=1)
            self.world.advance(1_100)
        group = self.world.streams_group
        if set(group.members) != set(self.members):
            return  # the group still waits for a member that left without a request
        assert group.state_name == "Stable"
        tasks = [
            (subtopology, number)
            for member in self.members.values()
            for subtopology, numbers in member.active.items()
            for number in numbers
        ]
        assert sorted(tasks) == [("0", 0), ("0", 1), ("1", 0), ("1", 1)]
        for member in self.members.values():
            known = group.members[member.name]
            assert known.state is MemberState.STABLE
            assert {name: sorted(numbers) for name, numbers in known.assigned.active.items()} == member.active


TestStreamsGroups = StreamsGroupMachine.TestCase
TestStreamsGroups.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


HEARTBEATS = messages(Case(StreamsGroupHeartbeatRequest, 0))


@settings(SHORT, max_examples=25)
@given(requests=st.lists(st.tuples(HEARTBEATS, st.sampled_from([-1, 0, 0, 1, 2, 3])), max_size=6))
def test_every_request_is_answered(requests: list[tuple[StreamsGroupHeartbeatRequest, int]]) -> None:
    world = StreamsWorld(words=2)
    for request, epoch in requests:
        request.group_id, request.member_id, request.member_epoch = "g", "m", epoch
        request.instance_id = request.task_offsets = request.task_end_offsets = request.warmup_tasks = None
        topology = request.topology
        if topology is not None:
            topology.epoch &= 2**31 - 1  # not negative; the absolute value of the least would not fit
            for subtopology in topology.subtopologies:
                subtopology.source_topics, subtopology.source_topic_regex = ["words"], []
                for topic in subtopology.state_changelog_topics:
                    topic.partitions = 0
        world.run(world.shard.streams.heartbeat(request, SENDER, world.now_ms))
        world.shard.streams.describe("g")
        world.advance(50_000 if epoch == 3 else 10)
        assert world.shard._groups.keys() == world.replayed().shard._groups.keys()
