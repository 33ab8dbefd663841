"""The helpers for tests in other languages, which docs/examples has: how each is built and run.

Each has two suites: `Orders`, which the example shows, and `Failing`, whose tests fail, each in another way.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.compat.builds import RUST_BUILD_LIMIT_S
from tests.compat.harness import CACHE, ROOT, Client, NotHereError, build_once, call, fetch
from tests.compat.jvm import JVM_OPTIONS, TOOLS, class_path
from tests.support.missing_tools import require_tool

EXAMPLES = ROOT / "docs" / "examples"
IN_JAVA = EXAMPLES / "testing_java"
IN_GO = EXAMPLES / "testing_go"
IN_NODE = EXAMPLES / "testing_node"
IN_RUST = EXAMPLES / "testing_rust"


def build_java(client: Client) -> Sequence[str]:
    jars, classes = class_path(IN_JAVA / "ivy.xml"), client.cache / "classes"

    def compile_all(_cache: Path) -> None:
        shutil.rmtree(classes, ignore_errors=True)
        sources = [str(path) for folder in (IN_JAVA, client.folder) for path in sorted(folder.glob("*.java"))]
        warnings = ["-Xlint:all,-serial,-processing,-classfile,-path", "-Werror"]
        call(["javac", *warnings, "-d", str(classes), "-cp", jars, *sources], cwd=IN_JAVA)

    build_once(client, [IN_JAVA, client.folder], compile_all)
    launcher = ["org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner", "--disable-ansi-colors"]
    return ["java", *JVM_OPTIONS, "-cp", f"{classes}:{jars}", *launcher]


def build_go(client: Client) -> Sequence[str]:
    module, program = client.cache / "module", client.cache / "program"

    def compile_all(_cache: Path) -> None:
        _copy(IN_GO, client.folder, to=module)
        # The toolchain that is installed is the one that is used; it is not replaced by one from elsewhere.
        environment = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
        fetch(["go", "mod", "download"], cwd=module, environment=environment)
        offline = {**environment, "GOPROXY": "off"}
        call(["go", "vet", "./..."], cwd=module, environment=offline)
        call(["go", "test", "-c", "-o", str(program), "."], cwd=module, environment=offline)

    build_once(client, [IN_GO, client.folder], compile_all)
    return [str(program), "-test.v", "-test.run"]


def build_node(client: Client) -> Sequence[str]:
    package = client.cache / "package"

    def install(_cache: Path) -> None:
        _copy(IN_NODE, client.folder, to=package)
        fetch(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], cwd=package)

    build_once(client, [IN_NODE, client.folder], install)
    return ["node", "--test", "--test-reporter=spec"]


def build_rust(client: Client) -> Sequence[str]:
    """A crate with both suites; librdkafka, which takes minutes, is compiled once for this and the client's checks."""
    crate, target = client.cache / "crate", CACHE / "rust-rdkafka" / "target"
    if subprocess.run(["pkg-config", "--exists", "openssl"], check=False).returncode != 0:
        raise NotHereError(f"{client.name} is left out: OpenSSL's headers are not installed (libssl-dev)")

    def compile_all(_cache: Path) -> None:
        _copy(IN_RUST, client.folder, to=crate)
        fetch(["cargo", "fetch", "--locked", "--quiet"], cwd=crate)
        call(
            ["cargo", "test", "--no-run", "--locked", "--offline", "--release", "--quiet"],
            cwd=crate,
            environment={"CARGO_TARGET_DIR": str(target)},
            limit_s=RUST_BUILD_LIMIT_S,
        )
        for suite in ("orders", "failing"):
            built = [path for path in (target / "release" / "deps").glob(f"{suite}-*") if not path.suffix]
            shutil.copy(max(built, key=lambda path: path.stat().st_mtime), client.cache / suite)

    build_once(client, [IN_RUST, client.folder], compile_all)
    return ["sh", "-c", 'exec "$0/$1" --nocapture', str(client.cache)]


def _copy(*folders: Path, to: Path) -> None:
    """The example with the suite of failing tests in its place."""
    shutil.rmtree(to, ignore_errors=True)
    for folder in folders:
        shutil.copytree(folder, to, dirs_exist_ok=True)


HELPERS = {
    client.name: client
    for client in (
        Client("testing-java", tools=TOOLS, build=build_java),
        Client("testing-go", tools=("go",), build=build_go),
        Client("testing-node", tools=("node", "npm"), build=build_node),
        Client("testing-rust", tools=("cargo", "cc", "make", "pkg-config"), build=build_rust),
    )
}
SUITES: dict[str, Callable[[str], list[str]]] = {
    "testing-java": lambda suite: ["--select-class", f"{suite}Test"],
    "testing-go": lambda suite: [f"Test{suite}"],
    "testing-node": lambda suite: [str(HELPERS["testing-node"].cache / "package" / f"{suite.lower()}.test.mjs")],
    "testing-rust": lambda suite: [suite.lower()],
}
"""What is added to a command, so that it runs one suite."""


@cache
def command_of(language: str) -> Sequence[str]:
    """The command that runs the tests of a language. Skips the test without the language, which CI must have."""
    client = HELPERS[language]
    for tool in client.tools:
        require_tool(tool)
    try:
        return client.command()
    except NotHereError as reason:
        pytest.skip(str(reason))


def suite_of(language: str, suite: str) -> list[str]:
    return [*command_of(language), *SUITES[language](suite)]
