"""Check of a cluster's rows against its objects: every acknowledged record has a row, and every row has its object.

It reads one moment of the database, and then lists all objects. They stay for the grace of the sweep at least, so a
check that takes longer may report what was removed meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
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
    """What a check has found. problems: in words, of which each may cost records. unnamed: objects without a row, which
    the sweep will remove."""

    partitions: int = 0
    segments: int = 0
    flushes: int = 0
    garbage: int = 0
    objects: int = 0
    object_bytes: int = 0
    unnamed: int = 0
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
        named: dict[str, tuple[str, int | None]] = {}
        for topic_id, partition, base, end, object_id, size_bytes, has_aborted in await connection.fetch(_SEGMENTS):
            report.segments += 1
            names = SegmentName(cluster_id, topic_id.bytes, partition, base, object_id)
            what = f"{_shown(topics, topic_id, partition)}, offsets {base} to {end - 1}"
            for file in names.files(end, has_aborted=has_aborted):
                named[file] = what, size_bytes if file.endswith(".log") else None
        for object_id, size_bytes, needed_bytes in await connection.fetch(_FLUSHES):
            report.flushes += 1
            named[flush_name(cluster_id, object_id)] = "a flush of the tails", size_bytes
            if size_bytes is None or needed_bytes > size_bytes:
                report.problems.append(f"{object_id}: rows of the tails need {needed_bytes} bytes of {size_bytes}")
        garbage = {row["name"] for row in await connection.fetch("SELECT name FROM garbage")}
    report.garbage = len(garbage)
    report.problems += [
        f"{named[name][0]}: {name} is garbage, and a row names it" for name in sorted(garbage & named.keys())
    ]
    sizes: dict[str, int] = {}
    async for page in store.list(cluster_prefix(cluster_id)):
        for one in page:
            report.objects += 1
            report.object_bytes += one.size_bytes
            if one.name in named:
                sizes[one.name] = one.size_bytes
            elif one.name not in garbage:
                report.unnamed += 1
    for name, (what, size_bytes) in named.items():
        if name not in sizes:
            report.problems.append(f"{what}: there is no object {name}")
        elif size_bytes is not None and sizes[name] != size_bytes:
            report.problems.append(f"{what}: {name} has {sizes[name]} bytes instead of {size_bytes}")
    return report


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
