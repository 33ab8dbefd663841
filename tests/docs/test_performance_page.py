"""docs/performance.md says what the results say."""

from __future__ import annotations

import json
import re

from scripts.benchmarks.command import RESULTS_PATH
from scripts.benchmarks.page import PAGE_PATH, page
from scripts.benchmarks.table import FIGURES

REWRITE = "run `.venv/bin/python scripts/bench.py --page`"


def test_the_page_is_made_from_the_results() -> None:
    assert PAGE_PATH.read_text() == page(json.loads(RESULTS_PATH.read_text())), REWRITE


def test_every_figure_of_the_page_is_still_measured_and_has_its_picture() -> None:
    assert set(json.loads(RESULTS_PATH.read_text())["figures"]) <= set(FIGURES)
    pictures = re.findall(r"!\[.*\]\((.*)\)", PAGE_PATH.read_text())
    assert pictures
    assert all((PAGE_PATH.parent / picture).exists() for picture in pictures), REWRITE
