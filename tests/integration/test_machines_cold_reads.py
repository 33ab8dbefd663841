"""Old records of a cluster of machines: many consumers read them at the same time, through little scratch."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fencepost.broker.cluster.postgres.connections import connect, parse_address
from tests.broker.conftest import cluster_url, durable_postgres  # noqa: F401
from tests.support.clients_of_processes import SETTINGS
from tests.support.conditions import until
from tests.support.machines import Machines
from tests.support.object_server import object_server
from tests.support.replays import fill, replay

pytestmark = pytest.mark.integration

PARTITIONS, RECORDS, CONSUMERS = 5, 2_000, 50
SEGMENT_BYTES = 9 * 1024 * 1024
SCRATCH_BYTES = 40 * 1024 * 1024


async def _sealed_count(url: str) -> int:
    connection = await connect(parse_address(url), application_name="test")
    try:
        count: int = await connection.fetchval(
            "SELECT count(*) FROM segments JOIN topics USING (topic_id) WHERE name = 'old'"
        )
        return count
    finally:
        await connection.close()


def test_fifty_consumers_of_remote_segments_get_each_record_once_through_a_small_scratch(
    cluster_url: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    settings = {
        **SETTINGS,
        "fencepost.cluster.tail.max.bytes": str(1024 * 1024),
        "fencepost.cluster.scratch.max.bytes": str(SCRATCH_BYTES),
    }
    with object_server(tmp_path / "objects") as objects:
        bucket = objects.make_bucket("cluster")
        with Machines(cluster_url, bucket, tmp_path, count=1, settings=settings) as machines:
            fill(machines.bootstrap, "old", partitions=PARTITIONS, records=RECORDS, segment_bytes=SEGMENT_BYTES)
            until(lambda: asyncio.run(_sealed_count(cluster_url)) >= 2 * PARTITIONS, timeout_s=60)
            machines[1].kill()
            machines[1].start()
            objects.requests.clear()
            replay(
                machines.bootstrap,
                "old",
                partitions=PARTITIONS,
                records=RECORDS,
                consumers=CONSUMERS,
                meanwhile=lambda: None,
            )
            parts = [path for method, path in objects.requests if method == "GET" and path.endswith(".log")]
            assert len(parts) >= 3 * 2 * PARTITIONS, "each block of each segment"
            scratch = sum(path.stat().st_size for path in (tmp_path / "machine-1").glob("old-*/*.log.*"))
            assert scratch <= 2 * SCRATCH_BYTES
