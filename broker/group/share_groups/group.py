"""A share group: its members, what each reads, and the share partitions that have state. Pure.

Members need nothing from each other: what one is to read it may read at once, along with others. All of it changes only
by records, see `share_records`.
Source: KIP-932; Kafka's ShareGroup and ShareGroupMember.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from fencepost.broker.group.consumer.group import FIRST_GROUP_EPOCH, JOIN_EPOCH, Assignment

SHARE_PROTOCOL_TYPE = "share"


class ShareGroupState(Enum):
    """The value is the name that ShareGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member. previous_member_epoch: a member whose last answer was lost still comes with it."""

    member_id: str
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    assigned: Assignment = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """Share partitions of one topic that have state, or are to have. name: the topic's, when that was written."""

    name: str
    partitions: frozenset[int]


StateTopics = Mapping[bytes, StatePartitions]
"""By topic id."""


@dataclass(frozen=True, slots=True)
class ShareStatePartitions:
    """Which share partitions have state: it is being made, is there, or is being deleted.

    initializing_since_ms: when that was written down; the making is tried again after a while.
    """

    initializing: StateTopics = field(default_factory=dict)
    initialized: StateTopics = field(default_factory=dict)
    deleting: Mapping[bytes, str] = field(default_factory=dict)
    initializing_since_ms: int = 0


def union_of_topics(topics: StateTopics, more: StateTopics) -> dict[bytes, StatePartitions]:
    """All partitions of both."""
    result = dict(topics)
    for topic_id, added in more.items():
        known = result.get(topic_id)
        partitions = added.partitions if known is None else known.partitions | added.partitions
        result[topic_id] = StatePartitions(added.name, partitions)
    return result


def difference_of_topics(topics: StateTopics, gone: Mapping[bytes, Iterable[int]]) -> dict[bytes, StatePartitions]:
    """The partitions that are left."""
    result = {}
    for topic_id, known in topics.items():
        partitions = known.partitions.difference(gone.get(topic_id, ()))
        if partitions:
            result[topic_id] = StatePartitions(known.name, partitions)
    return result


class ShareGroup:
    """One group. Members and assignments are replaced, never changed, so that a copy of the group is shallow.

    target:                  by member id, what each is to read.
    state_partitions:        None until a member has subscribed.
    checked_topics_version:  the version of the metadata for which the topics are known to hash to `metadata_hash`; in
                             memory only.
    """

    group_type = "share"
    protocol_type = SHARE_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = FIRST_GROUP_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ShareMember] = {}
        self.target: dict[str, Assignment] = {}
        self.state_partitions: ShareStatePartitions | None = None
        self.checked_topics_version: int | None = None

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def state_name(self) -> str:
        return self.state.value

    def subscribed_topics(self) -> frozenset[str]:
        """Topics that members want, whether they exist or not."""
        return frozenset().union(*{member.subscribed_topic_names for member in self.members.values()})

    @property
    def assignable(self) -> Assignment:
        """Share partitions that can be read: those that have state."""
        known = self.state_partitions
        return {} if known is None else {topic_id: topic.partitions for topic_id, topic in known.initialized.items()}

    def has_unassigned_state(self) -> bool:
        """Whether share partitions that somebody wants have got state, or lost it, since they were assigned."""
        known = self.state_partitions
        if not self.members or known is None:
            return False
        assigned: dict[bytes, frozenset[int]] = {}
        for assignment in self.target.values():
            for topic_id, partitions in assignment.items():
                assigned[topic_id] = assigned.get(topic_id, frozenset()) | partitions
        wanted = self.subscribed_topics()
        return any(
            topic.name in wanted and assigned.get(topic_id) != topic.partitions
            for topic_id, topic in known.initialized.items()
        )

    def copy(self) -> ShareGroup:
        """A group that can change on its own; what it consists of is shared."""
        other = ShareGroup.__new__(ShareGroup)
        other.__dict__.update(self.__dict__, members=dict(self.members), target=dict(self.target))
        return other
