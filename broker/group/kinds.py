"""The kinds of groups that a group id may stand for. Pure."""

from __future__ import annotations

from typing import TypeAlias

from broker.group.classic import ClassicGroup
from broker.group.consumer_group import ConsumerGroup
from broker.group.share_group import ShareGroup
from broker.group.streams_group import StreamsGroup

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup
