"""Requests that are meant for groups of other kinds, and name share groups; none of them makes a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.group_admin import DescribeGroupsRequest
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from fencepost.protocol.messages.streams_groups import StreamsGroupDescribeRequest
from tests.differences.random_sequences.share_groups.groups import MEMBERLESS, ShareGroups
from tests.differences.random_sequences.steps import SlicedWork

MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
EPOCH = 3


class Strangers:
    """Clients that take a share group for something else."""

    def __init__(self, steps: SlicedWork, groups: ShareGroups) -> None:
        self.steps = steps
        self.groups = groups
        steps.exchange.remember(MEMBER, "a stranger")

    def ask(self) -> None:
        group = self.steps.random.choice((*self.groups.names, MEMBERLESS))
        name = self.steps.exchange.name(group)
        topic = self.steps.exchange.name(self.groups.topics.names[0])
        commit = OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 1)])
        delete = OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])
        requests: dict[str, tuple[int, Callable[[], Any]]] = {
            "describe the classic group": (6, lambda: DescribeGroupsRequest([name])),
            "describe the consumer group": (1, lambda: ConsumerGroupDescribeRequest([name])),
            "describe the streams group": (0, lambda: StreamsGroupDescribeRequest([name])),
            "heartbeat to the classic group": (4, lambda: HeartbeatRequest(name, EPOCH, MEMBER)),
            "heartbeat to the consumer group": (1, lambda: ConsumerGroupHeartbeatRequest(name, MEMBER, EPOCH)),
            "synchronize the classic group": (5, lambda: SyncGroupRequest(name, EPOCH, MEMBER)),
            "leave the classic group": (5, lambda: LeaveGroupRequest(name, members=[MemberIdentity(MEMBER)])),
            "commit an offset of the group": (8, lambda: OffsetCommitRequest(name, EPOCH, MEMBER, topics=[commit])),
            "fetch the offsets of the group": (8, lambda: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name)])),
            "delete an offset of the group": (0, lambda: OffsetDeleteRequest(name, [delete])),
        }
        what = self.steps.random.choice(list(requests))
        version, request = requests[what]
        self.steps.ask(f"{what} {group}", request(), version)
