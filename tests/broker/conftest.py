"""Disks, log directories and a PostgreSQL, which tests of one room share with those of what is built on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fencepost.broker.storage.local_disk import LocalDisk
from tests.support.log_world import LogWorld
from tests.support.postgres import PostgresServer, postgres_server


@pytest.fixture
def disk() -> Iterator[LocalDisk]:
    local_disk = LocalDisk()
    yield local_disk
    local_disk.close()


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[LogWorld]:
    log_world = LogWorld(str(tmp_path / "logs"))
    await log_world.start()
    yield log_world
    await log_world.stop()


@pytest.fixture(scope="session")
def durable_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that syncs, as the brokers of a cluster require."""
    with postgres_server(is_durable=True) as server:
        yield server


@pytest.fixture
def cluster_url(durable_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a cluster that no node has started yet. A connection may take as long as a busy machine does."""
    monkeypatch.setattr("fencepost.broker.cluster.postgres.connections.CONNECT_TIMEOUT_S", 60.0)
    return durable_postgres.cluster_url()
