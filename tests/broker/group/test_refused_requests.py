"""Decisions of all kinds about groups whose records the log refuses: they have changed nothing, and nobody is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from fencepost.broker.coordination.runtime import Decision
from fencepost.broker.group.classic.group import ClassicGroup
from fencepost.broker.group.decision_builder import DeadlineKey, DeadlineKind
from fencepost.broker.group.modern import HeartbeatContext
from fencepost.broker.group.offsets.commits import Committer
from fencepost.broker.group.shard import GroupShard
from fencepost.broker.kernel.deadlines import REFUSED_PAUSE_MS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from tests.support.captured_events import capture_logs
from tests.support.consumer_group import ClassicModelMember, GroupWorld
from tests.support.group_shard import ShardHarness
from tests.support.pure_decisions import picture
from tests.support.streams_group import StreamsWorld

Reply = TypeVar("Reply")
Request = Callable[[], object]
SENDER = HeartbeatContext("client", "/127.0.0.1", "")
HOUR_MS = 3_600_000
ERRORS = [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.KAFKA_STORAGE_ERROR]


class LogRefusesError(Exception):
    """In place of a reply."""


class RefusingLog(ShardHarness):
    """A log that can be made to refuse records; the request then raises LogRefusesError."""

    def run(self, decision: Decision[Reply]) -> Any:
        reply = super().run(decision)
        if self.is_log_refusing and decision.records:
            raise LogRefusesError
        return reply


class RefusingWorld(RefusingLog, GroupWorld):
    """A shard with classic, consumer and share groups."""


class RefusingStreamsWorld(RefusingLog, StreamsWorld):
    """A shard with streams groups."""


def members_without_deadline(shard: GroupShard) -> list[tuple[str, str]]:
    """Members that neither a deadline nor a request that waits would ever end."""
    lost = []
    for group in shard._groups.values():
        for member_id, member in group.members.items():
            key = DeadlineKey(DeadlineKind.SESSION, group.group_id, member_id)
            waits = isinstance(group, ClassicGroup) and (
                group.members[member_id].join_token is not None or group.members[member_id].sync_token is not None
            )
            if shard._deadlines.get(key) is None and not waits:
                lost.append((group.group_id, member.member_id))
    return lost


# Each makes a world and returns it with a request of which the log refuses the records.


def classic_leader_syncs() -> tuple[ShardHarness, Request]:
    world = RefusingWorld()
    leader, _ = world.join_known()
    return world, lambda: world.sync(leader, 1, {leader: b"all"})


def classic_leader_syncs_while_a_follower_waits() -> tuple[ShardHarness, Request]:
    world = RefusingWorld()
    leader = world.stable_group(1)[0]
    follower, _ = world.join_known()
    world.join(member_id=leader)
    generation_id = world.group().generation_id
    world.sync(follower, generation_id)
    return world, lambda: world.sync(leader, generation_id, {leader: b"one", follower: b"other"})


def classic_last_member_leaves() -> tuple[ShardHarness, Request]:
    world = RefusingWorld()
    (member,) = world.stable_group(1)
    return world, lambda: world.leave(member)


def classic_last_session_ends() -> tuple[ShardHarness, Request]:
    world = RefusingWorld()
    world.stable_group(1)
    world.now_ms += 20_000
    return world, lambda: world.run(world.shard.decide_deadline(world.now_ms))


def classic_static_member_is_replaced() -> tuple[ShardHarness, Request]:
    world = RefusingWorld()
    world.join(instance_id="i")
    world.sync_all()
    return world, lambda: world.join(instance_id="i")


def classic_member_commits() -> tuple[ShardHarness, Request]:
    world = RefusingWorld()
    (member,) = world.stable_group(1)
    world.now_ms += 5_000
    return world, lambda: world.commit(5, committer=Committer(member_id=member, generation_id=1))


def classic_group_is_deleted() -> tuple[ShardHarness, Request]:
    world = RefusingWorld()
    (member,) = world.stable_group(1)
    world.leave(member)
    world.join()  # an id is given out
    world.commit(5)
    return world, lambda: world.run(world.shard.delete_group("g"))


def groups_expire() -> tuple[ShardHarness, Request]:
    world = RefusingWorld()
    for number in range(5):
        world.commit(5, group_id=f"group-{number}", retention_time_ms=1)
    sweep_ms = world.shard._deadlines.get(DeadlineKey(DeadlineKind.SWEEP))
    assert sweep_ms is not None
    world.now_ms = sweep_ms
    return world, lambda: world.run(world.shard.decide_deadline(world.now_ms))


def classic_member_joins_empty_consumer_group() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    member = world.member("a", "orders")
    member.join()
    member.leave()
    return world, lambda: world.join()


def consumer_member_joins() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    world.member("a", "orders").join()
    return world, world.member("b", "orders").join


def consumer_member_leaves() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    members = [world.member(name, "orders") for name in "ab"]
    for member in members:
        member.join()
    return world, members[0].leave


def consumer_member_gives_up() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    members = [world.member(name, "orders") for name in "ab"]
    for member in members:
        member.join()
    members[0].heartbeat()
    return world, members[0].heartbeat


def consumer_static_member_is_replaced() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    first = world.member("a", "orders", instance_id="i")
    first.join()
    first.leave(-2)
    return world, world.member("b", "orders", instance_id="i").join


def consumer_sessions_end() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    for name in "abc":
        world.member(name, "orders").join()
    world.now_ms += 60_000
    return world, lambda: world.run(world.shard.decide_deadline(world.now_ms))


def stable_classic_consumers(world: RefusingWorld, count_of_members: int) -> list[ClassicModelMember]:
    members = [ClassicModelMember(world, "orders") for _ in range(count_of_members)]
    for _ in range(10):
        for member in members:
            member.step()
    return members


def classic_group_is_upgraded() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    stable_classic_consumers(world, 2)
    return world, world.member("new", "orders").join


def classic_group_is_upgraded_in_a_rebalance() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    stable_classic_consumers(world, 2)
    ClassicModelMember(world, "orders").step()
    third = ClassicModelMember(world, "orders")
    third.step()
    third.step()
    return world, world.member("new", "orders").join


def mixed_group(world: RefusingWorld) -> tuple[ClassicModelMember, Any]:
    (classic,) = stable_classic_consumers(world, 1)
    new = world.member("new", "orders")
    new.join()
    for _ in range(6):
        classic.step()
        new.step()
    return classic, new


def last_consumer_member_leaves_classic_ones() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    _, new = mixed_group(world)
    return world, new.leave


def group_becomes_classic() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    _, new = mixed_group(world)
    new.leave()
    return world, lambda: world.run(world.shard.decide_deadline(world.now_ms))


def classic_member_joins_consumer_group() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    mixed_group(world)
    another = ClassicModelMember(world, "orders")
    another.step()
    return world, another.step


def classic_member_leaves_consumer_group() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    classic, _ = mixed_group(world)
    return world, classic.leave


def share(world: ShardHarness, member_id: str, epoch: int, topics: list[str] | None = None) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id="s", member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
    )
    return world.run(world.shard.shares.heartbeat(request, SENDER, world.now_ms))


def share_member_joins() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    share(world, "a", 0, ["orders"])
    return world, lambda: share(world, "b", 0, ["orders"])


def share_member_leaves() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    share(world, "a", 0, ["orders"])
    return world, lambda: share(world, "a", -1)


def share_sessions_end() -> tuple[ShardHarness, Request]:
    world = RefusingWorld(orders=4)
    share(world, "a", 0, ["orders"])
    world.now_ms += 60_000
    return world, lambda: world.run(world.shard.decide_deadline(world.now_ms))


def streams_member_joins() -> tuple[ShardHarness, Request]:
    world = RefusingStreamsWorld(words=4)
    world.member("a").join()
    return world, world.member("b").join


def streams_member_leaves() -> tuple[ShardHarness, Request]:
    world = RefusingStreamsWorld(words=4)
    members = [world.member(name) for name in "ab"]
    for member in members:
        member.join()
    return world, lambda: members[0].leave(shutdown_application=True)


def streams_sessions_end() -> tuple[ShardHarness, Request]:
    world = RefusingStreamsWorld(words=4)
    world.member("a").join()
    world.now_ms += 60_000
    return world, lambda: world.run(world.shard.decide_deadline(world.now_ms))


def classic_member_joins_empty_streams_group() -> tuple[ShardHarness, Request]:
    world = RefusingStreamsWorld(words=4)
    member = world.member("a")
    member.join()
    member.leave()
    return world, lambda: world.join()


SITUATIONS = [
    classic_leader_syncs,
    classic_leader_syncs_while_a_follower_waits,
    classic_last_member_leaves,
    classic_last_session_ends,
    classic_static_member_is_replaced,
    classic_member_commits,
    classic_group_is_deleted,
    groups_expire,
    classic_member_joins_empty_consumer_group,
    consumer_member_joins,
    consumer_member_leaves,
    consumer_member_gives_up,
    consumer_static_member_is_replaced,
    consumer_sessions_end,
    classic_group_is_upgraded,
    classic_group_is_upgraded_in_a_rebalance,
    last_consumer_member_leaves_classic_ones,
    group_becomes_classic,
    classic_member_joins_consumer_group,
    classic_member_leaves_consumer_group,
    share_member_joins,
    share_member_leaves,
    share_sessions_end,
    streams_member_joins,
    streams_member_leaves,
    streams_sessions_end,
    classic_member_joins_empty_streams_group,
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_request_whose_records_are_refused_has_changed_nothing(
    situation: Callable[[], tuple[ShardHarness, Request]], error: ErrorCode
) -> None:
    world, request = situation()
    waiting = dict(world.waiting)
    before, deadlines = picture(world.shard), dict(world.shard._deadlines._deadline_ms)
    world.is_log_refusing, world.refusal = True, error
    with capture_logs() as lines, pytest.raises(LogRefusesError):
        request()
    after, known = without_deadlines(picture(world.shard)), world.shard._deadlines._deadline_ms
    assert after == without_deadlines(before)
    assert known.keys() == deadlines.keys()
    postponed = [key for key in known if known[key] != deadlines[key]]
    if error is not ErrorCode.MESSAGE_TOO_LARGE or all(at_ms > world.now_ms for at_ms in deadlines.values()):
        assert not postponed
    else:  # a single deadline whose own records are too large, so that it does not stop the others
        assert [known[key] for key in postponed] in ([], [world.now_ms + REFUSED_PAUSE_MS])
    assert not members_without_deadline(world.shard)
    assert not lines, "what has not happened is not logged"
    assert {token: waiting[token] for token in waiting if not waiting[token].is_answered} == waiting
    # Once the log takes records again the same leads to what it always does.
    world.is_log_refusing = False
    world.now_ms += 1_000
    request()
    assert picture(world.shard) != before, "the log had something to refuse"
    assert not members_without_deadline(world.shard)
    world.advance(48 * HOUR_MS)
    assert not any(group.members for group in world.shard._groups.values() if not isinstance(group, ClassicGroup)), (
        "all sessions end"
    )


def without_deadlines(drawn: Any) -> Any:
    if isinstance(drawn, dict):
        return {name: without_deadlines(value) for name, value in drawn.items() if name != "_deadlines"}
    return drawn


def test_five_hundred_groups_with_long_names_time_out_in_bounded_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # unwatched: a picture of so large a shard takes long
    world = GroupWorld()
    for number in range(500):
        world.stable_group(2, group_id=f"{number:03}" + "g" * 597, client_id="m" * 500)
    world.now_ms += 11_000
    count = 0
    while (deadline_ms := world.shard.next_deadline_ms()) is not None and deadline_ms <= world.now_ms:
        decision = world.shard.decide_deadline(world.now_ms)
        assert sum(len(record.key) + len(record.value or b"") for record in decision.records) < 18_000
        world.run(decision)
        count += 1
    assert not any(group.members for group in world.classic_groups.values())
    assert count > 10


def test_a_record_that_is_too_large_does_not_keep_other_groups_from_their_answers() -> None:
    world = RefusingWorld()
    world.stable_group(1, group_id="large")
    waiting = []
    for number in range(20):
        (leader,) = world.stable_group(1, group_id=f"g{number}", session_timeout_ms=30_000, rebalance_timeout_ms=10_000)
        waiting.append(world.join_known(f"g{number}", session_timeout_ms=30_000, rebalance_timeout_ms=10_000)[1])
        assert world.group(f"g{number}").members[leader]
    world.now_ms += 10_000
    for _ in range(50):
        deadline_ms = world.shard.next_deadline_ms()
        if deadline_ms is None or deadline_ms > world.now_ms:
            break
        decision = world.shard.decide_deadline(world.now_ms)
        world.is_log_refusing = any(b"large" in record.key for record in decision.records)
        try:
            world.run(decision)
        except LogRefusesError:
            assert not members_without_deadline(world.shard)
    assert all(joined.is_answered for joined in waiting)
    assert world.group("large").members
    world.is_log_refusing = False
    world.advance(1_000)
    assert not world.group("large").members
