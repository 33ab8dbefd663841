"""Progress of redeliveries: which dead letters of a group were delivered again. Pure.

A compacted topic has one record for each group and partition of a dead-letter topic, as JSON. A batch is decided before
it is written, with its producer id and sequence: a command that continues after a kill writes the same batch, and the
log of the partition drops it if it is there.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.protocol.checked_json import (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    Fields,
    JsonError,
    object_of,
    parse,
    whole_of,
)

PROGRESS_TOPIC: Final = "__fencepost_redelivered"
LARGEST_BYTES: Final = 900_000
"""Of one record: below the default of `max.message.bytes`."""
VERSION: Final = 1


class Offsets:
    """A set of offsets, as ranges of first and last in order, with gaps between them."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.ranges: list[tuple[int, int]] = []
        for first, last in ranges:
            self.add(first, last)

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self.ranges, (offset, INT64_MAX)) - 1
        return index >= 0 and offset <= self.ranges[index][1]

    def add(self, first: int, last: int) -> None:
        start = bisect_right(self.ranges, (first, -1))
        if start and self.ranges[start - 1][1] >= first - 1:
            start -= 1
        end = start
        while end < len(self.ranges) and self.ranges[end][0] <= last + 1:
            first, last = min(first, self.ranges[end][0]), max(last, self.ranges[end][1])
            end += 1
        self.ranges[start:end] = [(first, last)]


@dataclass(frozen=True)
class Copy:
    """A batch that was decided on. places: of its dead letters, each with the offset behind the group's previous one.

    topic, topic_id, partition: its target; the id in hexadecimal.
    """

    producer_id: int
    producer_epoch: int
    base_sequence: int
    topic: str
    topic_id: str
    partition: int
    places: tuple[tuple[int, int], ...]
    decided_ms: int

    @property
    def last_sequence(self) -> int:
        return self.base_sequence + len(self.places) - 1


@dataclass
class Progress:
    """Of one group in one partition of a dead-letter topic. done: the offsets that were delivered again, with those
    between them that are no dead letters of the group."""

    group: str
    topic_id: str
    partition: int
    done: Offsets = field(default_factory=Offsets)
    copy: Copy | None = None

    @property
    def key(self) -> bytes:
        return json.dumps([self.group, self.topic_id, self.partition]).encode()

    def complete(self) -> None:
        """The batch that was decided on is written."""
        if self.copy is not None:
            for since, offset in self.copy.places:
                self.done.add(since, offset)
            self.copy = None

    def encoded(self) -> bytes:
        copy = None if self.copy is None else dict(vars(self.copy))
        return json.dumps({"version": VERSION, "done": self.done.ranges, "copy": copy}).encode()


def decoded(key: bytes | None, value: bytes | None) -> Progress | None:
    """The progress in a record; None if it has none. Raises JsonError for content that no command has written."""
    if key is None or value is None:
        return None
    found = parse(key)
    if not isinstance(found, list) or len(found) != 3 or not isinstance(found[0], str) or not isinstance(found[1], str):
        raise JsonError("the key is no group, topic id and partition")
    fields = object_of(parse(value, most_bytes=2 * LARGEST_BYTES))
    if fields.whole("version") != VERSION:
        raise JsonError("a newer version of fencepost has written it")
    progress = Progress(
        found[0], found[1], whole_of(found[2], "partition", 0, INT32_MAX), Offsets(_pairs(fields, "done"))
    )
    if fields.value("copy") is not None:
        copy = fields.object("copy")
        progress.copy = Copy(
            copy.whole("producer_id"),
            copy.whole("producer_epoch", 0, INT16_MAX),
            copy.whole("base_sequence", 0, INT32_MAX),
            copy.text("topic"),
            copy.text("topic_id"),
            copy.whole("partition", 0, INT32_MAX),
            tuple(_pairs(copy, "places")),
            copy.whole("decided_ms"),
        )
    return progress


def _pairs(fields: Fields, name: str) -> list[tuple[int, int]]:
    return [_pair(one, fields.place(name)) for one in fields.array(name)]


def _pair(found: Any, place: str) -> tuple[int, int]:
    if not isinstance(found, list) or len(found) != 2:
        raise JsonError(f"{place} must have pairs of offsets")
    first = whole_of(found[0], place)
    return first, whole_of(found[1], place, lowest=first)
