"""The kinds of groups that a group id may stand for. Pure."""

from __future__ import annotations

from typing import TypeAlias

from broker.group.classic.group import ClassicGroup
from broker.group.consumer.group import ConsumerGroup
from broker.group.share.group import ShareGroup
from broker.group.streams.group import StreamsGroup

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup
