"""The helpers for tests in other languages, which docs/examples has: how each is built and run.

Each has two suites: `Orders`, which the example shows, and `Failing`, whose tests fail, each in another way.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.compat.harness import ROOT, Client, NotHereError, build_once, call
from tests.compat.jvm import JVM_OPTIONS, TOOLS, class_path
from tests.support.missing_tools import require_tool

EXAMPLES = ROOT / "docs" / "examples"
IN_JAVA = EXAMPLES / "testing_java"


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


HELPERS = {client.name: client for client in (Client("testing-java", tools=TOOLS, build=build_java),)}
SUITES: dict[str, Callable[[str], list[str]]] = {"testing-java": lambda suite: ["--select-class", f"{suite}Test"]}
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
