"""The chart: Kubernetes and Prometheus' operator take what it renders, it refuses bad values, and its brokers start."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from fencepost.broker.config import load_settings
from fencepost.soak.free_port import free_port
from tests.docker.chart import (
    CHART,
    HELM,
    KUBERNETES,
    complaints,
    expanded,
    helm_template,
    merged,
    of_kind,
    pod_of,
    refusal,
    render,
    require_helm,
    variables,
)
from tests.docker.docker_files import ROOT
from tests.support.http_node import VIEWER, token_file
from tests.support.missing_tools import require_tool
from tests.support.object_server import object_server
from tests.support.postgres import postgres_server

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600), pytest.mark.xdist_group("chart")]

CLUSTER = {"cluster": {"enabled": True, "secret": "stores"}}
SECURED = {"tls": {"secret": "certificates"}, "sasl": {"secret": "users", "superUsers": ["admin", "root"]}}
OUTSIDE = {"external": {"enabled": True, "advertisedHost": "kafka.example", "type": "NodePort", "nodePort": 30092}}
MONITORED = {"metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}}
SCHEDULED = {
    "resources": {"limits": {"memory": "2Gi"}},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "brokers", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "podAnnotations": {"a": "b"},
    "image": {"pullSecrets": ["registry"]},
    "storage": {"className": "fast", "size": "1Ti", "accessMode": "ReadWriteOnce"},
    "extraEnv": [{"name": "FENCEPOST_NUM_PARTITIONS", "value": "3"}],
}
VALUES: dict[str, Mapping[str, Any]] = {
    "one broker": {},
    "secured, from outside": {**SECURED, **OUTSIDE},
    "scheduled, monitored": {**MONITORED, **SCHEDULED},
    "without metrics": {"metrics": {"enabled": False}, "podDisruptionBudget": {"enabled": False}},
    "a cluster": CLUSTER,
    "a cluster with zones": merged(CLUSTER, {"cluster": {"rackFromZone": True, "replicas": 5}}),
    "a cluster in a rack": merged(CLUSTER, {"cluster": {"rack": "a", "spreadOver": "topology.kubernetes.io/zone"}}),
}
FIELDS = {"metadata.namespace": "shop", "status.podIP": "127.0.0.1"}


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    require_helm()


@pytest.mark.parametrize("name", VALUES)
def test_every_version_of_kubernetes_takes_what_is_rendered(name: str) -> None:
    for version in KUBERNETES:
        for one in render(VALUES[name], kubernetes=version):
            if one["kind"] != "ServiceMonitor":  # the operator's own
                assert complaints(one, version) == [], (version, one["kind"])


def test_the_schemas_refuse_fields_and_types_that_kubernetes_does_not_know() -> None:
    service = of_kind(render({}), "Service")
    assert complaints(merged(service, {"spec": {"prots": []}}), KUBERNETES[-1]) != []
    assert complaints(merged(service, {"spec": {"ports": "9092"}}), KUBERNETES[-1]) != []


def test_helm_finds_no_fault_with_the_chart(tmp_path: Path) -> None:
    values = tmp_path / "values.json"
    values.write_text(json.dumps({"image": {"repository": "a"}, "metrics": {"secret": "b"}}), encoding="utf-8")
    done = subprocess.run(
        [HELM, "lint", "--strict", CHART, "--values", values, "--kube-version", "1.34.0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_installs_the_image_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_prometheus_operator_takes_the_service_monitor_which_finds_the_service_and_the_token(tmp_path: Path) -> None:
    require_tool("go")
    objects = render(MONITORED)
    monitor, service = of_kind(objects, "ServiceMonitor"), of_kind(objects, "Service")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    (tokens,) = [one["secret"] for one in pod_of(objects)["spec"]["volumes"] if one["name"] == "tokens"]
    assert endpoint["authorization"]["credentials"] == {"name": tokens["secretName"], "key": "prometheus.token"}
    program = tmp_path / "service_monitor"
    build = ["go", "build", "-o", str(program), "."]
    subprocess.run(build, cwd=Path(__file__).parent / "service_monitor", check=True)

    def read(document: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        text = yaml.safe_dump(dict(document))
        return subprocess.run([program], input=text, capture_output=True, text=True, check=False)

    taken = read(monitor)
    assert taken.returncode == 0, taken.stderr
    assert "scrapeIntervall" in read(merged(monitor, {"spec": {"scrapeIntervall": "1s"}})).stderr


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"image": {"repository": ""}}, "image.repository: String length must be greater than or equal to 1"),
        ({"image": {"pullPolicy": "Sometimes"}}, "image.pullPolicy must be one of the following"),
        ({"metrcis": {}}, "Additional property metrcis is not allowed"),
        ({"storage": {"size": "20"}}, "storage.size: Does not match pattern"),
        ({"listener": {"port": 99_999}}, "listener.port: Must be less than or equal to 65535"),
        ({"cluster": {"replicas": 0}}, "cluster.replicas: Must be greater than or equal to 1"),
        ({"fullnameOverride": "a" * 63}, "fullnameOverride: String length must be less than or equal to 52"),
        ({"resources": {"limit": {}}}, "resources: Additional property limit is not allowed"),
        ({"settings": {"listeners": "PLAINTEXT://:1"}}, "listeners is set by the chart: use listener"),
        ({"metrics": {"secret": ""}}, "metrics.secret is not set: name a Secret"),
        ({"metrics": {"enabled": False, "serviceMonitor": {"enabled": True}}}, "needs metrics.enabled"),
        ({"sasl": {"secret": "users"}}, "sasl.secret needs tls.secret"),
        ({"external": {"enabled": True}}, "external.advertisedHost is not set"),
        ({"cluster": {"enabled": True}}, "cluster.secret is not set"),
        ({**CLUSTER, **SECURED}, "tls, sasl and external are for one broker"),
        ({**CLUSTER, "listener": {"advertisedHost": "a.example"}}, "listener.advertisedHost is for one broker"),
        (merged(CLUSTER, {"cluster": {"rack": "a", "rackFromZone": True}}), "set one of them"),
        ({"image": {"repository": "registry.example/fencepost:0.2.0"}}, "image.repository: Does not match pattern"),
        ({"image": {"tag": "sha256:short"}}, "image.tag: Does not match pattern"),
        ({"cluster": {"replicas": "three"}}, "cluster.replicas: Invalid type. Expected: integer, given: string"),
        ({"persistence": {"enabled": False}}, "Additional property persistence is not allowed"),
        (
            {**SECURED, "sasl": {"secret": "users", "superUsers": []}},
            "sasl.superUsers: Array must have at least 1 items",
        ),
        ({"listener": {"port": 9644}}, "one port cannot have two listeners"),
        ({"external": {"enabled": True, "advertisedHost": "a.example", "port": 9092}}, "cannot have two listeners"),
        ({"fullnameOverride": "shop-outside"}, "a Service cannot be named shop-outside: set fullnameOverride"),
        ({"probes": {"startup": None}}, "probes: startup is required"),
    ],
)
def test_bad_values_are_refused_with_their_name(values: Mapping[str, Any], says: str) -> None:
    assert says in refusal(values)


def test_the_schema_knows_every_value_of_the_chart_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert set(schema["properties"]) - {"global"} == set(values)
    for name, default in values.items():
        known = schema["properties"][name].get("properties")
        if known is not None and name != "resources":
            assert set(known) == set(default), name


def test_a_value_that_is_taken_away_has_its_meaning_or_is_refused_with_its_name() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    paths: list[tuple[str, ...]] = [(name,) for name in defaults]
    paths += [(name, inner) for name, value in defaults.items() if isinstance(value, dict) for inner in value]
    everything = {**SECURED, **OUTSIDE, **MONITORED}
    for path in paths:
        taken: Mapping[str, Any] = {path[-1]: None} if len(path) == 1 else {path[0]: {path[1]: None}}
        for values in (everything, CLUSTER):
            done = helm_template(merged(values, taken))
            if done.returncode:
                assert any(said in done.stderr for said in (f"{path[-1]} is required", ".".join(path))), done.stderr
                continue
            for one in yaml.safe_load_all(done.stdout):
                if one and one["kind"] != "ServiceMonitor":
                    assert complaints(one, KUBERNETES[-1]) == [], (path, one["kind"])


@pytest.mark.parametrize("odd", ["123", "1e3", "no", "null", "true"])
def test_names_that_yaml_takes_for_something_else_stay_names(odd: str) -> None:
    single = {"tls": {"secret": odd, "key": odd}, "sasl": {"secret": odd}, "metrics": {"secret": odd}}
    storage = {"storage": {"className": odd}, "image": {"pullSecrets": [odd], "repository": odd, "tag": odd}}
    for values in (
        {**single, **storage},
        {"cluster": {"enabled": True, "secret": odd, "spreadOver": odd, "rack": odd}},
    ):
        for one in render({**values, **({} if odd[0] == "1" else {"fullnameOverride": odd})}):
            assert complaints(one, KUBERNETES[-1]) == [], one["kind"]


@pytest.mark.parametrize("digest", ["sha256:" + "a" * 64, "0.2.0@sha256:" + "a" * 64])
def test_an_image_may_be_named_by_its_digest(digest: str) -> None:
    pod = pod_of(render({"image": {"tag": digest}}))
    between = "@" if digest.startswith("sha256") else ":"
    assert pod["spec"]["containers"][0]["image"] == f"registry.example/fencepost{between}{digest}"
    label = pod["metadata"]["labels"]["app.kubernetes.io/version"]
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", label)


def test_what_kubernetes_never_changes_in_a_workload_depends_on_its_name_and_its_storage_alone() -> None:
    upgraded = merged(
        {**SECURED, **OUTSIDE, **MONITORED, **SCHEDULED},
        {"image": {"tag": "9.9.9"}, "storage": {"className": "", "size": "20Gi", "accessMode": "ReadWriteOncePod"}},
    )
    before, after = (of_kind(render(values), "StatefulSet")["spec"] for values in ({}, upgraded))
    for field in ("selector", "serviceName", "volumeClaimTemplates"):
        assert before[field] == after[field]
    zones = merged(CLUSTER, {"cluster": {"replicas": 5, "rack": "a"}, "image": {"tag": "9.9.9"}})
    before, after = (of_kind(render(values), "Deployment")["spec"] for values in (CLUSTER, zones))
    assert before["selector"] == after["selector"]


def names_of(release: str) -> set[tuple[str, str]]:
    return {(one["kind"], one["metadata"]["name"]) for one in render({**OUTSIDE, **MONITORED}, release=release)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("shop", "shop-fencepost"),
        ("fencepost", "fencepost-fencepost"),
        ("a" * 45 + "-blue", "a" * 45 + "-green"),
        ("fencepost-" + "a" * 42, "fencepost-" + "a" * 43),
    ],
)
def test_releases_of_similar_names_share_no_name(one: str, other: str) -> None:
    assert names_of(one) & names_of(other) == set()


@pytest.mark.parametrize("release", ["1shop", "shop.bank", "fencepost-outside"])
def test_a_release_that_no_service_can_be_named_after_is_refused_until_it_has_another_name(release: str) -> None:
    assert "a Service cannot be named" in refusal({}, release=release)
    assert of_kind(render({"fullnameOverride": "shop"}, release=release), "Service")["metadata"]["name"] == "shop"


def test_two_releases_in_one_namespace_share_no_name_and_select_no_pod_of_each_other() -> None:
    first, second = (render({**OUTSIDE, **MONITORED}, release=name) for name in ("shop", "bank"))
    names = [{(one["kind"], one["metadata"]["name"]) for one in objects} for objects in (first, second)]
    assert names[0] & names[1] == set()
    labels = pod_of(second)["metadata"]["labels"]
    for one in first:
        selector = one["spec"]["selector"]
        assert not selector.get("matchLabels", selector).items() <= labels.items(), one["kind"]


def test_the_longest_release_name_leaves_room_for_what_kubernetes_adds() -> None:
    assert "exceed max length 53" in refusal({}, release="a" * 63) or "invalid" in refusal({}, release="a" * 63)
    for objects in (render(OUTSIDE, release="a" * 53), render({**OUTSIDE, "fullnameOverride": "b" * 52})):
        for one in objects:
            # A StatefulSet's pods have its name, a hyphen and a hash of ten digits in a label of 63 characters.
            assert len(one["metadata"]["name"]) <= 52 or one["metadata"]["name"].endswith("-outside")
            assert len(one["metadata"]["name"]) <= 63
            assert all(len(str(value)) <= 63 for value in one["metadata"]["labels"].values())


def test_a_pod_is_not_root_writes_only_to_its_volumes_and_asks_nothing_of_kubernetes() -> None:
    for values in ({}, CLUSTER):
        spec = pod_of(render(values))["spec"]
        (container,) = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")} == {"/data", "/tmp"}


def test_one_broker_has_one_volume_and_a_cluster_has_none_that_outlives_a_pod() -> None:
    stateful_set = of_kind(render({}), "StatefulSet")["spec"]
    assert stateful_set["replicas"] == 1
    (claim,) = stateful_set["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    objects = render(CLUSTER)
    deployment = of_kind(objects, "Deployment")["spec"]
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert {kind for one in pod_of(objects)["spec"]["volumes"] for kind in one if kind != "name"} == {
        "emptyDir",
        "secret",
    }
    settings = load_settings(environment={}).settings
    (scratch,) = [one["emptyDir"] for one in pod_of(objects)["spec"]["volumes"] if one["name"] == "data"]
    limit = int(scratch["sizeLimit"].removesuffix("Gi")) * 1024**3
    assert limit > settings.fencepost_cluster_scratch_max_bytes + settings.fencepost_cluster_tail_max_bytes
    grace_ms = pod_of(objects)["spec"]["terminationGracePeriodSeconds"] * 1000
    assert grace_ms >= 2 * settings.fencepost_shutdown_handover_ms


@pytest.mark.parametrize("name", VALUES)
def test_the_broker_takes_the_variables_of_every_pod(name: str) -> None:
    (container,) = pod_of(render(VALUES[name]))["spec"]["containers"]
    zone = {"metadata.labels['topology.kubernetes.io/zone']": "b"}
    environment = variables(container, {**FIELDS, **zone})
    loaded = load_settings(environment=environment)
    assert loaded.warnings == ()
    expected = {"a cluster with zones": "b", "a cluster in a rack": "a"}.get(name)
    assert loaded.settings.broker_rack == expected


def test_a_secured_broker_asks_who_clients_are_and_is_reached_from_outside() -> None:
    (container,) = pod_of(render({**SECURED, **OUTSIDE}))["spec"]["containers"]
    environment = variables(container, FIELDS)
    assert environment["FENCEPOST_SUPER_USERS"] == "User:admin;User:root"
    assert environment["FENCEPOST_LISTENER_SECURITY_PROTOCOL_MAP"] == "INSIDE:SASL_SSL,OUTSIDE:SASL_SSL"
    assert environment["FENCEPOST_ADVERTISED_LISTENERS"] == (
        "INSIDE://shop-fencepost.shop.svc:9092,OUTSIDE://kafka.example:30092"
    )


def test_the_names_of_super_users_reach_the_broker_as_they_were_written() -> None:
    users = ['a"b', "c\\d", "$(NAMESPACE)", "CN=x,O=y"]
    (container,) = pod_of(render(merged(SECURED, {"sasl": {"superUsers": users}})))["spec"]["containers"]
    assert variables(container, FIELDS)["FENCEPOST_SUPER_USERS"] == ";".join(f"User:{user}" for user in users)


def test_settings_reach_the_broker_as_they_were_written() -> None:
    settings = {
        "log.retention.bytes": 10_000_000_000,
        "num.partitions": 3,
        "auto.create.topics.enable": False,
        "super.users": "User:a;User:b=c,d",
        "ssl.keystore.password": "a'b\"c\\d #: {é}\n $(NAMESPACE) $$ $",
    }
    (container,) = pod_of(render({"settings": settings}))["spec"]["containers"]
    given = [
        expanded(after, FIELDS | variables(container, FIELDS))
        for before, after in zip(container["args"], container["args"][1:], strict=False)
        if before == "--set"
    ]
    assert sorted(given) == [
        "auto.create.topics.enable=false",
        "log.retention.bytes=10000000000",
        "num.partitions=3",
        "ssl.keystore.password=a'b\"c\\d #: {é}\n $(NAMESPACE) $$ $",
        "super.users=User:a;User:b=c,d",
    ]


@contextmanager
def started(container: Mapping[str, Any], folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The broker of a container as a process here; gives the line with which it says that it is ready."""
    arguments = [one.replace("/data/broker", str(folder / "broker")) for one in container["args"]]
    with subprocess.Popen(
        [sys.executable, "-m", "fencepost", *arguments],
        env={**os.environ, **environment, "FENCEPOST_HTTP_TOKEN_FILE": str(token_file(folder))},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            process.terminate()
            process.stdout.read()
            assert process.wait(60) == 0


def ask_probes(container: Mapping[str, Any], port: int) -> None:
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] == "http"
        answer = httpx.get(f"http://127.0.0.1:{port}{asked['path']}")
        assert answer.status_code == 200, answer.text
    url = f"http://127.0.0.1:{port}/metrics"
    named = {"Host": f"shop-fencepost.shop.svc:{port}", "Authorization": f"Bearer {VIEWER}"}
    assert httpx.get(url, headers=named).status_code == 200
    assert httpx.get(url).status_code == 401


def test_the_broker_of_a_pod_starts_answers_its_probes_and_ends_at_sigterm(tmp_path: Path) -> None:
    port, http_port = free_port(), free_port()
    values = {"listener": {"port": port}, "metrics": {"port": http_port}}
    (container,) = pod_of(render(values))["spec"]["containers"]
    with started(container, tmp_path, variables(container, FIELDS)) as ready:
        assert f"INSIDE://shop-fencepost.shop.svc:{port}" in ready
        ask_probes(container, http_port)


def test_a_pod_of_a_cluster_finds_its_stores_by_one_secret(tmp_path: Path) -> None:
    port, http_port = free_port(), free_port()
    values = {**CLUSTER, "listener": {"port": port}, "metrics": {"port": http_port}}
    (container,) = pod_of(render(values))["spec"]["containers"]
    asked = [one for one in container["env"] if "secretKeyRef" in one.get("valueFrom", {})]
    assert {one["valueFrom"]["secretKeyRef"]["name"] for one in asked} == {"stores"}
    with postgres_server(is_durable=True) as database, object_server(tmp_path / "objects") as objects:
        location = objects.make_bucket()
        secret = {
            "database": database.cluster_url(),
            "objects": f"s3://{location.bucket}?endpoint={objects.endpoint}",
            "access-key-id": "tests",
            "secret-access-key": "not checked",
        }
        stores = {one["name"]: secret[one["valueFrom"]["secretKeyRef"]["key"]] for one in asked}
        assert len(stores) == len(secret)
        with started(container, tmp_path, {**variables(container, FIELDS), **stores}) as ready:
            assert f"INSIDE://127.0.0.1:{port}" in ready
            ask_probes(container, http_port)


def test_the_page_makes_the_secrets_that_the_chart_asks_for_and_names_values_that_it_has() -> None:
    page = (CHART.parents[1] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]
    named = re.findall(r"--set ([\w.]+)=", page)
    assert len(named) >= 8
    for name in named:
        if name.startswith("settings."):
            continue
        properties = schema
        for part in name.split("."):
            assert part in properties, name
            properties = properties[part].get("properties", {})
    assert set(re.findall(r"--from-(?:literal|file)=([\w.-]+)=", page)) == {
        "tokens",
        "prometheus.token",
        "database",
        "objects",
        "access-key-id",
        "secret-access-key",
    }
