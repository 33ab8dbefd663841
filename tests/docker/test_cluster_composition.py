"""docker/cluster.yaml: its services are one cluster, whose brokers send every client where it can connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka.admin import AdminClient

from fencepost.broker.cluster.objects.location import read_location
from fencepost.broker.cluster.postgres.connections import parse_address
from fencepost.broker.config import load_settings
from fencepost.soak.free_port import free_ports
from tests.docker.docker_files import DOCKER, ROOT, Dockerfile, compose
from tests.support.locks import PARTS, pins
from tests.support.object_server import object_server
from tests.support.postgres import postgres_server

BROKER = Dockerfile(DOCKER / "Dockerfile")
SERVICES: dict[str, Any] = compose("cluster.yaml")["services"]
BROKERS = ("broker-1", "broker-2", "broker-3")


def test_the_image_has_what_a_broker_of_a_cluster_and_the_commands_import() -> None:
    part = SERVICES["broker-1"]["build"]["args"]["PARTS"]
    assert part in PARTS
    assert {"asyncpg", "obstore", "kafka-python", "h11"} <= set(pins(part))


def test_services_wait_for_what_they_need_and_refer_to_what_is_there() -> None:
    assert set(SERVICES) == {"database", "bucket", "objects", *BROKERS}
    document = compose("cluster.yaml")
    for name, service in SERVICES.items():
        for needed in service.get("depends_on", {}):
            assert needed in SERVICES
        for mount in service.get("volumes", ()):
            assert mount.partition(":")[0] in document["volumes"]
        if name in BROKERS:
            assert (DOCKER / service["build"]["context"]).resolve() == ROOT
            assert service["depends_on"]["database"] == {"condition": "service_healthy"}
            assert "healthcheck" not in service  # the image's own, which asks its port
            assert service["restart"] == "always"
    assert SERVICES["objects"]["depends_on"] == {"bucket": {"condition": "service_completed_successfully"}}


def test_all_brokers_have_the_same_stores_which_are_services_here() -> None:
    environment = SERVICES["broker-1"]["environment"]
    for name in BROKERS[1:]:
        same = {"FENCEPOST_ADVERTISED_LISTENERS"}
        other = SERVICES[name]["environment"]
        assert {key for key in environment if environment[key] != other[key]} == same
    address = parse_address(environment["FENCEPOST_CLUSTER_URL"])
    assert address.shown == "database/postgres"
    assert urlsplit(address.url).password == SERVICES["database"]["environment"]["POSTGRES_PASSWORD"]
    location = read_location(environment["FENCEPOST_CLUSTER_OBJECTS"])
    objects = SERVICES["objects"]["environment"]
    assert location.endpoint == f"http://objects{objects['VGW_PORT']}"
    assert SERVICES["bucket"]["entrypoint"][-1] == f"{objects['VGW_BACKEND_ARGS']}/{location.bucket}"
    assert environment["AWS_ACCESS_KEY_ID"] == objects["ROOT_ACCESS_KEY"]
    assert environment["AWS_SECRET_ACCESS_KEY"] == objects["ROOT_SECRET_KEY"]


@pytest.mark.parametrize("name", BROKERS)
def test_each_port_is_published_on_this_machine_alone_and_leads_to_the_listener_that_advertises_it(name: str) -> None:
    environment = SERVICES[name]["environment"]
    ((address, outside, inside),) = (port.split(":") for port in SERVICES[name]["ports"])
    assert address == "127.0.0.1"
    assert f"OUTSIDE://0.0.0.0:{inside}" in environment["FENCEPOST_LISTENERS"]
    assert environment["FENCEPOST_ADVERTISED_LISTENERS"] == f"INSIDE://{name}:9092,OUTSIDE://localhost:{outside}"
    assert f"INSIDE://0.0.0.0:{BROKER.command('HEALTHCHECK')[-1]}" in environment["FENCEPOST_LISTENERS"]
    settings = {key: value for key, value in environment.items() if key.startswith("FENCEPOST_")}
    assert load_settings(environment=settings).warnings == ()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of all brokers with the stores of this test in place of the services."""
    environment: dict[str, str] = dict(SERVICES["broker-1"]["environment"])
    with postgres_server(is_durable=True) as database, object_server(tmp_path / "objects") as objects:
        location = objects.make_bucket()
        yield environment | {
            "FENCEPOST_CLUSTER_URL": database.cluster_url(),
            "FENCEPOST_CLUSTER_OBJECTS": f"s3://{location.bucket}?endpoint={objects.endpoint}",
        }


def states_of_nodes(port: int) -> dict[int, str]:
    command = [sys.executable, "-m", "fencepost", "cluster", "nodes", "--json", "--bootstrap", f"localhost:{port}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return {one["node"]: one["state"] for one in json.loads(shown)}


@pytest.mark.integration
def test_the_brokers_are_one_cluster_and_a_stopped_one_hands_over(stores: dict[str, str], tmp_path: Path) -> None:
    first = free_ports(2 * len(BROKERS))
    processes = []
    try:
        for index, name in enumerate(BROKERS):
            inside, outside = first + 2 * index, first + 2 * index + 1
            environment = stores | {
                "FENCEPOST_LISTENERS": f"INSIDE://0.0.0.0:{inside},OUTSIDE://0.0.0.0:{outside}",
                "FENCEPOST_ADVERTISED_LISTENERS": f"INSIDE://127.0.0.1:{inside},OUTSIDE://localhost:{outside}",
            }
            arguments = [one.replace("/data", str(tmp_path / name)) for one in SERVICES[name]["command"]]
            with (tmp_path / f"{name}.log").open("w") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "fencepost", *arguments],
                    env={**os.environ, **environment},
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            processes.append(process)
            assert process.stdout is not None
            assert "fencepost is ready" in process.stdout.readline(), (tmp_path / f"{name}.log").read_text()
        outsides = [first + 2 * index + 1 for index in range(len(BROKERS))]
        admin = AdminClient({"bootstrap.servers": f"localhost:{outsides[0]}"})
        brokers = admin.list_topics(timeout=20).brokers
        assert {(one.host, one.port) for one in brokers.values()} == {("localhost", port) for port in outsides}
        assert set(brokers) == {1, 2, 3}

        processes[1].terminate()
        assert processes[1].wait(60) == 0
        assert "handed_over_to_stop" in (tmp_path / "broker-2.log").read_text()
        assert states_of_nodes(outsides[0]) == {1: "alive", 2: "gone", 3: "alive"}
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()
