"""Tells which of the tested clients have a newer version in their registry: `python -m scripts.newer_clients`.

Each registry is asked by the tool of its language, as this machine has it configured: pip, npm, go, cargo, mvn. Of a
client that is tested in several versions the newest counts. Exits with 0 if nothing is newer, with 1 if something is,
and with 2 if a registry could not be asked.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from packaging.version import Version

from scripts.tested_versions_page import Pin, pins

EXIT_NEWER: Final = 1
EXIT_UNKNOWN: Final = 2
TIMEOUT_S: Final = 300
VERSIONS_PLUGIN: Final = "org.codehaus.mojo:versions-maven-plugin:2.18.0"
KAFKAS: Final = "org.apache.kafka"
POM: Final = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>fencepost.versions</groupId>
  <artifactId>asked</artifactId>
  <version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""

Run = Callable[[Sequence[str]], str]
"""Runs a command and returns its standard output. Raises CannotAskError."""


class CannotAskError(Exception):
    """A tool is not there, or its registry does not answer; the message says which."""


def run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise CannotAskError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise CannotAskError(f"{command[0]} has no answer after {TIMEOUT_S} s") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()[-1]
        raise CannotAskError(f"{' '.join(command[:3])} ended with {done.returncode}: {last[:300]}")
    return done.stdout


def newest_tested(found: Iterable[Pin]) -> dict[tuple[str, str], Pin]:
    """The pin with the highest version of each package."""
    newest: dict[tuple[str, str], Pin] = {}
    for pin in found:
        other = newest.get((pin.registry, pin.package))
        if other is None or ordered(pin.version) > ordered(other.version):
            newest[pin.registry, pin.package] = pin
    return newest


def ordered(version: str) -> tuple[Version, ...]:
    """A version as it sorts: of `5.0.0-2.2`, which is the connector's version and Flink's, both parts count."""
    return tuple(Version(part) for part in version.removeprefix("v").split("-"))


def pypi(package: str, ask: Run) -> str:
    answer = ask([sys.executable, "-m", "pip", "index", "versions", "--disable-pip-version-check", package])
    return _found(re.search(r"\(([\w.]+)\)", answer), package)


def npm(package: str, ask: Run) -> str:
    return _found(re.fullmatch(r"\s*(\d[\w.]*)\s*", ask(["npm", "view", package, "version"])), package)


def go(package: str, ask: Run) -> str:
    released = [
        version for version in ask(["go", "list", "-m", "-versions", package]).split()[1:] if "-" not in version
    ]
    return _found(re.match(r"(v[\d.]+)", max(released, key=ordered, default="")), package)


def crates(package: str, ask: Run) -> str:
    return _found(re.search(r"^version: ([\d.]+)", ask(["cargo", "info", package]), re.MULTILINE), package)


def _found(match: re.Match[str] | None, package: str) -> str:
    if match is None:
        raise CannotAskError(f"the answer about {package} names no version")
    return match[1]


def maven(packages: Mapping[str, str], ask: Run) -> dict[str, str]:
    """The newer version of each artifact that has one. packages: artifacts and their versions."""
    dependencies = ""
    for package, version in packages.items():
        group, artifact = _coordinates(package)
        dependencies += (
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version></dependency>"
        )
    with tempfile.TemporaryDirectory() as folder:
        project, answer = Path(folder) / "pom.xml", Path(folder) / "answer.txt"
        project.write_text(POM.format(dependencies=dependencies), encoding="utf-8")
        goal = f"{VERSIONS_PLUGIN}:display-dependency-updates"
        ask(["mvn", "-B", "-q", "-f", str(project), goal, f"-Dversions.outputFile={answer}"])
        text = answer.read_text(encoding="utf-8") if answer.exists() else ""
    newer = dict(re.findall(r"^\s*(\S+:\S+) \.*\s+\S+ -> (\S+)\s*$", text, re.MULTILINE))
    return {package: newer[found] for package in packages if (found := ":".join(_coordinates(package))) in newer}


def _coordinates(package: str) -> tuple[str, str]:
    group, colon, artifact = package.partition(":")
    return (group, artifact) if colon else (KAFKAS, package)


ONE_BY_ONE: Final = {"PyPI": pypi, "npm": npm, "Go": go, "crates.io": crates}


def newer(tested: Iterable[Pin], ask: Run) -> tuple[list[tuple[Pin, str]], list[str]]:
    """The clients with a newer version, and a sentence for each registry that could not be asked."""
    found: list[tuple[Pin, str]] = []
    unknown: list[str] = []
    by_registry: dict[str, list[Pin]] = {}
    for pin in newest_tested(tested).values():
        by_registry.setdefault(pin.registry, []).append(pin)
    for registry, of_registry in by_registry.items():
        try:
            if registry == "Maven":
                newest = maven({pin.package: pin.version for pin in of_registry}, ask)
            else:
                newest = {pin.package: ONE_BY_ONE[registry](pin.package, ask) for pin in of_registry}
        except CannotAskError as error:
            unknown.append(f"{registry} could not be asked: {error}")
            continue
        found += [
            (pin, newest[pin.package])
            for pin in of_registry
            if pin.package in newest and ordered(newest[pin.package]) > ordered(pin.version)
        ]
    return found, unknown


def main() -> int:
    found, unknown = newer(pins(), run)
    for pin, version in found:
        print(f"{pin.registry} {pin.package}: {version} is newer than {pin.version}, which {pin.file} pins")
    for sentence in unknown:
        print(sentence, file=sys.stderr)
    if not found and not unknown:
        print("no client has a newer version in its registry")
    return EXIT_UNKNOWN if unknown else EXIT_NEWER if found else 0


if __name__ == "__main__":
    sys.exit(main())
