"""Commits of offsets: who may commit, and what is stored."""

from __future__ import annotations

import pytest

from fencepost.broker.group.classic.group import ClassicState
from fencepost.broker.group.offsets.commits import Committer
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from tests.support.group_shard import ShardHarness

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)


@pytest.fixture
def shard() -> ShardHarness:
    return ShardHarness()


def test_a_group_without_members_can_commit(shard: ShardHarness) -> None:
    assert shard.commit(5, metadata="note", leader_epoch=3) is ErrorCode.NONE
    (fetched,) = shard.shard.offsets.fetch("g", [ORDERS], require_stable=False)
    assert fetched == (ORDERS, 5, 3, "note", ErrorCode.NONE)
    assert shard.state() is ClassicState.EMPTY


def test_missing_metadata_is_stored_as_empty(shard: ShardHarness) -> None:
    shard.commit(5, metadata=None)
    (fetched,) = shard.shard.offsets.fetch("g", None, require_stable=False)
    assert fetched.metadata == ""


def test_an_unknown_group_has_no_offsets(shard: ShardHarness) -> None:
    (fetched,) = shard.shard.offsets.fetch("g", [ORDERS], require_stable=True)
    assert fetched == (ORDERS, -1, -1, "", ErrorCode.NONE)
    assert shard.shard.offsets.fetch("g", None, require_stable=True) == []


def test_too_long_metadata_is_refused(shard: ShardHarness) -> None:
    assert shard.commit(5, metadata="x" * 4_096) is ErrorCode.NONE
    assert shard.commit(6, metadata="x" * 4_097) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert shard.committed() == 5


def test_a_generation_of_an_unknown_group_is_refused(shard: ShardHarness) -> None:
    assert shard.commit(5, committer=Committer(1, "m")) is ErrorCode.GROUP_ID_NOT_FOUND
    before_version_9 = Committer(1, "m", knows_member_epochs=False)
    assert shard.commit(5, committer=before_version_9) is ErrorCode.ILLEGAL_GENERATION
    assert shard.commit(5, committer=before_version_9, producer_id=7) is ErrorCode.ILLEGAL_GENERATION
    assert shard.commit(5, committer=Committer(1, "m"), producer_id=7) is ErrorCode.GROUP_ID_NOT_FOUND
    assert shard.state() is None


@pytest.mark.parametrize(
    ("committer", "plain", "transactional"),
    [
        (Committer(), ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE),
        (Committer(1, "made-up"), ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer(0, "LEADER"), ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
        (Committer(-1, "LEADER"), ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
        (Committer(1, "LEADER", "nobody"), ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer(1, "LEADER"), ErrorCode.NONE, ErrorCode.NONE),
    ],
)
def test_commits_to_a_stable_group_are_checked(
    shard: ShardHarness, committer: Committer, plain: ErrorCode, transactional: ErrorCode
) -> None:
    (leader,) = shard.stable_group()
    committer = committer._replace(member_id=leader if committer.member_id == "LEADER" else committer.member_id)
    assert shard.commit(5, committer=committer) is plain
    assert shard.commit(5, committer=committer, producer_id=7) is transactional


def test_a_member_can_commit_the_old_generation_until_the_next_begins(shard: ShardHarness) -> None:
    (leader,) = shard.stable_group()
    shard.join(version=3)
    assert shard.commit(5, committer=Committer(1, leader)) is ErrorCode.NONE
    shard.join(member_id=leader)
    assert shard.commit(6, committer=Committer(1, leader)) is ErrorCode.ILLEGAL_GENERATION
    assert shard.commit(6, committer=Committer(2, leader)) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.commit(6, committer=Committer(2, leader), producer_id=7) is ErrorCode.NONE


def test_a_fenced_static_member_cannot_commit(shard: ShardHarness) -> None:
    old = shard.join(instance_id="i").answer.member_id
    shard.sync_all()
    shard.join(instance_id="i")
    assert shard.commit(5, committer=Committer(1, old, "i")) is ErrorCode.FENCED_INSTANCE_ID
    assert shard.commit(5, committer=Committer(1, old, "i"), producer_id=7) is ErrorCode.FENCED_INSTANCE_ID


def test_a_transactional_commit_needs_a_group_id(shard: ShardHarness) -> None:
    assert shard.commit(5, group_id="", producer_id=7) is ErrorCode.INVALID_GROUP_ID
    assert shard.commit(5, group_id="") is ErrorCode.NONE
