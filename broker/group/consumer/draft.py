"""Draft of a consumer group: the group as it will be once the records of a decision are applied. Pure."""

from __future__ import annotations

from typing import Any

from fencepost.broker.coordination.shard import CoordinatorRecord
from fencepost.broker.group.consumer.group import ConsumerGroup
from fencepost.broker.group.consumer.records import write
from fencepost.broker.group.draft import GroupDraft
from fencepost.protocol.stored.consumer_groups import ConsumerGroupKey


class ConsumerGroupDraft(GroupDraft[ConsumerGroup, ConsumerGroupKey]):
    """Draft of a consumer group."""

    __slots__ = ()

    def _apply_record(self, key: ConsumerGroupKey, value: Any | None) -> CoordinatorRecord:
        return write(self.group, key, value)
