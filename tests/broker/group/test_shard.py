"""Random requests: a shard loaded from the log equals the shard that wrote it, and every parked request is answered."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.broker.group.classic.group import ClassicGroup, ClassicState
from fencepost.broker.group.decision_builder import DeadlineKey, DeadlineKind, GroupConfig
from fencepost.broker.group.offsets.commits import Committer
from fencepost.broker.group.offsets.records import OffsetAndMetadata, decode_offset
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.messages.group_membership import JoinGroupResponse
from fencepost.protocol.stored.consumer_offsets import decode_offset_commit_key
from tests.support.group_shard import RECORD, ShardHarness, Waiting

GROUPS = ("g0", "g1")
PARTITIONS = (TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0))
SETTLED = (ClassicState.STABLE, ClassicState.EMPTY)
PROTOCOLS = ({"range": b"a"}, {"range": b"b", "sticky": b"b"}, {"sticky": b"c", "range": b"a"})

numbers = st.integers(0, 7)
MEMBERSHIP = (
    "join",
    "join_static",
    "rejoin",
    "rejoin_all",
    "sync",
    "sync_all",
    "heartbeat",
    "leave",
    "abandon",
    "advance",
)
OFFSETS = ("commit", "commit_in_transaction", "commit_in_transaction", "end_transaction", "end_transaction")
DELETION = ("delete_offsets", "delete_group")


def sequences(*actions: str) -> st.SearchStrategy[list[tuple[str, int, int, int]]]:
    return st.lists(st.tuples(st.sampled_from(actions), numbers, numbers, numbers), max_size=60)


class Clients:
    """Carries random steps out; members are picked from those the group has, with their instance ids."""

    def __init__(self, config: GroupConfig) -> None:
        self.harness = ShardHarness(config)
        self.all_waiting: list[tuple[str, Waiting]] = []

    def step(self, action: str, which_group: int, which: int, how: int) -> None:
        group_id = GROUPS[which_group % len(GROUPS)]
        getattr(self, action)(group_id, which, how)

    def member(self, group_id: str, which: int) -> tuple[str, str | None]:
        group = self.harness.classic_groups.get(group_id)
        if group is None or not group.members:
            return "made-up", None
        member = list(group.members.values())[which % len(group.members)]
        return member.member_id, member.group_instance_id

    def generation(self, group_id: str) -> int:
        group = self.harness.classic_groups.get(group_id)
        return 0 if group is None else group.generation_id

    def keep(self, group_id: str, reply: Any) -> Any:
        if isinstance(reply, Waiting):
            self.all_waiting.append((group_id, reply))
        return reply

    def join(self, group_id: str, which: int, how: int) -> None:
        options: dict[str, Any] = {"protocols": PROTOCOLS[which % 3], "version": 3 if how == 0 else 9}
        reply = self.keep(group_id, self.harness.join(group_id, **options))
        if isinstance(reply, JoinGroupResponse) and how > 1:
            self.keep(group_id, self.harness.join(group_id, reply.member_id, **options))

    def join_static(self, group_id: str, which: int, how: int) -> None:
        instance_id = f"i{which % 3}"
        self.keep(
            group_id,
            self.harness.join(
                group_id, instance_id=instance_id, protocols=PROTOCOLS[how % 3], version=8 if how == 0 else 9
            ),
        )

    def rejoin(self, group_id: str, which: int, how: int) -> None:
        member_id, instance_id = self.member(group_id, which)
        reply = self.harness.join(group_id, member_id, instance_id=instance_id, protocols=PROTOCOLS[how % 3])
        self.keep(group_id, reply)

    def rejoin_all(self, group_id: str, which: int, how: int) -> None:
        group = self.harness.classic_groups.get(group_id)
        for member in list(group.members.values()) if group is not None else ():
            reply = self.harness.join(
                group_id, member.member_id, instance_id=member.group_instance_id, protocols=dict(member.protocols)
            )
            self.keep(group_id, reply)

    def sync(self, group_id: str, which: int, how: int) -> None:
        member_id, instance_id = self.member(group_id, which)
        generation_id = self.generation(group_id) - (how == 0)
        assignments = {member_id: bytes([how])}
        reply = self.harness.sync(member_id, generation_id, assignments, group_id=group_id, instance_id=instance_id)
        self.keep(group_id, reply)

    def sync_all(self, group_id: str, which: int, how: int) -> None:
        group = self.harness.classic_groups.get(group_id)
        for index in range(len(group.members) if group is not None else 0):
            self.sync(group_id, index, 1 + how)

    def heartbeat(self, group_id: str, which: int, how: int) -> None:
        member_id, instance_id = self.member(group_id, which)
        self.harness.heartbeat(member_id, self.generation(group_id), group_id=group_id, instance_id=instance_id)

    def leave(self, group_id: str, which: int, how: int) -> None:
        member_id, instance_id = self.member(group_id, which)
        self.harness.leave("" if how == 0 else member_id, group_id=group_id, instance_id=instance_id)

    def abandon(self, group_id: str, which: int, how: int) -> None:
        waiting = [pair for pair in self.all_waiting if not pair[1].is_answered]
        if waiting:
            owner, request = waiting[which % len(waiting)]
            self.all_waiting.remove((owner, request))
            self.harness.abandon(request, group_id=owner)

    def commit(self, group_id: str, which: int, how: int) -> None:
        member_id, instance_id = self.member(group_id, which)
        is_member = how % 2 and member_id != "made-up"
        committer = Committer(self.generation(group_id), member_id, instance_id) if is_member else Committer()
        self.harness.commit(how, group_id=group_id, topic_partition=PARTITIONS[which % 3], committer=committer)

    def commit_in_transaction(self, group_id: str, which: int, how: int) -> None:
        self.harness.commit(how, group_id=group_id, topic_partition=PARTITIONS[which % 3], producer_id=how % 3)

    def end_transaction(self, group_id: str, which: int, how: int) -> None:
        self.harness.end_transaction(which % 3, committed=how > 2)

    def delete_offsets(self, group_id: str, which: int, how: int) -> None:
        self.harness.run(self.harness.shard.offsets.delete(group_id, PARTITIONS[: 1 + how % 3]))

    def delete_group(self, group_id: str, which: int, how: int) -> None:
        self.harness.run(self.harness.shard.delete_group(group_id))

    def advance(self, group_id: str, which: int, how: int) -> None:
        self.harness.advance((which + 1) * (1 if how == 0 else 3_000 * how))


def stored_group(group: ClassicGroup) -> dict[str, Any]:
    """What a record holds of a group."""
    return {
        "state": group.state,
        "generation_id": group.generation_id,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol_name,
        "leader_id": group.leader_id,
        "state_timestamp_ms": group.state_timestamp_ms,
        "members": {
            member.member_id: (
                member.group_instance_id,
                member.client_id,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.metadata(group.protocol_name),
                member.assignment,
            )
            for member in group.members.values()
        },
    }


def offsets(harness: ShardHarness) -> tuple[Any, Any, Any]:
    store = harness.shard._offsets
    return store._committed, store._pending, store._open_producers


def check_replay(harness: ShardHarness) -> None:
    again = harness.replayed()
    assert offsets(again) == offsets(harness)
    for group_id, group in again.classic_groups.items():
        live = harness.classic_groups[group_id]
        assert group.state in SETTLED
        if live.state in SETTLED:
            assert stored_group(group) == stored_group(live)
            assert group.static_members == live.static_members
        else:
            assert group.generation_id <= live.generation_id
    for group_id, live in harness.classic_groups.items():
        assert live.is_stored == (group_id in again.classic_groups)


def check_waiting(clients: Clients) -> None:
    """Every request that waits is known to the member it belongs to, and the group will move without further
    requests.
    """
    held = {
        token
        for group in clients.harness.classic_groups.values()
        for member in group.members.values()
        for token in (member.join_token, member.sync_token)
        if token is not None
    }
    assert {request.token for _, request in clients.all_waiting if not request.is_answered} == held
    deadlines = clients.harness.shard._deadlines
    sessions = {(key.group_id, key.member_id) for key in deadlines._deadline_ms if key.kind is DeadlineKind.SESSION}
    assert sessions <= {
        (name, member) for name, group in clients.harness.classic_groups.items() for member in group.members
    }
    for group_id, group in clients.harness.classic_groups.items():
        assert group.awaiting_join_count == sum(m.join_token is not None for m in group.members.values())
        if group.state is ClassicState.PREPARING_REBALANCE:
            assert deadlines.get(DeadlineKey(DeadlineKind.JOIN, group_id)) is not None
        for member_id, member in group.members.items():
            key = DeadlineKey(DeadlineKind.SESSION, group_id, member_id)
            assert deadlines.get(key) is not None or member.join_token is not None or member.sync_token is not None
        for member_id in group.pending_member_ids:
            assert deadlines.get(DeadlineKey(DeadlineKind.PENDING_MEMBER, group_id, member_id)) is not None


def run(sequence: list[tuple[str, int, int, int]], config: GroupConfig | None = None) -> Clients:
    clients = Clients(config or GroupConfig(initial_rebalance_delay_ms=0))
    for step in sequence:
        clients.step(*step)
        check_waiting(clients)
    return clients


@settings(max_examples=100, deadline=None)
@given(sequences(*MEMBERSHIP, *OFFSETS, *DELETION), st.sampled_from([0, 3_000]))
def test_replay_equals_live_state_after_any_requests(sequence: list[Any], initial_rebalance_delay_ms: int) -> None:
    config = GroupConfig(initial_rebalance_delay_ms=initial_rebalance_delay_ms, max_size=4)
    check_replay(run(sequence, config).harness)


@settings(max_examples=100, deadline=None)
@given(sequences(*MEMBERSHIP))
def test_replay_equals_live_state_after_any_rebalances(sequence: list[Any]) -> None:
    check_replay(run(sequence).harness)


@settings(max_examples=50, deadline=None)
@given(sequences(*MEMBERSHIP))
def test_a_group_of_a_kind_that_is_no_longer_served_becomes_empty(sequence: list[Any]) -> None:
    clients = run(sequence)
    clients.harness.advance(1_800_000)
    assert all(request.is_answered for _, request in clients.all_waiting)
    for group in clients.harness.classic_groups.values():
        assert group.state is ClassicState.EMPTY
        assert not group.members


@settings(max_examples=100, deadline=None)
@given(sequences(*OFFSETS, "delete_offsets"))
def test_of_all_commits_that_count_the_last_in_the_log_is_the_committed_offset(sequence: list[Any]) -> None:
    harness = run(sequence).harness
    assert harness.shard._offsets._committed == committed_by_oracle(harness.log)
    check_replay(harness)


def committed_by_oracle(log: list[tuple[str, Any]]) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """Knows nothing of pending offsets: it reads the log backwards, so that it meets every outcome before what it
    decides.
    """
    outcomes: dict[int, bool] = {}
    decided: dict[tuple[str, TopicPartition], OffsetAndMetadata | None] = {}
    for offset in range(len(log) - 1, -1, -1):
        kind, entry = log[offset]
        if kind != RECORD:
            producer_id, committed = entry
            outcomes[producer_id] = committed
            continue
        key, value, origin = entry
        decoded = decode_offset_commit_key(key)
        if decoded is None:
            continue
        name = (decoded.group, TopicPartition(decoded.topic, decoded.partition))
        counts = origin.producer_id < 0 or outcomes.get(origin.producer_id, False)
        if counts and name not in decided:
            decided[name] = None if value is None else decode_offset(value, origin.offset)
    result: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for (group_id, topic_partition), found in decided.items():
        if found is not None:
            result.setdefault(group_id, {})[topic_partition] = found
    return result
