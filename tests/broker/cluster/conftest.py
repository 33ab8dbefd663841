"""A PostgreSQL for the tests of brokers on several machines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import PostgresServer, postgres_server


@pytest.fixture(scope="session")
def durable_postgres() -> Iterator[PostgresServer]:
    with postgres_server(is_durable=True) as server:
        yield server


@pytest.fixture
def cluster_url(durable_postgres: PostgresServer) -> str:
    """The URL of a cluster that no node has started yet."""
    return durable_postgres.cluster_url()
