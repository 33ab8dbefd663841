"""The Spark that a user installs, and the connector that runs with it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyspark
import pytest

from fencepost.spark import IVY_SETTINGS, NoConnectorError, kafka_connector
from fencepost.spark.connector import CONNECTORS, connector_version
from tests.support.locks import ROOT, pins

CONNECTOR_WITH_VERSION = re.compile(r"spark-sql-kafka-0-10_[\d.]+:\d")


def test_the_connector_is_for_the_installed_version_and_its_scala() -> None:
    version = connector_version(pyspark.__version__)
    assert re.fullmatch(rf"org\.apache\.spark:spark-sql-kafka-0-10_2\.\d+:{version}", kafka_connector())
    scala = kafka_connector().split("_")[1].split(":")[0]
    assert list((Path(pyspark.__file__).parent / "jars").glob(f"spark-core_{scala}-*.jar"))


@pytest.mark.parametrize(
    ("of_pyspark", "connector"),
    [
        *[(f"4.0.{patch}", "4.0.0") for patch in range(6)],
        *[(f"4.1.{patch}", "4.1.1") for patch in range(5)],
        *[("4.2.0", "4.2.0"), ("4.2.1", "4.2.0"), ("4.3.0", "4.2.0")],
    ],
)
def test_each_pyspark_gets_the_connector_it_was_tried_with(of_pyspark: str, connector: str) -> None:
    assert connector_version(of_pyspark) == connector


def test_the_page_names_the_connector_of_each_minor_line() -> None:
    page = (ROOT / "docs" / "clients" / "spark.md").read_text()
    found = re.findall(r"^\| (\d\.\d)\.\d+\b[^|]*\| (\d\.\d\.\d)\b", page, re.MULTILINE)
    assert dict(found) == CONNECTORS


@pytest.mark.parametrize("newer", ["4.2.17", "4.2.2.dev1"])
def test_a_newer_patch_of_pyspark_gets_the_connector_of_its_minor_line(newer: str) -> None:
    assert connector_version(newer) == CONNECTORS["4.2"]


@pytest.mark.parametrize("unknown", ["3.5.9", "4.4.0", "5.0.0", "4"])
def test_an_unknown_minor_line_is_one_sentence_that_says_which_are_known(unknown: str) -> None:
    with pytest.raises(NoConnectorError) as raised:
        connector_version(unknown)
    assert str(raised.value) == (
        f"no Kafka connector is known to run with PySpark {unknown}: install PySpark 4.0, 4.1, 4.2, 4.3, "
        "as pip install 'fencepost[spark]' does"
    )


def test_the_extra_takes_exactly_the_minor_lines_that_have_a_connector() -> None:
    (extra,) = re.findall(r'"pyspark>=([\d.]+),<([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    lines = [tuple(map(int, line.split("."))) for line in CONNECTORS]
    first, after = ([int(part) for part in bound.split(".")][:2] for bound in extra)
    assert lines == [(4, minor) for minor in range(first[1], after[1])]


def test_the_installed_version_is_the_locked_one() -> None:
    assert pyspark.__version__ == pins("demo")["pyspark"]


def test_a_pyspark_without_jars_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '4.2.0'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyspark")
    with pytest.raises(FileNotFoundError, match=f"no Spark jars in {tmp_path}"):
        kafka_connector()


def test_no_version_of_the_connector_is_written_down_anywhere() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("broker", "docker", "docs", "fencepost", "scripts", "tests", ".")
        for path in (ROOT.glob("*.*") if folder == "." else (ROOT / folder).rglob("*"))
        if path.is_file() and path.suffix in {".py", ".md", ".yaml", ".toml", ".sh", ".xml"} | {".Dockerfile", ""}
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if CONNECTOR_WITH_VERSION.search(line) and path.name != "CHANGELOG.md"
    ]
    assert found == []


def test_the_ivy_settings_are_installed_with_the_package() -> None:
    assert IVY_SETTINGS.is_file()
    assert "central" in IVY_SETTINGS.read_text()
