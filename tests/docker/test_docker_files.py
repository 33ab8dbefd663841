"""The images and the compose file: their files exist and their commands work, checked without an engine."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from fencepost.broker.config import load_settings, parse_listeners
from fencepost.cli.commands import fencepost
from fencepost.cli.serve_command import serve
from fencepost.soak.free_port import free_port
from fencepost.spark.connector import connector_version
from tests.docker.docker_files import DOCKER, ROOT, Dockerfile, compose
from tests.support.broker_process import BrokerProcess
from tests.support.locks import pins

BROKER = Dockerfile(DOCKER / "Dockerfile")
PIPELINE = Dockerfile(DOCKER / "pipeline.Dockerfile")
TEST_BROKER = Dockerfile(DOCKER / "test-broker.Dockerfile")
ALL = pytest.mark.parametrize("dockerfile", [BROKER, PIPELINE, TEST_BROKER], ids=["broker", "pipeline", "test broker"])
PIPELINE_SERVICES = ("loader", "application", "spark")


@ALL
def test_everything_that_is_copied_exists_and_is_not_ignored(dockerfile: Dockerfile) -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for source in dockerfile.copied:
        assert (ROOT / source).exists()
        assert any(source == one or source.startswith(f"{one}/") for one in kept)


def test_everything_that_reaches_the_build_is_copied() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {*BROKER.copied, *PIPELINE.copied, *TEST_BROKER.copied}
    assert [one for one in kept if not any(source == one or source.startswith(f"{one}/") for source in copied)] == []


@ALL
def test_nothing_runs_as_root(dockerfile: Dockerfile) -> None:
    user, group = map(int, dockerfile.last("USER").split(":"))
    assert user > 0
    assert group > 0
    created = " ".join(dockerfile.all("RUN"))
    assert f"--uid {user} " in created
    assert f"--gid {group} " in created
    names = [instruction.name for instruction in dockerfile.instructions]
    assert names.index("USER") < names.index("CMD")


@ALL
def test_every_base_image_is_pinned_by_its_digest(dockerfile: Dockerfile) -> None:
    for image in dockerfile.base_images:
        assert re.fullmatch(r"python:[\w.-]+@sha256:[0-9a-f]{64}", image)


@ALL
def test_everything_from_a_registry_is_checked_against_its_hash(dockerfile: Dockerfile) -> None:
    installations = [
        command for run in dockerfile.all("RUN") for command in run.split("&&") if "pip install" in command
    ]
    assert installations
    for command in installations:
        if "/tmp/wheels/" in command:  # what the image itself has built
            assert "--no-deps" in command
            continue
        assert "--require-hashes" in command
        (lock,) = re.findall(r"--requirement (\S+)", command)
        defaults = dict(pair.split("=", 1) for pair in dockerfile.all("ARG"))
        assert (ROOT / lock.replace("$PARTS", defaults.get("PARTS", ""))).is_file()
    assert "pip download" not in "".join(dockerfile.all("RUN"))


def test_the_broker_image_serves_and_pings_with_what_it_has_and_names_what_other_commands_need(
    tmp_path: Path,
) -> None:
    locked = {name.replace("-", "_") for name in pins("broker-image")}
    program = f"""
import importlib.abc, importlib.metadata, sys

ALLOWED = {locked}
OF_PACKAGES = importlib.metadata.packages_distributions()

class OnlyWhatIsLocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        owners = OF_PACKAGES.get(name.partition(".")[0], [])
        names = {{owner.lower().replace("-", "_") for owner in owners}}
        if names and not names & (ALLOWED | {{"fencepost"}}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, OnlyWhatIsLocked())
from fencepost.cli.main import main
main()
"""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=30)

    with BrokerProcess(tmp_path / "data") as broker:
        assert run("ping", "--bootstrap", broker.bootstrap).returncode == 0
        listed = run("topics", "list", "--bootstrap", broker.bootstrap)
        assert listed.returncode == 1
        assert "kafka-python is not installed here" in listed.stderr
        assert len(listed.stderr.splitlines()) == 1
    assert run("serve", "--listener", "nowhere").returncode == 2
    assert "No module" not in run("serve", "--help").stderr


def check_serve(arguments: list[str], environment: dict[str, str]) -> dict[str, str]:
    """The address that clients get for each listener, by the name of the listener's port."""
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
    assert BROKER.command("HEALTHCHECK") == ["health-check", "127.0.0.1", BROKER.last("EXPOSE")]


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
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, tmp_path / source)
        else:
            shutil.copy(ROOT / source, tmp_path / source)
    assert PIPELINE.environment["PYTHONPATH"] == PIPELINE.last("WORKDIR")
    shown = subprocess.run(
        [sys.executable, *command[1:], "--help"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    for option in command:
        if option.startswith("--"):
            assert option in shown


@pytest.mark.integration
def test_the_pipeline_image_has_what_starting_spark_imports(tmp_path: Path) -> None:
    for source in PIPELINE.copied:
        if source.startswith("fencepost/"):
            target = tmp_path / source
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, target)
    program = (
        "import fencepost.spark as spark, pathlib\n"
        "assert pathlib.Path(spark.__file__).is_relative_to(pathlib.Path.cwd())\n"
        "print(spark.kafka_connector(), spark.IVY_SETTINGS.exists())"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    shown = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout
    connector = connector_version(pins("pipeline-image")["pyspark"])
    assert shown == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{connector} True\n"


@pytest.mark.integration
@pytest.mark.parametrize("path", sorted(DOCKER.glob("*Dockerfile")), ids=lambda path: path.name)
def test_an_image_is_built_by_what_knows_only_the_first_options_of_health_checks(path: Path) -> None:
    known = {"--interval", "--timeout", "--start-period", "--retries"}  # of Buildah 1.28, and Docker before 25
    for line in re.findall(r"^HEALTHCHECK ((?:--\S+ )*)", path.read_text(encoding="utf-8"), re.MULTILINE):
        assert {option.partition("=")[0] for option in line.split()} <= known


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
            name, host, _ = BROKER.command("HEALTHCHECK")
            check = [str(DOCKER / name), host, port]

            def health() -> int:
                return subprocess.run(check, capture_output=True, check=False, timeout=20).returncode

            # Found although nothing listens at the advertised address.
            assert health() == 0
        finally:
            process.terminate()
    assert health() != 0


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n", b"", None], ids=["another", "none", "silence"])
def test_the_health_check_is_not_content_with_a_connection(answer: bytes | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                if answer is not None:
                    connection.sendall(answer)
                    return
                connection.recv(100)  # until the check gives up

        served = pool.submit(serve)
        check = [str(DOCKER / "health-check"), "127.0.0.1", str(listener.getsockname()[1])]
        assert subprocess.run(check, check=False, timeout=20).returncode == 1
        served.result()


def test_a_health_check_takes_hundredths_of_a_second_of_processor_time() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(5):
        subprocess.run([str(DOCKER / "health-check"), "127.0.0.1", "1"], capture_output=True, check=False, timeout=20)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 5 < 0.02


@pytest.mark.integration
def test_the_command_of_the_test_brokers_image_sends_clients_where_its_ports_are_published() -> None:
    command = [*TEST_BROKER.command("ENTRYPOINT"), *TEST_BROKER.command("CMD")]
    api, brokers = TEST_BROKER.last("EXPOSE").split()
    assert command[:2] == ["fencepost", "test-broker"]
    port, published = (command[command.index(option) + 1] for option in ("--port", "--published-ports"))
    assert (port, published) == (api, brokers)
    free = {api: str(free_port()), brokers: "{0}-{0}".format(free_port())}
    here = [sys.executable, "-m", "fencepost", *(free.get(word, word) for word in command[1:])]
    with subprocess.Popen(here, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            assert ready["url"] == f"http://localhost:{free[api]}"
            words = TEST_BROKER.command("HEALTHCHECK")
            check = [word.replace(api, free[api]) for word in words]
            assert subprocess.run(check, capture_output=True, check=False, timeout=60).returncode == 0
            with httpx.Client(base_url=ready["url"], timeout=120, trust_env=False) as client:
                for process_too in (False, True):
                    made = client.post("/brokers", json={"process": process_too}).json()
                    assert made["bootstrap_servers"] == f"localhost:{free[brokers].partition('-')[0]}"
                    ping = [sys.executable, "-m", "fencepost", "ping", "-b", made["bootstrap_servers"]]
                    assert subprocess.run(ping, cwd=ROOT, capture_output=True, check=False).returncode == 0
                    refused = client.post("/brokers")
                    assert refused.status_code == 429
                    assert "each of the 1 published ports has a broker" in refused.text
                    own = client.post("/brokers", json={"settings": {"listeners": "PLAINTEXT://127.0.0.1:0"}})
                    assert own.status_code == 400
                    assert client.delete(f"/brokers/{made['broker']}").status_code == 200
        finally:
            process.terminate()
    assert process.returncode == 0
    assert subprocess.run(check, capture_output=True, check=False, timeout=60).returncode != 0
