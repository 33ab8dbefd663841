"""Check of a cluster's rows against its objects: every acknowledged record has a row, and every row has its object.

A plain check reads one moment of the database, and then lists all objects: it knows names and sizes. A deep one reads
all bytes, too, and compares checksums. An object may disappear during the check because its row was replaced. So
missing objects are compared with the rows once more before they count as problems.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from fencepost.broker.cluster.objects.checksums import WrongContentError
from fencepost.broker.cluster.objects.flush_objects import check_flushed
from fencepost.broker.cluster.objects.names import SegmentName, cluster_prefix, flush_name, suffixes
from fencepost.broker.cluster.objects.store import ObjectMissingError, ObjectStore
from fencepost.broker.cluster.postgres.connections import Connection
from fencepost.broker.cluster.postgres.history import find_difference
from fencepost.broker.cluster.remote.segment_objects import check_object
from fencepost.broker.kernel.sliced_work import SLICE_S, run_in_slices
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from fencepost.broker.storage.local_disk import LocalDisk

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
SELECT topic_id, partition, base_offset, end_offset, object, size_bytes, has_aborted, leader_epoch, checksums,
       block_checksums
FROM segments
"""
_FLUSHES: Final = """
SELECT tail.object, tail_objects.size_bytes, topic_id, partition, min(base_offset), max(end_offset),
       max(object_position + length)
FROM tail LEFT JOIN tail_objects USING (object) WHERE object IS NOT NULL
GROUP BY 1, 2, 3, 4 ORDER BY 1, 3, 4
"""
_FLUSHED: Final = """
SELECT topic_id, partition, base_offset, end_offset, leader_epoch, object, object_position, length, checksum FROM tail
WHERE object IS NOT NULL ORDER BY object, object_position
"""
_OLDEST_GARBAGE_DAYS: Final = """
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(since)) / 86400, 0)::int FROM garbage
"""
GARBAGE_DAYS: Final = 7
"""Garbage is removed after a day, by default."""
READ_AT_ONCE: Final = 4

_Check: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Checks an object by its name, whose content is in the file of a path."""


@dataclass
class CheckReport:
    """The result of a check.

    problems: messages about faults, each of which may cost records.
    warnings: messages about differences that only an operator can judge.
    unnamed:  objects without a row: those that are about to get one, or that the sweep will remove.
    replaced: objects that were removed during the check, as others had taken their place.
    read_bytes: bytes of objects that a deep check has read.
    """

    partitions: int = 0
    segments: int = 0
    flushes: int = 0
    garbage: int = 0
    objects: int = 0
    object_bytes: int = 0
    unnamed: int = 0
    replaced: int = 0
    read_bytes: int = 0
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


async def check_cluster(
    connection: Connection,
    store: ObjectStore,
    cluster_id: str,
    *,
    is_deep: bool = False,
    bytes_per_s: float = math.inf,
    shown: str = "its address",
) -> CheckReport:
    """Check all partitions. Raises ObjectStoreError, StorageError, and the connection's errors.

    is_deep:     read all objects that rows name, and compare their bytes with the checksums in the rows.
    bytes_per_s: the most that a deep check reads, on average over some objects.
    shown:       the address of the database, for messages.
    """
    report = CheckReport()
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        difference = await find_difference(connection, shown)
        if difference is not None:
            (report.problems if difference.is_certain else report.warnings).append(difference.reason)
        topics = {row["topic_id"]: row["name"] for row in await connection.fetch("SELECT topic_id, name FROM topics")}
        report.partitions = await connection.fetchval("SELECT count(*) FROM partitions")
        for row in await connection.fetch(_COVER):
            report.problems.append(_gap(_shown(topics, row["topic_id"], row["partition"]), row))
        for row in await connection.fetch(_EMPTY):
            name = _shown(topics, row["topic_id"], row["partition"])
            report.problems.append(f"{name}: begins at offset {row['log_start_offset']} and has no rows at all")
        segments = await connection.fetch(_SEGMENTS)
        flushes = await connection.fetch(_FLUSHES)
        flushed = await connection.fetch(_FLUSHED) if is_deep else []
        garbage = {row["name"] for row in await connection.fetch("SELECT name FROM garbage")}
        report.warnings += await _old_garbage(connection, len(garbage))
    report.segments, report.garbage = len(segments), len(garbage)
    report.problems += _beyond_the_end(topics, flushes)
    named = _named(cluster_id, segments, flushes)
    report.flushes = len({row[0] for row in flushes})
    report.problems += [
        f"{_what(topics, named[name])}: {name} is garbage, and a row names it"
        for name in sorted(garbage & named.keys())
    ]
    sizes = await _listed(store, cluster_id, named, garbage, report)
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
            del sizes[name]
    if is_deep:
        with tempfile.TemporaryDirectory() as directory:
            deep = _DeepCheck(connection, store, cluster_id, report, topics, directory)
            deep.bytes_per_s = bytes_per_s
            await deep.check(segments, flushed, sizes.keys())
    return report


def _beyond_the_end(topics: dict[UUID, str], flushes: Sequence[Sequence[Any]]) -> Iterator[str]:
    """The problems of rows that need more of a flush than its object has. flushes: rows of _FLUSHES."""
    for object_id, size_bytes, topic_id, partition, base, end, needed_bytes in flushes:
        if size_bytes is None or needed_bytes > size_bytes:
            what = _offsets(_shown(topics, topic_id, partition), base, end)
            yield f"{what}: rows of the tail need {needed_bytes} bytes of the {size_bytes} of {object_id}"


async def _old_garbage(connection: Connection, count: int) -> list[str]:
    """A warning, if some of the garbage is old. count: of all."""
    days = await connection.fetchval(_OLDEST_GARBAGE_DAYS)
    if days < GARBAGE_DAYS:
        return []
    warning = (
        f"{count} objects are garbage, the oldest for {days} days: the object store refuses to remove them (brokers "
        "log objects_not_removed), no broker runs, or fencepost.cluster.garbage.ms is so long"
    )
    return [warning]


async def _listed(
    store: ObjectStore, cluster_id: str, named: Collection[str], garbage: Collection[str], report: CheckReport
) -> dict[str, int]:
    """The sizes of the objects that rows name; counts all."""
    sizes: dict[str, int] = {}
    async for page in store.list(cluster_prefix(cluster_id)):
        for found in page:
            report.objects += 1
            report.object_bytes += found.size_bytes
            if found.name in named:
                sizes[found.name] = found.size_bytes
            elif found.name not in garbage:
                report.unnamed += 1
    return sizes


class _DeepCheck:
    """A check of the bytes of objects.

    directory:   holds the objects being read, one file for each of `READ_AT_ONCE`.
    bytes_per_s: the most that is read, on average over some objects; an object comes as fast as it comes.
    """

    def __init__(
        self,
        connection: Connection,
        store: ObjectStore,
        cluster_id: str,
        report: CheckReport,
        topics: dict[UUID, str],
        directory: str,
    ) -> None:
        self._connection = connection
        self.bytes_per_s = math.inf
        self._may_read_at_s = -math.inf
        self._asking = asyncio.Lock()
        self._store = store
        self._cluster_id = cluster_id
        self._report = report
        self._topics = topics
        self._directory = directory
        self._disk = LocalDisk()

    async def check(self, segments: Sequence[Any], flushed: Sequence[Any], present: Collection[str]) -> None:
        """Check all objects that are `present`. segments, flushed: rows of _SEGMENTS and _FLUSHED."""
        work = itertools.chain(self._of_segments(segments), self._of_flushes(flushed))

        async def check_some(slot: int) -> None:
            for name, check in work:
                if name in present:
                    await self._read(name, f"{self._directory}/{slot}", check)

        await asyncio.gather(*(check_some(slot) for slot in range(READ_AT_ONCE)))

    def _of_segments(self, segments: Sequence[Any]) -> Iterator[tuple[str, _Check]]:
        for topic_id, partition, base, end, object_id, size_bytes, has_aborted, leader_epoch, *checksums in segments:
            whole, of_blocks = checksums
            sealed = RemoteSegmentMetadata(
                base, end, size_bytes, 0, has_aborted, leader_epoch, object_id, whole, block_checksums=of_blocks
            )
            names = SegmentName(self._cluster_id, topic_id.bytes, partition, base, object_id)
            what = _offsets(_shown(self._topics, topic_id, partition), base, end)
            for suffix in suffixes(has_aborted=has_aborted):
                yield names.file(suffix, end), partial(self._check_file, sealed, suffix, what)

    def _of_flushes(self, flushed: Sequence[Any]) -> Iterator[tuple[str, _Check]]:
        for object_id, rows in itertools.groupby(flushed, key=lambda row: row["object"]):
            yield flush_name(self._cluster_id, object_id), partial(self._check_flush, list(rows))

    async def _read(self, name: str, path: str, check: _Check) -> None:
        """Read an object into a file, and check that."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._may_read_at_s - loop.time()))
        try:
            size_bytes = await self._store.get_file(name, path)
            self._report.read_bytes += size_bytes
            self._may_read_at_s = max(self._may_read_at_s, loop.time()) + size_bytes / self.bytes_per_s
            await check(name, path)
        except ObjectMissingError:
            # It was replaced since the listing, unless a row still names it.
            async with self._asking:
                segments = await self._connection.fetch(_SEGMENTS)
                flushes = await self._connection.fetch(_FLUSHES)
            one = _named(self._cluster_id, segments, flushes).get(name)
            if one is None:
                self._report.replaced += 1
            else:
                self._report.problems.append(f"{_what(self._topics, one)}: there is no object {name}")
        finally:
            self._disk.delete(path)

    async def _check_file(self, sealed: RemoteSegmentMetadata, suffix: str, what: str, name: str, path: str) -> None:
        file = self._disk.open(path)
        try:
            await run_in_slices(check_object(name, file, sealed, suffix, has_to_match_blocks=True), SLICE_S)
        except WrongContentError as error:
            self._report.problems.append(f"{what}: {error}")
        finally:
            file.close()

    async def _check_flush(self, rows: Sequence[Any], name: str, path: str) -> None:
        file = self._disk.open(path)
        try:
            for row in rows:
                content = file.read(row["object_position"], row["length"])
                try:
                    await run_in_slices(check_flushed(name, row["object_position"], content, row["checksum"]), SLICE_S)
                except WrongContentError as error:
                    partition = _shown(self._topics, row["topic_id"], row["partition"])
                    what = _offsets(partition, row["base_offset"], row["end_offset"])
                    self._report.problems.append(f"{what}: {error}")
        finally:
            file.close()


class _Named(NamedTuple):
    """An object as rows name it. spans: topic, partition and offsets of each log that it is of; several only of a
    flush. size_bytes: None if the row does not have it."""

    spans: tuple[tuple[UUID, int, int, int], ...]
    size_bytes: int | None


def _named(cluster_id: str, segments: Sequence[Sequence[Any]], flushes: Sequence[Sequence[Any]]) -> dict[str, _Named]:
    """All objects that rows name. segments, flushes: rows of _SEGMENTS and of _FLUSHES."""
    named = {}
    for (object_id, size_bytes), rows in itertools.groupby(flushes, key=lambda row: (row[0], row[1])):
        spans = tuple((topic_id, partition, base, end) for _, _, topic_id, partition, base, end, _ in rows)
        named[flush_name(cluster_id, object_id)] = _Named(spans, size_bytes)
    for topic_id, partition, base, end, object_id, size_bytes, has_aborted, *_ in segments:
        names = SegmentName(cluster_id, topic_id.bytes, partition, base, object_id)
        for file in names.files(end, has_aborted=has_aborted):
            named[file] = _Named(((topic_id, partition, base, end),), size_bytes if file.endswith(".log") else None)
    return named


def _what(topics: dict[UUID, str], one: _Named) -> str:
    spans = [_offsets(_shown(topics, topic_id, partition), base, end) for topic_id, partition, base, end in one.spans]
    return "; ".join(spans)


def _offsets(partition: str, base_offset: int, end_offset: int) -> str:
    return f"{partition}, offsets {base_offset} to {end_offset - 1}"


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
