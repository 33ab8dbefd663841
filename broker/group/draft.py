"""A group as it will be once the records of a decision are applied. Pure.

A decision about a group takes several steps, each of which goes by what the one before led to. Every record is taken in
by the draft through the very function that applies it later, so the draft is what the group will be.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, Self, TypeVar

from fencepost.broker.coordination.shard import CoordinatorRecord
from fencepost.broker.group.decision_builder import DecisionBuilder


class Copyable(Protocol):
    """A group that can be copied, so that the copy can change on its own."""

    def copy(self) -> Self: ...


GroupT = TypeVar("GroupT", bound=Copyable)
KeyT = TypeVar("KeyT")


class GroupDraft(ABC, Generic[GroupT, KeyT]):
    """`original` is the group as it is; `group` the same until the first record is written, then a copy."""

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
        """Apply a record to `group`, which is a copy by now; returns it is stored."""
