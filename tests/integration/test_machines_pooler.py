"""A broker of a cluster that reaches PostgreSQL through PgBouncer, in session mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clients_of_processes import PARTITIONS, SETTINGS, create, read, write
from tests.support.machines import Machines
from tests.support.object_server import ObjectServer
from tests.support.pgbouncer import pgbouncer
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.integration


def test_a_cluster_works_through_a_pooler_in_session_mode(
    database: PostgresServer, objects: ObjectServer, tmp_path: Path
) -> None:
    with pgbouncer(database, "session") as url:
        place = f"{url}&search_path=pooled"
        with Machines(place, objects.make_bucket(), tmp_path, 2, settings=SETTINGS) as machines:
            create(machines.bootstrap, "orders")
            write(machines.bootstrap, ["a"])
            machines.replace(1)
            write(machines.bootstrap, ["b"])
            found = read(machines.bootstrap)
    assert {value: len(partitions) for value, partitions in found.items()} == {"a": PARTITIONS, "b": PARTITIONS}
