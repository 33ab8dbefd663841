"""Whether the decisions of a coordinator's shard change nothing: a picture of all that a shard holds, before and after.

What is only remembered, such as a set that was computed from members, is no part of a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import cached_property, wraps
from itertools import count
from typing import Any

import pytest

from fencepost.broker.coordination.shard import Decision
from fencepost.broker.group.consumer.group import ConsumerGroup
from fencepost.broker.group.decision_builder import GroupConfig
from fencepost.broker.group.offsets.decisions import OffsetDecisions
from fencepost.broker.group.shard import GroupShard
from fencepost.broker.group.share_groups.groups import ShareGroups
from fencepost.broker.group.streams.group import GroupMemory
from fencepost.broker.group.streams.groups import StreamsGroups
from fencepost.broker.kernel.deadlines import DeadlinePace, Deadlines
from fencepost.broker.metadata.image import MetadataImage
from fencepost.broker.share.shard import ShareStateShard
from fencepost.broker.transaction.shard import TransactionShard

ALL_WATCHED_COUNT = 50
"""First calls of a method that are watched in one test, later ones now and then: large shards take long to copy."""
ONE_WATCHED_OF = 50

_REMEMBERED = {
    ConsumerGroup: {"_subscribed_topics", "_subscribed_regexes"},
    GroupMemory: {"configured"},
}
_OUTSIDE = (GroupConfig, MetadataImage, DeadlinePace)
_PLAIN = (str, bytes, int, float, type(None), Enum)
_DECIDERS: tuple[type, ...] = (
    GroupShard,
    OffsetDecisions,
    ShareGroups,
    StreamsGroups,
    TransactionShard,
    ShareStateShard,
)


def picture(thing: Any) -> Any:
    """All that can be reached from a thing, as values that can be compared; the order in dictionaries counts."""
    if isinstance(thing, _PLAIN):
        return thing
    if isinstance(thing, Deadlines):
        return dict(thing._deadline_ms)
    if isinstance(thing, Mapping):
        return [(picture(key), picture(value)) for key, value in thing.items()]
    if isinstance(thing, set | frozenset):
        return frozenset(map(picture, thing))
    if isinstance(thing, tuple | list):
        return tuple(map(picture, thing))
    if isinstance(thing, _OUTSIDE) or not type(thing).__module__.startswith("fencepost.broker."):
        return None
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    fields = {name: getattr(thing, name) for name in names} | getattr(thing, "__dict__", {})
    hidden = _REMEMBERED.get(type(thing), set())
    hidden = hidden | {name for name in fields if isinstance(getattr(type(thing), name, None), cached_property)}
    return {name: picture(value) for name, value in fields.items() if name not in hidden and not callable(value)}


def watch_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every method that returns a Decision fail where it changes its object, in this test."""
    for decider in _DECIDERS:
        for name, method in vars(decider).items():
            returned = getattr(method, "__annotations__", {}).get("return", "")
            if str(returned).startswith("Decision"):
                monkeypatch.setattr(decider, name, _watched(method))


def _watched(decide: Callable[..., Decision[Any]]) -> Callable[..., Decision[Any]]:
    calls = count()

    @wraps(decide)
    def watched(decider: Any, *arguments: Any, **options: Any) -> Decision[Any]:
        number = next(calls)
        if number >= ALL_WATCHED_COUNT and number % ONE_WATCHED_OF:
            return decide(decider, *arguments, **options)
        before = picture(decider)
        decision = decide(decider, *arguments, **options)
        after = picture(decider)
        if after != before:
            changed = [name for name in after if after[name] != before.get(name)]
            raise AssertionError(f"{decide.__qualname__} changes {changed}: {before} becomes {after}")
        return decision

    return watched
