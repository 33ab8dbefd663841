"""Where to set the offsets of a group: to an end, an offset, a time, some offsets on or back, or as a file says."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from fencepost.cli.group_descriptions import Place
from fencepost.protocol.checked_json import INT32_MAX, INT64_MAX, Fields, JsonError, parse, shown

LARGEST_FILE_BYTES = 256 << 20


@dataclass(frozen=True)
class Target:
    """One of these. to: earliest or latest. shift: offsets on from the committed one, negative for back. Time in ms."""

    to: str | None = None
    offset: int | None = None
    shift: int | None = None
    time_ms: int | None = None
    file: Path | None = None

    def count(self) -> int:
        """How many of them there are."""
        return sum(value is not None for value in (self.to, self.offset, self.shift, self.time_ms, self.file))


def read_offsets(path: Path) -> dict[Place, int]:
    """Read lines `topic,partition,offset`, as kafka-consumer-groups exports them, or the output of `--json`.

    Raises ClickException, which names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path}: {error}") from None
    found: dict[Place, int] = {}
    rows: list[Any]
    if text.lstrip().startswith("["):
        try:
            array = Fields({"rows": parse(text, most_bytes=LARGEST_FILE_BYTES)}).objects("rows")
            rows = [(row.text("topic"), row.whole("partition", 0, INT32_MAX), row.whole("offset")) for row in array]
        except JsonError as error:
            raise click.ClickException(f"{path}: not what `reset-offsets --json` prints: {error}") from None
    else:
        try:
            rows = [row for row in csv.reader(text.splitlines()) if row]
        except csv.Error as error:
            raise click.ClickException(f"{path}: {error}") from None
    for number, row in enumerate(rows, start=1):
        try:
            topic, partition, offset = row
            place, found_offset = Place(str(topic).strip(), int(partition)), int(offset)
        except (TypeError, ValueError):
            wrong = f"expected topic,partition,offset; got {shown(row)}"
            raise click.ClickException(f"{path}, row {number}: {wrong}") from None
        if not 0 <= found_offset <= INT64_MAX or not 0 <= place.partition <= INT32_MAX or place in found:
            is_negative = found_offset < 0 or place.partition < 0
            why = "is there twice" if place in found else "is negative" if is_negative else "is out of range"
            raise click.ClickException(f"{path}, row {number}: {place.topic}-{place.partition} {why}")
        found[place] = found_offset
    if not found:
        raise click.ClickException(f"{path} has no offsets")
    return found


def planned(
    target: Target,
    places: Sequence[Place],
    *,
    earliest: Mapping[Place, int],
    latest: Mapping[Place, int],
    committed: Mapping[Place, int],
    at_time: Mapping[Place, int],
    from_file: Mapping[Place, int],
) -> dict[Place, int]:
    """Return the offset for each partition, within its offsets. Raises ClickException. Pure."""
    plan: dict[Place, int] = {}
    for place in places:
        if target.to is not None:
            wanted = earliest[place] if target.to == "earliest" else latest[place]
        elif target.offset is not None:
            wanted = target.offset
        elif target.shift is not None:
            if place not in committed:
                raise click.ClickException(
                    f"the group has no offset for {place.topic}-{place.partition} that could be shifted; "
                    "set one with --to, or name the partitions with --partition"
                )
            wanted = committed[place] + target.shift
        elif target.time_ms is not None:
            wanted = at_time[place]
        else:
            wanted = from_file[place]
        plan[place] = min(max(wanted, earliest[place]), latest[place])
    return plan


def reset_rows(plan: Mapping[Place, int], committed: Mapping[Place, int]) -> list[dict[str, Any]]:
    return [
        {"topic": place.topic, "partition": place.partition, "offset": offset, "before": committed.get(place)}
        for place, offset in sorted(plan.items())
    ]
