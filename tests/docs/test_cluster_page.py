"""docs/cluster.md and its appendix: the table of costs is that of the model, and defaults are those of the settings."""

from __future__ import annotations

import re

import pytest

from fencepost.broker.config import load_settings
from scripts.cluster_model import table
from tests.docs.code_blocks import DOCS

PAGE, APPENDIX = ((DOCS / name).read_text(encoding="utf-8") for name in ("cluster.md", "cluster-appendix.md"))
UNITS = {"s": 1000, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "day": 86_400_000}
DEFAULTS = re.findall(r"^\| `(fencepost\.[\w.]+)` \| (\d+) (\w+) \|", PAGE, re.MULTILINE)


def test_the_costs_are_those_of_the_model() -> None:
    assert table().strip() in APPENDIX


@pytest.mark.parametrize(("name", "number", "unit"), DEFAULTS, ids=[name for name, *_ in DEFAULTS])
def test_a_default_is_that_of_the_setting(name: str, number: str, unit: str) -> None:
    settings = load_settings(environment={}).settings
    assert getattr(settings, name.replace(".", "_")) == int(number) * UNITS[unit]


def test_what_the_cluster_costs_is_what_was_measured() -> None:
    table = PAGE.partition("## Costs and limits")[2].partition("\n\n- ")[0]
    figures = re.findall(
        r"\d+(?:\.\d+)? to \d+(?:\.\d+)?|\d+\.\d+", "".join(re.findall(r"^\| [a-z].*$", table, re.MULTILINE))
    )
    measured = (DOCS / "performance" / "cluster.md").read_text(encoding="utf-8")
    singles = [
        single for figure in figures for single in (figure.split(" to ") if figure not in measured else [figure])
    ]
    assert len(figures) >= 10
    assert [single for single in singles if single not in measured] == []


def test_the_page_shows_the_defaults_of_several_settings() -> None:
    assert len(DEFAULTS) == 7
