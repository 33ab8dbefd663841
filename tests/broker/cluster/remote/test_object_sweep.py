"""A store that refuses to remove objects: they are counted and told, and do not hold up the others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.cluster.machines.check import check_cluster
from fencepost.broker.cluster.objects.abandoned import AbandonedObjects
from fencepost.broker.cluster.postgres.connections import parse_address
from fencepost.broker.cluster.remote import object_sweep
from fencepost.broker.cluster.remote.object_sweep import ObjectSweep
from tests.broker.cluster.remote.remote_world import CLUSTER_ID, RemoteCluster
from tests.support.captured_events import capture_logs
from tests.support.modelled_objects import ModelledObjects


class Garbage:
    """The rows, all of them due."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    async def holds_sweep(self) -> bool:
        return True

    async def find(self) -> int:
        return 0

    async def due(self, _grace_s: float, limit: int) -> Sequence[str]:
        return self.names[:limit]

    async def removed(self, names: Sequence[str]) -> None:
        gone = set(names)
        self.names = [name for name in self.names if name not in gone]


def world(count: int) -> tuple[ModelledObjects, Garbage, ObjectSweep]:
    store = ModelledObjects(random.Random(1))
    store.slowest_s = 0.0
    store.objects = {f"{number:05d}": b"garbage" for number in range(count)}
    garbage = Garbage(list(store.objects))
    table: Any = garbage
    return store, garbage, ObjectSweep(store, table, "cluster", AbandonedObjects())


async def test_objects_that_are_refused_do_not_hold_up_the_others() -> None:
    store, garbage, sweep = world(2_500)
    store.undeletable = {"00000", "00007", "01500"}
    with capture_logs() as lines:
        assert await sweep.remove_garbage() == 2_497
        assert await sweep.remove_garbage() == 0
    assert set(store.objects) == set(garbage.names) == store.undeletable
    assert sweep.refused_count == 3
    refused = [line for line in lines if line["event"] == "objects_not_removed"]
    assert [(line["objects"], line["first"]) for line in refused] == [(3, "00000")]
    assert "AccessDenied" in refused[0]["reason"]
    assert "s3:DeleteObject" in refused[0]["remedy"]


async def test_a_store_that_refuses_all_is_asked_little_and_told_of_once() -> None:
    store, garbage, sweep = world(12_000)
    store.undeletable = set(store.objects)
    with capture_logs() as lines:
        for _ in range(10):
            assert await sweep.remove_garbage() == 0
    assert sweep.refused_count == object_sweep.MOST_REFUSED
    assert len(garbage.names) == 12_000
    assert store.deletes == 10 * (1 + object_sweep.REFUSALS_IN_A_ROW)
    assert [line["event"] for line in lines] == ["objects_not_removed"]


async def test_objects_that_were_refused_are_removed_once_the_store_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store, garbage, sweep = world(10)
    store.undeletable = set(store.objects)
    assert await sweep.remove_garbage() == 0
    store.undeletable = set()
    assert await sweep.remove_garbage() == 0, "not each minute"
    monkeypatch.setattr(sweep, "_refused_again_at_s", 0.0)  # an hour later
    assert await sweep.remove_garbage() == 10
    assert (store.objects, garbage.names, sweep.refused_count) == ({}, [], 0)


async def test_a_check_of_the_cluster_tells_of_objects_that_are_garbage_for_long(
    cluster_url: str, tmp_path: Path
) -> None:
    store = ModelledObjects(random.Random(1))
    cluster = await RemoteCluster.found(parse_address(cluster_url), store, str(tmp_path))
    await cluster.database.execute("INSERT INTO garbage VALUES ('a', now() - interval '6 days'), ('b', now())")
    assert (await check_cluster(cluster.database, store, CLUSTER_ID)).warnings == []
    await cluster.database.execute("UPDATE garbage SET since = since - interval '2 days' WHERE name = 'a'")
    report = await check_cluster(cluster.database, store, CLUSTER_ID)
    assert len(report.warnings) == 1
    assert "2 objects are garbage, the oldest for 8 days: the object store refuses to remove them" in report.warnings[0]
    assert report.problems == []
    await cluster.close()
