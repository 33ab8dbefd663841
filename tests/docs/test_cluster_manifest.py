"""docs/kubernetes.md, the manifest of a cluster: its parts fit together, its broker starts and answers its probes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from fencepost.broker.config import load_settings
from fencepost.soak.free_port import free_port
from tests.docs.code_blocks import DOCS, blocks
from tests.docs.test_deployment_pages import SERVICE_LINKS, file_of
from tests.support.http_node import VIEWER, token_file
from tests.support.object_server import object_server
from tests.support.postgres import postgres_server

POD = {"$(NAMESPACE)": "shop", "$(POD_IP)": "127.0.0.1"}


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    """The manifest's objects by kind."""
    return {one["kind"]: one for one in yaml.safe_load_all(file_of("kubernetes.md", "fencepost-cluster.yaml"))}


@pytest.fixture(scope="module")
def pod(manifest: dict[str, Any]) -> Any:
    return manifest["Deployment"]["spec"]["template"]


@pytest.fixture(scope="module")
def container(pod: Any) -> Any:
    (container,) = pod["spec"]["containers"]
    return container


def environment_of(container: Any) -> dict[str, str]:
    """The variables that the manifest gives a value, as Kubernetes fills them in."""
    values = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    for name, text in POD.items():
        values = {key: value.replace(name, text) for key, value in values.items()}
    return values


def test_pods_have_no_volume_that_outlives_them_and_are_replaced_one_after_another(
    manifest: dict[str, Any], pod: Any, container: Any
) -> None:
    assert set(manifest) == {"Service", "Deployment", "PodDisruptionBudget"}
    deployment = manifest["Deployment"]["spec"]
    labels = pod["metadata"]["labels"]
    selectors = (
        deployment["selector"]["matchLabels"],
        manifest["Service"]["spec"]["selector"],
        manifest["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        *(one["labelSelector"]["matchLabels"] for one in pod["spec"]["topologySpreadConstraints"]),
    )
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    scratch, secrets = pod["spec"]["volumes"]
    assert set(scratch) == {"name", "emptyDir"}
    assert [mount["name"] for mount in container["volumeMounts"]] == [scratch["name"], secrets["name"]]
    data_directory = container["args"][container["args"].index("--data-dir") + 1]
    assert data_directory.startswith(container["volumeMounts"][0]["mountPath"] + "/")
    targets = [one["targetPort"] for one in manifest["Service"]["spec"]["ports"]]
    assert targets == [one["name"] for one in container["ports"]]


def test_a_pod_has_the_time_to_hand_over_and_stop(pod: Any) -> None:
    grace_ms = pod["spec"]["terminationGracePeriodSeconds"] * 1000
    assert grace_ms >= 2 * load_settings(environment={}).settings.fencepost_shutdown_handover_ms


def test_the_scratch_space_is_larger_than_what_the_broker_may_fill(pod: Any) -> None:
    settings = load_settings(environment={}).settings
    limit = int(pod["spec"]["volumes"][0]["emptyDir"]["sizeLimit"].removesuffix("Gi")) * 1024**3
    assert limit > settings.fencepost_cluster_scratch_max_bytes + settings.fencepost_cluster_tail_max_bytes


def test_one_secret_has_every_key_that_the_pods_ask_for(pod: Any, container: Any) -> None:
    asked = [one["valueFrom"]["secretKeyRef"] for one in container["env"] if "secretKeyRef" in one.get("valueFrom", {})]
    secret = pod["spec"]["volumes"][1]["secret"]
    assert {one["name"] for one in asked} == {secret["secretName"]}
    keys = {one["key"] for one in asked} | {item["key"] for item in secret["items"]}
    (commands,) = [
        block.text
        for block in blocks((DOCS / "kubernetes.md").read_text(encoding="utf-8"))
        if f"secret generic {secret['secretName']}" in block.text
    ]
    assert set(re.findall(r"--from-literal=([\w-]+)=", commands)) == keys
    mounted = container["volumeMounts"][1]
    assert (
        environment_of(container)["FENCEPOST_HTTP_TOKEN_FILE"] == f"{mounted['mountPath']}/{secret['items'][0]['path']}"
    )


@pytest.mark.integration
def test_the_broker_of_a_pod_starts_answers_its_probes_and_ends_at_sigterm(container: Any, tmp_path: Path) -> None:
    values = environment_of(container)
    assert not load_settings(environment={**values, **SERVICE_LINKS}).warnings
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert values["FENCEPOST_HTTP_LISTENER"] == f"0.0.0.0:{ports['http']}"
    assert f"0.0.0.0:{ports['kafka']}" in container["args"]
    port, http_port = free_port(), free_port()
    with postgres_server(is_durable=True) as database, object_server(tmp_path / "objects") as objects:
        location = objects.make_bucket()
        stores = {
            "FENCEPOST_CLUSTER_URL": database.cluster_url(),
            "FENCEPOST_CLUSTER_OBJECTS": f"s3://{location.bucket}?endpoint={objects.endpoint}",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "not checked",
        }
        assert {one["name"] for one in container["env"] if "secretKeyRef" in one.get("valueFrom", {})} == set(stores)
        of_test = {
            "FENCEPOST_HTTP_LISTENER": f"0.0.0.0:{http_port}",
            "FENCEPOST_HTTP_TOKEN_FILE": str(token_file(tmp_path)),
            "FENCEPOST_ADVERTISED_LISTENERS": values["FENCEPOST_ADVERTISED_LISTENERS"].replace("9092", str(port)),
        }
        arguments = [
            one.replace("0.0.0.0:9092", f"0.0.0.0:{port}").replace("/scratch/broker", str(tmp_path / "broker"))
            for one in container["args"]
        ]
        with subprocess.Popen(
            [sys.executable, "-m", "fencepost", *arguments],
            env={**os.environ, **values, **SERVICE_LINKS, **stores, **of_test},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout is not None
            ready = process.stdout.readline()
            try:
                assert f"PLAINTEXT://127.0.0.1:{port}" in ready
                for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                    asked = container[probe]["httpGet"]
                    assert asked["port"] == "http"
                    answer = httpx.get(f"http://127.0.0.1:{http_port}{asked['path']}")
                    assert answer.status_code == 200, answer.text
                named = {"Host": "fencepost.shop.svc:9644", "Authorization": f"Bearer {VIEWER}"}
                assert httpx.get(f"http://127.0.0.1:{http_port}/metrics", headers=named).status_code == 200
            finally:
                process.terminate()
                process.stdout.read()
                assert process.wait(60) == 0
