"""How the program of each language is built: into .cache/compat, as the lock file beside it pins it.

What asks a registry is a step of its own (`fetch`): without a network, and without the toolchain's own cache, the
client is left out. What compiles must succeed.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.compat.harness import CLIENTS_FOLDER, Client, build_once, call, fetch

GO_CHECKS = CLIENTS_FOLDER / "go-checks"
# librdkafka is compiled as part of its crate; a machine that needs longer leaves the client out.
RUST_BUILD_LIMIT_S = 240


def build_go(client: Client) -> Sequence[str]:
    """A module that is compiled as go.sum pins it, with the package all Go programs share."""
    program = client.cache / "program"

    def build(_cache: Path) -> None:
        # The toolchain that is installed is the one that is used; it is not replaced by one from elsewhere.
        environment = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
        fetch(["go", "mod", "download"], cwd=client.folder, environment=environment)
        call(
            ["go", "build", "-buildvcs=false", "-o", str(program), "."],
            cwd=client.folder,
            environment={**environment, "GOPROXY": "off"},
        )

    build_once(client, [client.folder, GO_CHECKS], build)
    return [str(program)]


def build_node(client: Client) -> Sequence[str]:
    """A package whose dependencies are installed beside a copy of it, as package-lock.json pins them."""

    def build(cache: Path) -> None:
        for path in client.folder.iterdir():
            if path.suffix in {".json", ".mjs"}:
                shutil.copy(path, cache)
        fetch(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], cwd=cache)

    build_once(client, [client.folder], build)
    return ["node", str(client.cache / "main.mjs")]


def build_rust(client: Client) -> Sequence[str]:
    """A crate that is compiled as Cargo.lock pins it, with the librdkafka inside its binding."""
    target = client.cache / "target"

    def build(_cache: Path) -> None:
        fetch(["cargo", "fetch", "--locked", "--quiet"], cwd=client.folder)
        call(
            ["cargo", "build", "--locked", "--offline", "--release", "--quiet"],
            cwd=client.folder,
            environment={"CARGO_TARGET_DIR": str(target)},
            limit_s=RUST_BUILD_LIMIT_S,
        )

    build_once(client, [client.folder], build)
    return [str(target / "release" / client.name)]


def build_python(client: Client) -> Sequence[str]:
    """A package of this checkout, in the environment that the tests run in."""
    return [sys.executable, "-m", f"tests.compat.{client.name}"]


def build_kafka_python_2(client: Client) -> Sequence[str]:
    """The program of kafka_python in an environment of its own, with the release that requirements.txt pins."""
    python = client.cache / "environment" / "bin" / "python"
    requirements = client.folder / "requirements.txt"

    def build(cache: Path) -> None:
        call([sys.executable, "-m", "venv", "--clear", str(cache / "environment")], cwd=cache)
        install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
        fetch([str(python), "-m", "pip", *install, "--requirement", str(requirements)], cwd=cache)

    build_once(client, [requirements], build)
    return [str(python), "-m", "tests.compat.kafka_python"]
