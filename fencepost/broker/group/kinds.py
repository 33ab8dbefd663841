"""Union type of all kinds of groups. Pure."""

from __future__ import annotations

from typing import TypeAlias

from fencepost.broker.group.classic.group import ClassicGroup
from fencepost.broker.group.consumer.group import ConsumerGroup
from fencepost.broker.group.share_groups.group import ShareGroup
from fencepost.broker.group.streams.group import StreamsGroup

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup
