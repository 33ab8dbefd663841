"""A group as it will be once the records of a decision are applied. Pure.

A decision about a group takes several steps, each of which goes by what the one before led to. Every record is taken in
by the draft through the very function that applies it later, so the draft is what the group will be.
"""

from __future__ import annotations

from typing import Any

from broker.group.consumer_group import ConsumerGroup
from broker.group.consumer_records import write
from broker.group.effects import Effects
from protocol.stored.consumer_groups import ConsumerGroupKey


class Draft:
    """`original` is the group as it is; `group` the same until the first record is written, then a copy."""

    __slots__ = ("effects", "group", "original")

    def __init__(self, group: ConsumerGroup, effects: Effects) -> None:
        self.original = group
        self.group = group
        self.effects = effects

    def write(self, key: ConsumerGroupKey, value: Any | None) -> None:
        """Add a record to the decision. value: None for a tombstone."""
        if self.group is self.original:
            self.group = self.original.copy()
        self.effects.records.append(write(self.group, key, value))
