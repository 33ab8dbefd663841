"""The example services of two-phase commits in Python, Java and Go: how each is built and started.

They are one service: the same transactional id, the same tables, the same topic.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.compat.builds import compile_go
from tests.compat.harness import CLIENTS_FOLDER, ROOT, Client, NotHereError, build_once, call
from tests.compat.jvm import JVM_OPTIONS, TOOLS, class_path
from tests.support.missing_tools import require_tool

EXAMPLES = ROOT / "docs" / "examples"
IN_PYTHON = EXAMPLES / "two_phase" / "order_service_postgres.py"
IN_JAVA = EXAMPLES / "two_phase_java"
IN_GO = EXAMPLES / "two_phase_go"
TRANSACTIONAL_ID = "order-service-1"
LIMIT_S = 60


def build_java(ivy: Path) -> Callable[[Client], Sequence[str]]:
    """A build of the Java service with the jars that an Ivy file names."""

    def build(client: Client) -> Sequence[str]:
        jars, classes = class_path(ivy), client.cache / "classes"

        def compile_all(_cache: Path) -> None:
            shutil.rmtree(classes, ignore_errors=True)
            sources = [str(path) for path in sorted(IN_JAVA.glob("*.java"))]
            warnings = ["-Xlint:all,-serial,-processing,-classfile,-path", "-Werror"]
            call(["javac", *warnings, "-d", str(classes), "-cp", jars, *sources], cwd=IN_JAVA)

        build_once(client, [IN_JAVA, ivy], compile_all)
        return ["java", *JVM_OPTIONS, "-cp", f"{classes}:{jars}", "OrderService"]

    return build


def build_go(client: Client) -> Sequence[str]:
    return compile_go(client, IN_GO)


LANGUAGES = {
    client.name: client
    for client in (
        Client("python", tools=(), build=lambda _client: [sys.executable, str(IN_PYTHON)]),
        Client("two-phase-java", tools=TOOLS, build=build_java(IN_JAVA / "ivy.xml")),
        Client("two-phase-java-3.9", tools=TOOLS, build=build_java(CLIENTS_FOLDER / "two-phase-java-3.9" / "ivy.xml")),
        Client("two-phase-go", tools=("go",), build=build_go),
    )
}


@cache
def command_of(language: str) -> Sequence[str]:
    """The command of a service. Skips the test without its packages, or without its language, which CI must have."""
    client = LANGUAGES[language]
    for tool in client.tools:
        require_tool(tool)
    try:
        return client.command()
    except NotHereError as reason:
        pytest.skip(str(reason))


def address_for(language: str, conninfo: str, port: int) -> str:
    """A database's address, as a language's driver takes it. port: that of PostgreSQL on the loopback address."""
    about = conninfo_to_dict(conninfo)
    schema = str(about["options"]).removeprefix("-csearch_path=")
    name, user = about.get("dbname") or "postgres", quote(str(about.get("user") or "postgres"))
    if language == "python":
        return conninfo
    if language == "two-phase-go":
        return f"postgresql://{user}@127.0.0.1:{port}/{name}?search_path={schema}&sslmode=disable"
    return f"jdbc:postgresql://127.0.0.1:{port}/{name}?user={user}&currentSchema={schema}&sslmode=disable"


class Service:
    """A process of a service."""

    def __init__(self, language: str, servers: str, address: str, names: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [*command_of(language), servers, address, *names],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def ended(self) -> tuple[int, str]:
        """Let it run to its end. Returns the exit code, and what it wrote as errors."""
        _, errors = self._process.communicate(timeout=LIMIT_S)
        return self._process.returncode, errors


@contextmanager
def started(language: str, servers: str, address: str, names: Sequence[str]) -> Iterator[Service]:
    service = Service(language, servers, address, names)
    try:
        yield service
    finally:
        service.kill()
