"""A cluster whose ways are all protected: between brokers, to clients and to PostgreSQL, each certificate verified."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.test_processes_secured import PLAIN, USERS, logged_in, work_across_processes
from tests.support.certificates import Authority
from tests.support.conditions import noted, until
from tests.support.machines import Machines
from tests.support.object_server import ObjectServer
from tests.support.postgres import PostgresServer
from tests.support.postgres_over_tcp import PostgresPort, postgres_over_tcp

pytestmark = pytest.mark.integration

PROTOCOL = "SASL_SSL"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def port(database: PostgresServer, authority: Authority) -> Iterator[PostgresPort]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.server("postgres").load_into(context)
    with postgres_over_tcp(database.uri, context=context) as opened:
        yield opened


def secured(
    database: PostgresServer, port: PostgresPort, objects: ObjectServer, authority: Authority, folder: Path
) -> Machines:
    """Three brokers that log in to each other as `broker`, with one certificate, and verify PostgreSQL's."""
    schema = database.cluster_url().rpartition("search_path=")[2]
    verified = f"sslmode=verify-full&sslrootcert={authority.path}"
    url = f"postgresql://postgres@127.0.0.1:{port.port}/postgres?search_path={schema}&{verified}"
    certificate = authority.server("broker")
    settings = {
        "transaction.state.log.num.partitions": "6",
        "offsets.topic.num.partitions": "6",
        "security.inter.broker.protocol": PROTOCOL,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{PLAIN} username="broker" password="broker-secret" {USERS};'
        ),
        "ssl.keystore.location": str(certificate.both),
        "ssl.truststore.location": str(authority.path),
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:broker",
    }
    machines = Machines(url, objects.make_bucket(), folder, settings=settings)
    machines.login_at = lambda number: client(machines, authority) | {"bootstrap.servers": machines[number].bootstrap}
    for machine in machines.machines.values():
        machine.protocol = PROTOCOL
    return machines


def client(machines: Machines, authority: Authority) -> dict[str, Any]:
    return {**logged_in(machines.bootstrap, PROTOCOL), "ssl.ca.location": str(authority.path)}


def test_transactions_cross_brokers_that_know_each_other_and_their_database(
    database: PostgresServer, port: PostgresPort, objects: ObjectServer, authority: Authority, tmp_path: Path
) -> None:
    with secured(database, port, objects, authority, tmp_path) as machines, noted(lambda: machines.output):
        work_across_processes(client(machines, authority))
        port.cut()  # they connect again
        machines.replace(2)
        admin = AdminClient(client(machines, authority))
        until(lambda: admin.list_topics("orders", timeout=60).topics["orders"].error is None)
    for warning in ("brokers_without_tls", "database_not_verified", "node_not_logged_in_to", "Traceback"):
        assert warning not in machines.output
