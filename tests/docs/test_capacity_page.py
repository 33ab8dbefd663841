"""docs/capacity.md: its figures are those of the results, as they were measured last."""

from __future__ import annotations

import json
import re

import pytest

from scripts.benchmarks.command import RESULTS_PATH
from scripts.benchmarks.figures import DURABLE

PAGE = (RESULTS_PATH.parents[1] / "capacity.md").read_text(encoding="utf-8")
FIGURES = json.loads(RESULTS_PATH.read_text())["figures"]
MIB = 2**20
TOLERANCE = 0.12
"""Part of a figure by which the page may round it."""


def measured(figure: str, case: str, quantity: str) -> float:
    (value,) = [
        float(result["median"])
        for result in FIGURES[figure]["results"]
        if (result["subject"], result["case"], result["quantity"]) == (DURABLE, case, quantity)
    ]
    return value


def growth_bytes(figure: str, smallest: str, largest: str) -> float:
    """Memory for each of what a figure grows by."""
    added = measured(figure, largest, "memory") - measured(figure, smallest, "memory")
    count = int(largest.partition(" ")[0].replace(",", "")) - int(smallest.partition(" ")[0].replace(",", ""))
    return added * MIB / count


ROWS = {
    r"\| partition, .* \| ([\d.]+) KB": measured("partitions", "20,000 partitions", "memory per partition"),
    r"\| connection without traffic \| ([\d.]+) KB": growth_bytes(
        "growth-of-connections", "1 connections", "5,000 connections"
    ),
    r"\| transactional id \| ([\d.]+) KB": growth_bytes(
        "growth-of-transactional-ids", "10 transactional ids", "100,000 transactional ids"
    ),
    r"\| open transaction \| ([\d.]+) KB": measured(
        "open-transactions", "10,000 open transactions", "memory per open transaction"
    ),
    r"\| idempotent producer of a partition \| ([\d.]+) KB": measured(
        "producer-ids", "100,000 producer ids in one partition", "memory per producer with one batch"
    ),
    r"\| idempotent producer of a partition \| [\d.]+ KB, ([\d.]+) KB": measured(
        "producer-ids", "100,000 producer ids in one partition", "memory per producer with five batches"
    ),
}
TIMES = (
    "Metadata of all answered after a clean stop",
    "Metadata of all answered after kill -9",
    "clean stop",
)


@pytest.mark.parametrize("pattern", ROWS)
def test_memory_is_what_was_measured(pattern: str) -> None:
    (said,) = re.findall(pattern, PAGE)
    assert float(said) * 1000 == pytest.approx(ROWS[pattern], rel=TOLERANCE)


def test_memory_without_work_is_what_was_measured() -> None:
    (said,) = re.findall(r"takes about (\d+) MiB of memory", PAGE)
    assert float(said) == pytest.approx(measured("footprint", "", "idle memory"), rel=TOLERANCE)


def test_times_of_starts_and_stops_are_what_was_measured() -> None:
    rows = re.findall(r"^\| ([\d,]+) \| ([\d.]+) s \| ([\d.]+) s \| ([\d.]+) s \|$", PAGE, re.MULTILINE)
    assert len(rows) == len({result["case"] for result in FIGURES["partitions"]["results"]})
    for count, *said in rows:
        for quantity, seconds in zip(TIMES, said, strict=True):
            assert float(seconds) == pytest.approx(
                measured("partitions", f"{count} partitions", quantity), rel=TOLERANCE
            )
