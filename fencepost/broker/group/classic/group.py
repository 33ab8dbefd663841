"""Classic group: its states as one table, its members, and the choice of protocol and leader. Pure.

Source: KIP-62, KIP-345 (static members), KIP-394 (member ids), KIP-814 (skip assignment); Kafka's ClassicGroup and
        ClassicGroupMember.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Self

from fencepost.broker.group.consumer.protocol import subscribed_topics
from fencepost.broker.group.java_order import hash_map_order
from fencepost.protocol.errors import ErrorCode

CONSUMER_PROTOCOL_TYPE = "consumer"
PROTOCOL_BYTES = 100  # memory of one protocol of a member, without its metadata


class ClassicState(Enum):
    """States of a group. The values are the names in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicEvent(Enum):
    """Events of a classic group; whether the member behind an event belongs to the group is checked before."""

    MEMBER_ADDED = "a new member joins"
    MEMBER_CHANGED = "a member joins again with other protocols, or leads a stable group and joins again"
    MEMBER_RETURNED = "a member joins again as it was"
    MEMBER_REPLACED = "a new process takes over a static member"
    MEMBER_REMOVED = "a member leaves or its session ends"
    JOIN_COMPLETED = "every member has joined, or the time to do so is over"
    EMPTIED = "the generation without members is in the log"
    SYNC = "a member asks for its assignment"
    ASSIGNED = "the leader's assignment is in the log"
    SYNC_EXPIRED = "members did not ask for their assignment in time"
    HEARTBEAT = "a member shows that it is alive"
    COMMIT_AS_MEMBER = "a member of this generation commits offsets"
    COMMIT_AS_STRANGER = "offsets are committed without naming a member"
    COMMIT_IN_TRANSACTION = "offsets are committed in a transaction"
    DELETE_OFFSETS = "an administrator deletes offsets"
    DELETE_CONSUMED_OFFSETS = "an administrator deletes offsets of a group of consumers"
    DELETE_GROUP = "an administrator deletes the group"
    EXPIRED = "no offset of the group is left"


class GroupTableAction(Enum):
    """Actions for an event that neither moves the group to another state nor is refused."""

    WAIT = "the request is parked until the other members have sent theirs"
    ANSWER = "the current generation is the answer"
    ACCEPT = "done, the state stays"
    IGNORE = "nothing to do in this state"


ClassicCell = ClassicState | ErrorCode | GroupTableAction

_EMPTY, _STABLE, _DEAD = ClassicState.EMPTY, ClassicState.STABLE, ClassicState.DEAD
_PREPARING, _COMPLETING = ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE
_WAIT, _ANSWER, _ACCEPT, _IGNORE = (
    GroupTableAction.WAIT,
    GroupTableAction.ANSWER,
    GroupTableAction.ACCEPT,
    GroupTableAction.IGNORE,
)
_STRANGER = ErrorCode.UNKNOWN_MEMBER_ID
_REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
_GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE
_NOT_EMPTY = ErrorCode.NON_EMPTY_GROUP
_NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND

# fmt: off
_ROWS: dict[ClassicEvent, tuple[ClassicCell, ClassicCell, ClassicCell, ClassicCell, ClassicCell]] = {
    #                                      EMPTY       PREPARING     COMPLETING    STABLE      DEAD
    ClassicEvent.MEMBER_ADDED:            (_PREPARING, _WAIT,        _PREPARING,   _PREPARING, _GONE),
    ClassicEvent.MEMBER_CHANGED:          (_STRANGER,  _WAIT,        _PREPARING,   _PREPARING, _GONE),
    ClassicEvent.MEMBER_RETURNED:         (_STRANGER,  _WAIT,        _ANSWER,      _ANSWER,    _GONE),
    ClassicEvent.MEMBER_REPLACED:         (_STRANGER,  _WAIT,        _PREPARING,   _ANSWER,    _GONE),
    ClassicEvent.MEMBER_REMOVED:          (_IGNORE,    _WAIT,        _PREPARING,   _PREPARING, _IGNORE),
    ClassicEvent.JOIN_COMPLETED:          (_IGNORE,    _COMPLETING,  _IGNORE,      _IGNORE,    _IGNORE),
    ClassicEvent.EMPTIED:                 (_IGNORE,    _EMPTY,       _IGNORE,      _IGNORE,    _IGNORE),
    ClassicEvent.SYNC:                    (_STRANGER,  _REBALANCING, _WAIT,        _ANSWER,    _GONE),
    ClassicEvent.ASSIGNED:                (_IGNORE,    _IGNORE,      _STABLE,      _ACCEPT,    _IGNORE),
    ClassicEvent.SYNC_EXPIRED:            (_IGNORE,    _IGNORE,      _PREPARING,   _PREPARING, _IGNORE),
    ClassicEvent.HEARTBEAT:               (_STRANGER,  _REBALANCING, _ACCEPT,      _ACCEPT,    _GONE),
    ClassicEvent.COMMIT_AS_MEMBER:        (_ACCEPT,    _ACCEPT,      _REBALANCING, _ACCEPT,    _GONE),
    ClassicEvent.COMMIT_AS_STRANGER:      (_ACCEPT,    _STRANGER,    _STRANGER,    _STRANGER,  _GONE),
    ClassicEvent.COMMIT_IN_TRANSACTION:   (_ACCEPT,    _ACCEPT,      _ACCEPT,      _ACCEPT,    _GONE),
    ClassicEvent.DELETE_OFFSETS:          (_ACCEPT,    _NOT_EMPTY,   _NOT_EMPTY,   _NOT_EMPTY, _NOT_FOUND),
    ClassicEvent.DELETE_CONSUMED_OFFSETS: (_ACCEPT,    _ACCEPT,      _ACCEPT,      _ACCEPT,    _NOT_FOUND),
    ClassicEvent.DELETE_GROUP:            (_DEAD,      _NOT_EMPTY,   _NOT_EMPTY,   _NOT_EMPTY, _NOT_FOUND),
    ClassicEvent.EXPIRED:                 (_DEAD,      _IGNORE,      _IGNORE,      _IGNORE,    _IGNORE),
}
# fmt: on
CLASSIC_TABLE: dict[tuple[ClassicEvent, ClassicState], ClassicCell] = {
    (event, state): cell for event, row in _ROWS.items() for state, cell in zip(ClassicState, row, strict=True)
}

Protocols = tuple[tuple[str, bytes], ...]


class ClassicMember(NamedTuple):
    """Immutable member; `ClassicGroup.change` replaces it with another object.

    protocols:   name and metadata of each protocol of the member, the preferred one first; opaque to the broker.
    assignment:  assignment by the leader of the last stable generation.
    join_token:  token of its parked JoinGroup, or None. `ClassicGroup` counts the members that have one.
    sync_token:  token of its parked SyncGroup, or None.
    is_new:      joined, but no generation has begun since; its first session is long.
    is_id_known: the client knows its member id, so it can return under it after its connection broke.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_token: Hashable | None = None
    sync_token: Hashable | None = None
    is_new: bool = False
    is_id_known: bool = True

    def metadata(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def speaks(self, protocol_name: str) -> bool:
        return any(name == protocol_name for name, _ in self.protocols)


def sizes_of(protocols: Protocols) -> tuple[int, int]:
    """Return the memory of a member's protocols, and the least of them that a record holds, both in bytes."""
    sizes = [len(metadata) for _, metadata in protocols]
    return sum(sizes) + PROTOCOL_BYTES * len(sizes), min(sizes, default=0)


class ClassicGroup:
    """A classic group.

    Records change the stored state (`generation_id`, `protocol_type`, `protocol_name`, `leader_id`, members with their
    assignments) when a generation becomes stable or empty. All other state, and the members between two such moments,
    is in memory only: after a crash the group is in its last stable generation again, and members of a later one
    rejoin.
    Decisions change a copy. `become` takes it over when the records are in the log.
    """

    group_type = "classic"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.state_timestamp_ms: int | None = None
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}  # group instance id -> member id
        self.pending_member_ids: set[str] = set()  # ids that were assigned and have not joined yet
        self.pending_sync_ids: dict[str, None] = {}  # a dictionary is copied several times as fast as a set
        self.awaiting_join_count = 0
        self.is_stored = False  # the log holds a record of the group itself
        self.is_initial_join = False  # the group was empty and waits group.initial.rebalance.delay.ms for more members
        self.is_member_added = False  # since that wait began, or was last prolonged
        self.initial_join_remaining_ms = 0
        self.replacement: ClassicMember | None = None  # replaces a static member when its record is applied
        self.protocols_bytes = 0  # memory of all members' protocols
        self.min_metadata_bytes = 0  # least metadata in the record of a generation, whichever protocol is chosen
        self._protocol_counts: dict[str, int] = {}
        self._subscribed_topics: frozenset[str] | None = None

    # Questions

    @property
    def state_name(self) -> str:
        return self.state.value

    def cell(self, event: ClassicEvent) -> ClassicCell:
        return CLASSIC_TABLE[event, self.state]

    def refusal(self, event: ClassicEvent) -> ErrorCode:
        """Return the error with which this state refuses the event, or NONE."""
        cell = CLASSIC_TABLE[event, self.state]
        return cell if isinstance(cell, ErrorCode) else ErrorCode.NONE

    @property
    def is_abandoned(self) -> bool:
        """The group has no members and no record: the shard can drop it."""
        return not self.members and not self.pending_member_ids and not self.is_stored

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def have_all_joined(self) -> bool:
        return self.awaiting_join_count == len(self.members) and not self.pending_member_ids

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols can join: every member has to support at least one of them."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(
            self._protocol_counts.get(name, 0) == len(self.members) for name, _ in protocols
        )

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return NONE, UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another process has replaced the static member."""
        if group_instance_id is not None:
            current_id = self.static_members.get(group_instance_id)
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def choose_protocol(self, members: Sequence[ClassicMember] | None = None) -> str:
        """Choose a protocol by votes: each member votes for its first protocol that all support. In a tie the protocol
        wins that comes first in Kafka's table of votes.
        """
        voters = list(self.members.values()) if members is None else members
        common = {name for name, _ in voters[0].protocols if all(voter.speaks(name) for voter in voters)}
        votes: dict[str, int] = {}
        for voter in voters:
            name = next(name for name, _ in voter.protocols if name in common)
            votes[name] = votes.get(name, 0) + 1
        return max(hash_map_order(votes), key=votes.__getitem__)

    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics of the members' subscriptions in this generation; None when the broker cannot know them."""
        return self._subscribed_topics

    def awaiting_sync(self) -> list[ClassicMember]:
        return [member for member in self.members.values() if member.sync_token is not None]

    # Changes

    def copy(self) -> Self:
        """Return a copy that changes without changing this group."""
        other = type(self).__new__(type(self))
        fields = other.__dict__
        fields.update(self.__dict__)
        for name in ("members", "static_members", "pending_member_ids", "pending_sync_ids", "_protocol_counts"):
            fields[name] = fields[name].copy()
        return other

    def become(self, draft: ClassicGroup) -> None:
        """Take over the state of a copy, which the caller must not use afterwards."""
        self.__dict__ = draft.__dict__

    def change(self, member: ClassicMember, **fields: Any) -> ClassicMember:
        """Replace a member by one with other values of these fields. `set_protocols` changes its protocols."""
        self.awaiting_join_count -= member.join_token is not None
        changed = self.members[member.member_id] = member._replace(**fields)
        self.awaiting_join_count += changed.join_token is not None
        return changed

    def move(self, event: ClassicEvent) -> ClassicCell:
        """Move to the state that the table names for the event, or stay. Returns the cell of the table."""
        cell = CLASSIC_TABLE[event, self.state]
        if isinstance(cell, ClassicState):
            self.state = cell
        return cell

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if member.join_token is not None:
            self.awaiting_join_count += 1
        self._count_protocols(member, 1)

    def remove(self, member_id: str) -> ClassicMember:
        member = self.members.pop(member_id)
        self._count_protocols(member, -1)
        self.awaiting_join_count -= member.join_token is not None
        self.pending_sync_ids.pop(member_id, None)
        if member.group_instance_id is not None and self.static_members.get(member.group_instance_id) == member_id:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(hash_map_order(self.members)), None)
        return member

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> ClassicMember:
        self._count_protocols(member, -1)
        changed = self.change(member, protocols=protocols)
        self._count_protocols(changed, 1)
        return changed

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else elect the first member that has, in the order of Kafka's table.
        Returns False when no member has joined.
        """
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is None or leader.join_token is None:
            in_order = (self.members[member_id] for member_id in hash_map_order(self.members))
            leader = next((member for member in in_order if member.join_token is not None), None)
        if leader is None:
            return False
        self.leader_id = leader.member_id
        return True

    def begin_generation(self) -> None:
        self.move(ClassicEvent.JOIN_COMPLETED)
        self.generation_id += 1
        self.protocol_name = self.choose_protocol()
        self.pending_sync_ids = dict.fromkeys(self.members)
        self.note_subscriptions()

    def note_subscriptions(self) -> None:
        """Record the members' subscriptions, which stay valid until the next generation begins."""
        self._subscribed_topics = self._subscriptions()

    def replace_members(self, members: Sequence[ClassicMember]) -> None:
        """Replace all members by those of a record."""
        self.members = {member.member_id: member for member in members}
        self.static_members = {m.group_instance_id: m.member_id for m in members if m.group_instance_id is not None}
        self.pending_sync_ids = {name: None for name in self.pending_sync_ids if name in self.members}
        self.awaiting_join_count = sum(member.join_token is not None for member in members)
        self._protocol_counts = {}
        self.protocols_bytes = self.min_metadata_bytes = 0
        for member in members:
            self._count_protocols(member, 1)

    def _subscriptions(self) -> frozenset[str] | None:
        if self.protocol_type is None:
            return None
        if not self.members:
            return frozenset()
        if not self.is_consumer_group or self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscription = subscribed_topics(member.metadata(self.protocol_name))
            if subscription is None:
                return None
            topics |= subscription
        return frozenset(topics)

    def _count_protocols(self, member: ClassicMember, change: int) -> None:
        counts = self._protocol_counts
        all_bytes, least_bytes = sizes_of(member.protocols)
        self.protocols_bytes += change * all_bytes
        self.min_metadata_bytes += change * least_bytes
        for name, _ in member.protocols:
            counts[name] = counts.get(name, 0) + change
            if not counts[name]:
                del counts[name]
