"""What an import would do, and the reasons against it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fencepost.cli.group_files import FileOffset, GroupFile
from fencepost.cli.group_imports import (
    Committed,
    GroupNow,
    Move,
    Rules,
    World,
    changes_between,
    commit,
    plan_of,
    read_world,
)
from fencepost.cli.topic_choice import ZERO_ID, FoundTopic
from fencepost.client.cluster import Cluster
from fencepost.client.options import addresses_of
from fencepost.client.session import ClientOptions
from fencepost.console.reading.topics import PartitionState
from tests.cli.test_topic_changes import ask, run

ID, OTHER_ID = bytes([1]) * 16, bytes([2]) * 16
OFFSET = FileOffset("billing", "orders", 0, 5, ID, 3, "note")
FILE = GroupFile([OFFSET], "here")
WORLD = World(
    "here",
    {"billing": GroupNow("consumer", "Empty", (), {("orders", 0): Committed(9, 3, "")})},
    {"orders": FoundTopic("orders", ID, False, 1)},
    {},
    {("orders", 0): PartitionState("orders", 0, 1, 4, start=2, high_watermark=10, last_stable_offset=10)},
)
MOVE = Move("billing", "orders", 0, 9, 5, ID, 3, "note")


def refusals(file: GroupFile = FILE, world: World = WORLD, rules: Rules = Rules()) -> list[str]:  # noqa: B008
    return list(plan_of(file, world, rules).refusals)


def with_group(now: GroupNow) -> World:
    return replace(WORLD, groups={"billing": now})


def with_offset(**changes: Any) -> GroupFile:
    return GroupFile([OFFSET._replace(**changes)], "here")


def test_an_offset_is_set_with_its_epoch_and_metadata() -> None:
    assert plan_of(FILE, WORLD, Rules()).moves == [MOVE]
    assert plan_of(FILE, with_group(GroupNow()), Rules()).moves == [MOVE._replace(before=None)]


@pytest.mark.parametrize(
    "file", [with_offset(leader_epoch=5), with_offset(topic_id=ZERO_ID), with_offset(leader_epoch=-1)]
)
def test_an_epoch_that_is_not_of_this_log_is_left_out(file: GroupFile) -> None:
    assert [one.leader_epoch for one in plan_of(file, WORLD, Rules()).moves] == [-1]


def test_a_topic_of_another_id_is_refused_unless_it_is_asked_for() -> None:
    other = with_offset(topic_id=OTHER_ID)
    assert "it was created again, and its offsets mean other records" in refusals(other)[0]
    assert "its offsets may mean other records" in refusals(replace(other, cluster_id="there"))[0]
    (move,) = plan_of(other, WORLD, Rules(any_topic_id=True)).moves
    assert (move.topic_id, move.leader_epoch) == (ID, -1)


@pytest.mark.parametrize(("offset", "nearest"), [(1, 2), (11, 10)])
def test_an_offset_outside_of_the_log_is_refused_or_moved(offset: int, nearest: int) -> None:
    outside = with_offset(offset=offset)
    assert refusals(outside) == [f"orders-0 has the offsets 2 to 10, and {offset} is none of them"]
    (move,) = plan_of(outside, WORLD, Rules(nearest=True)).moves
    assert (move.offset, move.leader_epoch) == (nearest, -1)


def test_a_group_in_use_is_refused_with_its_members() -> None:
    in_use = GroupNow("consumer", "Stable", ("web-1 at 10.0.0.1", "web-2 at 10.0.0.2"))
    assert refusals(world=with_group(in_use)) == [
        "group 'billing' is in use (Stable: web-1 at 10.0.0.1; web-2 at 10.0.0.2); stop its members first"
    ]
    rebalancing = GroupNow("classic", "PreparingRebalance")
    assert "(PreparingRebalance: members unknown)" in refusals(world=with_group(rebalancing))[0]


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (GroupNow("share", "Empty"), "'billing' is a share group, which has no committed offsets"),
        (GroupNow("classic", "Empty", error="NOT_COORDINATOR"), "group 'billing' cannot be read: NOT_COORDINATOR"),
        (
            GroupNow("classic", "Empty", (), {("orders", 0): Committed(-1, -1, "", 88)}),
            "group 'billing' has an offset of orders-0 that is UNSTABLE_OFFSET_COMMIT",
        ),
    ],
)
def test_a_group_that_cannot_be_set_is_refused(now: GroupNow, message: str) -> None:
    assert refusals(world=with_group(now)) == [message]


def test_topics_and_partitions_that_are_not_there_or_silent_are_refused() -> None:
    assert refusals(with_offset(topic="gone")) == ["there is no topic 'gone'"]
    denied = replace(WORLD, topics={}, topic_errors={"orders": 29})
    assert refusals(world=denied) == ["topic 'orders': TOPIC_AUTHORIZATION_FAILED"]
    assert refusals(with_offset(partition=1)) == ["topic 'orders' has no partition 1; it has 1"]
    silent = replace(WORLD, partitions={("orders", 0): PartitionState("orders", 0, -1, 4, error="it has no leader")})
    assert refusals(world=silent) == ["orders-0 does not answer: it has no leader"]


def test_a_change_since_the_preview_is_found() -> None:
    before = plan_of(FILE, WORLD, Rules())
    assert changes_between(before, plan_of(FILE, WORLD, Rules())) == []
    moved = with_group(GroupNow("consumer", "Empty", (), {("orders", 0): Committed(10, 3, "")}))
    assert changes_between(before, plan_of(FILE, moved, Rules())) == [
        "group 'billing' was at 9 in orders-0, and is at 10"
    ]
    assert changes_between(before, plan_of(FILE, with_group(GroupNow()), Rules())) == [
        "group 'billing' was at 9 in orders-0, and is at no offset"
    ]
    again = replace(WORLD, topics={"orders": FoundTopic("orders", OTHER_ID, False, 1)})
    rules = Rules(any_topic_id=True)
    assert changes_between(before, plan_of(FILE, again, rules)) == ["orders-0 is another topic, or another part of it"]
    joined = with_group(GroupNow("consumer", "Stable", ("web-1 at 10.0.0.1",)))
    assert "is in use" in changes_between(before, plan_of(FILE, joined, Rules()))[0]


def test_offsets_of_a_topic_that_was_made_again_are_not_set(fencepost: Any) -> None:
    fencepost.topic("renewed")

    async def plan(cluster: Cluster) -> list[Move]:
        file = GroupFile([FileOffset("late", "renewed", 0, 0)])
        return list(plan_of(file, await read_world(cluster, file), Rules()).moves)

    moves = ask(fencepost, plan)
    assert run(fencepost, "delete", "renewed", "--yes").exit_code == 0
    assert run(fencepost, "create", "renewed", "-p", "1").exit_code == 0
    refused = ask(fencepost, lambda cluster: commit(cluster, moves))
    assert refused == [(moves[0], "the topic was deleted, or deleted and created again")]
    assert ask(fencepost, plan)[0].before is None


def test_thousands_of_groups_are_set_and_read(fencepost: Any) -> None:
    topic = fencepost.topic("wide")
    file = GroupFile([FileOffset(f"wide-{number}", topic, 0, 0) for number in range(2_000)])

    async def set_all() -> tuple[list[tuple[Move, str]], list[int | None]]:
        cluster = Cluster(addresses_of(fencepost.bootstrap_servers), ClientOptions())
        try:
            moves = plan_of(file, await read_world(cluster, file), Rules()).moves
            refused = await commit(cluster, moves)
            again = plan_of(file, await read_world(cluster, file), Rules()).moves
            return refused, [one.before for one in again]
        finally:
            cluster.close()

    assert asyncio.run(set_all()) == ([], [0] * 2_000)
