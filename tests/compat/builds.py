"""How the program of each language is built: into .cache/compat, as the lock file beside it pins it.

Downloads from a registry are a separate step (`fetch`): without a network, and without the toolchain's own cache, the
client is left out. What compiles must succeed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.compat.harness import CLIENTS_FOLDER, BuildError, Client, NotHereError, build_once, call, fetch, fingerprint

GO_CHECKS = CLIENTS_FOLDER / "go-checks"
NODE_CHECKS = CLIENTS_FOLDER / "node-checks"
# librdkafka is compiled as part of its crate; a machine that needs longer leaves the client out.
RUST_BUILD_LIMIT_S = 480
# What every distribution has: kcat's packages are unpacked without them.
SYSTEM_PACKAGES = ("libc6", "libgcc-s1", "gcc-")


def build_go(client: Client) -> Sequence[str]:
    """A module that is compiled as go.sum pins it, with the package all Go programs share."""
    return compile_go(client, client.folder, GO_CHECKS)


def compile_go(client: Client, folder: Path, *beside: Path) -> Sequence[str]:
    """The module in a folder, and modules beside it that it uses."""
    program = client.cache / "program"

    def build(_cache: Path) -> None:
        # The toolchain that is installed is the one that is used; it is not replaced by one from elsewhere.
        environment = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
        fetch(["go", "mod", "download"], cwd=folder, environment=environment)
        call(
            ["go", "build", "-buildvcs=false", "-o", str(program), "."],
            cwd=folder,
            environment={**environment, "GOPROXY": "off"},
        )

    build_once(client, [folder, *beside], build)
    return [str(program)]


def build_node(client: Client) -> Sequence[str]:
    """A package whose dependencies are installed beside a copy of it, as package-lock.json pins them.

    It runs with the Node.js that is one of these dependencies, if there is one; else with the installed one. No package
    runs a script of its own but those of `allowScripts` in package.json, whose script gets their binary.
    """
    packages = [client.folder / "package.json", client.folder / "package-lock.json"]
    allowed = json.loads(packages[0].read_text()).get("allowScripts", {})
    built_with = f" with Node.js {_node_version()}" if allowed else ""

    def build(cache: Path) -> None:
        for path in (*client.folder.iterdir(), *NODE_CHECKS.iterdir()):
            if path.suffix in {".json", ".mjs"}:
                shutil.copy(path, cache)
        installed = cache / ".installed-from"  # what is compiled takes minutes; the program changes more often
        wanted = fingerprint(*packages) + built_with
        if installed.exists() and installed.read_text() == wanted:
            return
        installed.unlink(missing_ok=True)
        fetch(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], cwd=cache)
        for package in allowed:
            _get_binary(client, package, cache)
        installed.write_text(wanted)

    build_once(client, [client.folder, NODE_CHECKS], build, built_with=built_with)
    own = [str(path) for path in client.cache.glob("node_modules/node-linux-*/bin/node")]
    return [*(own or ["node"]), str(client.cache / "main.mjs")]


def _node_version() -> str:
    return subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def _get_binary(client: Client, package: str, cache: Path) -> None:
    """Run a package's install script: it downloads the binary for this Node.js, or compiles it.

    Raises NotHereError with the script's output if it can do neither.
    """
    # librdkafka is linked with the OpenSSL, curl, zlib and zstd of the machine: else it downloads their sources.
    environment = {"CKJS_LINKING": "dynamic"}
    installed = Path(shutil.which("node") or "/").resolve().parent.parent
    if (installed / "include" / "node" / "node.h").exists():  # else the script downloads the headers
        environment["npm_config_nodedir"] = str(installed)
    try:
        call(["npm", "rebuild", "--foreground-scripts", package], cwd=cache, environment=environment)
    except BuildError as failure:
        raise NotHereError(
            f"{client.name} is left out: its binary can be neither downloaded nor compiled, which takes g++, make, "
            f"Python and the headers of OpenSSL, curl, zlib and zstd: {failure}"
        ) from failure


def build_rust(client: Client) -> Sequence[str]:
    """A crate that is compiled as Cargo.lock pins it, its librdkafka and the OpenSSL of the machine."""
    target = client.cache / "target"
    if subprocess.run(["pkg-config", "--exists", "openssl"], check=False).returncode != 0:
        raise NotHereError(f"{client.name} is left out: OpenSSL's headers are not installed (libssl-dev)")

    def build(_cache: Path) -> None:
        fetch(["cargo", "fetch", "--locked", "--quiet"], cwd=client.folder)
        call(
            ["cargo", "build", "--locked", "--offline", "--release", "--quiet"],
            cwd=client.folder,
            environment={"CARGO_TARGET_DIR": str(target)},
            limit_s=RUST_BUILD_LIMIT_S,
        )

    build_once(client, [client.folder], build)
    return [str(target / "release" / client.program)]


def build_python(client: Client) -> Sequence[str]:
    """A package of this checkout, in the environment that the tests run in."""
    return [sys.executable, "-m", f"tests.compat.{client.program}"]


def build_kafka_python_2(client: Client) -> Sequence[str]:
    """The program of kafka_python in its own environment, with the release that requirements.txt pins."""
    python = client.cache / "environment" / "bin" / "python"
    requirements = client.folder / "requirements.txt"

    def build(cache: Path) -> None:
        call([sys.executable, "-m", "venv", "--clear", str(cache / "environment")], cwd=cache)
        install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
        fetch([str(python), "-m", "pip", *install, "--requirement", str(requirements)], cwd=cache)

    build_once(client, [requirements], build)
    return [str(python), "-m", "tests.compat.kafka_python"]


def build_spark_4_0(client: Client) -> Sequence[str]:
    """The program of spark in an environment of its own, with the PySpark that requirements.txt pins."""
    python = client.cache / "environment" / "bin" / "python"
    requirements = client.folder / "requirements.txt"

    def build(cache: Path) -> None:
        call([sys.executable, "-m", "venv", "--clear", str(cache / "environment")], cwd=cache)
        install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        fetch([str(python), "-m", "pip", *install, "--requirement", str(requirements)], cwd=cache)

    build_once(client, [requirements], build)
    return [str(python), "-m", "tests.compat.spark"]


def build_kafka_python_tests(client: Client) -> Sequence[str]:
    """The program that runs the tests of kafka-python's source distribution, which source.txt pins."""
    sources = client.cache / "sources"
    pinned = client.folder / "source.txt"

    def build(cache: Path) -> None:
        shutil.rmtree(cache / "downloaded", ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        exactly = ["--no-deps", "--no-binary", "kafka-python", "--require-hashes", "--requirement", str(pinned)]
        fetch([*pip, *exactly, "--dest", str(cache / "downloaded")], cwd=cache)
        (archive,) = (cache / "downloaded").iterdir()
        shutil.rmtree(sources, ignore_errors=True)
        sources.mkdir()
        call(["tar", "-xzf", str(archive), "--strip-components=1", "-C", str(sources)], cwd=cache)

    build_once(client, [pinned], build)
    return [sys.executable, "-m", "tests.compat.kafka_python_tests", str(sources)]


def build_kcat(client: Client) -> Sequence[str]:
    """A package of this checkout, with the kcat that is on PATH or else one from the packages of a Debian or Ubuntu.

    Those are unpacked below .cache/compat, which needs neither root nor an installation.
    """
    program = build_python(client)
    if shutil.which("kcat") is not None:
        return program
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise NotHereError("kcat is left out: it is not on PATH, and there is no apt-get to fetch it with")

    def build(cache: Path) -> None:
        unpacked = cache / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        packages = [name for name in _debian_packages("kcat") if not name.startswith(SYSTEM_PACKAGES)]
        fetch(["apt-get", "download", *packages], cwd=cache)
        for package in sorted(cache.glob("*.deb")):
            call(["dpkg", "-x", str(package), str(unpacked)], cwd=cache)
            package.unlink()
        # Only kcat is to look there for its libraries, not the interpreter that starts it.
        libraries = ":".join(f'"$here"/{folder}' for folder in sorted(_folders_of_libraries(unpacked)))
        script = cache / "bin" / "kcat"
        script.parent.mkdir(exist_ok=True)
        script.write_text(
            f'#!/bin/sh\nhere=$(dirname "$0")/../unpacked\nLD_LIBRARY_PATH={libraries} exec "$here"/usr/bin/kcat "$@"\n'
        )
        script.chmod(0o755)
        call([str(script), "-V"], cwd=cache)

    build_once(client, [Path(__file__)], build)
    return ["env", f"PATH={client.cache / 'bin'}:{os.environ['PATH']}", *program]


def _folders_of_libraries(unpacked: Path) -> set[Path]:
    """Where packages have put shared libraries, relative to where they were unpacked."""
    return {path.parent.relative_to(unpacked) for path in unpacked.rglob("*.so.*")}


def _debian_packages(package: str) -> list[str]:
    """A package and all that it depends on. Raises NotHereError when the lists of packages do not know it."""
    kinds = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    listed = subprocess.run(
        ["apt-cache", "depends", "--recurse", *[f"--no-{kind}" for kind in kinds], package],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0 or not listed.stdout:
        raise NotHereError(f"{package} is left out: {listed.stderr.strip() or 'no list of packages has it'}")
    return [line for line in listed.stdout.splitlines() if line[:1].isalnum()]
