"""Check of a cluster's rows against its objects: every acknowledged record has a row, and every row has its object.

It reads one moment of the database, and then lists all objects. An object that is not there any more, as its row was
replaced meanwhile, is no problem: what is missing is compared with the rows once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from fencepost.broker.cluster.objects.names import SegmentName, cluster_prefix, flush_name
from fencepost.broker.cluster.objects.store import ObjectStore
from fencepost.broker.cluster.postgres.connections import Connection

_COVER: Final = """
WITH spans AS (
    SELECT topic_id, partition, base_offset, end_offset, leader_epoch, true AS is_sealed FROM segments
    UNION ALL
    SELECT topic_id, partition, base_offset, end_offset, leader_epoch, false FROM tail
), followed AS (
    SELECT *, lead(base_offset) OVER own AS next_base, lag(leader_epoch) OVER own AS epoch_before,
           row_number() OVER own AS number
    FROM spans WINDOW own AS (PARTITION BY topic_id, partition ORDER BY base_offset)
)
SELECT followed.*, sealed_end, log_start_offset
FROM followed JOIN partitions USING (topic_id, partition)
WHERE end_offset <> next_base OR followed.leader_epoch < epoch_before OR is_sealed <> (end_offset <= sealed_end)
      OR (number = 1 AND base_offset > log_start_offset)
"""
_EMPTY: Final = """
SELECT topic_id, partition, sealed_end, log_start_offset FROM partitions
WHERE (sealed_end > 0 OR log_start_offset > 0)
      AND (topic_id, partition) NOT IN (SELECT topic_id, partition FROM segments)
      AND (topic_id, partition) NOT IN (SELECT topic_id, partition FROM tail)
"""
_SEGMENTS: Final = """
SELECT topic_id, partition, base_offset, end_offset, object, size_bytes, has_aborted FROM segments
"""
_FLUSHES: Final = """
SELECT tail.object, tail_objects.size_bytes, max(object_position + length) AS needed_bytes
FROM tail LEFT JOIN tail_objects USING (object) WHERE object IS NOT NULL GROUP BY 1, 2
"""


@dataclass
class CheckReport:
    """What a check has found.

    problems: in words, of which each may cost records.
    unnamed:  objects without a row: those that are about to get one, or that the sweep will remove.
    replaced: objects that were removed during the check, as others had taken their place.
    """

    partitions: int = 0
    segments: int = 0
    flushes: int = 0
    garbage: int = 0
    objects: int = 0
    object_bytes: int = 0
    unnamed: int = 0
    replaced: int = 0
    problems: list[str] = field(default_factory=list)


async def check_cluster(connection: Connection, store: ObjectStore, cluster_id: str) -> CheckReport:
    """Check all partitions. Raises ObjectStoreError, and what the connection raises."""
    report = CheckReport()
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        topics = {row["topic_id"]: row["name"] for row in await connection.fetch("SELECT topic_id, name FROM topics")}
        report.partitions = await connection.fetchval("SELECT count(*) FROM partitions")
        for row in await connection.fetch(_COVER):
            report.problems.append(_gap(_shown(topics, row["topic_id"], row["partition"]), row))
        for row in await connection.fetch(_EMPTY):
            name = _shown(topics, row["topic_id"], row["partition"])
            report.problems.append(f"{name}: begins at offset {row['log_start_offset']} and has no rows at all")
        segments = await connection.fetch(_SEGMENTS)
        flushes = await connection.fetch(_FLUSHES)
        garbage = {row["name"] for row in await connection.fetch("SELECT name FROM garbage")}
    report.segments, report.flushes, report.garbage = len(segments), len(flushes), len(garbage)
    for object_id, size_bytes, needed_bytes in flushes:
        if size_bytes is None or needed_bytes > size_bytes:
            report.problems.append(f"{object_id}: rows of the tails need {needed_bytes} bytes of {size_bytes}")
    named = _named(cluster_id, segments, flushes)
    report.problems += [
        f"{_what(topics, named[name])}: {name} is garbage, and a row names it"
        for name in sorted(garbage & named.keys())
    ]
    sizes: dict[str, int] = {}
    async for page in store.list(cluster_prefix(cluster_id)):
        for found in page:
            report.objects += 1
            report.object_bytes += found.size_bytes
            if found.name in named:
                sizes[found.name] = found.size_bytes
            elif found.name not in garbage:
                report.unnamed += 1
    missing = named.keys() - sizes.keys()
    if missing:
        segments, flushes = await connection.fetch(_SEGMENTS), await connection.fetch(_FLUSHES)
        replaced = missing - _named(cluster_id, segments, flushes).keys()
        report.replaced = len(replaced)
        missing -= replaced
    for name, one in named.items():
        if name in missing:
            report.problems.append(f"{_what(topics, one)}: there is no object {name}")
        elif one.size_bytes is not None and sizes.get(name, one.size_bytes) != one.size_bytes:
            report.problems.append(f"{_what(topics, one)}: {name} has {sizes[name]} bytes instead of {one.size_bytes}")
    return report


class _Named(NamedTuple):
    """What a row says of an object. segment: topic, partition and offsets; None of a flush. size_bytes: None where the
    rows do not tell."""

    segment: tuple[UUID, int, int, int] | None
    size_bytes: int | None


def _named(cluster_id: str, segments: Sequence[Sequence[Any]], flushes: Sequence[Sequence[Any]]) -> dict[str, _Named]:
    """All objects that rows name. segments, flushes: rows of _SEGMENTS and of _FLUSHES."""
    named = {
        flush_name(cluster_id, object_id): _Named(None, size_bytes) for object_id, size_bytes, _needed_bytes in flushes
    }
    for topic_id, partition, base, end, object_id, size_bytes, has_aborted in segments:
        names = SegmentName(cluster_id, topic_id.bytes, partition, base, object_id)
        for file in names.files(end, has_aborted=has_aborted):
            named[file] = _Named((topic_id, partition, base, end), size_bytes if file.endswith(".log") else None)
    return named


def _what(topics: dict[UUID, str], one: _Named) -> str:
    if one.segment is None:
        return "a flush of the tails"
    topic_id, partition, base, end = one.segment
    return f"{_shown(topics, topic_id, partition)}, offsets {base} to {end - 1}"


def _shown(topics: dict[UUID, str], topic_id: UUID, partition: int) -> str:
    return f"{topics.get(topic_id, topic_id.hex)}-{partition}"


def _gap(name: str, row: dict[str, int]) -> str:
    base, end, following = row["base_offset"], row["end_offset"], row["next_base"]
    if following is not None and end < following:
        return f"{name}: no row holds the offsets {end} to {following - 1}"
    if following is not None and end > following:
        return f"{name}: two rows hold the offsets {following} to {end - 1}"
    if row["number"] == 1 and base > row["log_start_offset"]:
        return f"{name}: begins at offset {row['log_start_offset']}, and no row holds what is below offset {base}"
    if row["epoch_before"] is not None and row["leader_epoch"] < row["epoch_before"]:
        return f"{name}: at offset {base} the leader epoch falls from {row['epoch_before']} to {row['leader_epoch']}"
    return f"{name}: is sealed up to offset {row['sealed_end']}, which the rows from offset {base} to {end} contradict"
