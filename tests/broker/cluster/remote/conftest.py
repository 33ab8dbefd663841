"""A cluster without brokers over PostgreSQL and a modelled object store, and a node that leads its log."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.cluster.postgres.connections import parse_address
from tests.broker.cluster.remote.remote_world import RemoteCluster, RemoteWorld
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
