"""The chart's pod runs in a container by `podman kube play`, as a node of Kubernetes would run it.

Podman takes the place of what Kubernetes does with a StatefulSet: the test makes its pod and its claim, and fills in
the variables that come from the pod. It asks the probes itself, since Podman starts curl in the container for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer

from fencepost.soak.free_port import free_port
from tests.docker.chart import pod_of, render, require_helm, variables
from tests.docker.podman import Podman
from tests.docker.test_images import BASE, commit_and_read
from tests.support.conditions import until
from tests.support.http_node import VIEWER, token_file
from tests.support.missing_tools import missing, require_tool

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    if os.geteuid() != 0:
        missing("containers are run as root here")
    for tool in ("podman", "mmdebstrap", "unshare", "nsenter"):
        require_tool(tool)
    require_helm()
    with Podman(tmp_path_factory.mktemp("podman")) as made:
        made.build("localhost/fencepost:first", "docker/Dockerfile", f"--build-arg=PYTHON={BASE}")
        made("tag", "localhost/fencepost:first", "localhost/fencepost:second")
        yield made


class Release:
    """One broker of the chart, with its volume in a folder."""

    def __init__(self, podman: Podman, name: str, folder: Path) -> None:
        self.podman, self.name, self.folder = podman, name, folder
        self.port, self.http_port = free_port(), free_port()
        self.container = f"{name}-fencepost-0-broker"
        self.tokens = folder / "tokens-of-secret"
        self.tokens.mkdir()
        token_file(self.tokens).rename(self.tokens / "tokens")
        (self.tokens / "tokens").chmod(0o440)
        os.chown(self.tokens / "tokens", 0, 10001)  # as a kubelet does for `fsGroup`
        self.volume = folder / "volume"
        self.volume.mkdir()
        os.chown(self.volume, 0, 10001)
        self.volume.chmod(0o2775)

    def install(self, tag: str = "first") -> None:
        values = {
            "image": {"repository": "localhost/fencepost", "tag": tag, "pullPolicy": "Never"},
            "listener": {"port": self.port, "advertisedHost": "127.0.0.1"},
            "metrics": {"port": self.http_port},
            "settings": {"num.partitions": 3},
        }
        template = pod_of(render(values, release=self.name))
        spec = template["spec"]
        (container,) = spec["containers"]
        fields = {"metadata.namespace": "shop", "status.podIP": "127.0.0.1"}
        container["env"] = [{"name": name, "value": text} for name, text in variables(container, fields).items()]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            del container[probe]
        places = {"data": self.volume, "tokens": self.tokens}
        spec["volumes"] = [
            {"name": one["name"], "hostPath": {"path": str(places[one["name"]]), "type": "Directory"}}
            for one in [*spec["volumes"], {"name": "data"}]
            if one["name"] in places
        ] + [{"name": "temporary", "emptyDir": {}}]
        metadata = {"name": f"{self.name}-fencepost-0", "labels": template["metadata"]["labels"]}
        self.podman.play({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def remove(self, *options: str) -> None:
        self.podman("pod", "rm", "--force", *options, f"{self.name}-fencepost-0")

    def logs(self) -> str:
        done = self.podman.run("logs", self.container)
        return done.stdout + done.stderr

    def serves(self) -> bool:
        return self.answers() == 200

    def inside(self, *command: str) -> str:
        return self.podman("exec", self.container, *command)

    def answers(self, path: str = "/readyz", headers: Mapping[str, str] | None = None) -> int | None:
        try:
            return httpx.get(f"http://127.0.0.1:{self.http_port}{path}", headers=headers).status_code
        except httpx.TransportError:
            return None


@pytest.fixture
def release(podman: Podman, tmp_path: Path) -> Iterator[Release]:
    made = Release(podman, "shop", tmp_path)
    yield made
    podman.run("pod", "rm", "--force", "--time=0", "--all")


def committed(release: Release) -> list[bytes]:
    """All that read_committed consumers read of the topic `orders`."""
    settings = {"bootstrap.servers": f"127.0.0.1:{release.port}", "group.id": "all", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.partition.eof": False, "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    found = [until(lambda: consumer.poll(1)).value()]
    while (message := consumer.poll(2)) is not None:
        found.append(message.value())
    consumer.close()
    return found


def test_the_pod_serves_transactions_as_a_user_that_is_not_root_in_a_root_that_it_cannot_write(
    release: Release,
) -> None:
    release.install()
    until(release.serves)
    commit_and_read(release.port)
    for path in ("/livez", "/readyz"):
        assert release.answers(path) == 200
    assert release.answers("/metrics") == 401
    assert release.answers("/metrics", {"Authorization": f"Bearer {VIEWER}"}) == 200
    assert release.inside("id", "-u") == "10001"
    assert "Read-only file system" in release.podman.run("exec", release.container, "touch", "/x").stderr
    release.inside("touch", "/tmp/file")
    assert "CapEff:\t0000000000000000" in release.inside("cat", "/proc/1/status", "/proc/self/status")
    release.podman("pod", "stop", "--time=60", f"{release.name}-fencepost-0")
    assert "stopped" in release.logs()


def test_a_broker_killed_during_an_upgrade_has_lost_nothing_and_is_continued_by_the_next(release: Release) -> None:
    release.install("first")
    until(release.serves)
    commit_and_read(release.port)
    release.podman.kill(release.container)
    release.remove("--time=0")
    release.install("second")
    until(release.serves)
    assert committed(release) == [b"3 apples"]


def test_two_releases_run_side_by_side(release: Release, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Release(release.podman, "bank", tmp_path / "other")
    for one in (release, other):
        one.install()
    for one in (release, other):
        until(one.serves)
        commit_and_read(one.port)


def test_a_volume_that_the_broker_may_not_write_is_named_in_the_log(release: Release) -> None:
    os.chown(release.volume, 0, 0)
    release.volume.chmod(0o755)
    release.install()
    said: Any = until(release.logs)
    assert "/data/broker" in said
    assert "ermission denied" in said
