"""podman-compose runs those services of the compositions whose images can be built here.

Those of PostgreSQL, the object store, Prometheus and Grafana come from registries of images, which the tests cannot
reach: docker/cluster.yaml and the rest of docker/monitoring.yaml are only read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from fencepost.soak.free_port import free_port
from tests.docker.docker_files import DOCKER
from tests.docker.podman import Podman
from tests.docker.test_images import BASE, commit_and_read
from tests.support.conditions import PATIENCE_S, until
from tests.support.missing_tools import missing, require_tool

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

PASSWORD = "correct horse battery staple"  # of a broker that ends with its test


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    if os.geteuid() != 0:
        missing("containers are run as root here")
    for tool in ("podman", "podman-compose", "mmdebstrap", "unshare", "nsenter"):
        require_tool(tool)
    with Podman(tmp_path_factory.mktemp("podman")) as made:
        made.build("localhost/fencepost:latest", "docker/Dockerfile", f"--build-arg=PYTHON={BASE}")
        yield made


class Project:
    """Services that run; port: of the broker, on this machine."""

    def __init__(self, podman: Podman, port: int) -> None:
        self._podman, self.port = podman, port

    def inside(self, service: str, *command: str) -> tuple[int, str]:
        done = self._podman.run("exec", f"trial_{service}_1", *command)
        return done.returncode, done.stdout + done.stderr

    def succeeds(self, service: str, *command: str) -> bool:
        return self.inside(service, *command)[0] == 0


@contextmanager
def up(podman: Podman, folder: Path, names: tuple[str, ...], *services: str) -> Iterator[Project]:
    port = free_port()
    options = ["--project-name", "trial"]
    for name in names:
        text = (DOCKER / name).read_text(encoding="utf-8")
        text = text.replace("127.0.0.1:9092:9094", f"127.0.0.1:{port}:9094").replace(
            "localhost:9092", f"localhost:{port}"
        )
        (folder / name).write_text(text, encoding="utf-8")
        options += ["--file", str(folder / name)]

    def compose(*arguments: str) -> str:
        done = podman.beside("podman-compose", *options, *arguments, variables={"ADMIN_PASSWORD": PASSWORD})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        compose("up", "--detach", "--no-build", *services)
        yield Project(podman, port)
    finally:
        podman.run("rm", "--all", "--force", "--time=0")
        podman.run("volume", "rm", "--all", "--force")


def test_the_broker_of_the_pipeline_is_reached_from_this_machine_and_from_other_services(
    podman: Podman, tmp_path: Path
) -> None:
    with up(podman, tmp_path, ("compose.yaml",), "broker") as project:
        until(lambda: project.succeeds("broker", "fencepost", "ping", "--bootstrap", "broker:9092"))
        commit_and_read(project.port)


def test_the_broker_with_metrics_has_a_token_from_the_service_that_makes_them(podman: Podman, tmp_path: Path) -> None:
    read = (
        "import urllib.request as r; t = open('/secrets/prometheus.token').read();"
        "q = r.Request('http://broker:9644/metrics', headers={'Authorization': 'Bearer ' + t});"
        "print(r.urlopen(q).status)"
    )
    with up(podman, tmp_path, ("compose.yaml", "monitoring.yaml"), "tokens", "broker") as project:
        until(lambda: project.succeeds("broker", "fencepost", "ping", "--bootstrap", "broker:9092"))
        # Root, because the token is Prometheus' own.
        done = podman.run("exec", "--user=0:0", "trial_broker_1", "python", "-c", read)
        assert done.stdout.strip() == "200", done.stderr


def test_the_secured_broker_knows_its_first_user_and_no_other(podman: Podman, tmp_path: Path) -> None:
    with up(podman, tmp_path, ("secured.yaml",)) as project:
        until(lambda: project.succeeds("broker", "fencepost", "ping", "--bootstrap", "broker:9092"))
        status, authority = project.inside("broker", "cat", "/secrets/authority.crt")
        assert status == 0

        def topics(password: str) -> list[str]:
            admin = AdminClient(
                {
                    "bootstrap.servers": f"localhost:{project.port}",
                    "security.protocol": "SASL_SSL",
                    "ssl.ca.pem": authority,
                    "sasl.mechanism": "SCRAM-SHA-512",
                    "sasl.username": "admin",
                    "sasl.password": password,
                }
            )
            return list(admin.list_topics(timeout=PATIENCE_S if password == PASSWORD else 5).topics)

        assert topics(PASSWORD) == []
        with pytest.raises(KafkaException):
            topics("a wrong one")
        health = json.loads(podman("inspect", "trial_broker_1"))[0]["Config"]["Healthcheck"]["Test"]
        assert "fencepost" in " ".join(health)
