"""Drafts of groups: a group as it will be once the records of a decision are applied. Pure.

A decision about a group takes several steps; each step starts from the result of the one before. The draft applies
every record through the same function that applies it later from the log, so the draft equals the later group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, Self, TypeVar

from fencepost.broker.coordination.shard import CoordinatorRecord
from fencepost.broker.group.decision_builder import DecisionBuilder


class Copyable(Protocol):
    """A group with a copy that can change without changing the original."""

    def copy(self) -> Self: ...


GroupT = TypeVar("GroupT", bound=Copyable)
KeyT = TypeVar("KeyT")


class GroupDraft(ABC, Generic[GroupT, KeyT]):
    """original: the group as it is now. group: the same object until the first record is written, then a copy."""

    __slots__ = ("effects", "group", "original")

    def __init__(self, group: GroupT, effects: DecisionBuilder) -> None:
        self.original = group
        self.group = group
        self.effects = effects

    def write(self, key: KeyT, value: Any | None) -> None:
        """Add a record to the decision. value: None for a tombstone."""
        if self.group is self.original:
            self.group = self.original.copy()
        self.effects.records.append(self._apply_record(key, value))

    @abstractmethod
    def _apply_record(self, key: KeyT, value: Any | None) -> CoordinatorRecord:
        """Apply a record to `group`, which is a copy by now, and return the record as it is stored."""
