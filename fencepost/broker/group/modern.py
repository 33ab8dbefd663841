"""The common part of consumer, share and streams groups: epochs, members, and a target that the broker makes. Pure.

The group epoch counts changes of members, subscriptions and topics. The target assignment belongs to a group epoch.
Members move towards it one by one, each with an epoch of its own.
Source: KIP-848, KIP-932, KIP-1071; Kafka's ModernGroup and ModernGroupMember.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import ClassVar, Generic, NamedTuple, Self, TypeVar

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_WHILE_EPOCH = -2
"""Epoch of a static member that has left and will return under its instance id."""

TARGET_DELETED_EPOCH = -1
FIRST_GROUP_EPOCH = 1
"""Epoch of a group without a record of its epoch: a target assignment is due for its first member in any case."""

# Short heartbeat intervals during a rebalance: with Kafka's interval a member would learn of every step up to five
# seconds late.
SETTLING_HEARTBEAT_INTERVAL_MS = 500
SETTLING_PERIOD_MS = 3_000

Assignment = Mapping[bytes, frozenset[int]]
"""Partitions by topic id."""

NO_PARTITIONS: Assignment = MappingProxyType({})


class MemberState(IntEnum):
    """State of a member's reconciliation, with the numbers of its record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


def every_name(name: str) -> bool:
    """Whether a client without limits to its rights may describe a topic: yes."""
    return True


class HeartbeatContext(NamedTuple):
    """Client of a heartbeat.

    new_member_id: id for a member of version 0 that has none.
    may_describe:  whether the client may see a topic of this name: of those that a regular expression matches.
    """

    client_id: str
    client_host: str
    new_member_id: str
    may_describe: Callable[[str], bool] = every_name


MemberT = TypeVar("MemberT")
TargetT = TypeVar("TargetT")


class ModernGroup(Generic[MemberT, TargetT]):
    """One group. Members and assignments are immutable and get replaced, so a copy of the group is shallow.

    target: target assignment by member id.
    """

    group_type: ClassVar[str]
    protocol_type: ClassVar[str]

    def __init__(self, group_id: str, *, assignment_epoch: int = 0) -> None:
        self.group_id = group_id
        self.group_epoch = FIRST_GROUP_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = assignment_epoch
        self.assignment_timestamp_ms = 0
        self.members: dict[str, MemberT] = {}
        self.target: dict[str, TargetT] = {}

    @property
    def state(self) -> Enum:
        """Its value is the name in replies."""
        raise NotImplementedError

    @property
    def state_name(self) -> str:
        name: str = self.state.value
        return name

    def copy(self) -> Self:
        """Return a shallow copy that can change without changing this group."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__, members=dict(self.members), target=dict(self.target))
        return other

    def next_heartbeat_ms(self, interval_ms: int, now_ms: int, *, is_settled: bool) -> int:
        """Return the time to a member's next heartbeat: short while it reconciles, and soon after an assignment."""
        if is_settled and now_ms >= self.assignment_timestamp_ms + SETTLING_PERIOD_MS:
            return interval_ms
        return min(interval_ms, SETTLING_HEARTBEAT_INTERVAL_MS)

    def is_target_too_recent(self, interval_ms: int, now_ms: int) -> bool:
        """Whether the last target was made less than the interval ago. interval_ms: 0 for any time."""
        made_ms = self.assignment_timestamp_ms
        return bool(made_ms and interval_ms) and now_ms < made_ms + interval_ms
