"""The Spark that a user installs, and the connector that belongs to it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pyspark
import pytest

from fencepost.spark import IVY_SETTINGS, kafka_connector
from tests.support.locks import ROOT, pins

CONNECTOR_WITH_VERSION = re.compile(r"spark-sql-kafka-0-10_[\d.]+:\d")


def test_the_connector_is_of_the_installed_version_and_its_scala() -> None:
    assert re.fullmatch(rf"org\.apache\.spark:spark-sql-kafka-0-10_2\.\d+:{pyspark.__version__}", kafka_connector())
    scala = kafka_connector().split("_")[1].split(":")[0]
    assert list((Path(pyspark.__file__).parent / "jars").glob(f"spark-core_{scala}-*.jar"))


def test_the_installed_version_is_the_locked_one() -> None:
    assert pyspark.__version__ == pins("demo")["pyspark"]


def test_a_pyspark_without_jars_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '9'\n")
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
