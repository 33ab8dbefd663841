"""Each kind of object, damaged in each way, in a real object server: what is wrong is named, and served to nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from fencepost.broker.cluster.machines.check import check_cluster
from fencepost.broker.cluster.machines.export import export_topics
from fencepost.broker.cluster.objects.location import ObjectLocation
from fencepost.broker.cluster.objects.names import SEGMENT_SUFFIXES, flush_name, segment_of
from fencepost.broker.cluster.objects.s3 import S3Objects
from fencepost.broker.cluster.postgres.connections import parse_address
from fencepost.broker.log.compaction.segment_merge import merge_segments
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.log.segment import batch_scan, header_check, remote_segment
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import iterate_batches, read_records
from tests.broker.cluster.remote.remote_world import CLUSTER_ID, RemoteCluster, RemoteWorld, content
from tests.support.captured_events import capture_logs
from tests.support.log_world import ORDERS, TOPIC_ID
from tests.support.object_server import ObjectServer

UNCOMMITTED: Final = Isolation.READ_UNCOMMITTED
SEGMENTS: Final = LogConfig(segment_bytes=2_000, index_interval_bytes=100)
FLUSH, BLOCKS = "flush", "blocks"
KINDS: Final = (*SEGMENT_SUFFIXES, BLOCKS, FLUSH)
"""By their suffix; the log file also as it is read in blocks."""
READ_LATER: Final = (".log", ".index", ".timeindex", BLOCKS)
"""A take-over needs all others, and is refused without them."""

RIGHT_WHERE_READ: Final = {(BLOCKS, "longer"), (FLUSH, "longer")}
"""Only parts of these are read, which are as they were stored."""


class Bytes(NamedTuple):
    """The right bytes of an object, and others that were stored, too: of the segment before it was merged, of another
    object of the kind, and of another kind."""

    right: bytes
    older: bytes
    of_another: bytes
    of_another_kind: bytes


def flipped(found: Bytes) -> bytes:
    position = len(found.right) // 2
    return found.right[:position] + bytes([found.right[position] ^ 1]) + found.right[position + 1 :]


DAMAGES: Final[dict[str, Callable[[Bytes], bytes | None]]] = {
    "flipped": flipped,
    "cut": lambda found: found.right[:-5],
    "longer": lambda found: found.right + b"more",
    "older": lambda found: found.older,
    "of another": lambda found: found.of_another,
    "of another kind": lambda found: found.of_another_kind,
    "empty": lambda _: b"",
    "absent": lambda _: None,
}


@pytest.fixture
def location(objects: ObjectServer) -> ObjectLocation:
    return objects.make_bucket("p")


@pytest.fixture
async def cluster(
    cluster_url: str, location: ObjectLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RemoteCluster]:
    """A cluster whose log has sealed segments, of which the first was merged, and a tail of large flushes."""
    made = await RemoteCluster.found(parse_address(cluster_url), S3Objects(location), str(tmp_path))
    made.with_replicas = True
    made.inline_max_bytes = 50
    yield made
    await made.close()


async def write(cluster: RemoteCluster, objects: ObjectServer, location: ObjectLocation) -> dict[str, bytes]:
    """Write the log. Returns all objects that there were before the merge."""
    node = await cluster.start(SEGMENTS)
    log = await node.take_over()
    for number in range(6):
        producer_id = 7 + number
        node.clock.time_ms += 1_000
        node.append(b"x" * 70, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
        await node.write(12)
        assert node.end_transaction(producer_id, 1, committed=number % 2 == 1) is ErrorCode.NONE
    await node.seal_all()
    before = stored(objects, location)
    assert await merge_segments(log, 0, log.segments.sealed[2].base_offset) is not None
    await node.seal_all()
    await node.write(5)
    return before


def stored(objects: ObjectServer, location: ObjectLocation) -> dict[str, bytes]:
    found = objects.files(location)
    return {name.removeprefix("p/"): content for name, content in found.items() if name.startswith("p/")}


async def name_of(cluster: RemoteCluster, kind: str, present: dict[str, bytes]) -> str:
    """The object to be damaged: of the merged segment, of the last one if a take-over reads only that, of a flush."""
    if kind == FLUSH:
        object_id = await cluster.database.fetchval("SELECT object FROM tail ORDER BY base_offset DESC LIMIT 1")
        return flush_name(CLUSTER_ID, object_id)
    order = "DESC" if kind == ".snapshot" else "ASC"
    object_id = await cluster.database.fetchval(f"SELECT object FROM segments ORDER BY base_offset {order} LIMIT 1")
    suffix = ".log" if kind == BLOCKS else kind
    (name,) = (name for name in present if object_id.hex in name and name.endswith(suffix))
    return name


def bytes_for(name: str, before: dict[str, bytes], present: dict[str, bytes]) -> Bytes:
    right, segment = present[name], segment_of(name)
    kind = FLUSH if segment is None else name[name.rindex(".") :]

    def is_of_kind(other: str) -> bool:
        return segment_of(other) is None if segment is None else other.endswith(kind)

    others = [found for other, found in sorted(present.items()) if is_of_kind(other) and found != right]
    of_another_kind = next(found for other, found in sorted(present.items()) if not is_of_kind(other) and found)
    base = -1 if segment is None else segment.base_offset
    older = [
        found
        for other, found in before.items()
        if is_of_kind(other) and found != right and (one := segment_of(other)) is not None and one.base_offset == base
    ]
    return Bytes(right, (*older, *others)[0], others[-1], of_another_kind)


async def read_each_segment(log: PartitionLog) -> tuple[list[tuple[int, bytes]], list[tuple[int, ErrorCode]]]:
    """The records of all segments, and for each that cannot be read its base offset and the error."""
    found: list[tuple[int, bytes]] = []
    failed = []
    for offset, end in [(segment.base_offset, segment.next_offset) for segment in log.segments]:
        base = offset
        while offset < end:
            read = log.read(offset, 100_000, isolation=UNCOMMITTED)
            if read.error:
                failed.append((base, read.error))
                break
            for batch in iterate_batches(read.records):
                offset = batch.header.last_offset + 1
                records = [] if batch.header.is_control else read_records(batch)
                found += [(record.offset, bytes(record.value or b"")) for record in records]
            if not read.records:
                await asyncio.sleep(0.001)
    return found, failed


async def read_near(node: RemoteWorld) -> list[tuple[int, bytes]]:
    """What a consumer of the node's rack gets there, until it has to ask the leader."""
    assert node.sealed.replicas is not None
    found: list[tuple[int, bytes]] = []
    offset = 0
    while (replica := node.sealed.replicas.find(ORDERS, TOPIC_ID, offset, Isolation.READ_COMMITTED)) is not None:
        read = replica.read(offset, 100_000, isolation=Isolation.READ_COMMITTED)
        if read.error:
            break
        for batch in iterate_batches(read.records):
            offset = batch.header.last_offset + 1
            records = [] if batch.header.is_control else read_records(batch)
            found += [(record.offset, bytes(record.value or b"")) for record in records]
        if not read.records:
            await asyncio.sleep(0.001)
    return found


CASES: Final = [
    pytest.param(kind, damage, marks=() if (row + column) % 3 == 0 else pytest.mark.long)
    for row, kind in enumerate(KINDS)
    for column, damage in enumerate(DAMAGES)
]
"""All, of which every third one is quick: each kind and each damage at least twice."""


@pytest.mark.parametrize(("kind", "damage"), CASES)
async def test_an_object_with_other_bytes_than_were_stored_is_named_and_served_to_nobody(
    cluster: RemoteCluster,
    objects: ObjectServer,
    location: ObjectLocation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    damage: str,
) -> None:
    if kind == BLOCKS:
        cluster.block_bytes = 512
        monkeypatch.setattr(remote_segment, "MARGIN_BYTES", 128)
        for module in (header_check, batch_scan):
            monkeypatch.setattr(module, "SCAN_CHUNK_BYTES", 128)
    before = await write(cluster, objects, location)
    truth = await content(await (await cluster.start(SEGMENTS)).take_over())
    present = stored(objects, location)
    name = await name_of(cluster, kind, present)
    wrong = DAMAGES[damage](bytes_for(name, before, present))
    assert wrong != present[name]
    await cluster.store.delete([name]) if wrong is None else await cluster.store.put(name, wrong)

    (problem,) = (await check_cluster(cluster.database, cluster.store, CLUSTER_ID, is_deep=True)).problems
    assert name in problem
    assert problem.startswith("orders-0, offsets ")
    needs_all = nullcontext() if (kind, damage) == (FLUSH, "longer") else pytest.raises(StorageError, match=name)
    with needs_all:
        await export_topics(cluster.database, cluster.store, CLUSTER_ID, ["orders"], str(tmp_path / "exported"))

    near = await cluster.start(SEGMENTS)
    served_near = await read_near(near)
    assert served_near == truth[: len(served_near)]

    heir = await cluster.start(SEGMENTS)
    if kind not in READ_LATER and (kind, damage) not in RIGHT_WHERE_READ:
        with pytest.raises(StorageError, match=name):
            await heir.take_over()
        return
    log = await heir.take_over()
    with capture_logs() as lines:
        found, failed = await read_each_segment(log)
    if (kind, damage) in RIGHT_WHERE_READ:
        assert (found, failed) == (truth, [])
        return
    assert failed == [(0, ErrorCode.KAFKA_STORAGE_ERROR)]
    assert [one for one in found if one[0] >= log.segments.sealed[0].next_offset] == truth[len(truth) - len(found) :]
    assert {line["event"] for line in lines if name in str(line.get("reason"))} == {"segment_not_brought"}
