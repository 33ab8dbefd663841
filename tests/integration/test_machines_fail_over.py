"""Brokers over a PostgreSQL whose synchronous standby takes over, by streaming replication, under real clients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.clients_of_processes import SETTINGS, create, leaders, read
from tests.support.conditions import noted, until
from tests.support.lost_brokers import Clients
from tests.support.machines import Machines
from tests.support.object_server import ObjectServer
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.postgres_over_tcp import postgres_over_tcp
from tests.support.postgres_standby import Standby, standby_of

pytestmark = pytest.mark.integration

RECOVERY_S = 120.0


class Pair(NamedTuple):
    """A primary with its synchronous standby, and the brokers that have both in their URL."""

    primary: PostgresServer
    standby: Standby
    machines: Machines


@contextmanager
def pair(objects: ObjectServer, directory: Path) -> Iterator[Pair]:
    with (
        postgres_server(is_durable=True) as primary,
        standby_of(primary, "second", is_synchronous=True) as standby,
        postgres_over_tcp(primary.uri, forwards_cancels=True) as first,
        postgres_over_tcp(standby.uri, forwards_cancels=True) as second,
    ):
        hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
        url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write&sslmode=disable"
        with Machines(url, objects.make_bucket(), directory, settings=SETTINGS) as machines:
            create(machines.bootstrap, "orders")
            until(lambda: set(leaders(machines.bootstrap)) == {1, 2, 3})
            yield Pair(primary, standby, machines)


def go_on(clients: Clients) -> None:
    """Wait until every partition has acknowledged a record, and every producer ended transactions, from now on."""
    moment_s = time.monotonic()
    clients.write_now()
    until(lambda: clients.have_gone_on(moment_s), timeout_s=RECOVERY_S)


def test_nothing_is_lost_when_a_standby_is_promoted_beside_a_primary_that_lives_on_and_comes_back(
    objects: ObjectServer, tmp_path: Path
) -> None:
    with pair(objects, tmp_path) as (primary, standby, machines), noted(lambda: machines.output):
        with Clients(machines.bootstrap, "clients", {}) as clients:
            go_on(clients)
            standby.promote()
            time.sleep(10)  # the fault itself: both take connections, and brokers are at the old one
            go_on(clients)
            primary.kill()
            go_on(clients)
            primary.start()  # nobody has made it a standby: it takes itself for the primary
            machines[1].restart_after_kill()
            go_on(clients)
        clients.check(read(machines.bootstrap))
        assert "database_went_back" not in machines.output
        assert "flush_conflicts" not in machines.output


def test_nothing_is_lost_when_a_standby_is_frozen_and_then_takes_over_from_a_primary_that_dies(
    objects: ObjectServer, tmp_path: Path
) -> None:
    with pair(objects, tmp_path) as (primary, standby, machines), noted(lambda: machines.output):
        with Clients(machines.bootstrap, "clients", {}) as clients:
            go_on(clients)
            with standby.frozen():
                time.sleep(8)  # the fault itself: time-outs end the waits of commits
                primary.kill()
            standby.promote()
            go_on(clients)
        clients.check(read(machines.bootstrap))
        assert "database_went_back" not in machines.output
