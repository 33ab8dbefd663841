"""Groups in the log: the records of one kind of group, their effects, and drafts of groups. Pure.

A decision about a group takes several steps; each step starts from the result of the one before. A draft applies every
record through the same function that applies it later from the log, so it equals the later group.
Source: Kafka's GroupCoordinatorRecordHelpers, and GroupMetadataManager.replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fencepost.broker.coordination.shard import CoordinatorRecord, RecordOrigin
from fencepost.broker.group.decision_builder import DecisionBuilder
from fencepost.broker.group.modern import TARGET_DELETED_EPOCH, ModernGroup
from fencepost.protocol.stored.versioned import RecordKinds

GroupT = TypeVar("GroupT", bound=ModernGroup[Any, Any])
KeyT = TypeVar("KeyT")


@dataclass(frozen=True, slots=True)
class StoredGroups(Generic[GroupT, KeyT]):
    """How groups of one kind are stored.

    group_key and the next four: the types of the keys that every kind has: of the group itself, a member, the epoch of
                  the target, a member's part of it, and a member's current assignment.
    target_epoch: the type of the value with the epoch of the target.
    target_value: encodes a member's part of the target. read_target: decodes it.
    check:        raises DecodeError for a value that no group can have written.
    apply_other:  applies all records but those of the target and the tombstone of the group itself. It gets the decoded
                  value of the key's kind, None for a tombstone, and the time at which the record was written.
    """

    group_class: type[GroupT]
    kinds: RecordKinds[KeyT]
    group_key: type[Any]
    member_key: type[Any]
    target_key: type[Any]
    target_member_key: type[Any]
    current_key: type[Any]
    target_epoch: type[Any]
    target_value: Callable[[Any], Any]
    read_target: Callable[[Any], Any]
    check: Callable[[KeyT, Any], None]
    apply_other: Callable[[GroupT, KeyT, Any | None, int], None]

    # Writing

    def draft(self, group: GroupT, effects: DecisionBuilder) -> GroupDraft[GroupT, KeyT]:
        return GroupDraft(self, group, effects)

    def write(self, group: GroupT, key: KeyT, value: Any | None, now_ms: int) -> CoordinatorRecord:
        """Apply a record to the group and return it as it is stored. value: None for a tombstone."""
        self._apply(group, key, value, now_ms)
        return CoordinatorRecord(*self.kinds.encode(key, value))

    def tombstones(self, group: GroupT, last: Iterable[KeyT]) -> list[CoordinatorRecord]:
        """Return the records that remove a group and all its state. Kafka's order: members before their group.

        last: keys of the group itself, and of records that only this kind of group has.
        """
        group_id = group.group_id
        keys: list[KeyT] = [
            *(self.current_key(group_id, name) for name in group.members),
            *(self.target_member_key(group_id, name) for name in group.target),
            self.target_key(group_id),
            *(self.member_key(group_id, name) for name in group.members),
            *last,
        ]
        return [CoordinatorRecord(*self.kinds.encode(key, None)) for key in keys]

    # Reading

    def apply(
        self, groups: MutableMapping[str, Any], key_bytes: bytes, value: bytes | None, origin: RecordOrigin
    ) -> bool:
        """Apply a record of a group to the groups of the shard; return False for any other record.

        A group that has changed its kind starts empty; the records fill it. Raises DecodeError, and the errors
        of `apply_other`.
        """
        key: Any = self.kinds.decode_key(key_bytes)
        if key is None:
            return False
        group = groups.get(key.group_id)
        if value is None:
            if isinstance(group, self.group_class):
                if isinstance(key, self.group_key):
                    del groups[key.group_id]
                else:
                    self._apply(group, key, None, origin.timestamp_ms)
            return True
        decoded = self.kinds.decode_value(key, value)
        if decoded is None:
            decoded = value  # only its presence matters
        else:
            self.check(key, decoded)
        if not isinstance(group, self.group_class):
            group = self.group_class(key.group_id)
        self._apply(group, key, decoded, origin.timestamp_ms)
        groups[key.group_id] = group
        return True

    def _apply(self, group: GroupT, key: Any, value: Any | None, now_ms: int) -> None:
        if isinstance(key, self.target_key):
            group.assignment_epoch = TARGET_DELETED_EPOCH if value is None else value.assignment_epoch
            group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp
        elif not isinstance(key, self.target_member_key):
            self.apply_other(group, key, value, now_ms)
        elif value is None:
            group.target.pop(key.member_id, None)
        else:
            group.target[key.member_id] = self.read_target(value)


class GroupDraft(Generic[GroupT, KeyT]):
    """original: the group as it is now. group: the same object until the first record is written, then a copy."""

    __slots__ = ("_stored", "effects", "group", "original")

    def __init__(self, stored: StoredGroups[GroupT, KeyT], group: GroupT, effects: DecisionBuilder) -> None:
        self._stored = stored
        self.original = group
        self.group = group
        self.effects = effects

    def write(self, key: KeyT, value: Any | None) -> None:
        """Add a record to the decision. value: None for a tombstone."""
        if self.group is self.original:
            self.group = self.original.copy()
        self.effects.records.append(self._stored.write(self.group, key, value, self.effects.now_ms))

    def remove_member(self, member_id: str) -> None:
        """Remove a member and its assignments."""
        stored = self._stored
        for key in (stored.current_key, stored.target_member_key, stored.member_key):
            self.write(key(self.group.group_id, member_id), None)

    def write_target(self, targets: Mapping[str, Any]) -> None:
        """Write a target for the group's epoch: the parts, by member id, that have changed, then the epoch."""
        stored, group_id = self._stored, self.group.group_id
        for member_id, target in targets.items():
            if self.group.target.get(member_id) != target:
                self.write(stored.target_member_key(group_id, member_id), stored.target_value(target))
        self._write_target_epoch(self.effects.now_ms)

    def empty_target(self) -> None:
        """Write the epoch of the target of a group without members: it is up to date."""
        if not self.group.members:
            self._write_target_epoch(0)

    def _write_target_epoch(self, timestamp_ms: int) -> None:
        stored, group = self._stored, self.group
        value = stored.target_epoch(assignment_epoch=group.group_epoch, assignment_timestamp=timestamp_ms)
        self.write(stored.target_key(group.group_id), value)
