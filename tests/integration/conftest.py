"""A broker process for every module of client tests, three brokers on machines, and names that no two tests share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient

from fencepost.cli.commands import fencepost
from tests.support.abandoned_producers import abandoned_producers_end  # noqa: F401
from tests.support.broker_process import BrokerProcess
from tests.support.clients_of_processes import SETTINGS, create, leaders
from tests.support.conditions import until
from tests.support.json_outputs import outputs_have_their_schemas  # noqa: F401
from tests.support.machines import Machines
from tests.support.object_server import ObjectServer, object_server
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.refused_connections import refused_connections_are_closed  # noqa: F401

_numbers = itertools.count()


TIMEOUT_S = 600
"""Of each test that names no longer one: several waits of a busy machine, each for a minute at most."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/integration/" in item.path.as_posix():
            named = item.get_closest_marker("timeout")
            if named is None or named.args[0] < TIMEOUT_S:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S), append=False)
        # `-m integration` does not include tests that take hours.
        if "tests/integration/" in item.path.as_posix() and item.get_closest_marker("long") is None:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for the tests of a module; tests that crash brokers start their own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings={"num.partitions": "3"}) as process:
        yield process
        assert process.is_running, process.output
        assert "Traceback" not in process.output, process.output


@pytest.fixture
def kafka_python(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def confluent(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def unique() -> Callable[[str], str]:
    """`unique("orders")` is a name that nothing else in this run uses."""
    return lambda name: f"{name}-{next(_numbers)}"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of the test's own, to crash and to restart."""
    process = BrokerProcess(tmp_path / "data", settings={"num.partitions": "3"})
    process.start()
    yield process
    process.kill()


@pytest.fixture
def run(broker: BrokerProcess) -> Callable[..., Result]:
    """`run("topics", "list")` in this process, against the module's broker; `input` is its standard input."""

    def run_here(*arguments: str, input: bytes | str | None = None) -> Result:  # noqa: A002  # click's own word
        result = CliRunner().invoke(
            fencepost, arguments, input=input, env={"FENCEPOST_BOOTSTRAP": broker.bootstrap}, prog_name="fencepost"
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run_here


# Brokers on machines of their own, and the stores that they share


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with postgres_server(is_durable=True) as server:
        yield server


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with object_server(tmp_path_factory.mktemp("objects")) as server:
        yield server


@pytest.fixture
def machine_settings() -> Mapping[str, str]:
    """Of `machines`."""
    return SETTINGS


@pytest.fixture
def machines(
    database: PostgresServer,
    objects: ObjectServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    machine_settings: Mapping[str, str],
) -> Iterator[Machines]:
    """Three brokers that all lead partitions of the topic `orders`."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not checked")
    with Machines(database.cluster_url(), objects.make_bucket(), tmp_path, settings=machine_settings) as machines:
        create(machines.bootstrap, "orders")
        until(lambda: set(leaders(machines.bootstrap)) == {1, 2, 3})
        yield machines
