"""The common part of consumer, share and streams groups: copies, and times that follow from the last assignment."""

from __future__ import annotations

import pytest

from fencepost.broker.group.consumer.group import ConsumerGroup, ConsumerMember
from fencepost.broker.group.modern import (
    FIRST_GROUP_EPOCH,
    SETTLING_HEARTBEAT_INTERVAL_MS,
    SETTLING_PERIOD_MS,
    ModernGroup,
)
from fencepost.broker.group.share_groups.group import ShareGroup
from fencepost.broker.group.streams.group import FIRST_ASSIGNMENT_EPOCH, StreamsGroup

KINDS = (ConsumerGroup, ShareGroup, StreamsGroup)


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_is_due_for_the_first_member_of_a_new_group(kind: type[ModernGroup[object, object]]) -> None:
    group = kind("g")
    assert group.group_epoch == FIRST_GROUP_EPOCH
    assert group.assignment_epoch == (FIRST_ASSIGNMENT_EPOCH if kind is StreamsGroup else 0)
    assert (group.members, group.target, group.state_name) == ({}, {}, "Empty")


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_changes_without_its_group(kind: type[ModernGroup[object, object]]) -> None:
    group = kind("g")
    copy = group.copy()
    copy.members["m"] = copy.target["m"] = object()
    copy.group_epoch += 1
    assert (type(copy), group.members, group.target, group.group_epoch) == (kind, {}, {}, FIRST_GROUP_EPOCH)


def test_what_only_a_consumer_group_has_is_copied_too() -> None:
    group = ConsumerGroup("g")
    group.put_member(ConsumerMember("m", instance_id="i", assigned={b"topic": {0: 1}}))
    copy = group.copy()
    copy.remove_member("m")
    assert (copy.static_member("i"), copy.owner(b"topic", 0)) == (None, None)
    assert (group.static_member("i"), group.owner(b"topic", 0)) == (group.members["m"], "m")


@pytest.mark.parametrize(
    ("is_settled", "since_assignment_ms", "expected_ms"),
    [
        (True, SETTLING_PERIOD_MS, 5_000),
        (True, SETTLING_PERIOD_MS - 1, SETTLING_HEARTBEAT_INTERVAL_MS),
        (False, SETTLING_PERIOD_MS, SETTLING_HEARTBEAT_INTERVAL_MS),
    ],
)
def test_heartbeats_are_short_until_a_member_has_settled(
    is_settled: bool, since_assignment_ms: int, expected_ms: int
) -> None:
    group = ShareGroup("g")
    group.assignment_timestamp_ms = 1_000
    now_ms = 1_000 + since_assignment_ms
    assert group.next_heartbeat_ms(5_000, now_ms, is_settled=is_settled) == expected_ms
    assert group.next_heartbeat_ms(100, now_ms, is_settled=is_settled) == 100


def test_a_target_is_too_recent_only_within_the_interval_after_one() -> None:
    group = ShareGroup("g")
    assert not group.is_target_too_recent(1_000, 5)
    group.assignment_timestamp_ms = 10_000
    assert group.is_target_too_recent(1_000, 10_999)
    assert not group.is_target_too_recent(1_000, 11_000)
    assert not group.is_target_too_recent(0, 10_001)
