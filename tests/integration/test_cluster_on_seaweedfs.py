"""A cluster's rows and objects over SeaweedFS, a server in real use: sealed, killed, swept, checked, versioned."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fencepost.broker.cluster.machines.check import check_cluster
from fencepost.broker.cluster.objects.bucket_check import check_bucket
from fencepost.broker.cluster.objects.location import ObjectLocation
from fencepost.broker.cluster.objects.names import flush_name
from fencepost.broker.cluster.objects.object_ids import Uploader
from fencepost.broker.cluster.objects.s3 import PARTS_FROM_BYTES, S3Objects
from fencepost.broker.cluster.objects.store import ObjectStoreTroubleError
from fencepost.broker.cluster.postgres.connections import parse_address
from scripts.seaweedfs import SeaweedFS
from tests.broker.cluster.remote.remote_world import CLUSTER_ID, RemoteCluster, content
from tests.support.missing_tools import require_seaweedfs
from tests.support.postgres import PostgresServer, postgres_server

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

LOCKED = """<ObjectLockConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
<ObjectLockEnabled>Enabled</ObjectLockEnabled>
<Rule><DefaultRetention><Mode>COMPLIANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>"""
VERSIONED = """<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
<Status>Enabled</Status></VersioningConfiguration>"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    require_seaweedfs()
    with SeaweedFS(tmp_path_factory.mktemp("seaweedfs")) as started:
        yield started


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with postgres_server(is_durable=True) as started:
        yield started


def location(server: SeaweedFS, bucket: str) -> ObjectLocation:
    return ObjectLocation(bucket, "p", endpoint=server.endpoint, access_key_id="any", secret_access_key="any")


def plain(server: SeaweedFS) -> ObjectLocation:
    server.ask("PUT", "plain-bucket")
    return location(server, "plain-bucket")


def versioned(server: SeaweedFS) -> ObjectLocation:
    server.ask("PUT", "versioned-bucket")
    server.ask("PUT", "versioned-bucket?versioning", VERSIONED)
    return location(server, "versioned-bucket")


def locked(server: SeaweedFS) -> ObjectLocation:
    server.ask("PUT", "locked-bucket", x_amz_bucket_object_lock_enabled="true")
    server.ask("PUT", "locked-bucket?object-lock", LOCKED)
    return location(server, "locked-bucket")


async def names(store: S3Objects) -> set[str]:
    return {one.name async for page in store.list(f"{CLUSTER_ID}/") for one in page}


@pytest.fixture(params=[plain, versioned, locked], ids=lambda made: made.__name__)
async def cluster(
    request: pytest.FixtureRequest, database: PostgresServer, server: SeaweedFS, tmp_path: Path
) -> AsyncIterator[RemoteCluster]:
    at = request.param(server)
    store = S3Objects(at)
    await check_bucket(store, at)
    await store.delete(list(await names(store)))
    made = await RemoteCluster.found(parse_address(database.cluster_url()), store, str(tmp_path))
    yield made
    await made.close()


async def test_segments_are_sealed_taken_over_swept_and_checked(cluster: RemoteCluster) -> None:
    store = cluster.store
    assert isinstance(store, S3Objects)
    cluster.inline_max_bytes = 50
    node = await cluster.start()
    await node.take_over()
    await node.write(20)
    await node.seal_all()
    before = await content(node.orders)
    abandoned = flush_name(
        CLUSTER_ID, await node.uploads.put(Uploader(node.node_id, node.fence), [os.urandom(PARTS_FROM_BYTES + 1)])
    )
    other = await cluster.start()
    assert await content(await other.take_over()) == before
    assert await other.sweep.find_orphans() == 1
    assert await other.sweep.remove_garbage() >= 1
    left = await names(store)
    assert abandoned not in left
    report = await check_cluster(cluster.database, store, CLUSTER_ID, is_deep=True)
    assert (report.problems, report.unnamed, report.garbage) == ([], 0, 0)
    assert len(left) == report.objects > 8


async def test_a_store_that_is_killed_has_all_that_it_has_acknowledged(server: SeaweedFS) -> None:
    store = S3Objects(plain(server))
    large = os.urandom(PARTS_FROM_BYTES + 1)
    await store.put("x/large", large)
    await asyncio.gather(*(store.put(f"x/{number}", b"%d" % number) for number in range(100)))
    server.kill()
    with pytest.raises(ObjectStoreTroubleError, match="cannot get"):
        await store.get("x/1")
    server.start()
    store = S3Objects(plain(server))
    assert await store.get("x/large") == large
    assert [await store.get(f"x/{number}") for number in range(100)] == [b"%d" % number for number in range(100)]
