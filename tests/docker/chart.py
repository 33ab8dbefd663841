"""Renders the chart with Helm, and reads the result as Kubernetes and Prometheus' operator do.

Helm is built with Go, once, into .cache/helm; the schemas of Kubernetes' objects come from a package of Python.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator
from referencing import Registry
from referencing.jsonschema import DRAFT7

from tests.docker.docker_files import DOCKER, ROOT
from tests.support.missing_tools import is_continuous_integration, missing, require_tool

CHART = DOCKER / "chart"
HELM_VERSION = "v3.16.4"
HELM = ROOT / ".cache" / "helm" / HELM_VERSION / "helm"
SCHEMAS = "kubernetes-validate==1.37.0"
SCHEMAS_SHA256 = "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9"
KUBERNETES = tuple(f"1.{minor}.0" for minor in range(29, 38))
"""The versions whose schemas are asked: from the chart's oldest one to the newest that the package has."""
REQUIRED = {"image": {"repository": "registry.example/fencepost"}, "metrics": {"secret": "tokens"}}
"""The values that have no default."""


def require_helm() -> None:
    """Go on if Helm is here. In CI it is built, in one to two minutes."""
    if HELM.exists():
        return
    require_tool("go")
    if not is_continuous_integration():
        missing(f"Helm was not built: GOBIN={HELM.parent} go install helm.sh/helm/v3/cmd/helm@{HELM_VERSION}")
    HELM.parent.mkdir(parents=True, exist_ok=True)
    with (HELM.parent.parent / "lock").open("w") as lock, tempfile.TemporaryDirectory(dir=HELM.parent) as coming:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not HELM.exists():
            command = ["env", f"GOBIN={coming}", "go", "install", f"helm.sh/helm/v3/cmd/helm@{HELM_VERSION}"]
            subprocess.run(command, check=True)
            (Path(coming) / "helm").rename(HELM)


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a chart, those of `other` over those of `one`."""
    both = {**one, **other}
    for name in one.keys() & other.keys():
        if isinstance(one[name], Mapping) and isinstance(other[name], Mapping):
            both[name] = merged(one[name], other[name])
    return both


def helm_template(
    values: Mapping[str, Any], *, release: str = "shop", kubernetes: str = "1.34.0"
) -> subprocess.CompletedProcess[str]:
    """Runs `helm template` with the values beside the required ones."""
    return subprocess.run(
        [HELM, "template", release, CHART, "--kube-version", kubernetes, "--values", "-"],
        input=json.dumps(merged(REQUIRED, values)),
        capture_output=True,
        text=True,
        check=False,
    )


def render(values: Mapping[str, Any], *, release: str = "shop", kubernetes: str = "1.34.0") -> list[dict[str, Any]]:
    """The objects that an installation makes."""
    done = helm_template(values, release=release, kubernetes=kubernetes)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one is not None]


def refusal(values: Mapping[str, Any], *, release: str = "shop") -> str:
    """What Helm says to values that it refuses."""
    done = helm_template(values, release=release)
    assert done.returncode != 0, done.stdout
    return done.stderr


def of_kind(objects: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [one for one in objects if one["kind"] == kind]
    return found


def pod_of(objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The pod template of the StatefulSet or Deployment."""
    (found,) = [one for one in objects if one["kind"] in ("StatefulSet", "Deployment")]
    template: dict[str, Any] = found["spec"]["template"]
    return template


def variables(container: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, str]:
    """The variables of a container that need no Secret, as a kubelet fills them in (`expanded`).

    fields: for example `{"metadata.namespace": "shop"}`.
    """
    values: dict[str, str] = {}
    for one in container["env"]:
        if "value" in one:
            values[one["name"]] = expanded(one["value"], values)
        elif "fieldRef" in one["valueFrom"]:
            values[one["name"]] = fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
    return values


def expanded(text: str, values: Mapping[str, str]) -> str:
    """A value or an argument of a container as a kubelet gives it: known `$(NAME)` replaced, and of `$$` one left."""
    return re.sub(r"\$(?:\$|\((\w+)\))", lambda one: "$" if one[1] is None else values.get(one[1], one[0]), text)


@lru_cache(1)
def _schemas() -> zipfile.ZipFile:
    folder = ROOT / ".cache" / "kubernetes"
    if not (found := list(folder.glob("*.whl"))):
        command = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", SCHEMAS)
        subprocess.run([*command, f"--dest={folder}"], check=True)
        found = list(folder.glob("*.whl"))
    assert hashlib.sha256(found[0].read_bytes()).hexdigest() == SCHEMAS_SHA256, found[0]
    return zipfile.ZipFile(found[0])


def complaints(document: Mapping[str, Any], kubernetes: str) -> list[str]:
    """What the schema of a version of Kubernetes says against an object; fields that it does not know are refused."""
    group, _, version = document["apiVersion"].rpartition("/")
    name = "-".join([document["kind"].lower(), *([group.partition(".")[0]] if group else []), version])
    folder = f"kubernetes_validate/kubernetes-json-schema/v{kubernetes}-local-strict"
    schema = json.loads(_schemas().read(f"{folder}/{name}.json"))
    registry = Registry().with_resource("_definitions.json", _definitions(folder))
    return [
        f"{one.json_path}: {one.message}" for one in Draft7Validator(schema, registry=registry).iter_errors(document)
    ]


@lru_cache(1)
def _definitions(folder: str) -> Any:
    return DRAFT7.create_resource(json.loads(_schemas().read(f"{folder}/_definitions.json")))
