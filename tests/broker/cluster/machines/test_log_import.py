"""Import of one log: its segments, and offsets without batches, become rows that cover it without gaps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.cluster.machines.log_import import LogImport, spans
from fencepost.broker.cluster.postgres.connections import Connection, connect, parse_address
from fencepost.broker.cluster.postgres.import_rows import ImportedPartition, ImportRows
from fencepost.broker.cluster.remote.segment_objects import SegmentObjects
from fencepost.broker.log.files.checkpoints import decode_epochs
from fencepost.broker.log.files.producer_snapshot import decode_snapshot
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.storage.disk import StorageError
from tests.support.data_directory import flip
from tests.support.log_world import NOW_MS, TOPIC_ID, LogWorld
from tests.support.modelled_objects import ModelledObjects

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)


class Importing:
    """An import into a database without tables."""

    def __init__(self, connection: Connection, url: str) -> None:
        self.objects = ModelledObjects()
        self.rows = ImportRows(connection, parse_address(url), "a")

    async def take(self, world: LogWorld) -> ImportedPartition:
        stored = await self.rows.begin()
        objects = SegmentObjects(self.objects, self.rows.cluster_id, world.disk)
        importing = LogImport(objects, self.rows, world.disk, stored, now_ms=NOW_MS)
        return await importing.add(world.orders, TOPIC_ID, cleaned_to=0)


@pytest.fixture
async def importing(cluster_url: str) -> AsyncIterator[Importing]:
    connection = await connect(parse_address(cluster_url), application_name="test")
    yield Importing(connection, cluster_url)
    await connection.close()


async def test_segments_follow_each_other_up_to_the_end_and_the_active_one_is_rolled(
    world: LogWorld, importing: Importing
) -> None:
    world.create(SMALL)
    for _ in range(12):
        world.append(b"x" * 150)
    bases = [one.base_offset for one in world.orders.segments]
    imported = await importing.take(world)
    assert [one.base_offset for one in imported.segments] == bases
    assert [one.end_offset for one in imported.segments] == [*bases[1:], 12]
    assert imported.end_offset == world.orders.segments.active.base_offset == 12
    assert decode_epochs(imported.epochs) == [(0, 0)]
    assert {name.rpartition("/")[2] for name in importing.objects.objects} >= {"00000000000000000000.log"}


async def test_a_log_without_records_has_no_rows(world: LogWorld) -> None:
    assert spans(world.create(SMALL)) == []


async def test_the_start_of_a_log_that_no_batch_has_is_covered(world: LogWorld, importing: Importing) -> None:
    log = world.create(SMALL)
    for _ in range(4):
        world.append(b"x" * 150)
    log.roll(NOW_MS)
    world.append(b"y")
    for segment in log.segments.sealed:
        segment.batches.truncate(0)  # as compaction may leave it
    start = log.segments.active.base_offset
    assert [one[:2] for one in spans(log)] == [(0, start), (start, start + 1)]
    imported = await importing.take(world)
    assert [(one.base_offset, one.end_offset) for one in imported.segments] == [(0, start), (start, start + 1)]


async def test_a_snapshot_that_is_missing_is_made_from_the_log(world: LogWorld, importing: Importing) -> None:
    log = world.create(SMALL)
    for sequence in range(8):
        world.append(b"x" * 150, producer_id=3, producer_epoch=0, base_sequence=sequence)
    await log.flushed()
    second = log.segments.sealed[0].base_offset, log.segments.sealed[1].base_offset
    log.files.delete_snapshot(second[1])
    imported = await importing.take(world)
    assert (imported.segments[0].base_offset, imported.segments[0].end_offset) == second
    (content,) = [
        content for name, content in importing.objects.objects.items() if name.endswith(f"{second[1]:020d}.snapshot")
    ]
    producers = decode_snapshot(content)
    assert isinstance(producers, list)
    assert [one.recent_batches[-1].last_sequence for one in producers] == [second[1] - 1]


async def test_a_damaged_segment_is_refused_with_its_place(
    world: LogWorld, importing: Importing, tmp_path: Path
) -> None:
    log = world.create(SMALL)
    world.append(b"x" * 150)
    flip(log.segments.active.files.path(".log"), 100)
    with pytest.raises(StorageError, match=r"00000000000000000000\.log"):
        await importing.take(world)
