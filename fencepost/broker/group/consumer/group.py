"""Group of the consumer protocol: its members, their assignments and its epochs. Pure.

The group epoch counts changes of members, subscriptions and topics. The broker makes a target assignment for a group
epoch; members move towards it one by one, each with its own epoch. Only records change this state, see `records.py`.
Source: KIP-848; Kafka's ConsumerGroup, ModernGroup and ConsumerGroupMember.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from fencepost.broker.group.classic.group import CONSUMER_PROTOCOL_TYPE, Protocols
from fencepost.broker.group.modern import NO_PARTITIONS, Assignment, MemberState, ModernGroup

OwnedPartitions = Mapping[bytes, Mapping[int, int]]
"""By topic id: partitions with the member epoch since which they are owned."""


class ConsumerGroupState(Enum):
    """States of a group. The values are the names in ConsumerGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ClassicSpeaker:
    """State that only a member of the classic protocol has; the first protocol is the one in use."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member.

    previous_member_epoch:  the epoch before; a member whose last reply was lost still sends it.
    subscribed_topic_regex: empty for none.
    assigned:               partitions that it may read, with the epoch since which it owns each.
    pending_revocation:     partitions that it has to revoke, and may still commit offsets for.
    classic:                None for a member of the consumer protocol.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    server_assignor: str | None = None
    assigned: OwnedPartitions = field(default_factory=dict)
    pending_revocation: OwnedPartitions = field(default_factory=dict)
    classic: ClassicSpeaker | None = None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def owned_since(self, topic_id: bytes, partition: int) -> int | None:
        """Return the epoch since which the member owns the partition, also one to revoke; None if it does not."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """Topics that a regular expression matched at a version of the metadata and a time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup(ModernGroup[ConsumerMember, Assignment]):
    """One group.

    has_partition_metadata:  the log still holds the record in which Kafka 4.0 kept the topics.
    checked_topics_version:  version of the metadata at which the topics last hashed to `metadata_hash`.
    checked_regexes_version: version of the metadata at which the regular expressions were last resolved.
    checked_regexes_ms:      time of that check. These three are in memory only.
    """

    group_type = "consumer"
    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, str] = {}  # group instance id -> member id
        self.regexes: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False
        self.checked_topics_version: int | None = None
        self.checked_regexes_version: int | None = None
        self.checked_regexes_ms = 0
        self._owners: dict[bytes, dict[int, str]] = {}
        self._subscribed_topics: frozenset[str] | None = None
        self._subscribed_regexes: frozenset[str] | None = None

    # Questions

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def subscribed_topics(self) -> frozenset[str]:
        """Topics that members subscribe to by name or by a regular expression, whether they exist or not."""
        if self._subscribed_topics is None:
            topics: set[str] = set()
            for names in {member.subscribed_topic_names for member in self.members.values()}:
                topics |= names
            for regex in self.subscribed_regexes():
                resolved = self.regexes.get(regex)
                if resolved is not None:
                    topics |= resolved.topics
            self._subscribed_topics = frozenset(topics)
        return self._subscribed_topics

    def subscribed_regexes(self) -> frozenset[str]:
        if self._subscribed_regexes is None:
            self._subscribed_regexes = frozenset(
                member.subscribed_topic_regex for member in self.members.values() if member.subscribed_topic_regex
            )
        return self._subscribed_regexes

    def subscription_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that one member subscribes to."""
        resolved = self.regexes.get(member.subscribed_topic_regex) if member.subscribed_topic_regex else None
        if resolved is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | resolved.topics

    def owner(self, topic_id: bytes, partition: int) -> str | None:
        """Return the member that owns a partition or has not confirmed its revocation."""
        return self._owners.get(topic_id, {}).get(partition)

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def preferred_assignor(self, default: str) -> str:
        """Return the assignor that most members request."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.server_assignor is not None:
                votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
        return max(votes, key=votes.__getitem__) if votes else default

    def is_waiting_for_others(self, member: ConsumerMember) -> bool:
        """Return whether other members still own partitions of the member's target."""
        return any(
            partition not in member.assigned.get(topic_id, {})
            and self.owner(topic_id, partition) not in (None, member.member_id)
            for topic_id, partitions in self.target.get(member.member_id, NO_PARTITIONS).items()
            for partition in partitions
        )

    # Changes

    def copy(self) -> Self:
        other = super().copy()
        other.static_members = dict(self.static_members)
        other.regexes = dict(self.regexes)
        other._owners = {topic_id: dict(owners) for topic_id, owners in self._owners.items()}  # noqa: SLF001
        return other

    def put_member(self, member: ConsumerMember) -> None:
        """Add a member, or replace the one with its id."""
        previous = self.members.get(member.member_id)
        if previous is None or (
            previous.assigned is not member.assigned or previous.pending_revocation is not member.pending_revocation
        ):
            if previous is not None:
                self._release(previous)
            self._own(member)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if (
            previous is None
            or previous.subscribed_topic_names != member.subscribed_topic_names
            or previous.subscribed_topic_regex != member.subscribed_topic_regex
        ):
            self._subscribed_topics = self._subscribed_regexes = None

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        self._subscribed_topics = self._subscribed_regexes = None

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set the matches of a regular expression; None removes one that no member uses any more."""
        if resolved is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = resolved
        self._subscribed_topics = None

    def _own(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                owners = self._owners.setdefault(topic_id, {})
                for partition in partitions:
                    owners[partition] = member.member_id

    def _release(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                owners = self._owners.get(topic_id, {})
                for partition in partitions:
                    # In the replay of a compacted log a later owner may come first.
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self._owners.pop(topic_id, None)
