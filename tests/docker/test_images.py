"""The images are built and run for real, by Buildah, on a base that is made here of Debian's packages.

Needs root, Buildah and mmdebstrap; and the package indexes of Debian, of Python and, for the pipeline, of Maven.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer

from fencepost.soak.free_port import free_port
from tests.docker.docker_files import DOCKER, ROOT
from tests.support.conditions import PATIENCE_S, until
from tests.support.missing_tools import missing, require_tool

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_600)]

AUTHORITIES = Path("/usr/local/share/ca-certificates")
"""This machine's own, by which its package indexes are reached; the base trusts them, too, and so does Java in it."""
PACKAGES = "python3,python3-venv,python3-pip,python3-setuptools,python3-wheel,ca-certificates"
BASE = "localhost/base"
# As the images of Python are: it is `python`, and pip may install into it.
LIKE_PYTHONS_IMAGE = 'rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED && ln -s python3 "$1"/usr/bin/python'


def base() -> Path:
    """The archive of a Debian 12 with Python, made once for a checkout."""
    archive = ROOT / ".cache" / "images" / "bookworm.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        hooks = [f"--customize-hook={LIKE_PYTHONS_IMAGE}"]
        if AUTHORITIES.is_dir():
            hooks.append(f"--customize-hook=copy-in {AUTHORITIES} {AUTHORITIES.parent}")
            hooks.append('--customize-hook=chroot "$1" update-ca-certificates')
        options = ("--quiet", "--variant=apt", f"--include={PACKAGES}", *hooks)
        # In a mount namespace of its own, so that nothing stays mounted if it fails.
        made = archive.with_suffix(".new.tar")
        subprocess.run(["unshare", "--mount", "mmdebstrap", *options, "bookworm", made], check=True)
        made.rename(archive)
    return archive


class Engine:
    """Buildah with a store of its own, in which `localhost/base` is a Debian 12 with Python."""

    def __init__(self, folder: Path) -> None:
        self._options = (f"--root={folder}/store", f"--runroot={folder}/run", "--storage-driver=vfs")
        container = self("from", "scratch")
        self("add", "--quiet", container, str(base()), "/")
        self("commit", "--quiet", "--rm", container, BASE)

    def command(self, *arguments: str) -> list[str]:
        return ["buildah", *self._options, *arguments]

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False, cwd=ROOT)
        assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
        return done.stdout.strip()

    def build(self, dockerfile: str, image: str, *options: str) -> None:
        self(
            *("build", "--isolation=chroot", "--format=docker", *options),
            *("--file", str(DOCKER / dockerfile), "--tag", image, "."),
        )

    @contextlib.contextmanager
    def container(self, image: str) -> Iterator[str]:
        name = self("from", "--pull-never", image)
        try:
            yield name
        finally:
            self("rm", name)

    def config(self, image: str) -> dict[str, Any]:
        document = json.loads(self("inspect", "--type=image", image))
        found: dict[str, Any] = document["Docker"]["config"]
        return found


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if os.geteuid() != 0:
        missing("images are built and run as root here")
    for tool in ("buildah", "mmdebstrap", "unshare"):
        require_tool(tool)
    made = Engine(tmp_path_factory.mktemp("engine"))
    made.build("Dockerfile", "fencepost", f"--build-arg=PYTHON={BASE}")
    yield made
    made("rmi", "--all", "--force")


def serve_command(config: dict[str, Any], port: int) -> tuple[list[str], dict[str, str]]:
    """The image's command and variables, with another port, which is free on this machine."""
    command = [word.replace(":9092", f":{port}") for word in [*config["Entrypoint"], *config["Cmd"]]]
    variables = dict(pair.split("=", 1) for pair in config["Env"])
    return command, {name: value.replace(":9092", f":{port}") for name, value in variables.items()}


@contextlib.contextmanager
def started(command: Sequence[str], log: Path, *, says: str = "is ready") -> Iterator[subprocess.Popen[bytes]]:
    """A command in a session of its own, until it is ready; afterwards, all of the session is ended."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        until(lambda: says in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def program_among(session: int, command: bytes, log: Path) -> int:
    """The id of the process in a session that runs a command of Fencepost: Buildah hands no signal on to it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            of_session = int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == session
            is_python = "python" in os.readlink(folder / "exe")  # and not Buildah, which has the same words
            if of_session and is_python and b"/opt/fencepost/bin/fencepost" in words and command in words:
                found.append(int(folder.name))
    assert len(found) == 1, log.read_text()
    return found[0]


def commit_and_read(port: int) -> None:
    address = {"bootstrap.servers": f"localhost:{port}"}
    producer = Producer(address | {"transactional.id": "till"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("orders", "3 apples")
    producer.commit_transaction(PATIENCE_S)
    consumer = Consumer(address | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = until(lambda: consumer.poll(1))
    assert message.value() == b"3 apples"
    consumer.close()


def test_the_image_serves_transactions_is_healthy_is_not_root_and_ends_in_order(engine: Engine, tmp_path: Path) -> None:
    config, port = engine.config("fencepost"), free_port()
    command, variables = serve_command(config, port)
    assert config["User"] == "10001:10001"
    advertised = f"--env=FENCEPOST_ADVERTISED_LISTENERS={variables['FENCEPOST_ADVERTISED_LISTENERS']}"
    with engine.container("fencepost") as container:
        run = ("run", "--isolation=chroot")
        assert engine(*run, container, "--", "id", "-u") == "10001"
        kind, *check = [word.replace("9092", str(port)) for word in config["Healthcheck"]["Test"]]
        assert kind == "CMD"
        health = engine.command(*run, container, "--", *check)
        assert subprocess.run(health, check=False, capture_output=True).returncode != 0
        log = tmp_path / "log"
        with started(engine.command(*run, advertised, container, "--", *command), log) as process:
            assert subprocess.run(health, check=False, capture_output=True).returncode == 0
            commit_and_read(port)
            broker = program_among(process.pid, b"serve", log)
            assert Path(f"/proc/{broker}").stat().st_uid == 10001
            os.kill(broker, signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        assert "stopped" in log.read_text()


def test_the_image_serves_in_a_read_only_root_with_a_volume_for_its_data(engine: Engine, tmp_path: Path) -> None:
    port = free_port()
    command, variables = serve_command(engine.config("fencepost"), port)
    with engine.container("fencepost") as container:
        root = engine("mount", container)
        steps = (
            'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"',
            'mount -t tmpfs -o uid=10001,gid=10001,mode=700 data "$0/data"',
            '! touch "$0/tmp/file" 2>/dev/null',
            'exec chroot --userspec=10001:10001 "$0" "$@"',
        )
        environment = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
        shell = ["unshare", "--mount", "sh", "-ec", " && ".join(steps), root]
        log = tmp_path / "log"
        with started([*shell, *environment, *command], log) as process:
            commit_and_read(port)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        engine("umount", container)


def test_the_image_of_the_pipeline_has_what_its_services_start(engine: Engine) -> None:
    engine.build("pipeline.Dockerfile", "fencepost-pipeline", f"--from={BASE}")
    with engine.container("fencepost-pipeline") as container:
        run = ("run", "--isolation=chroot", container, "--")
        assert engine(*run, "id", "-u") == "10002"
        assert "--bootstrap" in engine(*run, "python", "-m", "scripts.pipeline.flights", "--help")
        jars = engine(*run, "find", "/pipeline/.cache", "-name", "*spark-sql-kafka*.jar")
        assert jars, "Spark's connector is resolved when the image is built"


def test_the_image_of_the_test_broker_gives_tests_brokers_at_its_published_ports(
    engine: Engine, tmp_path: Path
) -> None:
    engine.build("test-broker.Dockerfile", "fencepost-test-broker", f"--build-arg=PYTHON={BASE}")
    config, api, port = engine.config("fencepost-test-broker"), free_port(), free_port()
    assert config["User"] == "10001:10001"
    command = [*config["Entrypoint"], *config["Cmd"]]
    command[command.index("8093")] = str(api)
    command[command.index("29092-29111")] = f"{port}-{port}"
    with engine.container("fencepost-test-broker") as container:
        run = ("run", "--isolation=chroot", container, "--")
        health = engine.command(*run, *[word.replace("8093", str(api)) for word in config["Healthcheck"]["Test"][1:]])
        log = tmp_path / "log"
        with started(engine.command(*run, *command), log, says='"url"') as process:
            assert subprocess.run(health, check=False, capture_output=True).returncode == 0
            with httpx.Client(base_url=f"http://localhost:{api}", timeout=PATIENCE_S, trust_env=False) as client:
                for process_too in (False, True):  # one after another at the same port
                    made = client.post("/brokers", json={"process": process_too}).json()
                    assert made["bootstrap_servers"] == f"localhost:{port}"
                    commit_and_read(port)
                    assert client.delete(f"/brokers/{made['broker']}").json()["never_fired"] == []
            os.kill(program_among(process.pid, b"test-broker", log), signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0


def test_every_dockerfile_is_built_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in DOCKER.glob("*Dockerfile") if f'"{path.name}"' not in source] == []
