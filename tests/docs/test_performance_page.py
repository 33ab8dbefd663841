"""docs/performance.md and docs/performance/figures.md say what the results say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts.benchmarks.broker_process import ROOT
from scripts.benchmarks.command import RESULTS_PATH
from scripts.benchmarks.figures import DURABLE, DURABLE_REFERENCE, PAGE_CACHE, REFERENCE, Sample
from scripts.benchmarks.idempotence import CASES
from scripts.benchmarks.overview import (
    CONSUME,
    IN_PAGE_CACHE,
    MEMORY,
    OVERVIEW_PATH,
    PAIRS,
    PRODUCE,
    START,
    TRANSACTIONS_OF_ONE,
    Pair,
    Row,
    advantage,
    overview,
)
from scripts.benchmarks.page import PAGE_PATH, page
from scripts.benchmarks.pictures import sizes
from scripts.benchmarks.ratios import ratios
from scripts.benchmarks.results import as_json, summarize
from scripts.benchmarks.table import FIGURES

REWRITE = "run `.venv/bin/python scripts/bench.py --page`"


@pytest.mark.parametrize(("path", "write"), [(OVERVIEW_PATH, overview), (PAGE_PATH, page)], ids=["overview", "figures"])
def test_a_page_is_made_from_the_results(path: Path, write: Callable[[Any], str]) -> None:
    assert path.read_text() == write(json.loads(RESULTS_PATH.read_text())), REWRITE


@pytest.mark.parametrize("path", [OVERVIEW_PATH, PAGE_PATH], ids=["overview", "figures"])
def test_every_picture_of_a_page_is_there(path: Path) -> None:
    pictures = re.findall(r"!\[.*\]\((.*)\)", path.read_text())
    assert pictures
    assert all((path.parent / picture).exists() for picture in pictures), REWRITE


def test_every_figure_of_the_page_is_still_measured() -> None:
    assert set(json.loads(RESULTS_PATH.read_text())["figures"]) <= set(FIGURES)


def with_idempotent_producers(mb_per_s: dict[str, float]) -> str:
    """The overview with the MB/s of an idempotent producer with one request in flight, by subject."""
    results = [
        result
        for subject, value in mb_per_s.items()
        for result in summarize(FIGURES["idempotence"], subject, [[Sample("produce", value, "MB/s", str(CASES[0]))]])
    ]
    compared = ratios(FIGURES["idempotence"], results)
    content = json.loads(RESULTS_PATH.read_text())
    content["figures"].update(as_json(results, compared, where={}, passes={})["figures"])
    return " ".join(overview(content).split())


def test_the_overview_compares_the_same_promises_and_the_defaults() -> None:
    text = with_idempotent_producers({DURABLE: 40.0, PAGE_CACHE: 170.0, REFERENCE: 100.0, DURABLE_REFERENCE: 20.0})
    on_disk, in_page_cache, by_default = re.findall(r"\d\. \*\*(?:On|In|By).*?(?= \d\. )", text)
    sentence = "an idempotent producer with one request in flight {} times as fast"
    assert sentence.format("2") in on_disk
    assert sentence.format("1.7") in in_page_cache
    assert sentence.format("0.4") in by_default


def test_the_overview_says_with_figures_where_kafka_is_faster() -> None:
    behind = (
        "idempotent producer, 16 KB (defaults: Fencepost on disk, Kafka in the page cache): 100 MB/s beside 40 MB/s"
    )
    assert behind in with_idempotent_producers({DURABLE: 40.0, REFERENCE: 100.0})
    assert behind.partition(" (")[0] not in with_idempotent_producers({DURABLE: 170.0, REFERENCE: 100.0})


def test_the_readme_and_the_comparison_have_the_measured_figures() -> None:
    figures = json.loads(RESULTS_PATH.read_text())["figures"]

    def median(row: Row) -> float:
        (found,) = (
            result["median"]
            for result in figures[row.figure]["results"]
            if (result["quantity"], result["subject"]) == (row.quantity, DURABLE)
        )
        return float(found)

    def times(row: Row, pair: Pair) -> str:
        found = advantage(figures, row, pair)
        assert found is not None
        return f"{found if found > 1 else 1 / found:.2g}"

    readme = (ROOT / "README.md").read_text()
    on_disk, in_page_cache = ([times(row, pair) for row in (PRODUCE, TRANSACTIONS_OF_ONE)] for pair in PAIRS[:2])
    assert f"{on_disk[0]} times Apache Kafka's batches of 16 KB and {on_disk[1]} times its transactions" in readme
    assert (
        f"{in_page_cache[0]} and {in_page_cache[1]} times, and Kafka is read {times(CONSUME, IN_PAGE_CACHE)} times"
        in readme
    )
    assert f"one process, {median(MEMORY):.0f} MiB, {median(START):.1f} s to start" in readme
    comparison = (ROOT / "docs" / "comparison.md").read_text()
    assert f"{median(START):.1f} s to start, {median(MEMORY):.0f} MiB idle" in comparison
    assert f"about {median(MEMORY):.0f} MiB of memory" in (ROOT / "docs" / "capacity.md").read_text()


def test_what_is_measured_over_sizes_is_drawn_as_lines() -> None:
    figures = json.loads(RESULTS_PATH.read_text())["figures"]
    assert sizes(figures["growth-of-partitions"]["results"]) == {
        "10 partitions": 10,
        "100 partitions": 100,
        "1,000 partitions": 1_000,
        "10,000 partitions": 10_000,
    }
    assert not sizes(figures["transactions-by-size"]["results"])
