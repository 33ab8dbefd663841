"""A cluster of brokers on machines of a network, each in a namespace of its own, that meet their stores over TCP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.support.machines import Machines
from tests.support.network import Network
from tests.support.object_server import object_server
from tests.support.postgres import PostgresServer
from tests.support.postgres_over_tcp import postgres_over_tcp

PORT = 9092
_numbers = count(1)


class RemoteMachines(NamedTuple):
    """The brokers, and the network that they are on, by the same numbers. postgres_port: of their database."""

    machines: Machines
    network: Network
    postgres_port: int


@contextmanager
def remote_machines(
    database: PostgresServer, directory: Path, *, settings: dict[str, str], count: int = 3
) -> Iterator[RemoteMachines]:
    """Start brokers on machines of their own, and stop them at the end of the block."""
    with (
        Network(count) as network,
        postgres_over_tcp(database.uri, network.stores) as postgres,
        object_server(directory / "objects", network.stores) as objects,
    ):
        schema = f"remote_{next(_numbers)}"
        url = f"postgresql://postgres@{network.stores}:{postgres.port}/postgres?search_path={schema}"
        machines = Machines(url, objects.make_bucket(), directory, count, settings=settings)
        for number, machine in machines.machines.items():
            machine.host, machine.port = network.address(number), PORT
            machine.launcher = network.launcher(number)
        with machines:
            yield RemoteMachines(machines, network, postgres.port)
