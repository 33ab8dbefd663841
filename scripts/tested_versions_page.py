"""Generator of the page of tested clients from their pins: `python -m scripts.tested_versions_page`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from scripts.apache_kafka import KAFKA_VERSION

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "clients" / "tested-versions.md"
BEGIN: Final = "<!-- Made of the pins by `python -m scripts.tested_versions_page`; a test keeps it current. -->\n"

_PYTHON_CLIENTS = ("aiokafka", "confluent-kafka", "kafka-python", "pyspark")
_GO_CLIENTS = ("github.com/IBM/sarama", "github.com/segmentio/kafka-go", "github.com/twmb/franz-go")
_NOT_CLIENTS = ("kafkajs-snappy",)


_Reader = Callable[[str], Iterator[tuple[str, str, str]]]


class Pin(NamedTuple):
    """The version of a client that the tests install."""

    registry: str
    """PyPI, npm, Go, crates.io or Maven."""
    package: str
    """As its registry names it; for Maven the artifact alone, or the organisation and the artifact."""
    version: str
    file: str
    """The file with the pin, as a path from the root of the repository."""


def pins(root: Path = ROOT) -> list[Pin]:
    """Every pin of a client, in the order of the page. Raises ValueError for a file of pins without one."""
    found: list[Pin] = []
    for file, read in _files(root):
        of_file = [
            Pin(registry, package, version, file.relative_to(root).as_posix())
            for registry, package, version in read(file.read_text(encoding="utf-8"))
        ]
        if not of_file:
            raise ValueError(f"{file} pins no client: either it moved, or its format changed")
        found += of_file
    return sorted(set(found))


def versions_page(present: str, root: Path = ROOT) -> str:
    """The whole page: what was written by hand, up to the mark, and the table behind it."""
    before, mark, _ = present.partition(BEGIN)
    if not mark:
        raise ValueError(f"{PAGE} has no line {BEGIN!r}")
    rows = [f"| {pin.registry} | `{pin.package}` | {pin.version} | `{pin.file}` |" for pin in pins(root)]
    return "\n".join([before + BEGIN, "| registry | package | version | pinned in |", "|---|---|---|---|", *rows, ""])


def _files(root: Path) -> Iterator[tuple[Path, _Reader]]:
    compat = root / "tests" / "compat"
    yield root / "requirements.lock", _python
    yield compat / "jvm.py", _java
    for pattern, read in (
        ("*/requirements.txt", _python),
        ("*/package.json", _node),
        ("*/Cargo.toml", _rust),
    ):
        for file in sorted(compat.glob(pattern)):
            yield file, read
    for folder in (compat, root / "docs" / "examples"):
        for file in sorted(folder.glob("*/ivy.xml")):
            yield file, _ivy
        for file in sorted(folder.glob("*/go.mod")):
            if not file.parent.name.endswith("-checks"):
                yield file, _go


def _python(text: str) -> Iterator[tuple[str, str, str]]:
    for package, version in re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==([\w.]+)", text, re.MULTILINE):
        if package in _PYTHON_CLIENTS:
            yield "PyPI", package, version


def _java(text: str) -> Iterator[tuple[str, str, str]]:
    for package, version in re.findall(r'\("(kafka[\w.-]*)", ("[\w.]+"|\w+)\)', text):
        if version.startswith('"'):
            yield "Maven", package, version.strip('"')
        elif version == "KAFKA_VERSION":
            yield "Maven", package, KAFKA_VERSION
        else:
            raise ValueError(f"{package} is pinned by {version}, which this page does not know")


def _ivy(text: str) -> Iterator[tuple[str, str, str]]:
    for attributes in re.findall(r"<dependency\s([^>]*)", text):
        named = dict(re.findall(r'(\w+)="([^"]*)"', attributes))
        yield "Maven", f"{named['org']}:{named['name']}", named["rev"]


def _node(text: str) -> Iterator[tuple[str, str, str]]:
    for package, version in json.loads(text)["dependencies"].items():
        if package not in _NOT_CLIENTS:
            yield "npm", package, version


def _rust(text: str) -> Iterator[tuple[str, str, str]]:
    yield "crates.io", "rdkafka", tomllib.loads(text)["dependencies"]["rdkafka"]["version"].removeprefix("=")


def _go(text: str) -> Iterator[tuple[str, str, str]]:
    for package, version in re.findall(r"^(?:require)?\s*(github\.com/\S+) (v\S+)", text, re.MULTILINE):
        if package in _GO_CLIENTS:
            yield "Go", package, version


if __name__ == "__main__":
    PAGE.write_text(versions_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
