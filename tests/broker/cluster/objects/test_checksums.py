"""Objects that hold other bytes than were stored: they are named, and never served."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fencepost.broker.cluster.machines.check import check_cluster
from fencepost.broker.cluster.machines.export import export_topics
from fencepost.broker.cluster.postgres.connections import parse_address
from fencepost.broker.cluster.remote import remote_fetch
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from tests.broker.cluster.remote.remote_world import CLUSTER_ID, RemoteCluster, RemoteWorld, content
from tests.broker.supervision.planting import until
from tests.support.captured_events import capture_logs
from tests.support.modelled_objects import ModelledObjects


@pytest.fixture
def store() -> ModelledObjects:
    return ModelledObjects(random.Random(1))


@pytest.fixture
async def cluster(cluster_url: str, store: ModelledObjects, tmp_path: Path) -> AsyncIterator[RemoteCluster]:
    made = await RemoteCluster.found(parse_address(cluster_url), store, str(tmp_path))
    yield made
    await made.close()


@pytest.fixture
async def node(cluster: RemoteCluster) -> RemoteWorld:
    world = await cluster.start()
    await world.take_over()
    return world


def _flipped(store: ModelledObjects, name: str) -> bytes:
    found = bytearray(store.objects[name])
    found[len(found) * 2 // 3] ^= 4
    return bytes(found)


def _cut(store: ModelledObjects, name: str) -> bytes:
    return store.objects[name][:-5]


def _longer(store: ModelledObjects, name: str) -> bytes:
    return store.objects[name] + b"more"


def _of_another(store: ModelledObjects, name: str) -> bytes:
    """The bytes of another object of its kind, as after a wrong copy."""
    suffix = name[name.rindex(".") :]
    return next(
        found
        for other, found in sorted(store.objects.items(), reverse=True)
        if other.endswith(suffix) and other != name and found != store.objects[name]
    )


Damage = Callable[[ModelledObjects, str], bytes]


def _first(store: ModelledObjects, suffix: str) -> str:
    return min(name for name in store.objects if name.endswith(suffix))


async def _problems(cluster: RemoteCluster, store: ModelledObjects) -> list[str]:
    return (await check_cluster(cluster.database, store, CLUSTER_ID, is_deep=True)).problems


async def _write_with_aborted(node: RemoteWorld) -> None:
    for number in range(4):
        node.append(b"aborted" * 10, producer_id=7, producer_epoch=0, base_sequence=number, is_transactional=True)
        if number % 2:
            assert node.end_transaction(7, number, committed=False) is ErrorCode.NONE
        await node.write(4)
    await node.seal_all()


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [(".log", _flipped), (".log", _cut), (".log", _of_another), (".index", _longer), (".timeindex", _flipped)],
)
async def test_a_segment_with_other_bytes_than_were_stored_is_named_and_not_served(
    node: RemoteWorld,
    cluster: RemoteCluster,
    store: ModelledObjects,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    damage: Damage,
) -> None:
    await node.write(20)
    await node.seal_all()
    other = await cluster.start()
    log = await other.take_over()
    name = _first(store, suffix)
    right, store.objects[name] = store.objects[name], damage(store, name)
    with capture_logs() as lines:
        await until(lambda: log.read(0, 1000, isolation=Isolation.READ_UNCOMMITTED).error)
    assert log.read(0, 1000, isolation=Isolation.READ_UNCOMMITTED).error is ErrorCode.KAFKA_STORAGE_ERROR
    (line,) = [line for line in lines if line["event"] == "segment_not_brought"]
    assert (line["log_level"], line["topic"], line["partition"]) == ("error", "orders", 0)
    assert name in line["reason"]
    assert not [one for one in other.disk.list(f"{other.path}/orders-0") if one.endswith(".coming")]
    (problem,) = await _problems(cluster, store)
    assert problem.startswith("orders-0, offsets 0 to ")
    assert name in problem
    store.objects[name] = right
    monkeypatch.setattr(remote_fetch, "FAILED_REST_S", 0)
    other.sealed.fetches._failures.clear()
    assert len(await content(log)) == 20


@pytest.mark.parametrize(
    ("suffix", "damage"), [(".snapshot", _flipped), (".snapshot", _of_another), (".txnindex", _cut)]
)
async def test_a_partition_is_not_taken_over_from_other_bytes_than_were_stored(
    node: RemoteWorld, cluster: RemoteCluster, store: ModelledObjects, suffix: str, damage: Damage
) -> None:
    await _write_with_aborted(node)
    name = max(name for name in store.objects if name.endswith(suffix))
    store.objects[name] = damage(store, name)
    other = await cluster.start()
    with pytest.raises(StorageError, match=f"{name} does not hold the bytes that were stored there"):
        await other.take_over()
    assert [name in problem for problem in await _problems(cluster, store)] == [True]


@pytest.mark.parametrize("has_checksums", [True, False])
async def test_a_tail_is_not_restored_from_other_bytes_than_were_flushed(
    cluster: RemoteCluster, store: ModelledObjects, tmp_path: Path, *, has_checksums: bool
) -> None:
    cluster.inline_max_bytes = 50
    node = await cluster.start()
    await node.take_over()
    await node.write(5)
    await node.write(5, size_bytes=120)
    name = min(name for name in store.objects if "/tail/" in name)
    if not has_checksums:
        await cluster.database.execute("UPDATE tail SET checksum = NULL")
    store.objects[name] = _flipped(store, name)
    (problem,) = await _problems(cluster, store)
    assert problem.startswith("orders-0, offsets ")
    assert name in problem
    with pytest.raises(StorageError, match=f"{name} does not hold, from position [0-9]+ on"):
        await export_topics(cluster.database, store, CLUSTER_ID, ["orders"], str(tmp_path / "exported"))
    other = await cluster.start()
    with pytest.raises(StorageError, match=f"{name} does not hold, from position [0-9]+ on"):
        await other.take_over()


async def test_records_that_were_sealed_before_there_were_checksums_are_checked_by_the_crcs_of_their_batches(
    node: RemoteWorld, cluster: RemoteCluster, store: ModelledObjects
) -> None:
    await node.write(20)
    await node.seal_all()
    await cluster.database.execute("UPDATE segments SET checksums = NULL")
    name = _first(store, ".log")
    right, store.objects[name] = store.objects[name], _flipped(store, _first(store, ".log"))
    (problem,) = await _problems(cluster, store)
    assert f"{name} is damaged at position" in problem
    other = await cluster.start()
    log = await other.take_over()
    await until(lambda: log.read(0, 1000, isolation=Isolation.READ_UNCOMMITTED).error)
    store.objects[name] = right
    third = await cluster.start()
    assert len(await content(await third.take_over())) == 20
    assert await _problems(cluster, store) == []


async def test_a_plain_check_reads_no_object_and_a_deep_one_all_that_rows_name(
    node: RemoteWorld, cluster: RemoteCluster, store: ModelledObjects
) -> None:
    await node.write(20)
    await node.seal_all()
    report = await check_cluster(cluster.database, store, CLUSTER_ID)
    assert report.read_bytes == 0
    deep = await check_cluster(cluster.database, store, CLUSTER_ID, is_deep=True)
    assert deep.problems == []
    assert deep.read_bytes == deep.object_bytes == sum(map(len, store.objects.values()))


async def test_a_deep_check_with_a_rate_takes_as_long_as_its_bytes_take(
    node: RemoteWorld, cluster: RemoteCluster, store: ModelledObjects
) -> None:
    await node.write(20)
    await node.seal_all()
    total_bytes = sum(map(len, store.objects.values()))
    largest_bytes = max(map(len, store.objects.values()))
    bytes_per_s = total_bytes / 0.5
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    report = await check_cluster(cluster.database, store, CLUSTER_ID, is_deep=True, bytes_per_s=bytes_per_s)
    assert (report.problems, report.read_bytes) == ([], total_bytes)
    assert loop.time() - began_s >= (total_bytes - 4 * largest_bytes) / bytes_per_s


async def test_a_deep_check_takes_no_object_for_missing_that_is_replaced_meanwhile(
    cluster: RemoteCluster, store: ModelledObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.inline_max_bytes = 50
    node = await cluster.start()
    await node.take_over()
    await node.write(20)
    get_file = store.get_file

    async def get_late(name: str, path: str) -> int:
        node.orders.roll(node.clock.now_ms())
        await node.orders.flushed()
        await node.seal_all()
        await node.sweep.remove_garbage()
        return await get_file(name, path)

    monkeypatch.setattr(store, "get_file", get_late)
    report = await check_cluster(cluster.database, store, CLUSTER_ID, is_deep=True)
    assert report.problems == []
    assert report.replaced > 0


async def test_a_log_file_that_is_damaged_in_the_scratch_is_not_sealed(
    node: RemoteWorld, cluster: RemoteCluster
) -> None:
    await node.write(20)
    before = await content(node.orders)
    first = node.orders.segments.sealed[0]
    path = Path(node.path) / "orders-0" / f"{first.base_offset:020d}.log"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with capture_logs() as lines:
        await node.sealed.uploads.upload_once()
    (line,) = [line for line in lines if line["event"] == "segment_not_sealed"]
    assert "is damaged at position" in line["reason"]
    assert await cluster.database.fetchval("SELECT min(base_offset) FROM tail") == 0
    other = await cluster.start()
    assert await content(await other.take_over()) == before, "the store has the only good copy"


async def test_a_deep_check_finds_checksums_of_blocks_that_are_not_those_of_the_object(
    node: RemoteWorld, cluster: RemoteCluster, store: ModelledObjects
) -> None:
    await node.write(20)
    await node.seal_all()
    assert await _problems(cluster, store) == []
    await cluster.database.execute(
        "UPDATE segments SET block_checksums = set_byte(block_checksums, 10, get_byte(block_checksums, 10) # 1) "
        "WHERE base_offset = 0"
    )
    (problem,) = await _problems(cluster, store)
    assert f"{_first(store, '.log')} is as it was stored, and the checksums of its blocks are not" in problem
