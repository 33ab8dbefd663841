"""A consumer group as it will be once the records of a decision are applied. Pure."""

from __future__ import annotations

from typing import Any

from broker.group.consumer.group import ConsumerGroup
from broker.group.consumer.records import write
from broker.group.draft import GroupDraft
from broker.shard import CoordinatorRecord
from protocol.stored.consumer_groups import ConsumerGroupKey


class Draft(GroupDraft[ConsumerGroup, ConsumerGroupKey]):
    """The draft of a consumer group."""

    __slots__ = ()

    def _take_in(self, key: ConsumerGroupKey, value: Any | None) -> CoordinatorRecord:
        return write(self.group, key, value)
