"""A broker's sessions through a real PgBouncer: its own in session mode, and refused in the other modes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fencepost.broker.cluster.postgres.connections import connect, parse_address
from fencepost.broker.cluster.postgres.poolers import require_own_sessions
from fencepost.broker.storage.disk import StorageError
from tests.support.pgbouncer import pgbouncer
from tests.support.postgres import PostgresServer, postgres_server


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


async def test_postgresql_itself_is_accepted(server: PostgresServer) -> None:
    await require_own_sessions(parse_address(server.uri))


async def test_a_pooler_in_session_mode_is_accepted_and_keeps_the_settings_of_a_session(server: PostgresServer) -> None:
    with pgbouncer(server, "session") as url:
        address = parse_address(f"{url}&search_path=other")
        await require_own_sessions(address)
        connection = await connect(address, application_name="test")
        assert await connection.fetchval("SHOW search_path") == "other"
        assert await connection.fetchval("SHOW statement_timeout") == "10s"
        await connection.close()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_pooler_that_shares_sessions_is_refused_also_when_it_is_busy(server: PostgresServer, mode: str) -> None:
    with pgbouncer(server, mode) as url:
        address = parse_address(url)
        outcomes = await asyncio.gather(*(require_own_sessions(address) for _ in range(5)), return_exceptions=True)
        for outcome in outcomes:
            assert isinstance(outcome, StorageError)
            assert "in transaction or statement mode" in str(outcome)
            assert "Set pool_mode = session" in str(outcome)
