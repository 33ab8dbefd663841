"""docker/secured.yaml: what its services run makes a broker that only its users reach, checked without an engine."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fencepost.soak.free_port import free_port
from tests.docker.docker_files import DOCKER, ROOT, Dockerfile, compose

BROKER = Dockerfile(DOCKER / "Dockerfile")
SERVICES: dict[str, Any] = compose("secured.yaml")["services"]
PASSWORD = "pass'word $x"


def test_every_service_is_of_the_brokers_image_and_waits_for_the_one_before_it() -> None:
    assert list(SERVICES) == ["certificates", "first-user", "broker"]
    assert {service["image"] for service in SERVICES.values()} == {"fencepost"}
    build = SERVICES["certificates"]["build"]
    assert (ROOT / build["dockerfile"]).is_file()
    for before, after in (("certificates", "first-user"), ("first-user", "broker")):
        assert SERVICES[after]["depends_on"] == {before: {"condition": "service_completed_successfully"}}
    volumes = compose("secured.yaml")["volumes"]
    for service in SERVICES.values():
        assert {mount.partition(":")[0] for mount in service["volumes"]} <= set(volumes)


def test_no_password_is_in_the_file_and_there_is_none_by_default() -> None:
    for service in SERVICES.values():
        assert service["environment"]["ADMIN_PASSWORD"].startswith("${ADMIN_PASSWORD:?")


def test_the_port_is_published_on_this_machine_alone_and_leads_to_a_listener() -> None:
    ((address, outside, inside),) = (port.split(":") for port in SERVICES["broker"]["ports"])
    environment = SERVICES["broker"]["environment"]
    assert address == "127.0.0.1"
    assert f"OUTSIDE://0.0.0.0:{inside}" in environment["FENCEPOST_LISTENERS"]
    assert f"OUTSIDE://localhost:{outside}" in environment["FENCEPOST_ADVERTISED_LISTENERS"]


@pytest.mark.integration
def test_the_services_make_a_broker_that_only_its_users_reach(tmp_path: Path) -> None:
    secrets, data, tools = tmp_path / "secrets", tmp_path / "data", tmp_path / "tools"
    for folder in (secrets, tools):
        folder.mkdir()
    for name, text in (("fencepost", f'exec {sys.executable} -m fencepost "$@"'), ("chown", ":")):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o700)
    ports = {"9092": str(free_port()), "9094": str(free_port())}

    def here(text: str) -> str:
        """Text of the file with paths and ports of this machine in place of the container's."""
        for inside, outside in {
            "/secrets": str(secrets),
            "/data": str(data),
            "$$": "$",
            "0.0.0.0": "127.0.0.1",
        }.items():
            text = text.replace(inside, outside)
        for inside, outside in ports.items():
            text = text.replace(f":{inside}", f":{outside}")
        return text

    base = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    base |= {"PATH": f"{tools}:{os.environ['PATH']}", "ADMIN_PASSWORD": PASSWORD, "PYTHONPATH": str(ROOT)}

    def run_once(name: str) -> None:
        service = SERVICES[name]
        command = [*service["entrypoint"], *map(here, service["command"])]
        subprocess.run(command, env=base, cwd=tmp_path, check=True, timeout=60)

    for _ in range(2):  # as when the composition is started again
        run_once("certificates")
        run_once("first-user")
    assert stat.S_IMODE((secrets / "broker.pem").stat().st_mode) == 0o600
    assert PASSWORD not in (secrets / "client.properties").read_text()

    service = SERVICES["broker"]
    settings = {name: here(value) for name, value in service["environment"].items() if name.startswith("FENCEPOST_")}
    command = [str(tools / "fencepost"), *map(here, service["command"])]
    with subprocess.Popen(
        command, env=base | settings, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as broker:
        try:
            assert broker.stdout is not None
            assert "is ready" in broker.stdout.readline()
            kind, *check = map(here, service["healthcheck"]["test"])
            assert kind == "CMD"

            def health(**changed: str) -> subprocess.CompletedProcess[str]:
                environment = base | settings | changed
                return subprocess.run(
                    check, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30
                )

            assert health().returncode == 0, health().stderr
            refused = health(ADMIN_PASSWORD="guess")
            assert refused.returncode == 1
            assert "it refused the log-in" in refused.stderr
            assert health(FENCEPOST_COMMAND_CONFIG="/dev/null").returncode == 1
        finally:
            broker.terminate()
        assert broker.stderr is not None
        assert "open_to_everybody" not in broker.stderr.read()


def test_the_data_directory_of_the_image_is_for_the_brokers_user_alone() -> None:
    assert any("--mode=0700 /data" in run for run in BROKER.all("RUN"))
