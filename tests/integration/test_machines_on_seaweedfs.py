"""Three brokers over SeaweedFS, a server in real use: they write, seal, read what is nowhere else, and delete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from fencepost.broker.cluster.objects.location import ObjectLocation
from fencepost.broker.cluster.objects.s3 import S3Objects
from scripts.seaweedfs import SeaweedFS
from tests.support.clients_of_processes import SETTINGS, create, leaders, read
from tests.support.conditions import noted, until
from tests.support.lost_brokers import Clients
from tests.support.machines import Machines
from tests.support.missing_tools import require_seaweedfs
from tests.support.postgres import PostgresServer, postgres_server

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

TIMEOUT_S = 180.0
SEALS_OFTEN = {
    **SETTINGS,
    "log.roll.ms": "1000",
    "fencepost.cluster.inline.max.bytes": "2048",
}
SWEEPS_OFTEN = (
    "from fencepost.broker.cluster.remote import object_sweep; object_sweep.INTERVAL_S = 1.0; "
    "from fencepost.cli.main import main; main()"
)


class World(NamedTuple):
    server: SeaweedFS
    database: PostgresServer
    location: ObjectLocation
    machines: Machines

    def sealed(self) -> set[str]:
        """The names of the objects of sealed segments of the topic `orders`."""
        topic = self.database.execute(
            f"SELECT coalesce(min(replace(topic_id::text, '-', '')), 'deleted') FROM {self.schema}.topics "
            "WHERE name = 'orders'"
        )
        return {name for name in self.objects() if f"/log/{topic}/" in name}

    def objects(self) -> set[str]:
        async def find() -> set[str]:
            return {one.name async for page in S3Objects(self.location).list("") for one in page}

        return asyncio.run(find())

    @property
    def schema(self) -> str:
        _, url, *_ = self.machines.stores
        return url.rpartition("search_path=")[2]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    require_seaweedfs()
    with SeaweedFS(tmp_path / "seaweedfs") as server, postgres_server(is_durable=True) as database:
        server.ask("PUT", "orders-bucket")
        location = ObjectLocation(
            "orders-bucket", "p", endpoint=server.endpoint, access_key_id="any", secret_access_key="any"
        )
        with Machines(
            database.cluster_url(), location, tmp_path, settings=SEALS_OFTEN, program=("-c", SWEEPS_OFTEN)
        ) as machines:
            create(machines.bootstrap, "orders")
            until(lambda: set(leaders(machines.bootstrap)) == {1, 2, 3})
            with noted(lambda: machines.output):
                yield World(server, database, location, machines)


def go_on(clients: Clients) -> None:
    """Wait until every partition has acknowledged a record, and every producer ended transactions, from now on."""
    moment_s = time.monotonic()
    clients.write_now()
    until(lambda: clients.have_gone_on(moment_s), timeout_s=TIMEOUT_S)


def test_brokers_write_seal_read_from_the_store_alone_and_delete(world: World) -> None:
    machines = world.machines
    with Clients(machines.bootstrap, "clients", {"linger.ms": 20}) as clients:
        until(lambda: len(world.sealed()) >= 100, timeout_s=TIMEOUT_S)
        go_on(clients)
    clients.check(read(machines.bootstrap))

    for machine in machines.machines.values():
        machine.kill()
    for machine in machines.machines.values():
        machine.start()  # which empties its scratch
    until(lambda: set(leaders(machines.bootstrap)) == {1, 2, 3}, timeout_s=TIMEOUT_S)
    clients.check(read(machines.bootstrap))

    sealed = world.sealed()
    admin = AdminClient({"bootstrap.servers": machines.bootstrap})
    admin.delete_topics(["orders"])["orders"].result()
    until(lambda: not world.sealed(), timeout_s=TIMEOUT_S)  # its row is gone

    def a_day_passes() -> bool:
        world.database.execute(f"UPDATE {world.schema}.garbage SET since = since - interval '1 day'")
        return not sealed & world.objects()

    until(a_day_passes, timeout_s=TIMEOUT_S)
    assert world.objects(), "internal topics keep theirs"


def test_a_store_that_is_killed_costs_time_and_no_record(world: World) -> None:
    machines = world.machines
    with Clients(machines.bootstrap, "clients", {"linger.ms": 20}) as clients:
        go_on(clients)
        until(lambda: len(world.sealed()) >= 20, timeout_s=TIMEOUT_S)
        world.server.kill()
        time.sleep(8)  # the fault itself
        world.server.start()
        go_on(clients)
        sealed = len(world.sealed())
        until(lambda: len(world.sealed()) > sealed, timeout_s=TIMEOUT_S)
    clients.check(read(machines.bootstrap))
    assert "Traceback" not in machines.output
    assert "partition_lost" not in machines.output
