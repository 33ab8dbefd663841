"""The brokers that programs are run against: a Fencepost of one process, of several, of several machines; a Kafka."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fencepost.soak.free_port import free_port
from scripts.apache_kafka import ApacheKafka
from tests.compat.harness import Client, Target
from tests.compat.secured import Security
from tests.support.broker_process import BrokerProcess
from tests.support.broker_processes import BrokerProcesses
from tests.support.machines import Machines
from tests.support.object_server import ObjectServer, object_server
from tests.support.postgres import PostgresServer, postgres_server

# What both kinds of broker are started with, so that checks need not wait for what they are not about.
COMMON_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


@dataclass(frozen=True)
class Stores:
    """What the machines of all clusters share."""

    database: PostgresServer
    objects: ObjectServer


@contextmanager
def stores(folder: Path) -> Iterator[Stores]:
    """Start a PostgreSQL and an object store, whose data are in `folder`."""
    with postgres_server(is_durable=True) as database, object_server(folder) as objects:
        yield Stores(database, objects)


@dataclass(frozen=True)
class Nodes:
    """What a Fencepost consists of.

    count:  how many nodes.
    stores: what they share if each is a machine of its own; None for processes of one machine.
    """

    count: int = 1
    stores: Stores | None = None

    def left_out(self, client: Client) -> list[str]:
        """The checks of a client that are not made against these nodes."""
        return client.left_out(is_of_machines=self.stores is not None) if self.count > 1 else []


@dataclass(frozen=True)
class Fencepost:
    """A broker process of this checkout."""

    process: BrokerProcess
    security: Security | None = None

    @property
    def bootstrap(self) -> str:
        return self.process.bootstrap

    def restart(self, how: str) -> str:
        if how == "terminate":
            self.process.terminate()
        else:
            self.process.kill()
        self.process.start()
        return "done"


@dataclass(frozen=True)
class SeveralProcesses(Fencepost):
    """A broker of several processes of this checkout. Each kill hits the next one of them."""

    process: BrokerProcesses
    _kills: Iterator[int] = field(default_factory=itertools.count)

    def restart(self, how: str) -> str:
        if how == "terminate":
            return super().restart(how)
        node_id = self.process.node_ids[next(self._kills) % self.process.count]
        self.process.wait_for_another(node_id, than=self.process.kill_node(node_id))
        if self.security is None:
            self.process.wait_for_answer(node_id)
        return "done"


@dataclass(frozen=True)
class SeveralMachines:
    """Brokers of this checkout that share two stores, and nothing else.

    Each restart hits the next one of them. One that was killed starts again when the others lead what it led; one that
    is terminated hands over before it ends.
    """

    machines: Machines
    security: Security | None = None
    _restarts: Iterator[int] = field(default_factory=itertools.count)

    @property
    def bootstrap(self) -> str:
        return self.machines.bootstrap

    def restart(self, how: str) -> str:
        node_ids = list(self.machines.machines)
        node_id = node_ids[next(self._restarts) % len(node_ids)]
        if how == "terminate":
            self.machines[node_id].terminate()
            self.machines[node_id].start()
        else:
            self.machines.replace(node_id)
        return "done"


@dataclass(frozen=True)
class Oracle:
    """An Apache Kafka of our own."""

    kafka: ApacheKafka
    security: Security | None = None

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap_servers

    def restart(self, how: str) -> str:
        if how == "kill" and self.kafka.process is not None:
            self.kafka.process.kill()
            self.kafka.process.wait()
        self.kafka.stop()
        self.kafka.start()
        return "done"


@dataclass(frozen=True)
class Elsewhere:
    """A broker that another process runs; checks must not restart it."""

    bootstrap: str
    security: None = None

    def restart(self, how: str) -> str:
        return f"a broker that runs elsewhere cannot be restarted ({how})"


@contextmanager
def running(client: Client, folder: Path, nodes: Nodes = Nodes()) -> Iterator[Target]:  # it is immutable
    """A Fencepost for one client, with its data below `folder`; what it wrote is looked through at the end."""
    if nodes.stores is None:
        with fencepost(client, folder, nodes.count) as target:
            yield target
        return
    security = _security(client, folder, nodes.count)
    settings = {**COMMON_SETTINGS, **client.broker_settings}
    url, bucket = nodes.stores.database.cluster_url(), nodes.stores.objects.make_bucket()
    made = Machines(url, bucket, folder, nodes.count, settings=settings)
    if security:
        made.login_at = security.login_at
        for node_id, machine in made.machines.items():
            machine.config = security.config_file(node_id)
    with made as machines:
        if security:
            security.add_users()
        yield SeveralMachines(machines, security)
        _assert_sound(client, *machines.machines.values())


@contextmanager
def fencepost(client: Client, folder: Path, processes: int = 1) -> Iterator[Fencepost]:
    """A broker on one machine for one client, as `running` has it. processes: how many it has."""
    security = _security(client, folder, processes)
    settings = {**COMMON_SETTINGS, **client.broker_settings}
    config = security.config_file() if security else None
    made = (
        BrokerProcess(folder / "data", settings=settings, config=config)
        if processes == 1
        else BrokerProcesses(folder / "data", processes, settings=settings, config=config)
    )
    with made as process:
        if security:
            security.add_users()
        yield (
            SeveralProcesses(process, security)
            if isinstance(process, BrokerProcesses)
            else Fencepost(process, security)
        )
        _assert_sound(client, process)


def _security(client: Client, folder: Path, nodes: int) -> Security | None:
    return Security(folder / "security", is_kafka=False, nodes=nodes) if client.is_secured else None


def _assert_sound(client: Client, *processes: BrokerProcess) -> None:
    for process in processes:
        if not process.is_running or "Traceback" in process.output:
            raise AssertionError(f"the broker of {client.name} broke:\n{process.output}")


@contextmanager
def apache_kafka(client: Client, folder: Path) -> Iterator[Oracle]:
    """An Apache Kafka for one client, with its data below `folder`."""
    settings = {**COMMON_SETTINGS, **client.broker_settings}
    if not client.is_secured:
        with ApacheKafka(folder / "apache-kafka", free_port(), properties=settings) as kafka:
            yield Oracle(kafka)
        return
    security = Security(folder / "apache-kafka-security", is_kafka=True)
    node = ApacheKafka(
        folder / "apache-kafka",
        security.ports["SASL_SSL"],
        properties={**settings, **security.settings_of()},
        java_options=[*ApacheKafka.java_options, *security.java_options],
    )
    with node as kafka:
        security.add_users()
        yield Oracle(kafka, security)
