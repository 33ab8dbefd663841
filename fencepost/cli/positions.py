"""Where to read: the topics that names and patterns mean, and from which offset to which in each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from fencepost.cli.connection import no_such
from fencepost.cli.patterns import Pattern, is_pattern, matching


class OffsetType(click.ParamType):
    """`beginning`, `end`, an offset, or `-N`: N before the end. The words become None and 0 before the end."""

    name = "OFFSET"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        if isinstance(value, Start):
            return value
        text = str(value)
        if text in ("beginning", "earliest"):
            return Start()
        if text in ("end", "latest"):
            return Start(before_end=0)
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()):
            self.fail(f"{text!r} is no offset: write beginning, end, a number, or -5 for the last five", param, ctx)
        return Start(before_end=int(digits)) if text.startswith("-") else Start(offset=int(digits))


@dataclass(frozen=True)
class Start:
    """Where to begin: at an offset, some offsets before the end, or with neither at the beginning."""

    offset: int | None = None
    before_end: int | None = None

    def within(self, first: int, end: int) -> int:
        """The offset to begin at, in a partition that has those from `first` to `end`."""
        if self.before_end is not None:
            return max(first, end - self.before_end)
        return min(max(first, self.offset or 0), end)


@dataclass(frozen=True)
class Wanted:
    """Partitions and range to read. Times in ms since 1970. partitions: none for all."""

    partitions: tuple[int, ...] = ()
    start: Start | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    to_end: bool = False

    @property
    def is_all(self) -> bool:
        """Whether nothing of this was asked for."""
        return self == Wanted()


def matching_topics(existing: Iterable[str], names: Sequence[str]) -> list[str]:
    """The topics that names and patterns mean. Raises ClickException."""
    known = sorted(existing)
    found: dict[str, None] = {}
    for name in names:
        if not is_pattern(name):
            if name not in known:
                no_such("topic", name, "topics")
            found[name] = None
            continue
        try:
            pattern = Pattern(name)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="TOPIC") from None
        matched = [topic for topic in matching(known, [pattern]) if not topic.startswith("__")]
        if not matched:
            raise click.ClickException(f"no topic matches {name!r}; `fencepost topics list` shows which there are")
        found.update(dict.fromkeys(matched))
    return list(found)


def checked_partitions(topic: str, existing: Iterable[int], wanted: Sequence[int]) -> list[int]:
    """The partitions to read of a topic. Raises ClickException for one that it does not have."""
    known = sorted(existing)
    for partition in wanted:
        if partition not in known:
            raise click.ClickException(f"topic {topic!r} has no partition {partition}; it has {len(known)}")
    return list(wanted) or known


def assign(consumer: Any, topics: Sequence[str], wanted: Wanted, *, from_beginning: bool) -> dict[Any, int]:
    """Assign the wanted partitions to a consumer without a group, at their positions; return their end offsets.

    Partitions without an end are left out. Raises ClickException.
    """
    from kafka import TopicPartition

    places = [
        TopicPartition(topic, partition)
        for topic in topics
        for partition in checked_partitions(topic, consumer.partitions_for_topic(topic) or (), wanted.partitions)
    ]
    first, last = consumer.beginning_offsets(places), consumer.end_offsets(places)
    start = wanted.start or (Start() if from_beginning else Start(before_end=0))
    begins = {place: start.within(first[place], last[place]) for place in places}
    if wanted.from_ms is not None:
        begins = _at_time(consumer, last, wanted.from_ms)
    consumer.assign(places)
    for place, offset in begins.items():
        consumer.seek(place, offset)
    if wanted.to_ms is not None:
        return _at_time(consumer, last, wanted.to_ms)
    return dict(last) if wanted.to_end else {}


def _at_time(consumer: Any, last: Mapping[Any, int], time_ms: int) -> dict[Any, int]:
    """The first offset of this time or later in each partition, or its end."""
    found = consumer.offsets_for_times(dict.fromkeys(last, time_ms))
    return {place: min(found[place].offset, end) if found.get(place) else end for place, end in last.items()}
