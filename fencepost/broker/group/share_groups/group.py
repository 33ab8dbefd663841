"""Share group: its members, their assignments, and the share partitions that have state. Pure.

Several members may read a partition, so each reads its new assignment immediately. Only records change this state, see
`records.py`.
Source: KIP-932; Kafka's ShareGroup and ShareGroupMember.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from fencepost.broker.group.modern import JOIN_EPOCH, Assignment, ModernGroup

SHARE_PROTOCOL_TYPE = "share"


class ShareGroupState(Enum):
    """States of a group. The values are the names in ShareGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member. previous_member_epoch: a member whose last reply was lost still sends it."""

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
    """Share partitions of one topic that have or get state. name: the topic's name when the record was written."""

    name: str
    partitions: frozenset[int]


StateTopics = Mapping[bytes, StatePartitions]
"""By topic id."""


@dataclass(frozen=True, slots=True)
class ShareStatePartitions:
    """Share partitions whose state is being initialized, is initialized, or is being deleted.

    initializing_since_ms: time of the record; initialization is retried after `share_initialize_retry_interval_ms`.
    """

    initializing: StateTopics = field(default_factory=dict)
    initialized: StateTopics = field(default_factory=dict)
    deleting: Mapping[bytes, str] = field(default_factory=dict)
    initializing_since_ms: int = 0


def union_of_topics(topics: StateTopics, more: StateTopics) -> dict[bytes, StatePartitions]:
    """Return the partitions of both, by topic."""
    result = dict(topics)
    for topic_id, added in more.items():
        known = result.get(topic_id)
        partitions = added.partitions if known is None else known.partitions | added.partitions
        result[topic_id] = StatePartitions(added.name, partitions)
    return result


def difference_of_topics(topics: StateTopics, removed: Mapping[bytes, Iterable[int]]) -> dict[bytes, StatePartitions]:
    """Return the partitions of `topics` that are not in `removed`."""
    result = {}
    for topic_id, known in topics.items():
        partitions = known.partitions.difference(removed.get(topic_id, ()))
        if partitions:
            result[topic_id] = StatePartitions(known.name, partitions)
    return result


class ShareGroup(ModernGroup[ShareMember, Assignment]):
    """One group.

    state_partitions:        None until a member has subscribed.
    checked_topics_version:  version of the metadata at which the topics last hashed to `metadata_hash`; in memory only.
    """

    group_type = "share"
    protocol_type = SHARE_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state_partitions: ShareStatePartitions | None = None
        self.checked_topics_version: int | None = None

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def subscribed_topics(self) -> frozenset[str]:
        """Topics that members subscribe to, whether they exist or not."""
        return frozenset().union(*{member.subscribed_topic_names for member in self.members.values()})

    @property
    def assignable(self) -> Assignment:
        """Share partitions that can be assigned: those that have state."""
        known = self.state_partitions
        return {} if known is None else {topic_id: topic.partitions for topic_id, topic in known.initialized.items()}

    def has_unassigned_state(self) -> bool:
        """Whether subscribed share partitions have got or lost state since the last assignment."""
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
