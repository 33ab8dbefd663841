"""The manifest of docs/kubernetes.md and the unit of docs/systemd.md: valid, and a broker starts as they say."""

from __future__ import annotations

import configparser
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from fencepost.broker.config import load_settings
from fencepost.broker.config.loading import SERVICE_LINK
from fencepost.cli.commands import fencepost
from fencepost.soak.free_port import free_port
from tests.docs.code_blocks import DOCS, ROOT, blocks
from tests.support.http_node import VIEWER, token_file

SERVICE_LINKS = {
    "FENCEPOST_PORT": "tcp://10.96.7.7:9092",
    "FENCEPOST_PORT_9092_TCP": "tcp://10.96.7.7:9092",
    "FENCEPOST_PORT_9092_TCP_ADDR": "10.96.7.7",
    "FENCEPOST_PORT_9092_TCP_PORT": "9092",
    "FENCEPOST_PORT_9092_TCP_PROTO": "tcp",
    "FENCEPOST_SERVICE_HOST": "10.96.7.7",
    "FENCEPOST_SERVICE_PORT": "9092",
    "FENCEPOST_SERVICE_PORT_KAFKA": "9092",
}
"""What Kubernetes sets in the pods of a namespace with the manifest's Service."""


def file_of(page: str, name: str) -> str:
    (text,) = [
        block.text
        for block in blocks((DOCS / page).read_text(encoding="utf-8"))
        if block.file_name is not None and Path(block.file_name).name == name
    ]
    return text


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    """The manifest's objects by kind."""
    return {one["kind"]: one for one in yaml.safe_load_all(file_of("kubernetes.md", "fencepost.yaml"))}


@pytest.fixture(scope="module")
def container(manifest: dict[str, Any]) -> Any:
    (container,) = manifest["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return container


def test_the_manifest_is_one_replica_with_a_volume_behind_a_service(manifest: dict[str, Any], container: Any) -> None:
    assert set(manifest) == {"Service", "StatefulSet"}
    service, stateful_set = manifest["Service"], manifest["StatefulSet"]
    labels = stateful_set["spec"]["template"]["metadata"]["labels"]
    assert stateful_set["spec"]["replicas"] == 1
    assert stateful_set["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert stateful_set["spec"]["serviceName"] == service["metadata"]["name"]
    assert [one["targetPort"] for one in service["spec"]["ports"]] == [one["name"] for one in container["ports"]]
    (claim,) = stateful_set["spec"]["volumeClaimTemplates"]
    mount, secrets = container["volumeMounts"]
    (volume,) = stateful_set["spec"]["template"]["spec"]["volumes"]
    assert (secrets["name"], secrets["readOnly"]) == (volume["name"], True)
    assert mount["name"] == claim["metadata"]["name"]
    data_directory = container["args"][container["args"].index("--data-dir") + 1]
    assert data_directory.startswith(mount["mountPath"] + "/")


def test_the_broker_of_the_manifest_starts_beside_a_service_of_its_name_and_answers_its_probes(
    container: Any, tmp_path: Path
) -> None:
    assert all(SERVICE_LINK.fullmatch(name) for name in SERVICE_LINKS)
    values = {one["name"]: one["value"].replace("$(NAMESPACE)", "shop") for one in container["env"] if "value" in one}
    environment = {**os.environ, **values, **SERVICE_LINKS}
    assert not load_settings(environment=environment).warnings
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert values["FENCEPOST_HTTP_LISTENER"] == f"0.0.0.0:{ports['http']}"
    assert values["FENCEPOST_HTTP_TOKEN_FILE"].startswith(container["volumeMounts"][1]["mountPath"] + "/")
    port, http_port = free_port(), free_port()
    environment["FENCEPOST_HTTP_LISTENER"] = f"0.0.0.0:{http_port}"
    environment["FENCEPOST_HTTP_TOKEN_FILE"] = str(token_file(tmp_path))
    arguments = [
        argument.replace("0.0.0.0:9092", f"0.0.0.0:{port}").replace("/data/broker", str(tmp_path / "broker"))
        for argument in container["args"]
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "fencepost", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        try:
            assert "PLAINTEXT://fencepost.shop.svc:9092" in ready
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                asked = container[probe]["httpGet"]
                assert asked["port"] == "http"
                answer = httpx.get(f"http://127.0.0.1:{http_port}{asked['path']}")
                assert answer.status_code == 200, answer.text
            url = f"http://127.0.0.1:{http_port}/metrics"
            named = {"Host": "fencepost.shop.svc:9644", "Authorization": f"Bearer {VIEWER}"}
            assert httpx.get(url, headers=named).status_code == 200
            assert httpx.get(url).status_code == 401
        finally:
            process.terminate()
            process.stdout.read()
            assert process.wait(30) == 0


def test_the_compose_file_with_prometheus_gives_both_sides_one_token_and_the_files_that_are_there(
    tmp_path: Path,
) -> None:
    merged = yaml.safe_load((ROOT / "docker" / "monitoring.yaml").read_text(encoding="utf-8"))
    services = merged["services"]
    assert set(services) == {"tokens", "broker", "console", "prometheus", "grafana"}
    assert not load_settings(environment=services["broker"]["environment"]).warnings
    (script,) = services["tokens"]["command"]
    # As root it would give the files to the users of the images.
    program = script.replace("/secrets", str(tmp_path)).replace("os.chown(file.name, owner, owner)", "pass")
    subprocess.run([sys.executable, "-c", program], check=True)
    lines = (tmp_path / "tokens").read_text(encoding="utf-8").splitlines()
    for name, line in zip(("prometheus", "console"), lines, strict=True):
        token = (tmp_path / f"{name}.token").read_text(encoding="utf-8")
        assert line == f"{name}:viewer:{hashlib.sha256(token.encode()).hexdigest()}"
    console = services["console"]
    arguments = [part.replace("/secrets", str(tmp_path)) for part in console["command"][1:]]
    group = fencepost.make_context("fencepost", ["console"])  # a command keeps the names of its help option
    parsed = fencepost.get_command(group, "console")
    assert parsed is not None
    options = parsed.make_context("console", arguments, parent=group).params
    assert options["broker_http_token_file"] == tmp_path / "console.token"
    assert options["broker_http"] == "http://broker:9644"
    assert (ROOT / "requirements" / f"{console['build']['args']['PARTS']}.lock").exists()
    configuration = yaml.safe_load((DOCS / "monitoring" / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = configuration["scrape_configs"]
    assert job["authorization"]["credentials_file"] == "/secrets/prometheus.token"
    assert '"prometheus.token"' in script
    listener = services["broker"]["environment"]["FENCEPOST_HTTP_LISTENER"]
    assert job["static_configs"][0]["targets"] == [f"broker:{listener.partition(':')[2]}"]
    assert services["broker"]["environment"]["FENCEPOST_HTTP_HOST_NAMES"] == "broker"
    for path in configuration["rule_files"]:
        assert (DOCS / "monitoring" / Path(path).name).exists()
    for name in ("prometheus", "grafana"):
        for mounted in services[name]["volumes"]:
            source = mounted.partition(":")[0]
            assert source in merged["volumes"] or (ROOT / "docker" / source).resolve().exists(), mounted


@pytest.fixture(scope="module")
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(file_of("systemd.md", "fencepost.service"))
    return parser


def test_the_unit_waits_for_the_broker_and_restarts_it_but_not_with_wrong_settings(
    unit: configparser.ConfigParser, tmp_path: Path
) -> None:
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert service["Restart"] == "on-failure"
    wrong = subprocess.run(
        [sys.executable, "-m", "fencepost", "serve", "--data-dir", str(tmp_path), "--set", "no.such.setting=1"],
        capture_output=True,
        check=False,
    )
    assert str(wrong.returncode) == service["RestartPreventExitStatus"]
    program, *arguments = service["ExecStart"].split()
    assert program.endswith("/fencepost")
    assert arguments[0] == "serve"
    assert f"/var/lib/{service['StateDirectory']}" in arguments


def test_systemd_takes_the_unit(unit: configparser.ConfigParser, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on PATH")
    path = tmp_path / "fencepost.service"
    text = file_of("systemd.md", "fencepost.service").replace("/opt/fencepost/bin/fencepost", "/bin/true")
    path.write_text(text.replace("User=fencepost", "User=root"), encoding="utf-8")
    checked = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_secured_part_of_the_manifest_is_what_a_broker_takes() -> None:
    (text,) = [
        block.text
        for block in blocks((DOCS / "kubernetes.md").read_text(encoding="utf-8"))
        if "initContainers" in block.text
    ]
    secured = yaml.safe_load(text)
    (container,) = secured["containers"]
    environment = {one["name"]: one["value"].replace("$(NAMESPACE)", "here") for one in container["env"]}
    loaded = load_settings(environment=environment)
    assert loaded.warnings == ()
    assert loaded.settings.sasl_enabled_mechanisms == ("SCRAM-SHA-512",)
    (mount,) = container["volumeMounts"]
    assert loaded.settings.ssl_keystore_location.startswith(mount["mountPath"])
    assert mount["name"] in {volume["name"] for volume in secured["volumes"]}
    (first,) = secured["initContainers"]
    directory = container["args"][container["args"].index("--data-dir") + 1]
    assert f"--data-dir {directory}" in first["args"][0]
    assert f"{directory}/metadata.sqlite" in first["args"][0]
